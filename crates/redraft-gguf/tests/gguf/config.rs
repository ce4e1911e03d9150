//! The shape of well-formed models.

use crate::writer::{F32, File, STRING, U32, load, text};
use redraft_gguf::{Architecture, RopeLayout, RopeScaling};

#[test]
fn llama() {
    let config = load(&File::model("llama").bytes()).unwrap();
    assert_eq!(config.architecture, Architecture::Llama);
    assert_eq!((config.layers, config.hidden, config.ffn, config.vocab), (1, 32, 64, 5));
    assert_eq!((config.heads, config.kv_heads, config.head_dim, config.context), (2, 1, 16, 64));
    assert_eq!(config.rms_eps, 1e-5);
    assert_eq!((config.rope.base, config.rope.dims), (10_000.0, 16));
    assert_eq!(config.rope.layout, RopeLayout::Interleaved);
    assert_eq!(config.rope.scaling, RopeScaling { linear: 1.0, factors: false });
    assert!(config.tied_embeddings && !config.qkv_bias, "{config:?}");
}

#[test]
fn qwen2_has_half_split_rope_and_biases() {
    let config = load(&File::model("qwen2").bytes()).unwrap();
    assert_eq!(config.rope.layout, RopeLayout::HalfSplit);
    assert!(config.qkv_bias, "{config:?}");
}

#[test]
fn a_separate_head_is_seen() {
    let mut file = File::model("llama");
    file.push("output.weight", &[32, 5]);
    assert!(!load(&file.bytes()).unwrap().tied_embeddings, "output.weight was not seen");
}

#[test]
fn a_llama_with_biases_is_seen() {
    let mut file = File::model("llama");
    for (name, length) in [("q", 32), ("k", 16), ("v", 16)] {
        file.push(&format!("blk.0.attn_{name}.bias"), &[length]);
    }
    assert!(load(&file.bytes()).unwrap().qkv_bias, "the biases were not seen");
}

#[test]
fn head_length_can_differ_from_width_by_heads() {
    let mut file = File::model("llama");
    file.set_u32("llama.attention.key_length", 32);
    file.set_u32("llama.attention.value_length", 32);
    file.tensor("blk.0.attn_q.weight").dims = vec![32, 64];
    file.tensor("blk.0.attn_k.weight").dims = vec![32, 32];
    file.tensor("blk.0.attn_v.weight").dims = vec![32, 32];
    file.tensor("blk.0.attn_output.weight").dims = vec![64, 32];
    // The tensors grew: lay them out again.
    let tensors = std::mem::take(&mut file.tensors);
    file.data_bytes = 0;
    for tensor in tensors {
        file.push(std::str::from_utf8(&tensor.name).unwrap(), &tensor.dims);
    }
    let config = load(&file.bytes()).unwrap();
    assert_eq!((config.head_dim, config.rope.dims), (32, 16));
}

#[test]
fn rope_keys_are_read() {
    let mut file = File::model("llama");
    file.set_f32("llama.rope.freq_base", 5e5);
    file.set_u32("llama.rope.dimension_count", 8);
    file.set("llama.rope.scaling.type", STRING, text("linear"));
    file.set("llama.rope.scaling.factor", F32, 4f32.to_le_bytes().to_vec());
    file.push("rope_freqs.weight", &[4]);
    let rope = load(&file.bytes()).unwrap().rope;
    assert_eq!((rope.base, rope.dims), (500_000.0, 8));
    assert_eq!(rope.scaling, RopeScaling { linear: 4.0, factors: true });

    file.set("llama.rope.scaling.type", STRING, text("none"));
    assert_eq!(load(&file.bytes()).unwrap().rope.scaling.linear, 1.0);
}

#[test]
fn defaults_stand_in_for_optional_keys() {
    let mut file = File::model("llama");
    file.unset("llama.rope.dimension_count");
    file.unset("llama.attention.head_count_kv");
    file.unset("tokenizer.ggml.tokens");
    for name in ["blk.0.attn_k.weight", "blk.0.attn_v.weight"] {
        file.remove(name);
        file.push(name, &[32, 32]);
    }
    let config = load(&file.bytes()).unwrap();
    assert_eq!((config.kv_heads, config.rope.dims), (2, 16));
}

#[test]
fn integers_of_other_widths_will_do() {
    let mut file = File::model("llama");
    file.set("llama.block_count", 10, 1u64.to_le_bytes().to_vec());
    file.set("llama.context_length", 2, 64u16.to_le_bytes().to_vec());
    assert_eq!(load(&file.bytes()).unwrap().layers, 1);
    file.set("llama.block_count", U32, 1u32.to_le_bytes().to_vec());
    assert_eq!(load(&file.bytes()).unwrap().layers, 1);
}
