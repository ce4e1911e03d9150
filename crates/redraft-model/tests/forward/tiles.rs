//! Tiles that are left out, as on an adapter where they compute something else.

use crate::support::{bytes, device, tiny, tokens};
use redraft_gguf::Gguf;
use redraft_model::check::{self, Outcome};
use redraft_model::{Batch, LoadOptions, LogitRows, Model, Path, Tiles};
use redraft_testing::TinyModel;
use std::sync::Arc;

fn load(gpu: &Arc<redraft_gpu::Gpu>, tiles: Tiles) -> Model {
    let file = tiny(TinyModel::default());
    let gguf = pollster::block_on(Gguf::read(&file)).expect("a valid file");
    let options = LoadOptions { tiles, ..LoadOptions::default() };
    pollster::block_on(Model::load(Arc::clone(gpu), &file, &gguf, &options, |_| {}))
        .expect("a loadable model")
}

#[test]
fn loading_compares_the_tiles() {
    for path in [Path::Broadcast, Path::Plain] {
        let gpu = device("tiles.compared", path);
        let report = load(&gpu, Tiles::ALL).tiles();
        assert!(report.compared && report.agree(), "{path:?}: {report}");
        assert_eq!(report.used, Tiles::ALL, "{path:?}: {report}");
    }
}

#[test]
fn any_set_of_tiles_gives_the_same_results() {
    let gpu = device("tiles.sets", Path::Broadcast);
    let results = |tiles| {
        let model = load(&gpu, tiles);
        let mut all = Vec::new();
        for rows in [1u32, 3, 8, 13, 33] {
            let tokens = tokens(u64::from(rows), rows as usize, model.config().vocab);
            model.submit(&Batch::chain(0, &tokens, LogitRows::All), |_| Ok(()), &[]).expect("a valid batch");
            for row in 0..rows {
                all.push(bytes(&model, model.logits_row(row)));
                let (key, value) = model.key_value(1, row).expect("a slot");
                all.push([bytes(&model, key), bytes(&model, value)].concat());
            }
        }
        let report = pollster::block_on(check::model(&model)).expect("a healthy device");
        assert!(report.items.iter().all(|item| item.outcome == Outcome::Pass), "{tiles:?}: {report:?}");
        all
    };
    let expected = results(Tiles::ALL);
    for sizes in [&[1, 2, 4][..], &[1], &[8], &[2, 8]] {
        let tiles = Tiles::of(sizes).expect("some tile");
        assert!(results(tiles) == expected, "tiles of {sizes:?} rows");
    }
}
