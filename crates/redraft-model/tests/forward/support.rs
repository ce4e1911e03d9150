//! Devices and models for the tests.

use redraft_decode::TokenId;
use redraft_gguf::Gguf;
use redraft_gpu::{AdapterChoice, Gpu, GpuError, GpuOptions, Slice};
use redraft_model::{Batch, CaptureLayers, KvType, LoadOptions, Model, Path, Precision};
use redraft_testing::{TinyModel, ran_on_gpu, ran_on_gpu_in_f16, skip_without_f16};
use std::sync::Arc;

/// A device of the tier that `path` belongs to: families without subgroups run on a strict device.
pub(crate) fn device(test: &str, path: Path) -> Arc<Gpu> {
    open(test, path, None)
}

/// The same, binding no more than `max_binding` bytes at once.
pub(crate) fn open(test: &str, path: Path, max_binding: Option<u64>) -> Arc<Gpu> {
    let strict = matches!(path, Path::Plain | Path::Slices | Path::Slices16);
    let f16 = path.precision() == Precision::F16;
    let options = GpuOptions { strict, f16, max_binding, ..GpuOptions::default() };
    let gpu = pollster::block_on(Gpu::open(&AdapterChoice::Auto, &options)).expect("an adapter");
    let record = if f16 { ran_on_gpu_in_f16 } else { ran_on_gpu };
    record(&format!("{test}.{}", path.name()), &gpu.report().name, strict);
    Arc::new(gpu)
}

/// The families that the adapter can run; what is left out is declared.
pub(crate) fn paths(test: &str) -> Vec<Path> {
    let f16 = has_f16(test);
    Path::ALL.into_iter().filter(|path| f16 || path.precision() == Precision::F32).collect()
}

/// Whether the adapter has f16; declares a skip where it has not.
pub(crate) fn has_f16(test: &str) -> bool {
    let options = GpuOptions { f16: true, ..GpuOptions::default() };
    let without =
        matches!(pollster::block_on(Gpu::open(&AdapterChoice::Auto, &options)), Err(GpuError::NoF16 { .. }));
    if without {
        skip_without_f16(test);
    }
    !without
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
