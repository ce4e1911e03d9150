//! Products in f16 against the reference forward, which is f32, within what their roundings can cost.

use crate::reference::compare_chunks;
use crate::support::{bytes, device, floats, has_f16, load, run, tiny, tokens};
use redraft_gguf::{Architecture, GgmlType, dequantize};
use redraft_model::{Batch, KvType, LogitRows, Model, ModelError, Path, Precision};
use redraft_testing::reference::{self, Forward};
use redraft_testing::{Prng, RoleTypes, TinyModel, quantize};

/// What a product is off, relative to its root mean square, at most: roundings with a mean square of u²/3, u = 2^-11, of
/// each term, of partial sums (35/8 terms each on the average) and of activations. `tests/kernels/half.rs` holds the
/// kernels to it.
fn product_error() -> f64 {
    ((1.0 + 35.0 / 8.0 + 1.0) / 3.0f64).sqrt() / 2048.0
}

/// The model in f32 with that much noise in every weight that is multiplied: by how much such errors grow on their way
/// through softmax and gates is what no formula tells. Without noise it is the model itself.
fn noisy(model: &TinyModel, seed: Option<u64>) -> Vec<u8> {
    let mut tensors = model.tensors();
    for tensor in tensors.iter_mut().filter(|tensor| tensor.rows.is_some()) {
        let mut prng = Prng::named(seed.unwrap_or(0), &tensor.name);
        for row in tensor.values.chunks_mut(tensor.columns) {
            let kept = quantize(tensor.kind, row).expect("whole blocks");
            dequantize(tensor.kind, &kept, row).expect("whole blocks");
            if seed.is_some() && tensor.name != "token_embd.weight" {
                // Uniform in ±√3 times its root mean square.
                #[expect(clippy::cast_possible_truncation, reason = "a small number")]
                let width = (product_error() * 3.0f64.sqrt()) as f32;
                row.iter_mut().for_each(|weight| *weight *= 1.0 + width * prng.signed());
            }
        }
        tensor.kind = GgmlType::F32;
    }
    model.write(&tensors).expect("a valid tiny model")
}

/// Mean square and greatest of the differences, over all steps.
struct Off {
    mean_square: f64,
    greatest: f32,
}

fn off(found: &[f32], expected: &[f32]) -> Off {
    assert_eq!(found.len(), expected.len(), "numbers");
    let differences = || found.iter().zip(expected).map(|(a, b)| a - b);
    assert!(differences().all(f32::is_finite), "finite numbers");
    let count = f64::from(u32::try_from(found.len()).expect("few"));
    Off {
        mean_square: differences().map(|d| f64::from(d).powi(2)).sum::<f64>() / count,
        greatest: differences().fold(0.0, |most, d| most.max(d.abs())),
    }
}

/// Logits step by step on the GPU and in the reference, and how far noisy references are off: f16 is off no further than
/// that, with room for chance: twice the mean square, twice the greatest. Noise has the greatest mean square that roundings can
/// have, more than they do have.
fn compare(test: &str, model: &TinyModel, path: Path, kv: KvType, steps: usize) {
    assert!(!model.tied, "the embedding is not multiplied");
    let sequence = tokens(1, steps, u32::try_from(model.vocab).expect("small"));
    let stored = match kv {
        KvType::F16 => reference::KvType::F16,
        KvType::F32 => reference::KvType::F32,
    };
    let by_reference = |file: &[u8]| -> Vec<f32> {
        let mut forward = Forward::load(file).expect("a valid model").with_kv(stored);
        sequence.iter().flat_map(|token| forward.step(token.0).expect("a valid token")).collect()
    };
    let expected = by_reference(&noisy(model, None));
    let noise: Vec<Off> =
        (1..=8).map(|seed| off(&by_reference(&noisy(model, Some(seed))), &expected)).collect();
    let gpu = device(test, path);
    let loaded = load(&gpu, &tiny(model.clone()), path, kv, &[]);
    let mut found = Vec::new();
    for (position, token) in (0u32..).zip(&sequence) {
        run(&loaded, &Batch::chain(position, &[*token], LogitRows::Last));
        found.extend(floats(&loaded, loaded.logits_row(0)));
    }
    let found = off(&found, &expected);
    let mean_square = noise.iter().map(|noise| noise.mean_square).sum::<f64>() / 8.0;
    let greatest = noise.iter().fold(0.0, |most: f32, noise| most.max(noise.greatest));
    eprintln!(
        "{test} {path:?}: root mean square {:.1e} off, noise {:.1e}; greatest {:.1e}, noise {greatest:.1e}",
        found.mean_square.sqrt(),
        mean_square.sqrt(),
        found.greatest
    );
    assert!(found.mean_square <= 2.0 * mean_square, "{test} {path:?}: mean square {}", found.mean_square);
    assert!(found.greatest <= 2.0 * greatest, "{test} {path:?}: greatest {}", found.greatest);
    compare_chunks(test, &loaded, steps);
}

#[test]
fn every_path() {
    if has_f16("half.path") {
        for path in Path::ALL.into_iter().filter(|path| path.precision() == Precision::F16) {
            compare("half.path", &TinyModel { tied: false, ..TinyModel::default() }, path, KvType::F32, 40);
        }
    }
}

#[test]
fn types_of_all_kinds() {
    if !has_f16("half.types") {
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
        compare(&format!("half.{what}"), &model, Path::Shuffle16, kv, 12);
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
    if !has_f16("half.large") {
        return;
    }
    let sequence = tokens(4, 24, 320);
    let logits = |factor: f32| {
        let file = enlarged(factor);
        let gpu = device("half.large", Path::Shuffle16);
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
    for factor in [1_048_576.0, 0.125] {
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
    let gpu = device("half.none", Path::Slices);
    let error = pollster::block_on(Model::load(gpu, &file, &gguf, &options, |_| {})).expect_err("no f16");
    assert!(matches!(error, ModelError::NoF16 { path: "slices16" }), "{error}");
    assert!(error.to_string().contains("precision f32"), "{error}");
}
