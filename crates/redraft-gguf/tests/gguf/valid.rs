//! Files that must be read: both versions, every value type, large headers, few bytes read.

use crate::writer::{ARRAY, BOOL, F32, File, STRING, U32, array, read, text};
use redraft_gguf::{Array, GgmlType, Gguf, ReadAt, ReadError, Value};
use std::cell::Cell;

#[test]
fn versions_2_and_3_give_the_same() {
    let mut file = File::model("llama");
    let three = read(&file.bytes()).unwrap();
    file.version = 2u32.to_le_bytes();
    let two = read(&file.bytes()).unwrap();
    assert_eq!((two.version, three.version), (2, 3));
    assert_eq!((&two.metadata, &two.tensors), (&three.metadata, &three.tensors));
}

#[test]
fn tensors_have_absolute_offsets_sizes_and_shapes() {
    let file = File::model("llama");
    let gguf = read(&file.bytes()).unwrap();
    assert_eq!(gguf.data_offset, (file.header().len() as u64).next_multiple_of(32));
    let first = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!((first.columns(), first.rows(), first.kind), (32, 5, GgmlType::F32));
    assert_eq!((first.offset, first.size), (gguf.data_offset, 32 * 5 * 4));
    let norm = gguf.tensor("output_norm.weight").unwrap();
    assert_eq!((norm.columns(), norm.rows()), (32, 1));
    assert_eq!((norm.offset, norm.size), (gguf.data_offset + 640, 128));
    assert!(gguf.tensor("blk.1.attn_q.weight").is_none());
}

#[test]
fn alignment_of_the_file_is_used() {
    let mut file = File { alignment: 4096, ..File::empty() };
    file.set_u32("general.alignment", 4096);
    file.push("a", &[3]);
    file.push("b", &[3]);
    let gguf = read(&file.bytes()).unwrap();
    assert_eq!((gguf.alignment, gguf.data_offset), (4096, 4096));
    assert_eq!(gguf.tensor("b").unwrap().offset, 8192);
}

#[test]
fn every_value_type_is_read_in_file_order() {
    let expected = [
        (0, vec![200], Value::U8(200)),
        (1, vec![200], Value::I8(-56)),
        (2, 60_000u16.to_le_bytes().to_vec(), Value::U16(60_000)),
        (3, (-2i16).to_le_bytes().to_vec(), Value::I16(-2)),
        (U32, 7u32.to_le_bytes().to_vec(), Value::U32(7)),
        (5, (-7i32).to_le_bytes().to_vec(), Value::I32(-7)),
        (F32, 0.5f32.to_le_bytes().to_vec(), Value::F32(0.5)),
        (BOOL, vec![1], Value::Bool(true)),
        (STRING, text("grüße"), Value::String("grüße".into())),
        (10, u64::MAX.to_le_bytes().to_vec(), Value::U64(u64::MAX)),
        (11, i64::MIN.to_le_bytes().to_vec(), Value::I64(i64::MIN)),
        (12, 0.1f64.to_le_bytes().to_vec(), Value::F64(0.1)),
        (ARRAY, array(0, 2, &[1, 2]), Value::Array(Array::U8(vec![1, 2]))),
        (ARRAY, array(1, 1, &[255]), Value::Array(Array::I8(vec![-1]))),
        (ARRAY, array(2, 1, &[1, 1]), Value::Array(Array::U16(vec![257]))),
        (ARRAY, array(3, 1, &[255, 255]), Value::Array(Array::I16(vec![-1]))),
        (ARRAY, array(U32, 0, &[]), Value::Array(Array::U32(vec![]))),
        (ARRAY, array(5, 1, &(-9i32).to_le_bytes()), Value::Array(Array::I32(vec![-9]))),
        (ARRAY, array(F32, 1, &2f32.to_le_bytes()), Value::Array(Array::F32(vec![2.0]))),
        (ARRAY, array(BOOL, 2, &[0, 1]), Value::Array(Array::Bool(vec![false, true]))),
        (
            ARRAY,
            array(STRING, 2, &[text(""), text("x")].concat()),
            Value::Array(Array::String(vec![String::new(), "x".into()])),
        ),
        (ARRAY, array(10, 1, &9u64.to_le_bytes()), Value::Array(Array::U64(vec![9]))),
        (ARRAY, array(11, 1, &9i64.to_le_bytes()), Value::Array(Array::I64(vec![9]))),
        (ARRAY, array(12, 1, &9f64.to_le_bytes()), Value::Array(Array::F64(vec![9.0]))),
    ];
    let mut file = File::empty();
    for (number, (kind, payload, _)) in expected.iter().enumerate() {
        file.set(&format!("key.{number}"), *kind, payload.clone());
    }
    let gguf = read(&file.bytes()).unwrap();
    assert_eq!(gguf.metadata.len(), expected.len());
    for (number, ((key, value), (_, _, wanted))) in gguf.metadata.iter().zip(&expected).enumerate() {
        assert_eq!((key, value), (format!("key.{number}").as_str(), wanted));
    }
}

