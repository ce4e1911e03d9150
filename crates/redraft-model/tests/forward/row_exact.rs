//! A row's result does not depend on the batch, bit for bit (`redraft_model::Path`).

use crate::support::{RowResult, device, load, results, run, step, tiny, tokens};
use redraft_decode::TokenId;
use redraft_model::{Batch, KvType, LogitRows, Model, Path};
use redraft_testing::{Prng, TinyModel};

const ROWS: [u32; 12] = [1, 2, 3, 4, 5, 8, 9, 13, 16, 17, 32, 33];

fn random_parents(prng: &mut Prng, rows: u32) -> Vec<Option<u32>> {
    (0..rows)
        .map(|row| {
            // One in `row + 1` hangs on the committed tokens, so that there are several roots as well.
            let parent = prng.below(row as usize + 1);
            (parent < row as usize).then(|| u32::try_from(parent).expect("small"))
        })
        .collect()
}

/// Runs the path to `row` token by token after the same committed tokens, and returns the row's result. The slot of
/// the last row of the path differs from its slot in the tree; the result is read from where it is.
fn alone(model: &Model, committed: u32, tree: &[TokenId], parents: &[Option<u32>], row: u32) -> RowResult {
    let mut path = vec![row];
    while let Some(parent) = parents[path[path.len() - 1] as usize] {
        path.push(parent);
    }
    path.reverse();
    let mut last = None;
    for (at, row) in (committed..).zip(path) {
        last = Some(step(model, at, tree[row as usize]));
    }
    last.expect("a path has a row")
}

fn check(path: Path, kv: KvType, rows: &[u32], prefixes: impl Iterator<Item = u32>) {
    let file = tiny(TinyModel::default());
    let gpu = device("row_exact", path);
    let model = load(&gpu, &file, path, kv, &[0, 1, 2]);
    let vocab = model.config().vocab;
    let mut prng = Prng::new(7);
    let prefix = tokens(3, 160, vocab);
    for committed in prefixes {
        for &rows in rows {
            let tree = tokens(prng.bits(), rows as usize, vocab);
            let parents = random_parents(&mut prng, rows);
            for (index, chunk) in prefix[..committed as usize].chunks(64).enumerate() {
                let at = u32::try_from(index * 64).expect("small");
                run(&model, &Batch::chain(at, chunk, LogitRows::None));
            }
            run(&model, &Batch::tree(committed, &tree, &parents).with_captures());
            let found = results(&model, committed, rows);
            // Every row of small trees, the last and some others of large ones.
            let checked: Vec<u32> =
                if rows <= 5 { (0..rows).collect() } else { vec![0, rows / 2, rows - 2, rows - 1] };
            for row in checked {
                let expected = alone(&model, committed, &tree, &parents, row);
                assert!(
                    found[row as usize] == expected,
                    "{path:?}: row {row} of {rows} after {committed} tokens differs from plain decoding: {}",
                    difference(&found[row as usize], &expected)
                );
            }
        }
    }
}

fn difference(found: &RowResult, expected: &RowResult) -> String {
    let logits = found.logits.iter().zip(&expected.logits).filter(|(a, b)| a != b).count();
    let captures: Vec<_> = found.captures.iter().zip(&expected.captures).map(|(a, b)| a == b).collect();
    let kv: Vec<_> = found.keys_values.iter().zip(&expected.keys_values).map(|(a, b)| a == b).collect();
    format!("{logits} logits differ, captures equal {captures:?}, keys and values equal {kv:?}")
}

#[test]
fn every_batch_size_on_every_path() {
    for path in Path::ALL {
        check(path, KvType::F16, &ROWS, [0, 1, 77].into_iter());
    }
}

#[test]
fn every_prefix_length_modulo_the_block() {
    // Blocks are eight positions in the row kernels and 64 in the windowed one.
    check(Path::Broadcast, KvType::F16, &[3, 9], 56..=66);
    check(Path::Plain, KvType::F32, &[5], 60..=65);
    check(Path::Slices, KvType::F16, &[3, 9], (0..64).map(|offset| 30 + offset));
}

#[test]
fn paths_of_a_pair_agree() {
    // Not needed for exactness on one adapter, but what the design says: plain and broadcast do the same operations.
    let file = tiny(TinyModel::default());
    let sequence = tokens(5, 20, 320);
    let logits = |path| {
        let gpu = device("row_exact.pair", path);
        let model = load(&gpu, &file, path, KvType::F16, &[]);
        run(&model, &Batch::chain(0, &sequence, LogitRows::Last));
        crate::support::bytes(&model, model.logits_row(0))
    };
    assert_eq!(logits(Path::Plain), logits(Path::Broadcast), "rows");
    assert_eq!(logits(Path::Slices), logits(Path::Shuffle), "slices");
}
