//! A model ready to answer.

use crate::costs::Habits;
use crate::generate::TokenStream;
use crate::{Error, GenerateOptions};
use redraft_decode::TokenId;
use redraft_decode::draft::{Costs, Plan, Policy};
use redraft_drafter::{DrafterFile, Quantization, TargetFingerprint};
use redraft_gguf::{Gguf, ModelConfig, ReadAt};
use redraft_gpu::{AdapterChoice, AdapterReport, Gpu, GpuOptions, KernelTime, Readback};
use redraft_model::check::{self, CheckProgress, CheckReport};
use redraft_model::{
    Batch, CaptureLayers, DrafterOptions, KvType, LoadOptions, LogitRows, MemoryPlan, Model, Path, Precision,
    Progress, Sampler, Speculator, SpeculatorOptions, TileReport, Tiles,
};
use redraft_text::{ChatTemplate, Message, RenderOptions, Special, Tokenizer};
use std::sync::Arc;
use web_time::Instant;

/// How to load a model.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Which adapter computes.
    pub adapter: AdapterChoice,
    /// Tokens of the context; by default the model's own, at most 4096.
    pub context: Option<u32>,
    /// Type of the KV cache.
    pub kv: KvType,
    /// What the model's products multiply in. [`Precision::F16`] needs an adapter with `shader-f16`.
    pub precision: Precision,
    /// Only what WebGPU has in browsers: no subgroups.
    pub strict: bool,
    /// Compile kernels with bounds checks; for tests.
    pub checked: bool,
    /// Bind no more than this many bytes of storage at once; for tests of models that must be split.
    pub max_binding: Option<u64>,
    /// Contents of a `tokenizer.json`, used in place of the tokenizer in the model file.
    pub tokenizer: Option<Vec<u8>>,
    /// Kernel family; by default what suits the adapter and the precision. With [`Precision::F16`] it is the one in f16
    /// that needs as much of subgroups; one that is in f16 itself needs no [`Self::precision`].
    pub path: Option<Path>,
    /// Time every dispatch, for [`Engine::profile_report`]. Slows everything down.
    pub profile: bool,
    /// Time the phases of rounds, for [`Engine::phase_report`].
    pub phases: bool,
    /// What [`Engine::pipeline_cache`] gave in an earlier run on this adapter.
    pub pipeline_cache: Option<Vec<u8>>,
    /// Where to capture the residual stream.
    pub captures: CaptureLayers,
    /// Refuse models that need more device memory than this many bytes, their drafter included.
    pub memory_limit: Option<u64>,
    /// The drafter of speculative decoding; its capture layers then take the place of `captures`.
    pub drafter: Option<DrafterFile>,
    /// The type that the drafter's matrices are rewritten in.
    pub drafter_quantization: Option<Quantization>,
    /// Speculate from a table ([`Engine::foretell`]) in place of a drafter; for tests.
    pub oracle: bool,
    /// Load faster where drivers compile kernels when they first run, and pay for it in the first answer.
    pub skip_first_steps: bool,
    /// Use no other tiles than these, for instance those that [`check_adapter`] found to agree. Loading compares them
    /// with this model's weights, unless it skips the first steps, and drops those that differ.
    pub tiles: Tiles,
}

/// Rows whose logits [`Engine::forward`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rows {
    /// None.
    None,
    /// The last one.
    #[default]
    Last,
    /// All of them.
    All,
}

/// What [`Engine::forward`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Want {
    /// Logits of which rows.
    pub logits: Rows,
    /// The residual stream at the layers that the engine was loaded for.
    pub captures: bool,
}

/// What a forward pass computed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForwardOutput {
    /// `[rows][vocab]`.
    pub logits: Vec<f32>,
    /// `[layers][rows][hidden]`.
    pub captures: Vec<f32>,
}

/// What one step of plain decoding costs the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostStep {
    /// Seconds to write the step's inputs, to record it and to encode it for the driver.
    pub seconds: f64,
    /// Dispatches, sampling included.
    pub dispatches: u32,
}

