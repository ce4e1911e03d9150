//! Files that lie. Each is a small valid model with one thing wrong, and must end in an error of the right kind
//! that names the field.

use crate::writer::{ARRAY, BOOL, F32, File, STRING, Tensor, U32, array, load, read, text};
use proptest::prelude::*;
use redraft_gguf::GgufError;

/// The name of an error's variant.
fn kind(error: &GgufError) -> &'static str {
    match error {
        GgufError::Read { .. } => "Read",
        GgufError::NotGguf { .. } => "NotGguf",
        GgufError::BigEndian => "BigEndian",
        GgufError::Version { .. } => "Version",
        GgufError::Truncated { .. } => "Truncated",
        GgufError::Limit { .. } => "Limit",
        GgufError::Invalid { .. } => "Invalid",
        GgufError::Duplicate { .. } => "Duplicate",
        GgufError::ValueType { .. } => "ValueType",
        GgufError::Overlap { .. } => "Overlap",
        GgufError::Missing { .. } => "Missing",
        GgufError::Shape { .. } => "Shape",
        GgufError::TensorType { .. } => "TensorType",
        GgufError::Architecture { .. } => "Architecture",
        _ => "unknown",
    }
}

/// What is wrong with the file; the kind of the error; words of its message.
type Case = (fn(&mut File), &'static str, &'static [&'static str]);

/// Runs every case and reports all that fail.
fn run(cases: &[Case]) {
    let mut failures = Vec::new();
    for (number, (spoil, wanted, words)) in cases.iter().enumerate() {
        let mut file = File::model("llama");
        spoil(&mut file);
        match load(&file.bytes()) {
            Ok(_) => failures.push(format!("case {number} ({wanted}, {words:?}) was accepted")),
            Err(error) => {
                let message = error.to_string();
                if kind(&error) != *wanted || !words.iter().all(|word| message.contains(word)) {
                    failures.push(format!(
                        "case {number}: wanted {wanted} {words:?}, got {}: {message}",
                        kind(&error)
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn lying_headers() {
    run(&[
        (|f| f.magic = *b"GGML", "NotGguf", &["magic"]),
        (|f| f.magic = *b"FUGG", "BigEndian", &["big-endian"]),
        (|f| f.version = 3u32.to_be_bytes(), "BigEndian", &["big-endian"]),
        (|f| f.version = 1u32.to_le_bytes(), "Version", &["version", "found 1"]),
        (|f| f.version = 4u32.to_le_bytes(), "Version", &["version", "found 4"]),
        (|f| f.version = [0; 4], "Version", &["version", "found 0"]),
        (|f| f.more_tensors = 1 << 62, "Limit", &["tensor count"]),
        (|f| f.more_tensors = 900_000, "Truncated", &["tensor count"]),
        (|f| f.more_tensors = 1, "Invalid", &["tensor", "dimensions"]),
        (|f| f.more_entries = u64::MAX / 2, "Limit", &["metadata count"]),
        (|f| f.more_entries = 900_000, "Truncated", &["metadata count"]),
        (|f| f.set_u32("general.alignment", 0), "Invalid", &["general.alignment", "power of two"]),
        (|f| f.set_u32("general.alignment", 48), "Invalid", &["general.alignment", "48"]),
        (|f| f.set_f32("general.alignment", 32.0), "ValueType", &["general.alignment", "f32"]),
        // The first tensor's offset of 0 is aligned to anything, the second's is not.
        (
            |f| f.set_u32("general.alignment", 1 << 31),
            "Invalid",
            &["output_norm.weight", "aligned to 2147483648"],
        ),
    ]);
}

#[test]
fn lying_metadata() {
    run(&[
        (|f| f.set("k", STRING, u64::MAX.to_le_bytes().to_vec()), "Limit", &["k", "string"]),
        (|f| f.set("k", STRING, (60u64 << 20).to_le_bytes().to_vec()), "Truncated", &["k", "needs 62914560"]),
        (|f| f.set("k", STRING, vec![2, 0, 0, 0, 0, 0, 0, 0, b'a', 0xff]), "Invalid", &["k", "UTF-8"]),
        (|f| f.entries[0].key = vec![b'k'; 70_000], "Limit", &["metadata key 0", "65535"]),
        (|f| f.entries[0].key = vec![0xff, 0xfe], "Invalid", &["metadata key 0", "UTF-8"]),
        (|f| f.set("k", 13, vec![]), "Invalid", &["k", "value type", "13"]),
        (|f| f.set("k", u32::MAX, vec![]), "Invalid", &["k", "value type"]),
        (|f| f.set("k", BOOL, vec![2]), "Invalid", &["k", "boolean"]),
        (|f| f.set("k", ARRAY, array(BOOL, 2, &[1, 3])), "Invalid", &["k", "boolean", "3"]),
        (|f| f.set("k", ARRAY, array(99, 1, &[0])), "Invalid", &["k", "array element type", "99"]),
        (|f| f.set("k", ARRAY, array(ARRAY, 1, &array(0, 0, &[]))), "Invalid", &["k", "array of arrays"]),
        (|f| f.set("k", ARRAY, array(0, u64::MAX, &[])), "Truncated", &["k"]),
        (|f| f.set("k", ARRAY, array(12, 1 << 61, &[])), "Truncated", &["k"]),
        (|f| f.set("k", ARRAY, array(STRING, 1 << 40, &[])), "Truncated", &["k"]),
        (
            |f| f.set("k", ARRAY, array(STRING, 2, &[text("a"), u64::MAX.to_le_bytes().to_vec()].concat())),
            "Limit",
            &["k"],
        ),
        (|f| f.entries.push(f.entries[1].clone()), "Duplicate", &["metadata key", "llama.block_count"]),
    ]);
}

#[test]
fn lying_tensors() {
    run(&[
        (|f| f.tensors[0].dim_count = 0, "Invalid", &["token_embd.weight", "1 to 4 dimensions"]),
        (|f| f.tensors[0].dim_count = 5, "Invalid", &["token_embd.weight", "1 to 4 dimensions", "5"]),
        (|f| f.tensors[0].dim_count = u32::MAX, "Invalid", &["token_embd.weight", "dimensions"]),
        (|f| f.tensors[0].dims = vec![32, 0], "Invalid", &["token_embd.weight", "at least 1"]),
        (|f| f.tensors[0].dims = vec![1 << 40, 1 << 40], "Invalid", &["token_embd.weight", "64 bits"]),
        (|f| f.tensors[0].dims = vec![1 << 62, 2], "Invalid", &["token_embd.weight", "64 bits"]),
        (|f| f.tensors[0].dims = vec![1 << 40, 32], "Truncated", &["token_embd.weight"]),
        (|f| f.tensors[0].kind = 4, "Invalid", &["token_embd.weight", "type number 4"]),
        (|f| f.tensors[0].kind = 1000, "Invalid", &["token_embd.weight", "1000"]),
        (|f| f.tensors[0].kind = 12, "Invalid", &["token_embd.weight", "multiple of 256", "Q4_K"]),
        (|f| f.tensors[0].offset = 7, "Invalid", &["token_embd.weight", "aligned to 32", "7"]),
        (|f| f.tensors[0].offset = u64::MAX - 31, "Truncated", &["token_embd.weight"]),
        (|f| f.tensors[0].offset = 1 << 40, "Truncated", &["token_embd.weight"]),
        (|f| f.data_bytes -= 4, "Truncated", &["data of tensor", "blk.0.ffn_down.weight"]),
        (|f| f.tensors[1].offset = 0, "Overlap", &["token_embd.weight", "output_norm.weight"]),
        (|f| f.tensors[1].offset = 608, "Overlap", &["token_embd.weight", "output_norm.weight"]),
        (
            |f| f.tensors[1].name = b"token_embd.weight".to_vec(),
            "Duplicate",
            &["tensor name", "token_embd.weight"],
        ),
        (|f| f.tensors[1].name = vec![b'n'; 257], "Limit", &["name of tensor 1", "256"]),
        (|f| f.tensors[1].name = vec![0xc0], "Invalid", &["name of tensor 1", "UTF-8"]),
    ]);
}

#[test]
fn models_that_do_not_hang_together() {
    run(&[
        (|f| f.unset("general.architecture"), "Missing", &["general.architecture"]),
        (
            |f| f.set("general.architecture", STRING, text("mamba")),
            "Architecture",
            &["mamba", "llama, qwen2"],
        ),
        (|f| f.set_u32("general.architecture", 1), "ValueType", &["general.architecture", "string"]),
        (|f| f.unset("llama.block_count"), "Missing", &["llama.block_count"]),
        (|f| f.set_u32("llama.block_count", 0), "Invalid", &["llama.block_count"]),
        (|f| f.set_u32("llama.block_count", 2), "Missing", &["blk.1.attn_norm.weight"]),
        (|f| f.set_u32("llama.block_count", 1025), "Limit", &["llama.block_count", "1024"]),
        (|f| f.set("llama.block_count", STRING, text("1")), "ValueType", &["llama.block_count", "string"]),
        (
            |f| f.set("llama.block_count", 5, (-1i32).to_le_bytes().to_vec()),
            "ValueType",
            &["llama.block_count", "-1"],
        ),
        (
            |f| f.set("llama.embedding_length", 10, (1u64 << 40).to_le_bytes().to_vec()),
            "ValueType",
            &["llama.embedding_length"],
        ),
        (|f| f.set_u32("llama.embedding_length", u32::MAX), "Limit", &["llama.embedding_length"]),
        (
            |f| f.set_u32("llama.embedding_length", 33),
            "Invalid",
            &["llama.embedding_length", "multiple of 32"],
        ),
        (|f| f.set_u32("llama.embedding_length", 64), "Shape", &["token_embd.weight", "[64, 5]", "[32, 5]"]),
        (|f| f.set_u32("llama.feed_forward_length", 48), "Invalid", &["llama.feed_forward_length"]),
        (|f| f.set_u32("llama.feed_forward_length", 96), "Shape", &["blk.0.ffn_gate.weight"]),
        (|f| f.set_u32("llama.attention.head_count", 0), "Invalid", &["llama.attention.head_count"]),
        (|f| f.set_u32("llama.attention.head_count", 3), "Invalid", &["llama.attention.head_count"]),
        (|f| f.set_u32("llama.attention.head_count", 32), "Invalid", &["llama.attention.key_length", "even"]),
        (
            |f| f.set("llama.attention.head_count", ARRAY, array(U32, 1, &[2, 0, 0, 0])),
            "ValueType",
            &["llama.attention.head_count", "array of u32"],
        ),
        (|f| f.set_u32("llama.attention.head_count_kv", 0), "Invalid", &["llama.attention.head_count_kv"]),
        (
            |f| f.set_u32("llama.attention.head_count_kv", 3),
            "Invalid",
            &["llama.attention.head_count_kv", "divisor"],
        ),
        (|f| f.set_u32("llama.attention.head_count_kv", 2), "Shape", &["blk.0.attn_k.weight"]),
        (
            |f| f.set_u32("llama.attention.key_length", 18),
            "Invalid",
            &["llama.attention.key_length", "2 times 18"],
        ),
        (|f| f.set_u32("llama.attention.value_length", 8), "Invalid", &["llama.attention.value_length"]),
        (
            |f| f.set_f32("llama.attention.layer_norm_rms_epsilon", f32::NAN),
            "Invalid",
            &["rms_epsilon", "NaN"],
        ),
        (|f| f.set_f32("llama.attention.layer_norm_rms_epsilon", -1.0), "Invalid", &["rms_epsilon", "-1"]),
        (|f| f.unset("llama.attention.layer_norm_rms_epsilon"), "Missing", &["rms_epsilon"]),
        (|f| f.set_f32("llama.rope.freq_base", f32::INFINITY), "Invalid", &["llama.rope.freq_base", "inf"]),
        (|f| f.set_f32("llama.rope.freq_base", 0.0), "Invalid", &["llama.rope.freq_base"]),
        (|f| f.set_u32("llama.rope.dimension_count", 15), "Invalid", &["llama.rope.dimension_count", "even"]),
        (|f| f.set_u32("llama.rope.dimension_count", 18), "Invalid", &["llama.rope.dimension_count", "16"]),
        (
            |f| f.set("llama.rope.scaling.type", STRING, text("yarn")),
            "Invalid",
            &["llama.rope.scaling.type", "yarn"],
        ),
        (|f| f.set_f32("llama.rope.scaling.factor", -2.0), "Invalid", &["llama.rope.scaling.factor"]),
        (|f| f.set_u32("llama.context_length", 0), "Invalid", &["llama.context_length"]),
        (|f| f.set_u32("llama.context_length", u32::MAX), "Limit", &["llama.context_length"]),
        (|f| f.remove("token_embd.weight"), "Missing", &["token_embd.weight"]),
        (|f| f.remove("output_norm.weight"), "Missing", &["output_norm.weight"]),
        (|f| f.remove("blk.0.ffn_up.weight"), "Missing", &["blk.0.ffn_up.weight"]),
        (|f| f.push("blk.0.attn_q.bias", &[32]), "Missing", &["blk.0.attn_k.bias"]),
        (|f| f.push("blk.1.attn_q.weight", &[32, 32]), "Invalid", &["blk.1.attn_q.weight"]),
        (|f| f.push("blk.0.attn_output.bias", &[32]), "Invalid", &["blk.0.attn_output.bias"]),
        (|f| f.push("output.weight", &[32, 6]), "Shape", &["output.weight"]),
        (|f| f.push("rope_freqs.weight", &[16]), "Shape", &["rope_freqs.weight"]),
        (
            |f| {
                f.push("rope_freqs.weight", &[8]);
                f.tensor("rope_freqs.weight").kind = 1;
            },
            "Invalid",
            &["rope_freqs.weight", "F32"],
        ),
        (|f| f.tensor("blk.0.attn_q.weight").kind = 9, "TensorType", &["blk.0.attn_q.weight", "Q8_1"]),
        (
            |f| {
                f.tensor("blk.0.attn_q.weight").dims = vec![32, 16, 2];
                f.tensor("blk.0.attn_q.weight").dim_count = 3;
            },
            "Shape",
            &["blk.0.attn_q.weight", "[32, 16, 2]"],
        ),
        (
            |f| f.set("tokenizer.ggml.tokens", ARRAY, array(F32, 0, &[])),
            "ValueType",
            &["tokenizer.ggml.tokens"],
        ),
        (
            |f| f.set("tokenizer.ggml.tokens", ARRAY, array(STRING, 6, &text("t").repeat(6))),
            "Invalid",
            &["tokenizer.ggml.tokens", "6"],
        ),
        (
            |f| {
                // Single bytes, so that the file is not too large for a test.
                let rows = (1 << 22) + 1;
                f.remove("token_embd.weight");
                f.data_bytes = f.data_bytes.next_multiple_of(32);
                let offset = f.data_bytes as u64;
                f.data_bytes += usize::try_from(rows).unwrap();
                let name = b"token_embd.weight".to_vec();
                f.tensors.push(Tensor { name, dims: vec![1, rows], dim_count: 2, kind: 24, offset });
            },
            "Limit",
            &["token_embd.weight", "4194304"],
        ),
    ]);
}

#[test]
fn a_qwen2_without_biases_is_refused() {
    let mut file = File::model("qwen2");
    file.remove("blk.0.attn_v.bias");
    let error = load(&file.bytes()).unwrap_err();
    assert_eq!(kind(&error), "Missing");
    assert!(error.to_string().contains("blk.0.attn_v.bias"), "{error}");
}

#[test]
fn a_file_cut_anywhere_is_truncated_and_says_where() {
    let file = File::model("llama");
    let (header, bytes) = (file.header().len(), file.bytes());
    for length in (0..header).chain([header, header + 1, bytes.len() - 1]) {
        let error = read(&bytes[..length].to_vec()).unwrap_err();
        let GgufError::Truncated { field, offset, needed, available } = &error else {
            panic!("cut at {length}: {error}");
        };
        assert!(!field.is_empty() && needed > available, "cut at {length}: {error}");
        assert!(*offset <= bytes.len() as u64, "cut at {length}: {error}");
    }
    for (length, word) in [(3, "magic"), (6, "version"), (12, "tensor count"), (20, "metadata count")] {
        let message = read(&bytes[..length].to_vec()).unwrap_err().to_string();
        assert!(message.contains(word), "cut at {length}: {message}");
    }
}

#[test]
fn a_source_that_fails_is_reported_with_the_field() {
    struct Broken;
    impl redraft_gguf::ReadAt for Broken {
        fn size(&self) -> u64 {
            1 << 30
        }
        async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), redraft_gguf::ReadError> {
            let source = std::io::Error::other("connection lost");
            Err(redraft_gguf::ReadError::Io { offset, length: into.len() as u64, source })
        }
    }
    let error = pollster::block_on(redraft_gguf::Gguf::read(&Broken)).unwrap_err();
    assert_eq!(kind(&error), "Read");
    assert!(error.to_string().contains("magic") && error.to_string().contains("connection lost"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done to the bytes, the answer is a value or an error.
    #[test]
    fn flipped_and_cut_files_never_panic(
        flips in prop::collection::vec((0usize..1400, any::<u8>()), 1..6),
        cut in prop::option::of(0usize..40_000),
    ) {
        let mut bytes = File::model("llama").bytes();
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        let _ = load(&bytes);
    }

    /// Words of eight bytes at the places where lengths and counts are: the numbers that overflow.
    #[test]
    fn absurd_lengths_never_panic(
        at in 8usize..1400,
        value in prop::sample::select(vec![0, 1, u64::MAX, u64::MAX - 7, 1 << 63, 1 << 32, (1 << 32) - 1, 1 << 20]),
    ) {
        let mut bytes = File::model("llama").bytes();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let _ = load(&bytes);
    }
}
