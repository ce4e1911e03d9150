//! Drafters that go to other engines and come back.

use std::collections::BTreeMap;

use crate::writer::File;
use redraft_drafter::{DrafterError, DrafterFile, FloatType, GgufOptions, Quantization, Tensor};
use redraft_gguf::{Array, GgmlType, Gguf, GgufWriter, ModelConfig, ReadAt, Value, quantize};
use redraft_testing::{TinyDrafter, TinyModel};
use serde_json::json;

/// A target with a layer to spare: other engines do not take captures of the embeddings.
fn target() -> TinyModel {
    TinyModel { layers: 3, ..TinyModel::default() }
}

fn plain() -> TinyDrafter {
    TinyDrafter { target: target(), captures: [1, 2, 3], ..TinyDrafter::default() }
}

fn everything() -> TinyDrafter {
    TinyDrafter { target: target(), captures: [1, 2, 3], ..TinyDrafter::with_everything() }
}

fn gguf_of(bytes: &Vec<u8>) -> Gguf {
    pollster::block_on(Gguf::read(bytes)).unwrap()
}

fn read_gguf(bytes: &Vec<u8>) -> Result<DrafterFile, DrafterError> {
    pollster::block_on(DrafterFile::read_gguf(bytes))
}

/// The drafter without what only reconsideration needs.
fn first_pass(file: &DrafterFile) -> DrafterFile {
    let mut parts = file.clone().into_parts();
    parts.tensors.retain(|name, _| !name.starts_with("reconsider."));
    parts.reconsider = Default::default();
    DrafterFile::new(parts).unwrap()
}

fn cast(tensor: &Tensor, kind: GgmlType) -> Tensor {
    let bytes = quantize(kind, &tensor.to_f32().unwrap()).unwrap();
    Tensor { kind, dims: tensor.dims.clone(), bytes }
}

fn tensors(file: &DrafterFile, change: impl Fn(&str, &Tensor) -> Tensor) -> BTreeMap<String, Tensor> {
    file.tensors().map(|(name, tensor)| (name.to_owned(), change(name, tensor))).collect()
}

// ---- EAGLE-3 checkpoints ----

#[test]
fn checkpoints_come_back_with_every_bit_of_their_type() {
    let types =
        [(FloatType::F32, GgmlType::F32), (FloatType::F16, GgmlType::F16), (FloatType::BF16, GgmlType::BF16)];
    for tiny in [
        plain(),
        everything(),
        TinyDrafter { kind: GgmlType::Q8_0, ..everything() },
        TinyDrafter { draft_vocab: 320, ..plain() },
        TinyDrafter { fingerprint: false, ..plain() },
        TinyDrafter { rope_theta: 123_456.7, ..plain() },
    ] {
        let file = tiny.to_file().unwrap();
        for (dtype, kind) in types {
            let checkpoint = file.to_eagle(dtype).unwrap();
            let read = DrafterFile::read_with_config(&checkpoint.weights, &checkpoint.config_json).unwrap();
            assert_eq!(read.config(), file.config(), "{tiny:?}");
            assert_eq!(read.draft_ids(), file.draft_ids(), "{tiny:?}");
            assert_eq!(read.target(), file.target(), "{tiny:?}");
            let expected = tensors(&first_pass(&file), |_, tensor| cast(tensor, kind));
            assert_eq!(tensors(&read, |_, tensor| tensor.clone()), expected, "{dtype:?} of {tiny:?}");
        }
    }
}

