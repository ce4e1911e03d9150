//! Matrices that do not fit a storage binding are split, and nobody notices.

use crate::support::{bytes, load, open, paths, tiny, tokens};
use redraft_gguf::{GgmlType, Gguf};
use redraft_model::{Batch, KvType, LoadOptions, LogitRows, Model, Path};
use redraft_testing::{RoleTypes, TinyModel};

/// Five groups of 32 rows of 256 columns in f32, and room for the largest buffer that is no matrix.
const BINDING: u64 = 5 * 32 * 256 * 4;

fn file() -> Vec<u8> {
    tiny(TinyModel {
        hidden: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        ffn: 480,
        vocab: 331,
        context: 64,
        tied: false,
        types: RoleTypes::all(GgmlType::F32),
        ..TinyModel::default()
    })
}

/// Logits, captures, keys and values of a tree of rows, and the number of dispatches.
fn results(model: &Model) -> (Vec<Vec<u8>>, u32) {
    let (vocab, mut found, mut dispatches) = (model.config().vocab, Vec::new(), 0);
    let prefix = tokens(1, 20, vocab);
    model.submit(&Batch::chain(0, &prefix, LogitRows::None), |_| Ok(()), &[]).expect("a valid batch");
    // Tokens from every part of the embedding.
    for rows in [1u32, 9] {
        let tree: Vec<_> =
            (0..rows).map(|row| redraft_decode::TokenId((row + 1) * 331 / (rows + 1))).collect();
        let parents: Vec<_> = (0..rows).map(|row| row.checked_sub(1).map(|above| above / 2)).collect();
        let batch = Batch::tree(20, &tree, &parents).with_captures();
        dispatches = model.submit(&batch, |_| Ok(()), &[]).expect("a valid batch");
        for row in 0..rows {
            found.push(bytes(model, model.logits_row(row)));
            for layer in 0..2 {
                let (key, value) = model.key_value(layer, 20 + row).expect("a slot");
                found.extend([bytes(model, key), bytes(model, value)]);
            }
        }
        found.push(bytes(model, model.capture(0, rows).expect("captured")));
    }
    (found, dispatches)
}

#[test]
fn a_split_model_computes_the_same() {
    let file = file();
    for path in paths("split") {
        let whole = load(&open("split", path, None), &file, path, KvType::F16, &[1]);
        let split = load(&open("split", path, Some(BINDING)), &file, path, KvType::F16, &[1]);
        let ((expected, few), (found, many)) = (results(&whole), results(&split));
        // Embedding and head in three parts instead of one each; in each of two layers qkv in four, output in two, gate
        // and up in six, down in four.
        assert_eq!(many, few + 2 + 2 + 2 * (3 + 1 + 5 + 3), "{path:?}: dispatches");
        assert!(found == expected, "{path:?}: results of the split model differ");
    }
}

#[test]
fn a_binding_too_small_for_anything_is_an_error_that_says_so() {
    let file = file();
    let gguf = pollster::block_on(Gguf::read(&file)).expect("a valid file");
    let gpu = open("split", Path::Broadcast, Some(30_000));
    let options = LoadOptions { path: Some(Path::Broadcast), ..LoadOptions::default() };
    let error = pollster::block_on(Model::load(gpu, &file, &gguf, &options, |_| {})).expect_err("too small");
    assert!(error.to_string().contains("limit of 30000 bytes"), "{error}");
}
