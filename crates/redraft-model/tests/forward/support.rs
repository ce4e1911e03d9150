//! Devices and models for the tests.

use redraft_decode::TokenId;
use redraft_gguf::Gguf;
use redraft_gpu::{AdapterChoice, Gpu, GpuOptions, Slice};
use redraft_model::{Batch, CaptureLayers, KvType, LoadOptions, Model, Path};
use redraft_testing::{TinyModel, ran_on_gpu};
use std::sync::Arc;

/// A device of the tier that `path` belongs to: families without subgroups run on a strict device.
pub(crate) fn device(test: &str, path: Path) -> Arc<Gpu> {
    let strict = strict(path);
    let options = GpuOptions { strict, ..GpuOptions::default() };
    let gpu = pollster::block_on(Gpu::open(&AdapterChoice::Auto, &options)).expect("an adapter");
    ran_on_gpu(&format!("{test}.{}", path.name()), &gpu.report().name, strict);
    Arc::new(gpu)
}

/// Whether a family does without subgroups.
pub(crate) fn strict(path: Path) -> bool {
    matches!(path, Path::Plain | Path::Slices)
}

pub(crate) fn load(gpu: &Arc<Gpu>, file: &Vec<u8>, path: Path, kv: KvType, captures: &[u32]) -> Model {
    let gguf = pollster::block_on(Gguf::read(file)).expect("a valid file");
    let options = LoadOptions {
        kv,
        path: Some(path),
        captures: CaptureLayers::At(captures.to_vec()),
        skip_first_steps: true,
        ..LoadOptions::default()
    };
    pollster::block_on(Model::load(Arc::clone(gpu), file, &gguf, &options, |_| {})).expect("a loadable model")
}

pub(crate) fn tiny(model: TinyModel) -> Vec<u8> {
    model.to_gguf().expect("a valid tiny model")
}

pub(crate) fn tokens(seed: u64, count: usize, vocab: u32) -> Vec<TokenId> {
    let mut prng = redraft_testing::Prng::new(seed);
    (0..count).map(|_| TokenId(u32::try_from(prng.below(vocab as usize)).expect("small"))).collect()
}

pub(crate) fn floats(model: &Model, slice: Slice<'_>) -> Vec<f32> {
    let bytes = pollster::block_on(model.gpu().fetch(slice)).expect("readable");
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect()
}

pub(crate) fn bytes(model: &Model, slice: Slice<'_>) -> Vec<u8> {
    pollster::block_on(model.gpu().fetch(slice)).expect("readable")
}

pub(crate) fn run(model: &Model, batch: &Batch) {
    model.submit(batch, |_| Ok(()), &[]).expect("a valid batch");
}
