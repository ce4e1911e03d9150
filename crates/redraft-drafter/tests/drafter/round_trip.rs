//! What is written is read back, and written again to the same bytes.

use crate::writer::File;
use redraft_drafter::{DrafterFile, Quantization};
use redraft_gguf::GgmlType;
use redraft_testing::TinyDrafter;

fn drafters() -> Vec<(&'static str, TinyDrafter)> {
    let plain = TinyDrafter::default();
    let all = TinyDrafter::with_everything;
    vec![
        ("plain", plain.clone()),
        ("no pass embedding", TinyDrafter { pass_embedding: false, ..plain.clone() }),
        ("no fingerprint", TinyDrafter { fingerprint: false, ..plain.clone() }),
        ("all tokens", TinyDrafter { draft_vocab: 320, ..plain.clone() }),
        ("everything", all()),
        ("f16", TinyDrafter { kind: GgmlType::F16, ..all() }),
        ("bf16", TinyDrafter { kind: GgmlType::BF16, ..all() }),
        ("q8_0", TinyDrafter { kind: GgmlType::Q8_0, ..all() }),
        ("q4_1", TinyDrafter { kind: GgmlType::Q4_1, ..all() }),
    ]
}

#[test]
fn drafters_are_read_as_they_were_written() {
    for (what, tiny) in drafters() {
        let file = tiny.to_file().unwrap();
        let bytes = file.write();
        let read = DrafterFile::read(&bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(read, file, "{what}");
        assert!(read.write() == bytes, "{what}: the same bytes");
        assert_eq!(DrafterFile::new(file.clone().into_parts()).unwrap(), file, "{what}: parts");
        assert_eq!(read.draft_ids().len(), tiny.draft_vocab, "{what}");
        assert_eq!(read.tensor("fc.weight").unwrap().kind, tiny.kind, "{what}");
    }
}

/// The order of tensors and an unaligned header are the writer's business.
#[test]
fn files_of_other_writers_are_the_same_drafter() {
    let file = TinyDrafter::with_everything().to_file().unwrap();
    let mut other = File::everything();
    other.tensors.reverse();
    assert_eq!(other.read().unwrap(), file);
}

#[test]
fn tensors_are_aligned() {
    for (what, tiny) in drafters() {
        let bytes = tiny.to_file().unwrap().write();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(header % 8, 0, "{what}");
        let mut at = 8 + header;
        for tensor in File::take_apart(&bytes).tensors {
            let width = match tensor.dtype.as_str() {
                "I64" => 8,
                "F32" => 4,
                "F16" | "BF16" => 2,
                _ => 1,
            };
            assert_eq!(at % width, 0, "{what}: {}", tensor.name);
            at += tensor.bytes.len() as u64;
        }
    }
}

#[test]
fn offsets_become_tokens() {
    let tiny = TinyDrafter::default();
    let mut file = File::take_apart(&tiny.to_file().unwrap().write());
    let ids = tiny.draft_ids();
    assert!(ids.is_sorted_by(|a, b| a < b) && ids.len() == 160 && ids[159] < 320, "{ids:?}");
    let offsets: Vec<i64> =
        file.tensor("d2t").bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
    for (row, (id, offset)) in (0..).zip(ids.iter().zip(&offsets)) {
        assert_eq!(i64::from(*id), row + offset, "row {row}");
    }
    assert_eq!(file.read().unwrap().draft_ids(), ids);
    // Without a map every token has its own row.
    let all = TinyDrafter { draft_vocab: 320, ..tiny }.to_file().unwrap();
    assert_eq!(all.draft_ids(), (0..320).collect::<Vec<_>>());
    assert!(!File::take_apart(&all.write()).tensors.iter().any(|tensor| tensor.name == "d2t"));
}

#[test]
fn quantised_drafters_are_smaller_and_read_back() {
    let file = TinyDrafter::with_everything().to_file().unwrap();
    let mut last = usize::MAX;
    for quantization in [Quantization::F32, Quantization::F16, Quantization::Q8_0, Quantization::Q4_0] {
        let small = file.quantized(quantization).unwrap();
        let bytes = small.write();
        assert_eq!(DrafterFile::read(&bytes).unwrap(), small, "{quantization:?}");
        assert!(bytes.len() < last, "{quantization:?} takes {} bytes", bytes.len());
        last = bytes.len();
        assert_eq!(small.tensor("lm_head.weight").unwrap().kind, quantization.kind());
        assert_eq!(small.tensor("norm.weight"), file.tensor("norm.weight"), "norms stay");
        assert_eq!(small.reconsider(), file.reconsider(), "tables stay");
    }
}
