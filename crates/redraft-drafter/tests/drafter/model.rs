//! What the GPU gets: an arena and a header that the loader of models can read.

use redraft_drafter::{DrafterFile, DrafterModel, Quantization};
use redraft_gguf::{GgmlType, ReadAt, RopeLayout, dequantize, pack_rows};
use redraft_testing::TinyDrafter;

/// The values of a tensor of the arena, read as the loader reads them.
fn values(model: &DrafterModel, name: &str) -> (Vec<u64>, GgmlType, Vec<f32>) {
    let info = model.gguf.tensor(name).unwrap_or_else(|| panic!("no tensor {name}"));
    let mut bytes = vec![0; usize::try_from(info.size).unwrap()];
    pollster::block_on(model.bytes.read_at(info.offset, &mut bytes)).unwrap();
    let mut values = vec![0.0; usize::try_from(info.rows() * info.columns()).unwrap()];
    dequantize(info.kind, &bytes, &mut values).unwrap();
    (info.dims.clone(), info.kind, values)
}

fn everything() -> DrafterFile {
    TinyDrafter::with_everything().to_file().unwrap()
}

#[test]
fn tensors_have_the_names_and_shapes_of_a_one_layer_model() {
    let model = everything().to_model(Quantization::Q8_0).unwrap();
    let shapes: [(&str, &[u64]); 23] = [
        ("token_embd.weight", &[96, 320]),
        ("fc_norm.0.weight", &[64]),
        ("fc_norm.1.weight", &[64]),
        ("fc_norm.2.weight", &[64]),
        ("fc.weight", &[192, 96]),
        ("blk.0.attn_norm.weight", &[96]),
        ("blk.0.hidden_norm.weight", &[96]),
        ("blk.0.attn_q.weight", &[192, 96]),
        ("blk.0.attn_k.weight", &[192, 32]),
        ("blk.0.attn_v.weight", &[192, 32]),
        ("blk.0.attn_output.weight", &[96, 96]),
        ("blk.0.ffn_norm.weight", &[96]),
        ("blk.0.ffn_gate.weight", &[96, 96]),
        ("blk.0.ffn_up.weight", &[96, 96]),
        ("blk.0.ffn_down.weight", &[96, 96]),
        ("output_norm.weight", &[96]),
        ("output.weight", &[96, 160]),
        ("reconsider.embedding", &[96]),
        ("reconsider.down.weight", &[192, 32]),
        ("reconsider.up.weight", &[32, 96]),
        ("reconsider.edges", &[32, 4, 8, 2]),
        ("reconsider.log_gain", &[64, 8]),
        ("reconsider.lookup_edge", &[17]),
    ];
    assert_eq!(model.gguf.tensors.len(), shapes.len());
    for (name, shape) in shapes {
        let (dims, kind, _) = values(&model, name);
        assert_eq!(dims, shape, "{name}");
        let matrix = shape.len() == 2 && name != "reconsider.log_gain";
        assert_eq!(kind, if matrix { GgmlType::Q8_0 } else { GgmlType::F32 }, "{name}");
        assert!(model.gguf.tensor(name).is_some_and(|info| info.offset % 32 == 0), "{name} is aligned");
    }
    let config = &model.config;
    assert_eq!((config.layers, config.hidden, config.vocab), (1, 96, 160));
    assert_eq!((config.heads, config.kv_heads, config.head_dim, config.ffn), (6, 2, 16, 96));
    assert_eq!((config.rope.layout, config.rope.dims), (RopeLayout::HalfSplit, 16));
    assert!(!config.qkv_bias && !config.tied_embeddings);
    assert_eq!((model.drafter.vocab, model.draft_ids.len(), model.reconsider.rank), (320, 160, Some(32)));
}

#[test]
fn floats_are_exact_and_quants_are_near() {
    let file = everything();
    let exact = file.tensor("midlayer.self_attn.q_proj.weight").unwrap().to_f32().unwrap();
    for (quantization, steps) in [
        (Quantization::F32, f32::MAX),
        (Quantization::F16, 2048.0),
        (Quantization::Q8_0, 127.0),
        (Quantization::Q4_0, 7.0),
    ] {
        let model = file.to_model(quantization).unwrap();
        let (_, kind, found) = values(&model, "blk.0.attn_q.weight");
        assert_eq!(kind, quantization.kind());
        let most = exact.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        for (index, (found, exact)) in found.iter().zip(&exact).enumerate() {
            assert!((found - exact).abs() <= most / steps, "{quantization:?}[{index}]: {found}, {exact}");
        }
        let small = file.quantized(quantization).unwrap().to_model(Quantization::F32).unwrap();
        if quantization != Quantization::F16 {
            assert!(small.bytes == model.bytes, "{quantization:?}: the same weights by way of a file");
        }
    }
}

#[test]
fn stored_blocks_are_passed_through_and_can_be_packed() {
    for kind in [GgmlType::Q8_0, GgmlType::Q4_1, GgmlType::Q4_0] {
        let file = TinyDrafter { kind, ..TinyDrafter::with_everything() }.to_file().unwrap();
        for quantization in [Quantization::F32, Quantization::Q4_0] {
            let model = file.to_model(quantization).unwrap();
            for name in ["output.weight", "fc.weight", "reconsider.up.weight"] {
                let info = model.gguf.tensor(name).unwrap();
                assert_eq!(info.kind, kind, "{name}");
                let start = usize::try_from(info.offset).unwrap();
                let bytes = &model.bytes[start..][..usize::try_from(info.size).unwrap()];
                let [columns, rows] =
                    [info.columns(), info.rows()].map(|size| usize::try_from(size).unwrap());
                pack_rows(kind, columns, rows, bytes, &mut Vec::new(), &mut Vec::new()).unwrap();
            }
            let stored = &file.tensor("lm_head.weight").unwrap().bytes;
            let start = usize::try_from(model.gguf.tensor("output.weight").unwrap().offset).unwrap();
            assert!(&model.bytes[start..][..stored.len()] == stored.as_slice(), "{kind}: the same blocks");
        }
    }
}

#[test]
fn a_drafter_without_extras_has_none() {
    let model = TinyDrafter { pass_embedding: false, ..TinyDrafter::default() }.to_file().unwrap();
    let model = model.to_model(Quantization::F16).unwrap();
    assert_eq!(model.gguf.tensors.len(), 13);
    assert!(model.gguf.tensor("token_embd.weight").is_none(), "the target's is used");
    assert_eq!(model.reconsider, redraft_drafter::Reconsider::default());
}

#[test]
fn weights_that_do_not_fit_the_type_are_refused_by_name() {
    let mut parts = TinyDrafter::default().to_file().unwrap().into_parts();
    parts.tensors.get_mut("fc.weight").unwrap().bytes[..4].copy_from_slice(&1e6f32.to_le_bytes());
    let file = DrafterFile::new(parts).unwrap();
    assert!(file.to_model(Quantization::F32).is_ok());
    let error = file.to_model(Quantization::F16).unwrap_err().to_string();
    assert!(error.contains("fc.weight") && error.contains("1000000"), "{error}");
}
