//! Properties of the oracle that no other engine is needed to check.

use redraft_gguf::{Architecture, GgmlType};
use redraft_testing::reference::{Forward, argmax};
use redraft_testing::{
    KvType, Prng, ReferenceError, RoleTypes, TinyModel, TinyTensor, Tolerance, assert_close,
};

const TOKENS: [u32; 12] = [1, 80, 75, 299, 33, 310, 4, 100, 262, 90, 2, 1];

fn exact() -> TinyModel {
    TinyModel { types: RoleTypes::all(GgmlType::F32), ..TinyModel::default() }
}

fn load(model: &TinyModel) -> Forward {
    Forward::load(&model.to_gguf().unwrap()).unwrap()
}

/// Logits of every position, `[positions][vocab]`.
fn all_logits(mut forward: Forward) -> Vec<Vec<f32>> {
    TOKENS.iter().map(|&token| forward.step(token).unwrap()).collect()
}

fn assert_same(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (position, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_close(&format!("{what}, position {position}"), found, expected, Tolerance::F32);
    }
}

/// Rows of every head from interleaved order (0 1 2 3 …) to half-split order (0 2 4 … 1 3 5 …).
fn to_half_split(tensor: &mut TinyTensor, head_dim: usize) {
    let rows: Vec<Vec<f32>> = tensor.values.chunks(tensor.columns).map(<[f32]>::to_vec).collect();
    let reordered = rows.chunks(head_dim).flat_map(|head| {
        let half = |odd: usize| head.iter().skip(odd).step_by(2).flatten().copied();
        half(0).chain(half(1))
    });
    tensor.values = reordered.collect();
}

/// A Llama file and a Qwen2 file with permuted rows and zero biases are the same function; with a bias on
/// the values of v alone, they are not.
#[test]
fn interleaved_equals_half_split_with_permuted_rows() {
    let llama = exact();
    let qwen = TinyModel { architecture: Architecture::Qwen2, ..exact() };
    let mut tensors = llama.tensors();
    for tensor in &mut tensors {
        if tensor.name.contains("attn_q") || tensor.name.contains("attn_k") {
            to_half_split(tensor, llama.head_dim);
        }
    }
    let mut biases: Vec<TinyTensor> =
        qwen.tensors().into_iter().filter(|tensor| tensor.name.ends_with(".bias")).collect();
    assert_eq!(biases.len(), 3 * qwen.layers);
    let random = biases.clone();
    biases.iter_mut().for_each(|bias| bias.values.fill(0.0));

    let expected = all_logits(load(&llama));
    let logits = |biases: &[TinyTensor]| {
        let tensors = [tensors.as_slice(), biases].concat();
        all_logits(Forward::load(&qwen.write(&tensors).unwrap()).unwrap())
    };
    assert_same("zero biases", &logits(&biases), &expected);
    for part in ["attn_q", "attn_k", "attn_v"] {
        let mut one = biases.clone();
        for (bias, random) in one.iter_mut().zip(&random).filter(|(bias, _)| bias.name.contains(part)) {
            bias.values.clone_from(&random.values);
        }
        let found = logits(&one);
        let last = |logits: &[Vec<f32>]| logits[TOKENS.len() - 1].clone();
        let close = Tolerance::F32.compare(&last(&found), &last(&expected));
        assert!(close.is_err(), "a bias of {part} must change the logits");
    }
}