/// Counts the bytes asked for, and the largest single read, in a source whose tensor data is not there at all.
struct Watched {
    header: Vec<u8>,
    size: u64,
    total: Cell<usize>,
    largest: Cell<usize>,
}

impl ReadAt for Watched {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.total.set(self.total.get() + into.len());
        self.largest.set(self.largest.get().max(into.len()));
        into.fill(0);
        let from = usize::try_from(offset).unwrap().min(self.header.len());
        let count = into.len().min(self.header.len() - from);
        into[..count].copy_from_slice(&self.header[from..from + count]);
        Ok(())
    }
}

#[test]
fn large_headers_cross_the_window_and_tensor_data_is_not_read() {
    // About 4 MB of strings and 2 MB of numbers, then a tensor of 64 GiB.
    let words: Vec<String> = (0..300_000).map(|number| format!("t{number}")).collect();
    let payload: Vec<u8> = words.iter().flat_map(|word| text(word)).collect();
    let scores: Vec<f32> = (0..500_001u32).map(|number| number as f32).collect();
    let score_bytes: Vec<u8> = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
    let mut file = File::empty();
    file.set("tokens", ARRAY, array(STRING, 300_000, &payload));
    file.set("scores", ARRAY, array(F32, scores.len() as u64, &score_bytes));
    file.set("long", STRING, text(&"x".repeat(3 << 20)));
    file.push("small", &[1]);
    file.tensor("small").dims = vec![1 << 34];
    let header = file.header();

    let length = header.len();
    let size = (length as u64).next_multiple_of(32) + (4 << 34);
    let source = Watched { header, size, total: Cell::new(0), largest: Cell::new(0) };
    let gguf = pollster::block_on(Gguf::read(&source)).unwrap();
    assert_eq!(gguf.metadata.strings("tokens").unwrap().unwrap(), words);
    assert_eq!(gguf.metadata.f32s("scores").unwrap().unwrap(), scores);
    assert_eq!(gguf.metadata.str("long").unwrap().unwrap().len(), 3 << 20);
    assert_eq!(gguf.tensor("small").unwrap().size, 4 << 34);
    assert!(source.largest.get() <= 1 << 20, "a read of {} bytes", source.largest.get());
    assert!(source.total.get() < length + (3 << 20), "{} bytes read", source.total.get());
}

#[test]
fn types_known_by_name_can_be_listed() {
    let mut file = File::empty();
    file.push("a", &[256]);
    file.tensor("a").kind = 10;
    let gguf = read(&file.bytes()).unwrap();
    let tensor = gguf.tensor("a").unwrap();
    assert_eq!((tensor.kind, tensor.size), (GgmlType::Q2K, 84));
    assert_eq!(tensor.kind.to_string(), "Q2_K");
}