#[test]
fn checkpoints_say_what_other_engines_ask_for() {
    let file = TinyDrafter { norm_output: true, ..everything() }.to_file().unwrap();
    let checkpoint = file.to_eagle(FloatType::BF16).unwrap();
    let config: serde_json::Value = serde_json::from_str(&checkpoint.config_json).unwrap();
    let expected = json!({
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 96,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "attention_bias": false,
        "mlp_bias": false,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 131_072,
        "vocab_size": 320,
        "draft_vocab_size": 160,
        "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
        "target_hidden_size": 64,
        "fc_norm": true,
        "norm_output": true,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        "eagle_config": { "eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": true },
    });
    assert_eq!(config, expected);
    // SGLang tells drafters with a width of their own by the presence of the key.
    let same = plain().to_file().unwrap().to_eagle(FloatType::F16).unwrap();
    let same: serde_json::Value = serde_json::from_str(&same.config_json).unwrap();
    for absent in ["target_hidden_size", "fc_norm", "norm_output"] {
        assert!(same.get(absent).is_none(), "{absent}");
    }

    let stored = File::take_apart(&checkpoint.weights);
    let mask = stored.tensors.iter().find(|tensor| tensor.name == "t2d").unwrap();
    assert_eq!((mask.dtype.as_str(), mask.bytes.len()), ("BOOL", 320));
    let members = (0..).zip(&mask.bytes).filter(|(_, member)| **member == 1).map(|(id, _)| id);
    assert_eq!(members.collect::<Vec<u32>>(), file.draft_ids());
    assert!(stored.tensors.iter().all(|tensor| !tensor.name.starts_with("reconsider.")));
    let left_out = [
        "reconsider.down.weight",
        "reconsider.edges",
        "reconsider.embedding",
        "reconsider.log_gain",
        "reconsider.lookup_edge",
        "reconsider.up.weight",
        "the settings of gate and merge",
    ];
    assert_eq!(checkpoint.left_out, left_out);
    let nothing = TinyDrafter { pass_embedding: false, ..plain() }.to_file().unwrap();
    assert_eq!(nothing.to_eagle(FloatType::F32).unwrap().left_out, [""; 0]);
}

#[test]
fn checkpoints_cannot_number_the_embeddings_and_f16_ends_at_65504() {
    let file = TinyDrafter::default().to_file().unwrap();
    let error = file.to_eagle(FloatType::F32).unwrap_err();
    assert!(matches!(error, DrafterError::Unrepresentable { .. }), "{error}");
    assert!(error.to_string().contains("embeddings"), "{error}");

    let mut parts = plain().to_file().unwrap().into_parts();
    let norm = Tensor::from_f32(GgmlType::F32, &[64], &[1e6; 64]).unwrap();
    parts.tensors.insert("norm.weight".into(), norm);
    let file = DrafterFile::new(parts).unwrap();
    let error = file.to_eagle(FloatType::F16).unwrap_err().to_string();
    assert!(error.contains("norm.weight") && error.contains("1000000"), "{error}");
    assert!(file.to_eagle(FloatType::BF16).is_ok(), "bf16 has the range");
}

#[test]
fn a_drafter_learns_which_model_it_is_for_once() {
    let model = target().to_gguf().unwrap();
    let gguf = gguf_of(&model);
    let config = ModelConfig::from_gguf(&gguf).unwrap();
    let unknown = TinyDrafter { fingerprint: false, ..plain() }.to_file().unwrap();
    let known = unknown.for_target(&gguf, &config).unwrap();
    assert_eq!(known.target(), plain().to_file().unwrap().target());
    // What it was trained on stays.
    let mut parts = known.clone().into_parts();
    parts.target.as_mut().unwrap().quantization = "F32".into();
    let trained = DrafterFile::new(parts).unwrap();
    assert_eq!(trained.clone().for_target(&gguf, &config).unwrap(), trained);
    let other = TinyModel { layers: 4, ..target() }.to_gguf().unwrap();
    let other = gguf_of(&other);
    let error = known.for_target(&other, &ModelConfig::from_gguf(&other).unwrap()).unwrap_err();
    assert!(matches!(error, DrafterError::Target { field: "layers", .. }), "{error}");
}

// ---- llama.cpp's GGUF ----

#[test]
fn gguf_files_come_back_bit_for_bit() {
    let own = TinyDrafter { target: target(), captures: [1, 2, 3], hidden: 96, heads: 6, ..plain() };
    for tiny in [
        plain(),
        TinyDrafter { own_embedding: true, ..own },
        TinyDrafter { draft_vocab: 320, ..plain() },
        TinyDrafter { fingerprint: false, ..plain() },
        TinyDrafter { kind: GgmlType::Q4_1, ..plain() },
        TinyDrafter { kind: GgmlType::BF16, adapter_rank: Some(32), tables: true, ..plain() },
        // Captures of the embeddings are layer 0's input, which llama.cpp can take.
        TinyDrafter { captures: [0, 1, 3], ..plain() },
    ] {
        let file = tiny.to_file().unwrap();
        let export = file.to_gguf(&GgufOptions::default()).unwrap();
        assert_eq!(read_gguf(&export.bytes).unwrap(), first_pass(&file), "{tiny:?}");
        let reconsider = file.tensors().filter(|(name, _)| name.starts_with("reconsider.")).count();
        assert_eq!(export.left_out.len(), reconsider + usize::from(tiny.tables), "{tiny:?}");
    }
}