/// A model on an adapter, its tokenizer, and the sequence whose keys and values it holds.
#[derive(Debug)]
pub struct Engine {
    pub(crate) model: Model,
    pub(crate) sampler: Sampler,
    pub(crate) ids: Readback,
    pub(crate) greatest: Readback,
    /// A row of logits, once somebody asked for log-probabilities.
    row: Option<Readback>,
    pub(crate) sequence: Vec<TokenId>,
    pub(crate) speculator: Option<Speculator>,
    pub(crate) warnings: Vec<String>,
    pub(crate) policy: Option<Policy>,
    pub(crate) costs: Option<Costs>,
    /// What was asked for in place of the template that suits the drafter.
    pub(crate) plan_template: Option<Plan>,
    pub(crate) habits: Habits,
    pub(crate) memory_limit: Option<u64>,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl Engine {
    /// Opens an adapter and loads the GGUF file that `source` reads onto it.
    ///
    /// # Errors
    /// [`Error`]; nothing stays allocated.
    pub async fn load(
        source: &impl ReadAt,
        options: EngineOptions,
        progress: impl FnMut(Progress),
    ) -> Result<Self, Error> {
        // The cheap checks come first: a file that cannot work is refused before a device is opened.
        let gguf = Gguf::read(source).await?;
        let config = ModelConfig::from_gguf(&gguf)?;
        let tokenizer = match &options.tokenizer {
            Some(json) => Tokenizer::from_json(json)?,
            None => Tokenizer::from_gguf(&gguf.metadata)?,
        };
        if tokenizer.len() > config.vocab as usize {
            return Err(Error::Vocabulary { tokenizer: tokenizer.len(), model: config.vocab });
        }
        let template = match options.tokenizer {
            Some(_) => template_for(&gguf, &tokenizer)?,
            None => ChatTemplate::from_gguf(&gguf.metadata)?,
        };
        let mut captures = options.captures;
        let mut warnings = Vec::new();
        if let Some(drafter) = &options.drafter {
            let layers = drafter.config().captures(config.layers)?;
            let found = drafter.check_target(&TargetFingerprint::of(&gguf, &config, layers)?)?;
            warnings.extend(found.iter().map(ToString::to_string));
            captures = CaptureLayers::At(layers.to_vec());
        }
        let precision = options.path.map_or(options.precision, |path| match options.precision {
            Precision::F32 => path.precision(),
            Precision::F16 => Precision::F16,
        });
        let gpu_options = GpuOptions {
            strict: options.strict,
            f16: precision == Precision::F16,
            checked: options.checked,
            max_binding: options.max_binding,
            profile: options.profile,
            phases: options.phases,
            pipeline_cache: options.pipeline_cache,
        };
        let gpu = Arc::new(Gpu::open(&options.adapter, &gpu_options).await?);
        let path = match options.path {
            Some(path) => path.with_precision(precision),
            None => Path::of(gpu.capabilities(), precision),
        };
        let load = LoadOptions {
            context: options.context,
            kv: options.kv,
            path: Some(path),
            captures,
            memory_limit: options.memory_limit,
            skip_first_steps: options.skip_first_steps,
            tiles: options.tiles,
        };
        let compile_all = !options.skip_first_steps;
        let model = Model::load(Arc::clone(&gpu), source, &gguf, &load, progress).await?;
        let mut sampler = Sampler::new(&model).await?;
        if compile_all {
            sampler.first_steps(&model).await?;
        }
        let ids = gpu.readback("ids", u64::from(model.max_rows()) * 4).await?;
        let greatest = gpu.readback("greatest", u64::from(model.max_rows()) * 8).await?;
        let speculator = if options.drafter.is_some() || options.oracle {
            let made = SpeculatorOptions {
                drafter: options.drafter.as_ref(),
                drafter_options: DrafterOptions {
                    quantization: options.drafter_quantization.unwrap_or(Quantization::Q8_0),
                },
                memory_limit: options.memory_limit,
                oracle: options.oracle,
            };
            let mut speculator = Speculator::new(&model, &sampler, &made).await?;
            if compile_all {
                speculator.first_steps(&model, &sampler).await?;
            }
            Some(speculator)
        } else {
            None
        };
        let sequence = Vec::new();
        Ok(Self {
            model,
            sampler,
            ids,
            greatest,
            row: None,
            sequence,
            speculator,
            warnings,
            policy: None,
            costs: None,
            plan_template: None,
            habits: Habits::default(),
            memory_limit: options.memory_limit,
            tokenizer,
            template,
        })
    }

    /// The model's shape.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    /// The model itself, for what the engine does not cover.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The model's chat template, if it has one.
    #[must_use]
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// The adapter in use.
    #[must_use]
    pub fn adapter(&self) -> &AdapterReport {
        self.model.gpu().report()
    }

    /// Whether the device still works: the first fault that it reported, if there was one.
    ///
    /// # Errors
    /// [`Error::Gpu`], after which the model has to be loaded again.
    pub fn healthy(&self) -> Result<(), Error> {
        Ok(self.model.gpu().healthy()?)
    }

    /// Device memory in use. Draft trees are in it once something was drafted, or a drafter is loaded.
    #[must_use]
    pub fn memory(&self) -> MemoryPlan {
        match &self.speculator {
            Some(speculator) => speculator.memory(&self.model),
            None => self.model.memory(),
        }
    }

    /// The tiles in use. Where none agree on this adapter, verifying several rows at once does not pay.
    #[must_use]
    pub fn tiles(&self) -> TileReport {
        self.model.tiles()
    }

    /// Tokens of the context.
    #[must_use]
    pub fn context(&self) -> u32 {
        self.model.context()
    }

    /// Tokens of a plain text; special tokens in it are recognised, and what the model wants around a prompt is added.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        Ok(self.tokenizer.encode_prompt(text, Special::Parse)?.into_iter().map(TokenId).collect())
    }

