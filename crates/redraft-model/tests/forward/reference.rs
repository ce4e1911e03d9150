//! The GPU against the reference forward in plain f32 Rust.

use crate::support::{device, floats, load, run, tiny, tokens};
use redraft_gguf::{Architecture, GgmlType};
use redraft_model::{Batch, KvType, LogitRows, Model, Path, Precision};
use redraft_testing::reference::{self, Forward};
use redraft_testing::{RoleTypes, TinyModel, Tolerance, assert_close};

/// Logits of a few units from sums of a few hundred terms in another order than the reference's. In an f16 cache such a
/// difference can move a key to its neighbour, 2^-11 of its size away.
fn tolerance(kv: KvType) -> Tolerance {
    match kv {
        KvType::F16 => Tolerance::within(5e-3),
        KvType::F32 => Tolerance::within(2e-4),
    }
}

fn compare(test: &str, model: TinyModel, path: Path, kv: KvType, steps: usize) -> Model {
    let file = tiny(model);
    let reference_kv = match kv {
        KvType::F16 => reference::KvType::F16,
        KvType::F32 => reference::KvType::F32,
    };
    let mut expected =
        Forward::load(&file).expect("a valid model").with_kv(reference_kv).with_captures(&[0, 1, 2]);
    let gpu = device(test, path);
    let found = load(&gpu, &file, path, kv, &[0, 1, 2]);
    let sequence = tokens(1, steps, found.config().vocab);
    for (position, token) in (0u32..).zip(&sequence) {
        let wanted = expected.step(token.0).expect("a valid token");
        run(&found, &Batch::chain(position, &[*token], LogitRows::Last).with_captures());
        let what = format!("{test} logits at {position}");
        assert_close(&what, &floats(&found, found.logits_row(0)), &wanted, tolerance(kv));
        for layer in 0..3 {
            let captured = floats(&found, found.capture(layer, 1).expect("captured"));
            assert_close(
                &format!("{test} capture {layer} at {position}"),
                &captured,
                &expected.captures()[layer],
                tolerance(kv),
            );
        }
    }
    found
}

/// The same sequence in chunks ends in the same logits.
pub(crate) fn compare_chunks(test: &str, model: &Model, steps: usize) {
    let wanted = floats(model, model.logits_row(0));
    let mut committed = 0;
    for chunk in tokens(1, steps, model.config().vocab).chunks(13) {
        run(model, &Batch::chain(committed, chunk, LogitRows::Last));
        committed += u32::try_from(chunk.len()).expect("small");
    }
    assert_close(&format!("{test} chunks"), &floats(model, model.logits_row(0)), &wanted, Tolerance::EXACT);
}

#[test]
fn every_path() {
    for path in Path::ALL.into_iter().filter(|path| path.precision() == Precision::F32) {
        let model = compare("reference.path", TinyModel::default(), path, KvType::F32, 40);
        compare_chunks("reference.path", &model, 40);
    }
}

#[test]
fn every_type() {
    let wide =
        TinyModel { hidden: 256, ffn: 512, heads: 4, kv_heads: 1, head_dim: 64, ..TinyModel::default() };
    for kind in [
        GgmlType::F32,
        GgmlType::F16,
        GgmlType::BF16,
        GgmlType::Q4_0,
        GgmlType::Q4_1,
        GgmlType::Q5_0,
        GgmlType::Q5_1,
        GgmlType::Q8_0,
        GgmlType::Q4K,
        GgmlType::Q5K,
        GgmlType::Q6K,
    ] {
        let model = TinyModel { types: RoleTypes::all(kind), ..wide.clone() };
        compare(&format!("reference.type.{}", kind.name()), model.clone(), Path::Broadcast, KvType::F32, 6);
    }
}

#[test]
fn half_split_bias_and_separate_head() {
    let model = TinyModel { architecture: Architecture::Qwen2, tied: false, ..TinyModel::default() };
    for path in [Path::Broadcast, Path::Plain] {
        compare("reference.qwen2", model.clone(), path, KvType::F32, 20);
    }
}

#[test]
fn odd_shapes() {
    // Vocabulary, heads and feed-forward that fill no group of panels, mixed types, scaled rotary embedding.
    let model = TinyModel {
        hidden: 96,
        heads: 3,
        kv_heads: 1,
        head_dim: 32,
        ffn: 160,
        vocab: 331,
        rope_linear: Some(2.0),
        rope_factors: Some((1..=16u8).map(f32::from).collect()),
        types: RoleTypes {
            embedding: GgmlType::F16,
            attention: GgmlType::Q5_1,
            gate_up: GgmlType::Q4_0,
            down: GgmlType::Q8_0,
            head: GgmlType::Q4_1,
        },
        tied: false,
        ..TinyModel::default()
    };
    let loaded = compare("reference.odd", model, Path::Broadcast, KvType::F16, 20);
    compare_chunks("reference.odd", &loaded, 20);
}
