//! The generator of tiny models and the writer below it.

use std::collections::HashSet;

use redraft_gguf::{Architecture, Array, GgmlType, Gguf, ModelConfig, RopeLayout, Value};
use redraft_testing::reference::{Forward, argmax};
use redraft_testing::{GgufWriter, RoleTypes, TinyModel, TinyModelError, fnv1a};

fn qwen2() -> TinyModel {
    TinyModel { architecture: Architecture::Qwen2, tied: false, ..TinyModel::default() }
}

/// A hash fixed here: a change of the generator must be deliberate, and the same on every machine.
#[test]
fn files_are_the_same_bytes_everywhere() {
    let hash = |model: TinyModel| fnv1a(&model.to_gguf().unwrap());
    let default = hash(TinyModel::default());
    assert_eq!(format!("{default:016x}"), "b3ba27ff059d7bb2");
    assert_eq!(format!("{:016x}", hash(qwen2())), "e1fe55281f04f6cc");
    assert_ne!(default, hash(TinyModel { seed: 2, ..TinyModel::default() }));
}

#[test]
fn files_are_models_with_the_shape_asked_for() {
    for (model, layout) in [(TinyModel::default(), RopeLayout::Interleaved), (qwen2(), RopeLayout::HalfSplit)]
    {
        let file = model.to_gguf().unwrap();
        let gguf = pollster::block_on(Gguf::read(&file)).unwrap();
        let config = ModelConfig::from_gguf(&gguf).unwrap();
        let found =
            [config.layers, config.hidden, config.ffn, config.heads, config.kv_heads, config.head_dim];
        assert_eq!(found, [2, 64, 96, 4, 2, 16]);
        assert_eq!((config.vocab, config.context, config.architecture), (320, 512, model.architecture));
        assert_eq!(
            (config.rope.layout, config.qkv_bias),
            (layout, model.architecture == Architecture::Qwen2)
        );
        assert_eq!(config.tied_embeddings, model.tied);
        let types: HashSet<GgmlType> = gguf.tensors.iter().map(|tensor| tensor.kind).collect();
        assert_eq!(types, HashSet::from([GgmlType::F32, GgmlType::Q4_1, GgmlType::Q8_0]));
        let tokens = gguf.metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!((tokens.len(), tokens[1].as_str()), (320, "<|im_start|>"));
    }
}

/// A model whose answer is one token for ever would hide most errors of a decoder.
#[test]
fn logits_spread_and_greedy_text_varies() {
    for base in [TinyModel::default(), TinyModel { tied: false, ..TinyModel::default() }, qwen2()] {
        for seed in 1..=8 {
            let model = TinyModel { seed, ..base.clone() };
            let mut forward = Forward::load(&model.to_gguf().unwrap()).unwrap();
            let mut logits = forward.prefill(&[1, 80, 75, 82, 2, 1]).unwrap();
            let mean = logits.iter().sum::<f32>() / logits.len() as f32;
            let spread = logits.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / logits.len() as f32;
            assert!((1.0..25.0).contains(&spread), "seed {seed}: variance of logits {spread}");
            let mut seen = HashSet::new();
            for _ in 0..48 {
                let token = argmax(&logits);
                seen.insert(token);
                logits = forward.step(token).unwrap();
            }
            println!(
                "{:?} tied {} seed {seed}: variance {spread}, {} tokens",
                base.architecture,
                base.tied,
                seen.len()
            );
            assert!(seen.len() >= 8, "seed {seed}: only {} different tokens in 48", seen.len());
        }
    }
}

/// Position and context must matter: the same last token after other words gives other logits.
#[test]
fn logits_depend_on_context_and_order() {
    let mut forward = Forward::load(&TinyModel::default().to_gguf().unwrap()).unwrap();
    let mut logits = |tokens: &[u32]| {
        forward.truncate(0);
        forward.prefill(tokens).unwrap()
    };
    let (a, b, c) = (logits(&[70, 80, 90, 100]), logits(&[80, 70, 90, 100]), logits(&[71, 80, 90, 100]));
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance(&a, &b) > 0.1, "order changes logits by {}", distance(&a, &b));
    assert!(distance(&a, &c) > 0.1, "content changes logits by {}", distance(&a, &c));
}