/// A bias of v passes through attention unchanged, because its weights sum to one. So it equals a bias added
/// to the residual stream: W_o · b, which a value bias of another model can only reproduce if biases are
/// added before attention and to the right head.
#[test]
fn value_bias_reaches_the_stream_through_the_output_matrix() {
    let model = TinyModel { architecture: Architecture::Qwen2, layers: 1, ..exact() };
    let mut tensors = model.tensors();
    let find = |tensors: &[TinyTensor], name: &str| {
        tensors.iter().find(|tensor| tensor.name == name).unwrap().values.clone()
    };
    let capture = |tensors: &[TinyTensor]| {
        let mut forward = Forward::load(&model.write(tensors).unwrap()).unwrap().with_captures(&[0, 1]);
        forward.forward_rows(&TOKENS[..3], &[None, Some(0), Some(1)]).unwrap();
        forward.captures().to_vec()
    };
    // Without a feed-forward part, the stream after the layer is x + W_o · attention.
    tensors.iter_mut().filter(|t| t.name.contains("ffn_down")).for_each(|t| t.values.fill(0.0));
    let with = capture(&tensors);
    let (bias, output) = (find(&tensors, "blk.0.attn_v.bias"), find(&tensors, "blk.0.attn_output.weight"));
    tensors.iter_mut().filter(|t| t.name.contains("attn_v.bias")).for_each(|t| t.values.fill(0.0));
    let without = capture(&tensors);
    assert_eq!(with[0], without[0], "the input of layer 0 is the embedding");
    // Query head h reads KV head h / 2, so its slice of W_o sees that head's bias.
    let group = model.heads / model.kv_heads;
    let repeated: Vec<f32> = (0..model.heads)
        .flat_map(|head| bias[head / group * model.head_dim..][..model.head_dim].to_vec())
        .collect();
    let added: Vec<f32> = output
        .chunks(repeated.len())
        .map(|row| row.iter().zip(&repeated).map(|(w, b)| w * b).sum())
        .collect();
    let expected: Vec<f32> =
        without[1].chunks(model.hidden).flat_map(|row| row.iter().zip(&added).map(|(x, b)| x + b)).collect();
    assert_close("stream after the layer", &with[1], &expected, Tolerance::F32);
}

