//! A row's result does not depend on the batch, bit for bit (`redraft_model::Path`).

use crate::support::{device, has_f16, load, run, tiny, tokens};
use redraft_decode::TokenId;
use redraft_gpu::{Readback, Slice};
use redraft_model::{Batch, KvType, LogitRows, Model, Path};
use redraft_testing::{Prng, TinyModel};

const ROWS: [u32; 12] = [1, 2, 3, 4, 5, 8, 9, 13, 16, 17, 32, 33];

/// A random tree. `shape` says how deep: rows hang on any earlier row, on one of the last three, or mostly on the
/// committed tokens, so that there are deep trees, bushy ones and ones of several roots.
fn random_parents(prng: &mut Prng, rows: u32, shape: u32) -> Vec<Option<u32>> {
    (0..rows)
        .map(|row| {
            let earlier = row as usize;
            let back = match shape % 3 {
                0 => prng.below(earlier + 1),
                1 => prng.below(earlier.min(2) + 1),
                _ => prng.below(2 * earlier + 1),
            };
            // Counted back from the last row; what lies before the first is the committed tokens.
            (earlier.checked_sub(back + 1)).map(|parent| u32::try_from(parent).expect("small"))
        })
        .collect()
}

/// A loaded model, and the readbacks that fetch what rows leave behind without a submission of their own.
struct Bench {
    model: Model,
    sequence: Vec<TokenId>,
    logits: Readback,
    captures: Vec<Readback>,
    keys_values: Vec<[Readback; 2]>,
}

const MOST: u32 = 33;
/// Beyond the longest prefix and the deepest tree.
const SEQUENCE: usize = 160;

impl Bench {
    fn new(path: Path, kv: KvType) -> Self {
        let file = tiny(TinyModel { context: 256, ..TinyModel::default() });
        let gpu = device("row_exact", path);
        let model = load(&gpu, &file, path, kv, &[0, 1, 2]);
        let config = model.config().clone();
        let readback = |columns: u32| {
            let bytes = u64::from(MOST) * u64::from(columns) * 4;
            pollster::block_on(gpu.readback("rows", bytes)).expect("memory")
        };
        Self {
            sequence: tokens(3, SEQUENCE, config.vocab),
            logits: readback(config.vocab),
            captures: (0..3).map(|_| readback(config.hidden)).collect(),
            keys_values: (0..config.layers)
                .map(|_| [(); 2].map(|()| readback(config.kv_heads * config.head_dim)))
                .collect(),
            model,
        }
    }

    /// Everything that the rows of a batch leave behind, per row: logits, captures, keys and values as bytes.
    fn run(&self, committed: u32, rows: u32, batch: &Batch) -> Vec<Vec<u8>> {
        let model = &self.model;
        let many = |one: Slice<'_>| u64::from(rows) * one.size;
        let mut parts =
            vec![(Slice { size: many(model.logits_row(0)), ..model.logits_row(0) }, &self.logits)];
        for (layer, readback) in self.captures.iter().enumerate() {
            parts.push((model.capture(layer, rows).expect("captured"), readback));
        }
        for (layer, [keys, values]) in self.keys_values.iter().enumerate() {
            let (key, value) = model.key_value(layer, committed).expect("a slot");
            parts.push((Slice { size: many(key), ..key }, keys));
            parts.push((Slice { size: many(value), ..value }, values));
        }
        model.submit(batch, |_| Ok(()), &parts).expect("a valid batch");
        let mut found = vec![Vec::new(); rows as usize];
        for (slice, readback) in parts {
            let bytes = pollster::block_on(model.gpu().read(readback, slice.size)).expect("readable");
            for (row, part) in found.iter_mut().zip(bytes.chunks(bytes.len() / rows as usize)) {
                row.extend_from_slice(part);
            }
        }
        found
    }