#[test]
fn every_type_can_be_asked_for() {
    use GgmlType::{BF16, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    let wide = TinyModel { hidden: 256, ffn: 512, head_dim: 64, tied: false, ..TinyModel::default() };
    let exact = TinyModel { types: RoleTypes::all(F32), ..wide.clone() };
    let logits = |model: &TinyModel| {
        Forward::load(&model.to_gguf().unwrap()).unwrap().prefill(&[1, 80, 90, 100]).unwrap()
    };
    let expected = logits(&exact);
    for kind in [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4K, Q5K, Q6K] {
        let found = logits(&TinyModel { types: RoleTypes::all(kind), ..wide.clone() });
        let error: f32 = found.iter().zip(&expected).map(|(a, b)| (a - b).powi(2)).sum();
        let nmse = error / expected.iter().map(|x| x * x).sum::<f32>();
        println!("{}: NMSE of logits {nmse}", kind.name());
        // Four bits cost a random network a lot; scrambled weights would give about 2.
        assert!(nmse < 0.3, "{}: NMSE of logits {nmse}", kind.name());
    }
}

#[test]
fn impossible_models_are_refused_by_name() {
    let message = |model: TinyModel| model.to_gguf().unwrap_err().to_string();
    assert_eq!(
        TinyModel { vocab: 258, ..TinyModel::default() }.to_gguf(),
        Err(TinyModelError::Vocabulary(258))
    );
    let k = message(TinyModel { types: RoleTypes::all(GgmlType::Q6K), ..TinyModel::default() });
    assert!(k.contains("token_embd.weight") && k.contains("multiple of 256"), "{k}");
    let huge = message(TinyModel { context: 1 << 40, ..TinyModel::default() });
    assert!(huge.contains("context"), "{huge}");
}

#[test]
fn writer_writes_every_value_type_in_both_versions() {
    let pairs = [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-3)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-300)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-70_000)),
        ("u64", Value::U64(1 << 50)),
        ("i64", Value::I64(-(1 << 50))),
        ("f32", Value::F32(1.5)),
        ("f64", Value::F64(-0.1)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("né".to_owned())),
        ("a.u8", Value::Array(Array::U8(vec![1, 2]))),
        ("a.i8", Value::Array(Array::I8(vec![-1]))),
        ("a.u16", Value::Array(Array::U16(vec![1, 60_000]))),
        ("a.i16", Value::Array(Array::I16(vec![-1]))),
        ("a.u32", Value::Array(Array::U32(vec![]))),
        ("a.i32", Value::Array(Array::I32(vec![-7, 7]))),
        ("a.u64", Value::Array(Array::U64(vec![1 << 40]))),
        ("a.i64", Value::Array(Array::I64(vec![-1]))),
        ("a.f32", Value::Array(Array::F32(vec![0.5, -0.5]))),
        ("a.f64", Value::Array(Array::F64(vec![0.1]))),
        ("a.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("a.string", Value::Array(Array::String(vec![String::new(), "b".to_owned()]))),
    ];
    for (version, alignment) in [(2, 32), (3, 32), (3, 64), (3, 8)] {
        let mut writer = GgufWriter::new().with_version(version).with_alignment(alignment);
        for (key, value) in &pairs {
            writer.metadata(key, value.clone());
        }
        writer.tensor("first", &[3, 2], GgmlType::F32, vec![7; 24]);
        writer.tensor("second", &[5], GgmlType::F16, vec![9; 10]);
        let file = writer.to_bytes().unwrap();
        let gguf = pollster::block_on(Gguf::read(&file)).unwrap();
        assert_eq!((gguf.version, gguf.alignment), (version, alignment));
        for (key, value) in &pairs {
            assert_eq!(gguf.metadata.get(key), Some(value), "{key}");
        }
        for (name, dims, byte) in [("first", vec![3, 2], 7), ("second", vec![5], 9)] {
            let tensor = gguf.tensor(name).unwrap();
            assert_eq!(tensor.dims, dims, "{name}");
            assert!(tensor.offset.is_multiple_of(u64::from(alignment)), "{name} is aligned");
            let range = usize::try_from(tensor.offset).unwrap()
                ..usize::try_from(tensor.offset + tensor.size).unwrap();
            assert!(file[range].iter().all(|&found| found == byte), "bytes of {name}");
        }
    }
}
