//! Files that lie. Each is a valid drafter with one thing wrong, and must end in an error of the right kind that names
//! the field.

use crate::writer::File;
use proptest::prelude::*;
use redraft_drafter::{DrafterError, DrafterFile};
use serde_json::json;

/// The name of an error's variant.
fn kind(error: &DrafterError) -> &'static str {
    match error {
        DrafterError::Container { .. } => "Container",
        DrafterError::Json { .. } => "Json",
        DrafterError::Missing { .. } => "Missing",
        DrafterError::Invalid { .. } => "Invalid",
        DrafterError::Limit { .. } => "Limit",
        DrafterError::Shape { .. } => "Shape",
        DrafterError::Type { .. } => "Type",
        DrafterError::NotFinite { .. } => "NotFinite",
        DrafterError::Unknown { .. } => "Unknown",
        DrafterError::Target { .. } => "Target",
        DrafterError::Quantize { .. } => "Quantize",
        DrafterError::Blocks { .. } => "Blocks",
        _ => "other",
    }
}

/// What is wrong with the file; the kind of the error; words of its message.
type Case = (fn(&mut File), &'static str, &'static [&'static str]);

/// Runs every case and reports all that fail.
fn run(valid: fn() -> File, cases: &[Case]) {
    valid().read().expect("the file is valid before it is spoilt");
    let mut failures = Vec::new();
    for (number, (spoil, wanted, words)) in cases.iter().enumerate() {
        let mut file = valid();
        spoil(&mut file);
        match file.read() {
            Ok(_) => failures.push(format!("case {number} ({wanted}, {words:?}) was accepted")),
            Err(error) => {
                let message = error.to_string();
                if kind(&error) != *wanted || !words.iter().all(|word| message.contains(word)) {
                    let found = kind(&error);
                    failures
                        .push(format!("case {number}: wanted {wanted} {words:?}, got {found}: {message}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Sets an offset in the header.
macro_rules! offsets {
    ($name:literal, $from:expr, $to:expr) => {
        |f| f.header = |h| h[$name]["data_offsets"] = json!([$from, $to])
    };
}

#[test]
fn lying_containers() {
    run(
        File::everything,
        &[
            (|f| f.bytes = Vec::clear, "Container", &["header"]),
            (|f| f.bytes = |b| b.truncate(7), "Container", &["header"]),
            (|f| f.bytes = |b| b.truncate(100), "Container", &["header"]),
            (|f| f.bytes = |b| b.truncate(b.len() - 1), "Container", &["not fully covered"]),
            (|f| f.bytes = |b| b.push(0), "Container", &["not fully covered"]),
            (|f| f.bytes = |b| b[..8].fill(0xff), "Container", &["header"]),
            (|f| f.bytes = |b| b[..8].copy_from_slice(&(1u64 << 26).to_le_bytes()), "Container", &["header"]),
            (|f| f.bytes = |b| b[..8].fill(0), "Container", &["header"]),
            (|f| f.bytes = |b| b[8] = b'[', "Container", &["JSON"]),
            (|f| f.bytes = |b| b[20] = 0xff, "Container", &["UTF-8"]),
            (offsets!("fc.weight", 0, 1u64 << 40), "Container", &["fc.weight"]),
            (offsets!("fc.weight", u64::MAX - 1, u64::MAX), "Container", &["offset"]),
            (offsets!("norm.weight", 0, 384), "Container", &["offset"]),
            (offsets!("norm.weight", -1, 384), "Container", &["JSON"]),
            (|f| f.header = |h| h["norm.weight"]["shape"] = json!([u64::MAX, 8]), "Container", &["overflow"]),
            (|f| f.header = |h| h["norm.weight"]["shape"] = json!([97]), "Container", &["shape"]),
            (|f| f.header = |h| h["norm.weight"]["dtype"] = json!("F33"), "Container", &["F33"]),
            (|f| f.header = |h| h["__metadata__"] = json!({ "redraft": 1 }), "Container", &["JSON"]),
        ],
    );
}

#[test]
fn lying_metadata() {
    run(
        File::everything,
        &[
            (|f| f.own = None, "Missing", &["redraft", "config.json"]),
            (|f| f.own_text = Some("{".into()), "Json", &["redraft"]),
            (|f| f.own_text = Some("[".repeat(100_000)), "Json", &["redraft"]),
            (|f| f.own = Some(json!([])), "Invalid", &["redraft", "object"]),
            (|f| f.set(&["version"], json!(2)), "Invalid", &["redraft.version", "2"]),
            (|f| f.set(&["more"], json!(1)), "Invalid", &["redraft.more"]),
            (|f| f.set(&["config"], json!(null)), "Missing", &["redraft.config"]),
            (|f| f.set(&["config"], json!("x")), "Invalid", &["redraft.config", "object"]),
            (|f| f.set(&["config", "hidden"], json!(null)), "Missing", &["redraft.config.hidden"]),
            (|f| f.set(&["config", "hidden"], json!(-64)), "Invalid", &["redraft.config.hidden", "-64"]),
            (|f| f.set(&["config", "hidden"], json!(1u64 << 40)), "Invalid", &["redraft.config.hidden"]),
            (|f| f.set(&["config", "hidden"], json!(96.5)), "Invalid", &["redraft.config.hidden", "96.5"]),
            (|f| f.set(&["config", "width"], json!(1)), "Invalid", &["redraft.config.width"]),
            (|f| f.set(&["config", "hidden"], json!(0)), "Invalid", &["hidden", "at least 1"]),
            (|f| f.set(&["config", "hidden"], json!(1u32 << 31)), "Limit", &["hidden"]),
            (|f| f.set(&["config", "hidden"], json!(100)), "Invalid", &["hidden", "multiple of 32"]),
            (|f| f.set(&["config", "target_hidden"], json!(48)), "Invalid", &["target_hidden"]),
            (|f| f.set(&["config", "ffn"], json!(u32::MAX)), "Limit", &["ffn"]),
            (|f| f.set(&["config", "heads"], json!(0)), "Invalid", &["heads"]),
            (|f| f.set(&["config", "heads"], json!(7)), "Invalid", &["heads", "112"]),
            (|f| f.set(&["config", "kv_heads"], json!(4)), "Invalid", &["kv_heads", "divisor"]),
            (|f| f.set(&["config", "head_dim"], json!(u32::MAX)), "Limit", &["head_dim"]),
            (|f| f.set(&["config", "rms_eps"], json!(0)), "Invalid", &["rms_eps"]),
            (|f| f.set(&["config", "rms_eps"], json!("x")), "Invalid", &["rms_eps", "number"]),
            (|f| f.set(&["config", "rope_theta"], json!(1e300)), "Invalid", &["rope_theta", "finite"]),
            (|f| f.set(&["config", "rope_theta"], json!(0.5)), "Invalid", &["rope_theta"]),
            (|f| f.set(&["config", "draft_vocab"], json!(321)), "Invalid", &["draft_vocab", "320"]),
            (|f| f.set(&["config", "vocab"], json!(1u32 << 30)), "Limit", &["vocab"]),
            (|f| f.set(&["config", "capture_layers"], json!([1, 2])), "Invalid", &["capture_layers"]),
            (|f| f.set(&["config", "capture_layers"], json!([2, 1, 0])), "Invalid", &["capture_layers"]),
            (|f| f.set(&["config", "capture_layers"], json!([0, 1, 5000])), "Invalid", &["capture_layers"]),
            (|f| f.set(&["config", "norm_output"], json!(1)), "Invalid", &["norm_output", "true or false"]),
            (|f| f.set(&["types"], json!({ "lm_head.weight": "Q9" })), "Invalid", &["lm_head.weight", "Q9"]),
            (|f| f.set(&["types"], json!({ "lm_head.weight": "F16" })), "Invalid", &["lm_head.weight"]),
            (|f| f.set(&["types"], json!({ "lm_head.weight": "Q8_0" })), "Type", &["lm_head.weight", "U8"]),
            (|f| f.set(&["types"], json!({ "no.weight": "Q8_0" })), "Invalid", &["no.weight"]),
            (|f| f.set(&["reconsider", "gate_threshold"], json!(1.5)), "Invalid", &["gate_threshold"]),
            (|f| f.set(&["reconsider", "refined_offset"], json!(1e39)), "Invalid", &["refined_offset"]),
            (
                |f| f.set(&["reconsider", "refined_offset"], json!(-65.0)),
                "Invalid",
                &["refined_offset", "-64 to 64"],
            ),
            (|f| f.set(&["reconsider", "calibrated"], json!("yes")), "Invalid", &["calibrated"]),
        ],
    );
}

#[test]
fn lying_tensors() {
    run(
        File::everything,
        &[
            (|f| f.remove("fc.weight"), "Missing", &["fc.weight"]),
            (|f| f.remove("lm_head.weight"), "Missing", &["lm_head.weight"]),
            (|f| f.remove("midlayer.mlp.up_proj.weight"), "Missing", &["midlayer.mlp.up_proj.weight"]),
            (|f| f.remove("embed_tokens.weight"), "Missing", &["embed_tokens.weight", "width"]),
            (|f| f.remove("fc_norm.1.weight"), "Missing", &["fc_norm.1.weight"]),
            (|f| f.remove("d2t"), "Missing", &["d2t"]),
            (|f| f.tensors.clear(), "Missing", &["tensor"]),
            (|f| f.tensor("fc.weight").name = "fc.wait".into(), "Unknown", &["fc.wait"]),
            (|f| f.add("midlayer.self_attn.q_norm.weight", "F32", &[0], vec![]), "Unknown", &["q_norm"]),
            (|f| f.add("layers.1.mlp.up_proj.weight", "BF16", &[0], vec![]), "Unknown", &["layers.1"]),
            (|f| f.add("mask_hidden", "I32", &[1], vec![0; 4]), "Unknown", &["mask_hidden"]),
            (|f| f.add("model.norm.weight", "F32", &[96], vec![0; 384]), "Invalid", &["norm.weight", "two"]),
            (|f| f.add("model.d2t", "I64", &[0], vec![]), "Invalid", &["d2t", "two"]),
            (|f| f.set(&["config", "fc_norm"], json!(false)), "Unknown", &["fc_norm.0.weight"]),
            (|f| f.tensor("norm.weight").shape = vec![96, 1], "Shape", &["norm.weight", "[96, 1]"]),
            (|f| f.tensor("fc.weight").shape.reverse(), "Shape", &["fc.weight", "[96, 192]", "[192, 96]"]),
            (|f| f.set(&["config", "ffn"], json!(128)), "Shape", &["mlp.gate_proj", "[128, 96]"]),
            (|f| f.set(&["config", "heads"], json!(8)), "Shape", &["q_proj", "[128, 192]"]),
            (|f| f.tensor("norm.weight").dtype = "I32".into(), "Type", &["norm.weight", "I32"]),
            (
                |f| {
                    f.tensor("fc.weight").dtype = "U8".into();
                    f.tensor("fc.weight").shape = vec![96, 768];
                },
                "Type",
                &["fc.weight", "U8", "metadata"],
            ),
            (
                |f| {
                    f.tensor("fc.weight").dtype = "U8".into();
                    f.tensor("fc.weight").shape = vec![96, 768];
                    f.set(&["types"], json!({ "fc.weight": "Q8_0" }));
                },
                "Invalid",
                &["fc.weight", "Q8_0", "34"],
            ),
            (
                |f| {
                    f.tensor("norm.weight").dtype = "F64".into();
                    f.tensor("norm.weight").shape = vec![48];
                },
                "Type",
                &["norm.weight", "F64"],
            ),
            (|f| f.poke("fc.weight", 70, f32::NAN), "NotFinite", &["fc.weight", "70", "NaN"]),
            (|f| f.poke("norm.weight", 0, f32::INFINITY), "NotFinite", &["norm.weight", "inf"]),
            (|f| f.poke("embed_tokens.weight", 30_719, -f32::INFINITY), "NotFinite", &["embed", "30719"]),
            (|f| f.poke("reconsider.edges", 5, f32::NAN), "NotFinite", &["reconsider.edges"]),
            (|f| f.poke("reconsider.edges", 5, 0.5), "Invalid", &["reconsider.edges", "element 5", "0.5"]),
            (|f| f.poke("reconsider.lookup_edge", 1, 1.0), "Invalid", &["reconsider.lookup_edge"]),
            (|f| f.remove("reconsider.edges"), "Missing", &["reconsider.edges", "calibrated"]),
            (|f| f.remove("reconsider.log_gain"), "Missing", &["reconsider.log_gain", "calibrated"]),
            (|f| f.remove("reconsider.up.weight"), "Missing", &["reconsider.up.weight", "both"]),
            (|f| f.remove("reconsider.down.weight"), "Missing", &["reconsider.down.weight", "both"]),
            (
                |f| {
                    f.tensor("reconsider.down.weight").shape = vec![16, 192];
                    f.tensor("reconsider.down.weight").bytes.truncate(16 * 192 * 4);
                },
                "Invalid",
                &["rank", "reconsider.down.weight", "multiple of 32", "16"],
            ),
            (
                |f| {
                    f.tensor("reconsider.up.weight").shape = vec![96, 16, 2];
                },
                "Shape",
                &["reconsider.up.weight", "[96, 32]"],
            ),
            (|f| f.tensor("reconsider.down.weight").shape = vec![], "Container", &["shape"]),
            (|f| f.tensor("reconsider.lookup_edge").dtype = "I32".into(), "Type", &["lookup_edge"]),
            (|f| f.offset(0, -1), "Invalid", &["d2t[0]", "-1"]),
            (|f| f.offset(7, i64::MAX), "Invalid", &["d2t[7]", "320"]),
            (|f| f.offset(159, 320 - 159), "Invalid", &["d2t[159]", "320"]),
            (|f| f.offset(20, -20), "Invalid", &["d2t[20]", "ascending"]),
            (|f| f.tensor("d2t").dtype = "F64".into(), "Type", &["d2t", "I64"]),
            (
                |f| {
                    f.tensor("d2t").shape = vec![159];
                    f.tensor("d2t").bytes.truncate(159 * 8);
                },
                "Shape",
                &["d2t", "160", "159"],
            ),
        ],
    );
}

#[test]
fn fingerprints_of_another_shape() {
    run(
        File::everything,
        &[
            (|f| f.set(&["target"], json!(7)), "Invalid", &["redraft.target"]),
            (|f| f.set(&["target", "hidden"], json!(128)), "Invalid", &["target.hidden", "64", "128"]),
            (|f| f.set(&["target", "vocab"], json!(321)), "Invalid", &["target.vocab"]),
            (|f| f.set(&["target", "layers"], json!(1)), "Invalid", &["capture_layers", "1 layers"]),
            (|f| f.set(&["target", "layers"], json!(null)), "Missing", &["redraft.target.layers"]),
            (|f| f.set(&["target", "capture_layers"], json!([0, 1])), "Invalid", &["target.capture_layers"]),
            (
                |f| f.set(&["target", "capture_layers"], json!([0, 1, 3])),
                "Invalid",
                &["target.capture_layers"],
            ),
            (|f| f.set(&["target", "tokenizer"], json!("12ab")), "Invalid", &["target.tokenizer", "64"]),
            (|f| f.set(&["target", "tokenizer"], json!("É".repeat(32))), "Invalid", &["target.tokenizer"]),
            (|f| f.set(&["target", "architecture"], json!([])), "Invalid", &["target.architecture"]),
            (|f| f.set(&["target", "name"], json!("x")), "Invalid", &["redraft.target.name"]),
        ],
    );
}

#[test]
fn configurations_that_are_not_implemented() {
    run(
        File::checkpoint,
        &[
            (|f| f.config = Some(json!("x")), "Invalid", &["config.json", "object"]),
            (|f| f.configure("hidden_size", json!(null)), "Missing", &["config.json.hidden_size"]),
            (|f| f.configure("vocab_size", json!("many")), "Invalid", &["config.json.vocab_size", "many"]),
            (|f| f.configure("rms_norm_eps", json!(null)), "Missing", &["rms_norm_eps"]),
            (|f| f.configure("num_attention_heads", json!(7)), "Invalid", &["heads", "divisor"]),
            (
                |f| f.configure("norm_before_residual", json!(true)),
                "Invalid",
                &["norm_before_residual", "false"],
            ),
            (|f| f.configure("norm_before_fc", json!(true)), "Invalid", &["norm_before_fc"]),
            (|f| f.configure("num_hidden_layers", json!(2)), "Invalid", &["num_hidden_layers", "2"]),
            (|f| f.configure("hidden_act", json!("gelu")), "Invalid", &["hidden_act", "gelu"]),
            (|f| f.configure("attention_bias", json!(true)), "Invalid", &["attention_bias"]),
            (|f| f.configure("sliding_window", json!(2048)), "Invalid", &["sliding_window", "2048"]),
            (|f| f.configure("use_sliding_window", json!(true)), "Invalid", &["use_sliding_window"]),
            (
                |f| f.configure("rope_scaling", json!({ "rope_type": "yarn", "factor": 32.0 })),
                "Invalid",
                &["rope_scaling.rope_type", "yarn"],
            ),
            (
                |f| f.configure("eagle_config", json!({ "use_aux_hidden_state": false })),
                "Invalid",
                &["eagle_config.use_aux_hidden_state"],
            ),
            (
                |f| f.configure("eagle_aux_hidden_state_layer_ids", json!([1, 2, 3, 4])),
                "Invalid",
                &["eagle_aux_hidden_state_layer_ids", "three"],
            ),
            (
                |f| f.configure("transformer_layer_config", json!({ "norm_before_residual": true })),
                "Invalid",
                &["transformer_layer_config.norm_before_residual"],
            ),
            (|f| f.configure("fc_norm", json!(true)), "Missing", &["fc_norm.0.weight"]),
            (|f| f.configure("draft_vocab_size", json!(null)), "Shape", &["d2t", "320"]),
        ],
    );
    let error = DrafterFile::read_with_config(&File::checkpoint().to_bytes(), "{").unwrap_err();
    assert!(error.to_string().contains("config.json"), "{error}");
}

/// A small drafter, so that its header is a large part of it.
fn bytes() -> Vec<u8> {
    File::everything().to_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = bytes();
        // Half of the flips go to the header, which is where the lies are told.
        for (number, (at, to)) in flips.iter().enumerate() {
            let end = if number % 2 == 0 { 4096.min(bytes.len()) } else { bytes.len() };
            bytes[at.index(end)] = *to;
        }
        _ = DrafterFile::read(&bytes).map(|file| file.write());
    }

    #[test]
    fn cut_files_are_refused(cut in any::<prop::sample::Index>()) {
        let bytes = bytes();
        prop_assert!(DrafterFile::read(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(DrafterFile::read(&bytes).is_err());
    }

    #[test]
    fn random_numbers_in_the_configuration_never_panic(
        key in prop::sample::select(vec!["hidden", "target_hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "draft_vocab"]),
        value in any::<u32>(),
        shift in 0u32..32,
    ) {
        let mut file = File::everything();
        file.set(&["config", key], json!(value >> shift));
        _ = file.read();
    }
}