#[test]
fn matrices_are_rewritten_in_the_type_asked_for() {
    for from in [GgmlType::F32, GgmlType::Q8_0] {
        let file = TinyDrafter { kind: from, ..plain() }.to_file().unwrap();
        for asked in [Quantization::F32, Quantization::F16, Quantization::Q8_0, Quantization::Q4_0] {
            let options = GgufOptions { matrices: Some(asked), ..GgufOptions::default() };
            let read = read_gguf(&file.to_gguf(&options).unwrap().bytes).unwrap();
            let expected = tensors(&first_pass(&file), |_, tensor| match tensor.dims.len() {
                1 => tensor.clone(),
                _ => cast(tensor, asked.kind()),
            });
            assert_eq!(tensors(&read, |_, tensor| tensor.clone()), expected, "{from} to {asked:?}");
        }
    }
}

/// The names, keys and orders that llama.cpp's loader asks for.
#[test]
fn gguf_files_say_what_llama_cpp_asks_for() {
    let file = TinyDrafter { captures: [0, 1, 3], ..plain() }.to_file().unwrap();
    let model = target().to_gguf().unwrap();
    let model = gguf_of(&model);
    let options = GgufOptions { matrices: Some(Quantization::Q8_0), target: Some(&model) };
    let bytes = file.to_gguf(&options).unwrap().bytes;
    let gguf = gguf_of(&bytes);
    let metadata = &gguf.metadata;
    for (key, wanted) in [
        ("eagle3.block_count", 1),
        ("eagle3.embedding_length", 64),
        ("eagle3.target_hidden_size", 64),
        ("eagle3.feed_forward_length", 96),
        ("eagle3.attention.head_count", 4),
        ("eagle3.attention.head_count_kv", 2),
        ("eagle3.attention.key_length", 16),
        ("eagle3.attention.value_length", 16),
        ("eagle3.rope.dimension_count", 16),
        ("eagle3.vocab_size", 320),
        ("general.file_type", 7),
        ("general.quantization_version", 2),
    ] {
        assert_eq!(metadata.u32(key).unwrap(), Some(wanted), "{key}");
    }
    assert_eq!(metadata.get("general.architecture"), Some(&Value::String("eagle3".into())));
    for key in ["eagle3.target_layers", "eagle3.extract_layers"] {
        assert_eq!(metadata.get(key), Some(&Value::Array(Array::I32(vec![0, 1, 3]))), "{key}");
    }
    assert_eq!(metadata.get("eagle3.norm_before_residual"), Some(&Value::Bool(false)));
    assert_eq!(metadata.get("eagle3.rope.freq_base"), Some(&Value::F32(10_000.0)));
    let tokenizer: Vec<_> = model.metadata.iter().filter(|(key, _)| key.starts_with("tokenizer.")).collect();
    assert!(tokenizer.len() > 4, "the target has a tokenizer");
    for (key, value) in tokenizer {
        assert_eq!(metadata.get(key), Some(value), "{key}");
    }
    let shapes: [(&str, &[u64], GgmlType); 14] = [
        ("fc.weight", &[192, 64], GgmlType::Q8_0),
        ("blk.0.attn_norm.weight", &[64], GgmlType::F32),
        ("blk.0.attn_norm_2.weight", &[64], GgmlType::F32),
        ("blk.0.attn_q.weight", &[128, 64], GgmlType::Q8_0),
        ("blk.0.attn_k.weight", &[128, 32], GgmlType::Q8_0),
        ("blk.0.attn_v.weight", &[128, 32], GgmlType::Q8_0),
        ("blk.0.attn_output.weight", &[64, 64], GgmlType::Q8_0),
        ("blk.0.ffn_norm.weight", &[64], GgmlType::F32),
        ("blk.0.ffn_gate.weight", &[64, 96], GgmlType::Q8_0),
        ("blk.0.ffn_up.weight", &[64, 96], GgmlType::Q8_0),
        ("blk.0.ffn_down.weight", &[96, 64], GgmlType::Q8_0),
        ("output_norm.weight", &[64], GgmlType::F32),
        ("output.weight", &[64, 160], GgmlType::Q8_0),
        ("d2t", &[160], GgmlType::I64),
    ];
    let found: Vec<_> = gguf.tensors.iter().map(|t| (t.name.as_str(), t.dims.as_slice(), t.kind)).collect();
    assert_eq!(found, shapes);
    let data = |name: &str| {
        let info = gguf.tensor(name).unwrap();
        let mut data = vec![0; usize::try_from(info.size).unwrap()];
        pollster::block_on(bytes.read_at(info.offset, &mut data)).unwrap();
        data
    };
    // Tokens, not offsets.
    let ids = data("d2t").as_chunks().0.iter().map(|id| i64::from_le_bytes(*id)).collect::<Vec<_>>();
    assert_eq!(ids, file.draft_ids().iter().map(|id| i64::from(*id)).collect::<Vec<_>>());
    // Row 8 of a head of 16, the partner of row 0 in half-split RoPE, stands right behind it; values are not rotated.
    let row = GgmlType::Q8_0.row_bytes(128).map(usize::try_from).unwrap().unwrap();
    for (name, stored, second) in
        [("q", "blk.0.attn_q.weight", 8), ("k", "blk.0.attn_k.weight", 8), ("v", "blk.0.attn_v.weight", 1)]
    {
        let original = file.tensor(&format!("midlayer.self_attn.{name}_proj.weight")).unwrap();
        let original = cast(original, GgmlType::Q8_0).bytes;
        let stored = data(stored);
        let row_of = |bytes: &[u8], at: usize| bytes[at * row..(at + 1) * row].to_vec();
        for head in [0, 16] {
            assert_eq!(row_of(&stored, head), row_of(&original, head), "{name}");
            assert_eq!(row_of(&stored, head + 1), row_of(&original, head + second), "{name}");
        }
    }
}

