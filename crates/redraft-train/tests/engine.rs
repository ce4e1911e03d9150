//! The target in burn against the engine that drafters serve: the features that a drafter learns from are those that it
//! will read.

use burn::tensor::{Device, Int, Tensor, TensorData};
use pollster::block_on;
use redraft::{CaptureLayers, EngineOptions, KvType, Rows, Want};
use redraft_testing::{TinyModel, Tolerance, assert_close};
use redraft_train::target::{Target, TargetFile};

#[test]
fn features_and_logits_are_the_engine_s() {
    for (name, model) in [
        ("two layers", TinyModel::default()),
        ("four layers", TinyModel { layers: 4, seed: 9, ..TinyModel::default() }),
    ] {
        let last = u32::try_from(model.layers).expect("few layers");
        let captures = [0, last - 1, last];
        let file = redraft_tests::tiny(&model);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tiny.gguf");
        std::fs::write(&path, &file).expect("written");
        let options = EngineOptions {
            captures: CaptureLayers::At(captures.to_vec()),
            kv: KvType::F32,
            ..EngineOptions::default()
        };
        let mut engine = redraft_tests::load(&format!("train.{name}"), &file, options);
        let tokens = redraft_tests::tokens(5, 70, 320);
        let served = block_on(engine.forward(&tokens, Want { logits: Rows::All, captures: true }));
        let served = served.expect("a forward pass");

        let device = Device::flex();
        let target = TargetFile::open(&path).expect("a file");
        let target = Target::load(&target, captures, 70, &device).expect("a target");
        let ids: Vec<i64> = tokens.iter().map(|token| i64::from(token.0)).collect();
        let taught = target.forward(Tensor::<2, Int>::from_data(TensorData::new(ids, [1, 70]), &device));
        let floats = |tensor: Tensor<2>| tensor.into_data().try_to_vec::<f32>().expect("floats");
        // Each is held to the reference, the engine within 2e-4 and the trainer within 1e-4.
        let tolerance = Tolerance::within(3e-4);
        for (place, wanted) in served.captures.chunks_exact(70 * 64).enumerate() {
            let found = floats(taught.features.clone().narrow(2, place * 64, 64).squeeze_dim(0));
            assert_close(&format!("{name}: capture {place}"), &found, wanted, tolerance);
        }
        let logits = floats(target.logits(taught.hidden.squeeze_dim(0)));
        assert_close(&format!("{name}: logits"), &logits, &served.logits, tolerance);
    }
}
