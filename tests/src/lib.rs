//! Support for the tests that cross crates: engines that are recorded as GPU tests, answers as a whole, and the
//! reference that greedy answers must follow.

use pollster::block_on;
use redraft::{
    Engine, EngineOptions, Error, GenerateOptions, Generation, GgmlType, Gguf, GpuError, Precision, ReadAt,
    Step, TokenId, Value,
};
use redraft_testing::reference::argmax;
use redraft_testing::{
    Forward, GgufWriter, Prng, TinyModel, ran_on_gpu, ran_on_gpu_in_f16, skip_without_f16,
};

/// Loads `source` and records that the test `name` runs on the adapter.
///
/// # Panics
/// If it cannot be loaded.
#[track_caller]
pub fn load(name: &str, source: &impl ReadAt, options: EngineOptions) -> Engine {
    let strict = options.strict;
    let engine = block_on(Engine::load(source, options, |_| {})).expect("a loadable model and an adapter");
    ran_on_gpu(name, &engine.adapter().name, strict);
    engine
}

/// The same with products in f16; none, and said so, where the adapter has no f16.
///
/// # Panics
/// If it cannot be loaded for another reason.
#[track_caller]
pub fn load_in_f16(name: &str, source: &impl ReadAt, options: EngineOptions) -> Option<Engine> {
    let strict = options.strict;
    let options = EngineOptions { precision: Precision::F16, ..options };
    match block_on(Engine::load(source, options, |_| {})) {
        Err(Error::Gpu(GpuError::NoF16 { .. })) => {
            skip_without_f16(name);
            None
        }
        engine => {
            let engine = engine.expect("a loadable model and an adapter");
            assert_eq!(engine.model().path().precision(), Precision::F16, "the family");
            ran_on_gpu_in_f16(name, &engine.adapter().name, strict);
            Some(engine)
        }
    }
}

/// The bytes of a tiny model's file.
///
/// # Panics
/// If the shape is not possible.
#[must_use]
pub fn tiny(model: &TinyModel) -> Vec<u8> {
    model.to_gguf().expect("a possible shape")
}

/// `count` random tokens of a vocabulary, a pure function of `seed`.
///
/// # Panics
/// Never: ids below `vocab` fit.
#[must_use]
pub fn tokens(seed: u64, count: usize, vocab: u32) -> Vec<TokenId> {
    let mut prng = Prng::new(seed);
    (0..count).map(|_| TokenId(u32::try_from(prng.below(vocab as usize)).expect("below vocab"))).collect()
}

/// The bare ids.
#[must_use]
pub fn ids(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

/// An answer read to its end.
///
/// # Errors
/// Those of [`Engine::generate`] and of the stream.
///
/// # Panics
/// If the steps and the finished answer contradict each other.
pub fn answer(
    engine: &mut Engine,
    prompt: &[TokenId],
    options: GenerateOptions,
) -> Result<(Vec<Step>, Generation), Error> {
    let mut stream = engine.generate(prompt, options)?;
    let mut steps = Vec::new();
    while let Some(step) = block_on(stream.next())? {
        steps.push(step);
    }
    assert_eq!(block_on(stream.next())?, None, "an ended stream stays ended");
    let generation = stream.finish();
    let text: String = steps.iter().map(|step| step.text.as_str()).collect();
    let stepped: Vec<TokenId> = steps.iter().map(|step| step.id).collect();
    assert_eq!(generation.ids, stepped, "the ids are those of the steps");
    assert_eq!(generation.prompt_ids, prompt, "the prompt is handed back");
    // What a cancelled answer held back is only in the whole.
    assert!(generation.text.starts_with(&text), "{text:?} streamed, {:?} in the end", generation.text);
    let timings = &generation.timings;
    assert_eq!(timings.decode_tokens as usize, stepped.len().saturating_sub(1), "{timings:?}");
    Ok((steps, generation))
}

/// Walks a greedy answer along the oracle: wherever the two best logits are at least `margin` apart, the answer has
/// the better one. Returns how many steps were that clear.
///
/// # Panics
/// If a clear step differs.
pub fn follow(reference: &mut Forward, prompt: &[TokenId], answer: &[TokenId], margin: f32) -> usize {
    reference.truncate(0);
    let mut logits = reference.prefill(&ids(prompt)).expect("a valid prompt");
    let mut clear = 0;
    for (step, id) in answer.iter().enumerate() {
        let gap = gap(&logits);
        if gap >= margin {
            clear += 1;
            let best = argmax(&logits);
            assert_eq!(id.0, best, "step {step} behind {} tokens, margin {gap}", prompt.len());
        }
        logits = reference.step(id.0).expect("a valid token");
    }
    clear
}

/// How far the best logit is above the second.
#[must_use]
pub fn gap(logits: &[f32]) -> f32 {
    let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &logit in logits {
        if logit > best {
            (best, second) = (logit, best);
        } else if logit > second {
            second = logit;
        }
    }
    best - second
}

/// A GGUF file taken apart, to be changed and put together again.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Keys and values in order.
    pub metadata: Vec<(String, Value)>,
    /// Tensors in order.
    pub tensors: Vec<TensorPart>,
}

/// A tensor of [`Parts`].
#[derive(Debug, Clone)]
pub struct TensorPart {
    /// Its name.
    pub name: String,
    /// Dimensions, columns first.
    pub dims: Vec<u64>,
    /// The type of its bytes.
    pub kind: GgmlType,
    /// Its bytes in the file.
    pub bytes: Vec<u8>,
}

impl Parts {
    /// The parts of a valid file.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn of(file: &[u8]) -> Self {
        let gguf = block_on(Gguf::read(&file)).expect("a valid file");
        let metadata = gguf.metadata.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let part = |tensor: &redraft::TensorInfo| {
            let start = usize::try_from(tensor.offset).expect("a small file");
            let size = usize::try_from(tensor.size).expect("a small file");
            let bytes = file[start..start + size].to_vec();
            TensorPart { name: tensor.name.clone(), dims: tensor.dims.clone(), kind: tensor.kind, bytes }
        };
        Self { metadata, tensors: gguf.tensors.iter().map(part).collect() }
    }

    /// Replaces the value of a key, or adds the key.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.metadata.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
    }

    /// The file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.metadata {
            writer.metadata(key, value.clone());
        }
        for TensorPart { name, dims, kind, bytes } in &self.tensors {
            writer.tensor(name, dims, *kind, bytes.clone());
        }
        writer.to_bytes_unchecked()
    }
}