#[test]
fn what_llama_cpp_does_not_compute_is_refused() {
    for (tiny, word) in [
        (TinyDrafter { fc_norm: true, ..plain() }, "fc_norm"),
        (TinyDrafter { norm_output: true, ..plain() }, "norm_output"),
    ] {
        let error = tiny.to_file().unwrap().to_gguf(&GgufOptions::default()).unwrap_err();
        assert!(matches!(error, DrafterError::Unrepresentable { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let other = TinyModel { layers: 4, ..target() }.to_gguf().unwrap();
    let other = gguf_of(&other);
    let options = GgufOptions { target: Some(&other), ..GgufOptions::default() };
    let error = plain().to_file().unwrap().to_gguf(&options).unwrap_err();
    assert!(matches!(error, DrafterError::Target { field: "layers", .. }), "{error}");
}

/// Captures that the drafter does not state are those of its target's depth.
#[test]
fn unstated_captures_come_from_the_target() {
    let model = TinyModel { layers: 6, ..TinyModel::default() };
    let mut parts =
        TinyDrafter { target: model.clone(), fingerprint: false, ..plain() }.to_file().unwrap().into_parts();
    parts.config.capture_layers = None;
    let file = DrafterFile::new(parts).unwrap();
    let error = file.to_gguf(&GgufOptions::default()).unwrap_err();
    assert!(error.to_string().contains("capture_layers"), "{error}");
    let (two, three) = ([2, 3, 4], model.to_gguf().unwrap());
    let gguf = gguf_of(&three);
    // Layers 2, L/2 and L - 3 of six are no three.
    let options = GgufOptions { target: Some(&gguf), ..GgufOptions::default() };
    assert!(file.to_gguf(&options).unwrap_err().to_string().contains("capture_layers"));
    let deeper = TinyModel { layers: 8, ..model }.to_gguf().unwrap();
    let gguf = gguf_of(&deeper);
    let options = GgufOptions { target: Some(&gguf), ..GgufOptions::default() };
    let read = read_gguf(&file.to_gguf(&options).unwrap().bytes).unwrap();
    assert_eq!(read.config().capture_layers, Some([2, 4, 5]));
    assert_ne!(read.config().capture_layers, Some(two));
}

/// A file of llama.cpp's, changed.
struct Parts {
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<u64>, GgmlType, Vec<u8>)>,
}

impl Parts {
    fn new() -> Self {
        let bytes = plain().to_file().unwrap().to_gguf(&GgufOptions::default()).unwrap().bytes;
        let gguf = gguf_of(&bytes);
        let data = |offset: u64, size: u64| {
            bytes[usize::try_from(offset).unwrap()..][..usize::try_from(size).unwrap()].to_vec()
        };
        Self {
            metadata: gguf.metadata.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect(),
            tensors: gguf
                .tensors
                .iter()
                .map(|t| (t.name.clone(), t.dims.clone(), t.kind, data(t.offset, t.size)))
                .collect(),
        }
    }

    fn set(&mut self, key: &str, value: Value) {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.push((key.to_owned(), value));
    }

    fn without(&mut self, key: &str) {
        self.metadata.retain(|(name, _)| name != key);
    }

    fn tensor(&mut self, name: &str) -> &mut (String, Vec<u64>, GgmlType, Vec<u8>) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap()
    }

    fn read(&self) -> Result<DrafterFile, DrafterError> {
        let mut writer = GgufWriter::new();
        self.metadata.iter().for_each(|(key, value)| {
            writer.metadata(key, value.clone());
        });
        for (name, dims, kind, bytes) in &self.tensors {
            writer.tensor(name, dims, *kind, bytes.clone());
        }
        read_gguf(&writer.to_bytes().unwrap())
    }
}

#[test]
fn files_of_other_converters_are_read() {
    let expected = Parts::new().read().unwrap();
    let same = |change: fn(&mut Parts)| {
        let mut parts = Parts::new();
        change(&mut parts);
        parts.read().unwrap()
    };
    // The first files had another name for the norm, and none of ours says whom a drafter is for.
    assert_eq!(
        same(|parts| parts.tensor("blk.0.attn_norm_2.weight").0 = "blk.0.hidden_norm.weight".into()),
        expected
    );
    assert_eq!(same(|parts| parts.without("redraft.target")).target(), None);
    assert_eq!(same(|parts| parts.without("eagle3.norm_before_residual")), expected);
    for key in ["eagle3.target_layers", "eagle3.extract_layers"] {
        let mut parts = Parts::new();
        parts.without(key);
        assert_eq!(parts.read().unwrap(), expected, "without {key}");
    }
    // The vocabulary may be stated by the tokenizer alone.
    let listed = same(|parts| {
        parts.without("eagle3.vocab_size");
        let tokens = (0..320).map(|id| format!("t{id}")).collect();
        parts.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    });
    assert_eq!(listed, expected);
    assert_eq!(same(|parts| parts.without("eagle3.rope.freq_base")), expected, "the base of EAGLE-3");
    assert_eq!(same(|parts| parts.set("eagle3.rope.scaling.type", Value::String("none".into()))), expected);
}

#[test]
fn bad_gguf_drafters_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Parts), words: &[&str]| {
        let mut parts = Parts::new();
        change(&mut parts);
        let error = parts.read().unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
    };
    let text = |value: &str| Value::String(value.into());
    let arch = "general.architecture";
    refused(&|p| p.set(arch, text("llama")), &[arch, "eagle3", "llama"]);
    refused(&|p| p.without(arch), &[arch, "nothing"]);
    for key in ["norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"] {
        let key = format!("eagle3.{key}");
        refused(&|p| p.set(&key, Value::Bool(true)), &[&key, "true"]);
    }
    refused(&|p| p.set("eagle3.block_count", Value::U32(2)), &["block_count", "2"]);
    refused(&|p| p.set("eagle3.attention.value_length", Value::U32(8)), &["value_length", "16"]);
    refused(&|p| p.set("eagle3.rope.dimension_count", Value::U32(8)), &["dimension_count", "16"]);
    refused(&|p| p.set("eagle3.rope.scaling.type", text("yarn")), &["rope.scaling.type", "yarn"]);
    refused(&|p| p.set("eagle3.rope.scaling.factor", Value::F32(8.0)), &["rope.scaling.factor", "8"]);
    refused(&|p| p.set("eagle3.embedding_length", Value::U32(63)), &["hidden", "32"]);
    refused(&|p| p.set("eagle3.embedding_length", Value::U32(1 << 31)), &["hidden", "limit"]);
    refused(&|p| p.set("eagle3.vocab_size", Value::U32(100)), &["draft_vocab", "100"]);
    let layers = |list: &[i32]| Value::Array(Array::I32(list.to_vec()));
    refused(&|p| p.set("eagle3.target_layers", layers(&[1, 2])), &["target_layers", "three"]);
    refused(&|p| p.set("eagle3.extract_layers", layers(&[-1, 1, 2])), &["extract_layers", "-1"]);
    refused(&|p| p.set("eagle3.extract_layers", layers(&[1, 2, 4])), &["extract_layers", "[1, 2, 3]"]);
    refused(
        &|p| {
            p.without("eagle3.extract_layers");
            p.set("eagle3.target_layers", layers(&[2, 1, 3]));
        },
        &["capture_layers", "[2, 1, 3]"],
    );
    let neither = |p: &mut Parts| {
        p.without("eagle3.extract_layers");
        p.without("eagle3.target_layers");
    };
    refused(&neither, &["eagle3.target_layers", "missing"]);
    for key in [
        "target_hidden_size",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ] {
        let key = format!("eagle3.{key}");
        refused(&|p| p.without(&key), &[&key, "missing"]);
    }
    refused(&|p| p.without("eagle3.vocab_size"), &["vocab_size", "missing"]);
    refused(&|p| p.set("redraft.target", text("{")), &["redraft.target", "JSON"]);
    refused(&|p| p.set("redraft.target", text("{\"hidden\": 1}")), &["redraft.target"]);
    refused(&|p| p.tensors.retain(|t| t.0 != "fc.weight"), &["fc.weight", "missing"]);
    refused(&|p| p.tensors.retain(|t| t.0 != "d2t"), &["output.weight", "d2t", "320"]);
    refused(
        &|p| p.tensors.push(("rope_freqs.weight".into(), vec![8], GgmlType::F32, vec![0; 32])),
        &["rope_freqs.weight", "not implemented"],
    );
    refused(&|p| p.tensor("blk.0.attn_q.weight").1 = vec![64, 128], &["blk.0.attn_q.weight", "[64, 128]"]);
    refused(
        &|p| {
            let tensor = p.tensor("d2t");
            (tensor.2, tensor.3) = (GgmlType::I32, vec![0; 640]);
        },
        &["d2t", "I64", "I32"],
    );
    refused(&|p| p.tensor("d2t").3[..8].copy_from_slice(&(-1i64).to_le_bytes()), &["d2t[0]", "-1", "320"]);
    refused(&|p| p.tensor("d2t").3[..8].copy_from_slice(&319i64.to_le_bytes()), &["d2t[1]", "ascending"]);
    refused(
        &|p| {
            let mut twice = p.tensor("blk.0.attn_norm_2.weight").clone();
            twice.0 = "blk.0.hidden_norm.weight".into();
            p.tensors.push(twice);
        },
        &["hidden_norm", "two"],
    );
    refused(
        &|p| p.tensor("output_norm.weight").3[4..8].copy_from_slice(&f32::NAN.to_le_bytes()),
        &["norm.weight", "NaN"],
    );
}

/// Cut anywhere, a file is an error and never a panic.
#[test]
fn files_that_are_cut_short_are_refused() {
    let bytes = plain().to_file().unwrap().to_gguf(&GgufOptions::default()).unwrap().bytes;
    for length in (0..bytes.len()).step_by(211) {
        assert!(read_gguf(&bytes[..length].to_vec()).is_err(), "{length} of {} bytes", bytes.len());
    }
}
