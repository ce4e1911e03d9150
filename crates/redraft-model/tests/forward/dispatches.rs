//! How many dispatches a step is, and that none of them depends on the number of rows.

use crate::support::{device, load, paths, tiny, tokens};
use redraft_model::{Batch, KvType, LogitRows};
use redraft_testing::TinyModel;

#[test]
fn a_layer_is_at_most_eight_dispatches_for_any_number_of_rows() {
    let file = tiny(TinyModel::default());
    for path in paths("dispatches") {
        let gpu = device("dispatches", path);
        let model = load(&gpu, &file, path, KvType::F16, &[]);
        let layers = model.config().layers;
        let count = |batch: &Batch| model.submit(batch, |_| Ok(()), &[]).expect("a valid batch");
        for rows in 1..=model.max_rows() {
            let tokens = tokens(u64::from(rows), rows as usize, model.config().vocab);
            // One dispatch embeds, the rest are the layers'.
            let bare = count(&Batch::chain(0, &tokens, LogitRows::None));
            assert!(bare - 1 <= 8 * layers, "{path:?}, {rows} rows: {bare} dispatches in {layers} layers");
            if [1, 9, 20].contains(&rows) {
                let parents: Vec<_> =
                    (0..rows).map(|row| row.checked_sub(1).map(|above| above / 2)).collect();
                let tree = count(&Batch::tree(0, &tokens, &parents));
                assert_eq!(tree, bare + 2, "{path:?}, {rows} rows: a tree adds the last norm and the head");
            }
        }
    }
}