    /// A tree against plain decoding, every row. The rows are decoded in the order of a walk that goes down before it
    /// goes on: whenever a row's turn comes, the slots before it hold its own ancestors.
    fn check(&self, committed: u32, tree: &[TokenId], parents: &[Option<u32>]) {
        let rows = u32::try_from(tree.len()).expect("small");
        let batch = Batch::tree(committed, tree, parents).with_captures();
        let found = self.run(committed, rows, &batch);
        let children = |of: Option<u32>| {
            let list = (0u32..).zip(parents).filter(move |(_, parent)| **parent == of);
            list.map(|(row, _)| row).collect::<Vec<_>>()
        };
        let mut open: Vec<(u32, u32)> = children(None).into_iter().map(|row| (row, committed)).collect();
        let mut seen = 0;
        while let Some((row, position)) = open.pop() {
            let token = [tree[row as usize]];
            let one = Batch::chain(position, &token, LogitRows::All).with_captures();
            let expected = self.run(position, 1, &one).pop().expect("one row");
            assert!(
                found[row as usize] == expected,
                "{:?}: row {row} of {rows} after {committed} tokens differs from plain decoding: {}",
                self.model.path(),
                self.difference(&found[row as usize], &expected)
            );
            open.extend(children(Some(row)).into_iter().map(|child| (child, position + 1)));
            seen += 1;
        }
        assert_eq!(seen, rows, "every row was compared");
    }

    fn difference(&self, found: &[u8], expected: &[u8]) -> String {
        let config = self.model.config();
        let (logits, captures) = (config.vocab as usize * 4, config.hidden as usize * 4 * 3);
        let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
        let count = found.iter().zip(expected).filter(|(a, b)| a != b).count();
        let part = match at {
            at if at < logits => "logits",
            at if at < logits + captures => "captures",
            _ => "keys and values",
        };
        format!("{count} bytes, the first in the {part}")
    }

    /// Random trees of every size after every prefix length of `prefixes`, ascending.
    fn check_all(&self, seed: u64, prefixes: std::ops::Range<u32>) {
        let mut prng = Prng::new(seed);
        let first = &self.sequence[..prefixes.start as usize];
        for (at, chunk) in (0u32..).step_by(64).zip(first.chunks(64)) {
            run(&self.model, &Batch::chain(at, chunk, LogitRows::None));
        }
        for committed in prefixes {
            for (shape, rows) in (committed..).zip(ROWS) {
                let tree = tokens(prng.bits(), rows as usize, self.model.config().vocab);
                let parents = random_parents(&mut prng, rows, shape);
                self.check(committed, &tree, &parents);
            }
            // The trees have overwritten the slot of the next token of the prefix.
            run(&self.model, &Batch::chain(committed, &[self.sequence[committed as usize]], LogitRows::None));
        }
    }
}

// Blocks of positions are eight long in the row kernels and 64 in the windowed one. Each number of rows meets each
// prefix length modulo the block, and short prefixes, where the tree itself fills the first blocks.

#[test]
fn plain_rows_are_exact() {
    let bench = Bench::new(Path::Plain, KvType::F16);
    bench.check_all(7, 0..3);
    bench.check_all(8, 57..65);
    Bench::new(Path::Plain, KvType::F32).check_all(9, 30..32);
}

#[test]
fn broadcast_rows_are_exact() {
    let bench = Bench::new(Path::Broadcast, KvType::F16);
    bench.check_all(17, 0..3);
    bench.check_all(18, 57..65);
    Bench::new(Path::Broadcast, KvType::F32).check_all(19, 30..32);
}

#[test]
fn slices_rows_are_exact() {
    let bench = Bench::new(Path::Slices, KvType::F16);
    bench.check_all(27, 0..2);
    bench.check_all(28, 40..104);
}

#[test]
fn shuffle_rows_are_exact() {
    let bench = Bench::new(Path::Shuffle, KvType::F16);
    bench.check_all(37, 0..2);
    bench.check_all(38, 40..104);
}

#[test]
fn slices16_rows_are_exact() {
    if has_f16("row_exact.slices16") {
        let bench = Bench::new(Path::Slices16, KvType::F16);
        bench.check_all(47, 0..2);
        bench.check_all(48, 57..65);
    }
}

#[test]
fn shuffle16_rows_are_exact() {
    if has_f16("row_exact.shuffle16") {
        let bench = Bench::new(Path::Shuffle16, KvType::F16);
        bench.check_all(57, 0..2);
        bench.check_all(58, 40..72);
        Bench::new(Path::Shuffle16, KvType::F32).check_all(59, 30..32);
    }
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
    if has_f16("row_exact.pair") {
        assert_eq!(logits(Path::Slices16), logits(Path::Shuffle16), "slices in f16");
    }
}
