//! The GPU against the reference forward in plain f32 Rust.

use crate::support::{bytes, device, floats, has_f16, load, paths, run, tiny, tokens};
use redraft_gguf::{Architecture, GgmlType};
use redraft_model::{Batch, KvType, LogitRows, Model, ModelError, Path, Precision};
use redraft_testing::reference::{self, Forward};
use redraft_testing::{RoleTypes, TinyModel, Tolerance, assert_close};

/// Logits of a few units from sums of a few hundred terms in another order than the reference's. In an f16 cache such a
/// difference can move a key to its neighbour, 2^-11 of its size away.
fn tolerance(path: Path, kv: KvType) -> Tolerance {
    match (path.precision(), kv) {
        (Precision::F32, KvType::F16) => Tolerance::within(5e-3),
        (Precision::F32, KvType::F32) => Tolerance::within(2e-4),
        (Precision::F16, _) => half_tolerance(),
    }
}

/// What f16 may cost two layers and a head, in the mean square. A product is off by (1 + 35/8 + 1) u²/3 of its own at most,
/// u = 2^-11: roundings of products, of sums and of activations (`tests/kernels/half.rs`). Four products a layer and the
/// head add theirs; on the way each error passes at most one softmax and one gate a layer, which double it, and only the
/// residual stream goes on, where half of it is from before. So nine products, twice: 38 u².
const HALF_NMSE: f64 = 2.0 * 9.0 * 6.375 / 3.0 / (2048.0 * 2048.0);

/// Single numbers: of the thousands that are compared none is further off than five standard deviations.
fn half_tolerance() -> Tolerance {
    #[expect(clippy::cast_possible_truncation, reason = "a limit")]
    Tolerance { absolute: 0.0, relative: (5.0 * HALF_NMSE.sqrt()) as f32, nmse: f64::INFINITY }
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
    let (mut all_found, mut all_wanted) = (Vec::new(), Vec::new());
    for (position, token) in (0u32..).zip(&sequence) {
        let wanted = expected.step(token.0).expect("a valid token");
        run(&found, &Batch::chain(position, &[*token], LogitRows::Last).with_captures());
        let what = format!("{test} logits at {position}");
        let logits = floats(&found, found.logits_row(0));
        assert_close(&what, &logits, &wanted, tolerance(path, kv));
        all_found.extend(logits);
        all_wanted.extend(wanted);
        for layer in 0..3 {
            let captured = floats(&found, found.capture(layer, 1).expect("captured"));
            assert_close(
                &format!("{test} capture {layer} at {position}"),
                &captured,
                &expected.captures()[layer],
                tolerance(path, kv),
            );
        }
    }
    let limit = if path.precision() == Precision::F16 { HALF_NMSE } else { f64::INFINITY };
    let limit = Tolerance::within(f32::INFINITY).with_nmse(limit);
    let all = assert_close(&format!("{test}, all logits"), &all_found, &all_wanted, limit);
    eprintln!("{test} {path:?}: NMSE of all logits {:.1e}, limit {:.1e}", all.nmse, all.limits.nmse);
    found
}

/// The same sequence in chunks ends in the same logits.
fn compare_chunks(test: &str, model: &Model, steps: usize) {
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
    for path in paths("reference.path") {
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

#[test]
fn types_of_all_kinds_in_f16() {
    if !has_f16("reference.f16.types") {
        return;
    }
    let wide =
        TinyModel { hidden: 256, ffn: 512, heads: 4, kv_heads: 1, head_dim: 64, ..TinyModel::default() };
    let floats = RoleTypes {
        embedding: GgmlType::F16,
        attention: GgmlType::BF16,
        gate_up: GgmlType::F16,
        down: GgmlType::F32,
        head: GgmlType::F16,
    };
    let blocks = RoleTypes {
        embedding: GgmlType::Q6K,
        attention: GgmlType::Q4K,
        gate_up: GgmlType::Q5K,
        down: GgmlType::Q6K,
        head: GgmlType::Q6K,
    };
    // Biases, pairs of the other layout, and keys and values in f16 as well.
    let qwen2 = Architecture::Qwen2;
    for (what, types, architecture, kv) in
        [("floats", floats, Architecture::Llama, KvType::F32), ("blocks", blocks, qwen2, KvType::F16)]
    {
        let model = TinyModel { types, architecture, tied: false, ..wide.clone() };
        let model = compare(&format!("reference.f16.{what}"), model, Path::Shuffle16, kv, 12);
        compare_chunks(&format!("reference.f16.{what}"), &model, 12);
    }
}

/// A model whose values and products of gate and up are `factor` times as large, and the weights behind them as much
/// smaller. A power of two leaves every float what it was, but for its exponent.
fn enlarged(factor: f32) -> Vec<u8> {
    let blocks = GgmlType::Q8_0;
    let types = RoleTypes { attention: blocks, gate_up: blocks, ..RoleTypes::all(GgmlType::F32) };
    let model = TinyModel { types, ..TinyModel::default() };
    let mut tensors = model.tensors();
    for tensor in &mut tensors {
        let by = |part: &str| tensor.name.ends_with(&format!("{part}.weight"));
        if by("attn_output") {
            tensor.kind = GgmlType::F32;
        }
        let times = if by("ffn_up") || by("attn_v") {
            factor
        } else if by("ffn_down") || by("attn_output") {
            1.0 / factor
        } else {
            1.0
        };
        tensor.values.iter_mut().for_each(|value| *value *= times);
    }
    model.write(&tensors).expect("a valid tiny model")
}

#[test]
fn activations_beyond_f16_change_nothing() {
    if !has_f16("reference.f16.large") {
        return;
    }
    let sequence = tokens(4, 24, 320);
    let logits = |factor: f32| {
        let file = enlarged(factor);
        let gpu = device("reference.f16.large", Path::Shuffle16);
        let model = load(&gpu, &file, Path::Shuffle16, KvType::F32, &[1, 2]);
        run(&model, &Batch::chain(0, &sequence, LogitRows::Last).with_captures());
        let captured = [0, 1].map(|layer| bytes(&model, model.capture(layer, 24).expect("captured")));
        (
            bytes(&model, model.logits_row(0)),
            captured,
            floats(&model, model.key_value(0, 5).expect("a slot").1),
        )
    };
    let (expected, captures, values) = logits(1.0);
    // Numbers of a few units become millions; f16 ends at 65504. Downwards Q8_0, whose scales are f16, allows less.
    for factor in [1_048_576.0, 1.0 / 64.0] {
        let (found, captured, enlarged) = logits(factor);
        assert!(found == expected, "logits, activations times {factor}");
        assert!(captured == captures, "captures, activations times {factor}");
        let scaled: Vec<f32> = values.iter().map(|value| value * factor).collect();
        assert_eq!(enlarged, scaled, "values are {factor} times as large");
    }
    let greatest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    assert!(greatest * 1_048_576.0 > 65504.0, "values up to {greatest}, enlarged, are beyond f16");
}

#[test]
fn f16_on_a_device_without_it_is_an_error_that_says_so() {
    let file = tiny(TinyModel::default());
    let gguf = pollster::block_on(redraft_gguf::Gguf::read(&file)).expect("a valid file");
    let options = redraft_model::LoadOptions { path: Some(Path::Slices16), ..Default::default() };
    let gpu = device("reference.f16.none", Path::Slices);
    let error = pollster::block_on(Model::load(gpu, &file, &gguf, &options, |_| {})).expect_err("no f16");
    assert!(matches!(error, ModelError::NoF16 { path: "slices16" }), "{error}");
    assert!(error.to_string().contains("precision f32"), "{error}");
}
