//! From a GGUF file to a model on the GPU.

use crate::buffers::{Buffers, Sizes};
use crate::forward::{Attention, CaptureLayers, Layer, MAX_ROWS, Model};
use crate::matrix::{Loader, Matrix};
use crate::products::{Input, rows_of};
use crate::range::{Fed, Meter};
use crate::warm_up::{kv_flag, warm_up};
use crate::{KvType, MemoryPlan, ModelError, Path, Planned, Precision, TileReport, Tiles, rope};
use redraft_gguf::{Gguf, ModelConfig, ReadAt, TensorInfo};
use redraft_gpu::{Buffer, BufferUse, Dispatch, Gpu, Slice};
use redraft_shaders::params::{AttentionParams, CaptureParams, EmbedParams, RmsNormParams};
use std::sync::Arc;

/// What loading is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Compiling kernels; counted in kernels.
    Kernels,
    /// Reading, packing and uploading weights; counted in bytes of the file.
    Weights,
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Done so far.
    pub done: u64,
    /// Of this many.
    pub total: u64,
}

/// How to load a model.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Tokens that the KV cache holds; by default the model's own context, at most 4096.
    pub context: Option<u32>,
    /// Type of the KV cache.
    pub kv: KvType,
    /// Kernel family; by default what suits the adapter, in f32.
    pub path: Option<Path>,
    /// Where to capture the residual stream.
    pub captures: CaptureLayers,
    /// Refuse models that need more device memory than this many bytes.
    pub memory_limit: Option<u64>,
    /// Do not run every tile once at the end of loading. Drivers that compile a kernel when it first runs then do so in
    /// the middle of the first answer; for those who need few of the tiles.
    pub skip_first_steps: bool,
    /// Use no other tiles than these. The first steps, unless skipped, compare them and drop those that differ.
    pub tiles: Tiles,
}

/// The context that a model gets when none is asked for.
const DEFAULT_CONTEXT: u32 = 4096;

impl Model {
    /// Compiles the kernels, reads the weights from `source`, and prepares every dispatch of a step.
    ///
    /// Host memory stays within a few MiB: tensors are read, packed and uploaded in pieces.
    ///
    /// # Errors
    /// [`ModelError`]; nothing stays allocated.
    pub async fn load<S: ReadAt>(
        gpu: Arc<Gpu>,
        source: &S,
        gguf: &Gguf,
        options: &LoadOptions,
        mut progress: impl FnMut(Progress),
    ) -> Result<Self, ModelError> {
        let config = ModelConfig::from_gguf(gguf)?;
        check_shape(&config)?;
        let context = options.context.unwrap_or(config.context.min(DEFAULT_CONTEXT));
        if context == 0 || context > config.context {
            return Err(ModelError::Batch {
                what: "context",
                found: u64::from(context),
                expected: format!("1 to {}, the model's own", config.context),
            });
        }
        let path = options.path.unwrap_or_else(|| Path::of(gpu.capabilities(), Precision::F32));
        if path.precision() == Precision::F16 && !gpu.capabilities().f16 {
            return Err(ModelError::NoF16 { path: path.name() });
        }
        let capture_layers = options.captures.resolve(config.layers)?;
        let captures = u32::try_from(capture_layers.len()).unwrap_or(u32::MAX);
        let plan = MemoryPlan::of(&config, gguf, &Planned { context, kv: options.kv, path, captures })?;
        if let Some(limit) = options.memory_limit.filter(|limit| plan.total() > *limit) {
            return Err(ModelError::Memory { needed: plan.total(), limit, plan: plan.to_string() });
        }
        let total = gguf.tensors.iter().map(|tensor| tensor.size).sum();
        let kernels = warm_up(&gpu, gguf, &config, path, options.kv, &mut progress).await?;
        let loader = Loader { gpu: &gpu, source, progress, done: 0, total, unflushed: 0 };
        let rope_bytes = u64::from(context + MAX_ROWS) * u64::from(config.head_dim) * 4;
        let rope = gpu.buffer("rope", rope_bytes, BufferUse::Storage).await?;
        let sizes =
            Sizes { slots: context + MAX_ROWS, x_columns: config.hidden, captures: capture_layers.len() };
        let buffers = Buffers::new(&gpu, &config, path, options.kv, &sizes).await?;
        let mut build =
            Build { gpu: &gpu, gguf, config: &config, path, kv: options.kv, buffers: &buffers, rope, loader };
        let token_table = build.token_table("token_embd.weight", config.vocab).await?;
        let embed = build.embed(&token_table, &buffers.h).await?;
        build.fill_rope(context).await?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            let capture = build.capture(&capture_layers, index).await?;
            layers.push(build.layer(index, capture).await?);
        }
        let last_capture = build.capture(&capture_layers, config.layers).await?;
        let (output_norm, output_fed) = build.norm("output_norm.weight", &buffers.head_step).await?;
        let head_table = match config.tied_embeddings {
            true => None,
            false => Some(build.token_table("output.weight", config.vocab).await?),
        };
        let head = build.head(head_table.as_ref().unwrap_or(&token_table), &output_fed).await?;
        let mut progress = build.loader.progress;
        gpu.flush().await?;
        let mut model = Self {
            config,
            tiles: TileReport { used: options.tiles, agreeing: Tiles::ALL, compared: false },
            path,
            kv: options.kv,
            context,
            plan,
            capture_layers,
            token_table,
            embed,
            layers,
            last_capture,
            output_norm,
            head,
            buffers,
            gpu,
        };
        if !options.skip_first_steps {
            model.first_steps(kernels, &mut progress).await?;
        }
        Ok(model)
    }
}