    /// Tokens of a conversation, up to where the model's answer begins.
    ///
    /// # Errors
    /// [`Error::NoTemplate`], [`Error::Template`], [`Error::Tokenizer`].
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, Error> {
        let template = self.template.as_ref().ok_or(Error::NoTemplate)?;
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        let text = template.render(messages, options)?;
        Ok(self.tokenizer.encode(&text, Special::Parse)?.into_iter().map(TokenId).collect())
    }

    /// Streams an answer to `prompt`. Keys and values of a prefix shared with the last sequence are reused.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`], [`Error::Token`], [`Error::Sampling`], [`Error::Stop`].
    pub fn generate(
        &mut self,
        prompt: &[TokenId],
        options: GenerateOptions,
    ) -> Result<TokenStream<'_>, Error> {
        TokenStream::new(self, prompt, options)
    }

    /// Appends `tokens` to the sequence and computes them.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`] if they do not fit the context, [`Error::Token`],
    /// [`Error::Model`]. Tokens of chunks already computed stay in the sequence.
    pub async fn forward(&mut self, tokens: &[TokenId], want: Want) -> Result<ForwardOutput, Error> {
        self.check_prompt(tokens, self.position(), self.context())?;
        let vocab = self.config().vocab as usize;
        let layers = if want.captures { self.model.capture_layers().len() } else { 0 };
        let mut by_layer = vec![Vec::new(); layers];
        let mut output = ForwardOutput::default();
        let chunk = self.model.max_rows() as usize;
        let chunks = tokens.len().div_ceil(chunk);
        for (index, part) in tokens.chunks(chunk).enumerate() {
            let logits = match want.logits {
                Rows::All => LogitRows::All,
                Rows::Last if index + 1 == chunks => LogitRows::Last,
                _ => LogitRows::None,
            };
            let mut batch = Batch::chain(self.position(), part, logits);
            if want.captures {
                batch = batch.with_captures();
            }
            self.model.submit(&batch, |_| Ok(()), &[])?;
            self.sequence.extend_from_slice(part);
            let rows = match logits {
                LogitRows::All => part.len(),
                LogitRows::Last => 1,
                LogitRows::None => 0,
            };
            if rows > 0 {
                let bytes = (rows * vocab * 4) as u64;
                output.logits.extend(self.floats(self.model.logits().slice(0, bytes)).await?);
            }
            for (layer, values) in by_layer.iter_mut().enumerate() {
                if let Some(slice) = self.model.capture(layer, batch.rows()) {
                    values.extend(self.floats(slice).await?);
                }
            }
        }
        output.captures = by_layer.concat();
        Ok(output)
    }

    async fn floats(&self, slice: redraft_gpu::Slice<'_>) -> Result<Vec<f32>, Error> {
        Ok(to_floats(&self.model.gpu().fetch(slice).await?))
    }

    /// Makes what [`Self::logits_of`] reads through, once.
    pub(crate) async fn ready_for_logits(&mut self) -> Result<(), Error> {
        if self.row.is_none() {
            let bytes = u64::from(self.config().vocab) * 4;
            self.row = Some(self.model.gpu().readback("row", bytes).await?);
        }
        Ok(())
    }

    /// Logits of row `row` of those that the last step computed.
    pub(crate) async fn logits_of(&self, row: u32) -> Result<Vec<f32>, Error> {
        let slice = self.model.logits_row(row);
        let Some(readback) = &self.row else { return self.floats(slice).await };
        let gpu = self.model.gpu();
        gpu.submit(|_| Ok::<_, Error>(()), &[(slice, readback)])?;
        Ok(to_floats(&gpu.read(readback, slice.size).await?))
    }

    pub(crate) fn check_prompt(&self, tokens: &[TokenId], at: u32, context: u32) -> Result<(), Error> {
        let vocab = self.config().vocab;
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if let Some(token) = tokens.iter().find(|token| token.0 >= vocab) {
            return Err(Error::Token { id: token.0, vocab });
        }
        let total = u64::from(at) + tokens.len() as u64;
        if total > u64::from(context) {
            return Err(Error::PromptTooLong { tokens: total, context: self.context() });
        }
        Ok(())
    }

    /// Tokens of the current sequence.
    #[must_use]
    pub fn position(&self) -> u32 {
        u32::try_from(self.sequence.len()).unwrap_or(u32::MAX)
    }

    /// Forgets all but the first `len` tokens of the sequence.
    pub fn truncate(&mut self, len: u32) {
        self.sequence.truncate(len as usize);
        if let Some(speculator) = &mut self.speculator {
            speculator.rewind(len);
        }
    }

    /// Forgets the sequence.
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Computes one step of `rows` verification rows (a binary tree, a token drawn from each) after `position` tokens, and
    /// waits for it. For measurements: the sequence is forgotten.
    ///
    /// # Errors
    /// [`Error::Model`] if the rows do not fit.
    pub async fn time_rows(&mut self, rows: u32, position: u32) -> Result<(), Error> {
        self.reset();
        let tokens = vec![TokenId(0); rows as usize];
        let parents: Vec<_> = (0..rows).map(|row| row.checked_sub(1).map(|above| above / 2)).collect();
        let batch = Batch::tree(position, &tokens, &parents);
        let drawn = self.sampler.prepare(&batch)?;
        let (sampler, first) = (&self.sampler, self.sampler.tokens(1));
        self.model.submit(&batch, |pass| sampler.record(pass, drawn), &[(first, &self.ids)])?;
        self.model.gpu().read(&self.ids, 4).await?;
        Ok(())
    }

    /// Decodes one token after `position` others, as an answer does it, and says what that cost the host. For
    /// measurements: the sequence is forgotten.
    ///
    /// # Errors
    /// [`Error::Model`] if the position does not fit.
    pub async fn time_host(&mut self, position: u32) -> Result<HostStep, Error> {
        self.reset();
        let batch = Batch::chain(position, &[TokenId(0)], LogitRows::Last);
        let started = Instant::now();
        let sampler = &self.sampler;
        let rows = sampler.prepare(&batch)?;
        let inputs = started.elapsed();
        let copies = [(sampler.tokens(rows), &self.ids), (sampler.greatest(rows), &self.greatest)];
        let dispatches = self.model.submit(&batch, |pass| sampler.record(pass, rows), &copies)?;
        let seconds = (inputs + self.model.gpu().last_recording()).as_secs_f64();
        self.model.gpu().read(&self.ids, 4).await?;
        Ok(HostStep { seconds, dispatches })
    }

    /// How long the host took to record the last step or round and to encode it for the driver.
    #[must_use]
    pub fn last_recording(&self) -> std::time::Duration {
        self.model.gpu().last_recording()
    }

    /// Proves on this adapter, for this model, that a row does not depend on the batch it is computed in.
    ///
    /// # Errors
    /// [`Error::Model`] if a step fails; differences are in the report.
    pub async fn check(&mut self) -> Result<CheckReport, Error> {
        self.reset();
        Ok(check::model(&self.model).await?)
    }

    /// Compiled pipelines, for [`EngineOptions::pipeline_cache`] of a later run; `None` where the backend has no cache.
    #[must_use]
    pub fn pipeline_cache(&self) -> Option<Vec<u8>> {
        self.model.gpu().pipeline_cache()
    }

    /// Time per kernel since loading; `None` without [`EngineOptions::profile`] or timestamps.
    #[must_use]
    pub fn profile_report(&self) -> Option<Vec<KernelTime>> {
        self.model.gpu().profile()
    }

    /// Time per phase since loading: those of [`redraft_model::phase`], and "step" for everything else; `None` without
    /// [`EngineOptions::phases`] or [`EngineOptions::profile`], or without timestamps.
    #[must_use]
    pub fn phase_report(&self) -> Option<Vec<KernelTime>> {
        self.model.gpu().phases()
    }
}