/// Random forests, also over a prefix: every row equals the step-by-step decoding of its path, bit for bit.
#[test]
fn tree_rows_equal_step_by_step_decoding_bit_for_bit() {
    let mut prng = Prng::new(5);
    let models = [
        TinyModel::default(),
        TinyModel { architecture: Architecture::Qwen2, tied: false, ..TinyModel::default() },
    ];
    for (case, kv) in [(0, KvType::F32), (1, KvType::F16), (0, KvType::F16), (1, KvType::F32)] {
        let model = &models[case];
        let new = || load(model).with_kv(kv).with_captures(&[0, 1, 2]);
        for (prefix, rows) in [(0, 7), (5, 13), (11, 4)] {
            let tokens: Vec<u32> =
                (0..rows).map(|_| u32::try_from(prng.below(model.vocab)).unwrap()).collect();
            // One in four is a root; otherwise any earlier row.
            let parents: Vec<Option<usize>> =
                (0..rows).map(|row| (row > 0 && prng.below(4) > 0).then(|| prng.below(row))).collect();
            let mut tree = new();
            TOKENS[..prefix].iter().for_each(|&token| drop(tree.step(token).unwrap()));
            let logits = tree.forward_rows(&tokens, &parents).unwrap();
            let captures = tree.captures().to_vec();
            for row in 0..rows {
                let mut path = vec![row];
                while let Some(parent) = parents[path[0]] {
                    path.insert(0, parent);
                }
                let mut plain = new();
                TOKENS[..prefix].iter().for_each(|&token| drop(plain.step(token).unwrap()));
                let mut expected = Vec::new();
                path.iter().for_each(|&row| expected = plain.step(tokens[row]).unwrap());
                let what = format!("model {case} {kv:?}, prefix {prefix}, parents {parents:?}, row {row}");
                assert_eq!(bits(&logits[row * model.vocab..][..model.vocab]), bits(&expected), "{what}");
                for (capture, expected) in captures.iter().zip(plain.captures()) {
                    assert_eq!(
                        bits(&capture[row * model.hidden..][..model.hidden]),
                        bits(expected),
                        "{what}"
                    );
                }
                // Committing the path leaves the same keys and values as plain decoding.
                tree.truncate(prefix);
                tree.forward_rows(&tokens, &parents).unwrap();
                tree.accept(&path).unwrap();
                for layer in 0..model.layers {
                    assert_eq!(tree.keys_values(layer), plain.keys_values(layer), "{what}, layer {layer}");
                }
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn prefill_equals_steps_and_truncate_forgets() {
    let mut prefilled = load(&TinyModel::default());
    // Longer than one chunk of 32.
    let long: Vec<u32> = TOKENS.iter().cycle().take(41).copied().collect();
    let last = prefilled.prefill(&long).unwrap();
    let mut stepped = load(&TinyModel::default());
    let mut expected = Vec::new();
    long.iter().for_each(|&token| expected = stepped.step(token).unwrap());
    assert_eq!(bits(&last), bits(&expected));
    assert_eq!(prefilled.length(), 41);
    prefilled.truncate(40);
    assert_eq!(bits(&prefilled.step(long[40]).unwrap()), bits(&expected));
    assert!(prefilled.prefill(&[]).unwrap().is_empty(), "no token, no logits");
}

#[test]
fn rope_scalings_agree_where_they_must() {
    let plain = all_logits(load(&exact()));
    let linear = all_logits(load(&TinyModel { rope_linear: Some(2.0), ..exact() }));
    let half = exact().head_dim / 2;
    let twos = all_logits(load(&TinyModel { rope_factors: Some(vec![2.0; half]), ..exact() }));
    let ones = all_logits(load(&TinyModel { rope_factors: Some(vec![1.0; half]), ..exact() }));
    assert_eq!(plain, ones, "factors of one change nothing");
    assert_eq!(linear, twos, "a factor of two for every pair is linear scaling by two");
    assert_eq!(plain[0], linear[0], "position 0 is not rotated");
    assert!(Tolerance::F32.compare(&linear[5], &plain[5]).is_err(), "scaling changes later positions");
}

#[test]
fn untied_head_with_the_embedding_equals_tied() {
    let tied = exact();
    let untied = TinyModel { tied: false, ..exact() };
    let mut tensors = tied.tensors();
    let mut head = tensors[0].clone();
    head.name = "output.weight".to_owned();
    tensors.push(head);
    let found = all_logits(Forward::load(&untied.write(&tensors).unwrap()).unwrap());
    assert_eq!(found, all_logits(load(&tied)));
}

#[test]
fn bad_calls_and_files_are_errors_that_name_the_place() {
    let mut forward = load(&TinyModel::default());
    assert!(matches!(forward.step(320), Err(ReferenceError::Token { row: 0, token: 320, vocab: 320 })));
    assert!(matches!(forward.forward_rows(&[1, 2], &[None]), Err(ReferenceError::Rows { .. })));
    let forward_parent = forward.forward_rows(&[1, 2], &[None, Some(1)]);
    assert!(matches!(forward_parent, Err(ReferenceError::Parent { row: 1, .. })));
    forward.forward_rows(&[1, 2, 3], &[None, Some(0), Some(0)]).unwrap();
    for path in [&[1][..], &[0, 1, 2], &[0, 9]] {
        assert!(matches!(forward.accept(path), Err(ReferenceError::Parent { .. })), "{path:?}");
    }
    assert_eq!(forward.length(), 0, "nothing was committed");
    forward.accept(&[0, 2]).unwrap();
    assert_eq!(forward.length(), 2);
    assert!(forward.accept(&[0]).is_err(), "rows are gone once accepted");

    let file = TinyModel::default().to_gguf().unwrap();
    assert!(matches!(Forward::load(&file[..file.len() / 2]), Err(ReferenceError::Gguf(_))));
    let mut tensors = TinyModel::default().tensors();
    tensors.retain(|tensor| tensor.name != "blk.1.ffn_up.weight");
    let error = Forward::load(&TinyModel::default().write(&tensors).unwrap()).err().unwrap().to_string();
    assert!(error.contains("blk.1.ffn_up.weight"), "{error}");
}

#[test]
fn argmax_takes_the_lowest_of_equals() {
    assert_eq!(argmax(&[0.0, 3.0, 3.0, -1.0]), 1);
    assert_eq!(argmax(&[f32::NAN, -5.0, f32::NAN]), 1);
    assert_eq!(argmax(&[]), 0);
}