/// What the kernels assume beyond what `ModelConfig` checks.
pub(crate) fn check_shape(config: &ModelConfig) -> Result<(), ModelError> {
    let head_dim = u64::from(config.head_dim);
    if !config.head_dim.is_multiple_of(8) || config.head_dim > 256 {
        return Err(ModelError::Shape {
            what: "attention.key_length",
            found: head_dim,
            expected: "a multiple of 8 and at most 256",
        });
    }
    Ok(())
}

/// Work in progress: what every part of a forward pass is built from.
pub(crate) struct Build<'a, S, P> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) gguf: &'a Gguf,
    pub(crate) config: &'a ModelConfig,
    pub(crate) path: Path,
    pub(crate) kv: KvType,
    pub(crate) buffers: &'a Buffers,
    pub(crate) rope: Buffer,
    pub(crate) loader: Loader<'a, S, P>,
}

impl<S: ReadAt, P: FnMut(Progress)> Build<'_, S, P> {
    pub(crate) fn tensor(&self, name: &str) -> Result<&TensorInfo, ModelError> {
        // `ModelConfig::from_gguf` has found all of them.
        self.gguf.tensor(name).ok_or(ModelError::Shape {
            what: "a tensor of the model",
            found: 0,
            expected: "present; the file changed while it was read",
        })
    }

    pub(crate) async fn fill_rope(&mut self, context: u32) -> Result<(), ModelError> {
        let factors = match self.gguf.tensor("rope_freqs.weight") {
            Some(tensor) if self.config.rope.scaling.factors => Some(self.loader.vector(tensor).await?),
            _ => None,
        };
        let table = rope::table(self.config, context + MAX_ROWS, factors.as_deref());
        self.gpu.write(self.rope.whole(), bytemuck::cast_slice(&table));
        Ok(())
    }

    pub(crate) async fn token_table(&mut self, name: &str, tokens: u32) -> Result<Matrix, ModelError> {
        let tensor = self.gguf.tensor(name).cloned().ok_or(ModelError::Shape {
            what: "the token table",
            found: 0,
            expected: "present",
        })?;
        let order = rows_of(0, tokens);
        let mut meter = Meter::new(self.half(), None);
        self.loader.matrix(name, &[&tensor], &order, false, &mut meter).await
    }

    /// Rows of `table` for the tokens of the batch, written to `out`.
    pub(crate) async fn embed(&self, table: &Matrix, out: &Buffer) -> Result<Vec<Dispatch>, ModelError> {
        let pipeline = self.gpu.kernel("embed", &[table.format.name()]).await?;
        let mut dispatches = Vec::new();
        for part in &table.parts {
            let params = EmbedParams { blocks: table.blocks, first: part.first, count: part.rows, pad0: 0 };
            let params = self.gpu.uniform("embed.params", &params).await?;
            let b = self.buffers;
            let slices = [params.whole(), b.step.whole(), b.rows.whole(), part.buffer.whole(), out.whole()];
            dispatches.push(self.gpu.bind(&pipeline, &slices).await?);
        }
        Ok(dispatches)
    }

    async fn capture(&self, layers: &[u32], layer: u32) -> Result<Option<Dispatch>, ModelError> {
        let index = layers.iter().position(|captured| *captured == layer).and_then(|i| u32::try_from(i).ok());
        let (Some(index), Some(captures)) = (index, &self.buffers.captures) else {
            return Ok(None);
        };
        let columns = self.config.hidden;
        let params = CaptureParams { columns, first: index * MAX_ROWS * columns, pad0: 0, pad1: 0 };
        let params = self.gpu.uniform("capture.params", &params).await?;
        let pipeline = self.gpu.kernel("capture", &[]).await?;
        let slices = [params.whole(), self.buffers.step.whole(), self.buffers.h.whole(), captures.whole()];
        Ok(Some(self.gpu.bind(&pipeline, &slices).await?))
    }

    /// The norm with the gain `name`, from `h` to `x`, and what products that read `x` must know of it.
    pub(crate) async fn norm(&mut self, name: &str, step: &Buffer) -> Result<(Dispatch, Fed), ModelError> {
        let gain = self.gain(name).await?;
        let fed = self.fed(|| Fed::by_norm(gain.clone()));
        let dense = RmsNormParams::dense(self.config.hidden, self.config.rms_eps);
        let params = RmsNormParams { y_scale: fed.scale, ..dense };
        let b = self.buffers;
        Ok((self.norm_with(name, &gain, step, params, [&b.h, &b.x]).await?, fed))
    }

    /// The norm with the gain `name`, from `h` to `y`, in f32.
    pub(crate) async fn norm_of(
        &mut self,
        name: &str,
        step: &Buffer,
        params: RmsNormParams,
        h: &Buffer,
        y: &Buffer,
    ) -> Result<Dispatch, ModelError> {
        let gain = self.gain(name).await?;
        self.norm_with(name, &gain, step, params, [h, y]).await
    }

    async fn gain(&mut self, name: &str) -> Result<Vec<f32>, ModelError> {
        let tensor = self.tensor(name)?.clone();
        self.loader.vector(&tensor).await
    }

    async fn norm_with(
        &self,
        name: &str,
        gain: &[f32],
        step: &Buffer,
        params: RmsNormParams,
        [h, y]: [&Buffer; 2],
    ) -> Result<Dispatch, ModelError> {
        let gain = self.gpu.storage(name, gain).await?;
        let params = self.gpu.uniform("rms_norm.params", &params).await?;
        let pipeline = self.gpu.kernel("rms_norm", &[self.path.norm()]).await?;
        let slices = [params.whole(), step.whole(), h.whole(), gain.whole(), y.whole()];
        Ok(self.gpu.bind(&pipeline, &slices).await?)
    }

    pub(crate) async fn layer(&mut self, index: u32, capture: Option<Dispatch>) -> Result<Layer, ModelError> {
        let name = format!("blk.{index}.attn_norm.weight");
        let (attention_norm, fed) = self.norm(&name, &self.buffers.step).await?;
        self.layer_behind(index, capture, attention_norm, &fed).await
    }

    /// The layer of a drafter, whose first norm is its own affair. In f32.
    pub(crate) async fn drafter_layer(&mut self, attention_norm: Dispatch) -> Result<Layer, ModelError> {
        self.layer_behind(0, None, attention_norm, &Fed::default()).await
    }

    async fn layer_behind(
        &mut self,
        index: u32,
        capture: Option<Dispatch>,
        attention_norm: Dispatch,
        fed: &Fed,
    ) -> Result<Layer, ModelError> {
        let b = self.buffers;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let (qkv_rope, mixed) = self.qkv_rope(index, fed).await?;
        let attention = self.attention(index as usize, &mixed).await?;
        let input = Input { x: &b.mixed, scale: mixed.scale };
        let output = self.residual(&name("attn_output"), input).await?;
        let (ffn_norm, fed) = self.norm(&name("ffn_norm"), &b.step).await?;
        let (gate_up, act) = self.gate_up(index, &fed).await?;
        let input = Input { x: &b.act, scale: act.scale };
        let down = self.residual(&name("ffn_down"), input).await?;
        Ok(Layer { capture, attention_norm, qkv_rope, attention, output, ffn_norm, gate_up, down })
    }

    async fn attention(&self, layer: usize, mixed: &Fed) -> Result<Attention, ModelError> {
        let config = self.config;
        let b = self.buffers;
        let half = config.head_dim / 2;
        let stride = b.scores.size() / (u64::from(MAX_ROWS) * u64::from(config.heads) * 4);
        let params = AttentionParams {
            heads: config.heads,
            group: config.heads / config.kv_heads,
            half,
            kv_pairs: config.kv_heads * half,
            stride: u32::try_from(stride).unwrap_or(0),
            depth: MAX_ROWS,
            scale: 1.0 / f32::sqrt(u16::try_from(config.head_dim).map_or(1.0, f32::from)),
            y_scale: mixed.scale,
        };
        let params = self.gpu.uniform("attention.params", &params).await?;
        let Some((keys, values)) = b.kv.get(layer) else {
            return Err(ModelError::Shape {
                what: "layer",
                found: layer as u64,
                expected: "one of the model",
            });
        };
        let kv = kv_flag(self.kv);
        let shared = [params.whole(), b.step.whole(), b.rows.whole(), b.slots.whole()];
        let bind = async |name: &str, flags: &[&str], rest: &[Slice<'_>]| {
            let pipeline = self.gpu.kernel(name, flags).await?;
            self.gpu.bind(&pipeline, &[&shared, rest].concat()).await
        };
        if self.path.whole_rows() {
            let flags = [kv, self.path.name()];
            let scores = [b.q.whole(), keys.whole(), b.scores.whole()];
            let mixed = [b.scores.whole(), values.whole(), b.mixed.whole()];
            Ok(Attention::Rows(
                bind("attention_scores", &flags, &scores).await?,
                bind("attention_values", &flags, &mixed).await?,
            ))
        } else {
            let rest = [b.q.whole(), keys.whole(), values.whole(), b.mixed.whole()];
            Ok(Attention::Windows(bind("attention", &[kv, self.path.mixed()], &rest).await?))
        }
    }
}