/// The model's template with the special tokens of a tokenizer that is not the model file's.
fn template_for(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, Error> {
    let Some(source) = gguf.metadata.str("tokenizer.chat_template")? else {
        return Ok(None);
    };
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
    let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos_ids().first().copied()));
    Ok(Some(ChatTemplate::new(source, bos, eos)?))
}

fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Runs every product kernel and a small built-in model on an adapter and compares: tile variants with each other bit
/// for bit, rows of trees with plain decoding, and all with the CPU. `strict` checks the kernels that browsers get,
/// `precision` says which of the two families that an adapter has.
///
/// # Errors
/// [`Error::Gpu`] if the adapter cannot be opened, or has no f16 where that is asked for.
pub async fn check_adapter(
    choice: &AdapterChoice,
    strict: bool,
    precision: Precision,
    progress: impl FnMut(&CheckProgress),
) -> Result<CheckReport, Error> {
    let options = GpuOptions { strict, f16: precision == Precision::F16, ..GpuOptions::default() };
    let gpu = Arc::new(Gpu::open(choice, &options).await?);
    Ok(check::adapter(&gpu, precision, progress).await?)
}

/// [`check_adapter`] for a kernel family that is not the adapter's own: in a browser the families that need subgroups
/// are never its own, because wgpu does not see them there.
///
/// # Errors
/// As [`check_adapter`].
pub async fn check_adapter_on(
    choice: &AdapterChoice,
    path: Path,
    progress: impl FnMut(&CheckProgress),
) -> Result<CheckReport, Error> {
    let options = GpuOptions { f16: path.precision() == Precision::F16, ..GpuOptions::default() };
    let gpu = Arc::new(Gpu::open(choice, &options).await?);
    Ok(check::adapter_on(&gpu, path, progress).await?)
}
