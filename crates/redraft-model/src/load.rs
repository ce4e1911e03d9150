//! From a GGUF file to a model on the GPU.

use crate::buffers::{Buffers, Sizes};
use crate::forward::{Attention, CaptureLayers, Layer, MAX_ROWS, Model, Product};
use crate::kernels::{PANEL_GROUP, ProductPipelines, TILES};
use crate::matrix::{Loader, Matrix, Part, RowSource};
use crate::warm_up::{kv_flag, warm_up};
use crate::{KvType, MemoryPlan, ModelError, Path, Planned, TileReport, Tiles, rope};
use redraft_gguf::{Gguf, ModelConfig, PANEL, ReadAt, TensorInfo};
use redraft_gpu::{Buffer, BufferUse, Dispatch, Gpu, Slice};
use redraft_shaders::params::{
    AttentionParams, CaptureParams, EmbedParams, GateUpParams, MatmulParams, QkvRopeParams, RmsNormParams,
};
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
    /// Kernel family; by default what suits the adapter.
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
        let path = options.path.unwrap_or_else(|| Path::of(gpu.capabilities()));
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
        let output_norm = build.norm("output_norm.weight", &buffers.head_step).await?;
        let head_table = match config.tied_embeddings {
            true => None,
            false => Some(build.token_table("output.weight", config.vocab).await?),
        };
        let head = build.head(head_table.as_ref().unwrap_or(&token_table)).await?;
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
        self.loader.matrix(name, &[&tensor], &order, false).await
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

    pub(crate) async fn norm(&mut self, name: &str, step: &Buffer) -> Result<Dispatch, ModelError> {
        let params = RmsNormParams::dense(self.config.hidden, self.config.rms_eps);
        let b = self.buffers;
        self.norm_of(name, step, params, &b.h, &b.x).await
    }

    /// The norm with the gain `name`, from `h` to `y`.
    pub(crate) async fn norm_of(
        &mut self,
        name: &str,
        step: &Buffer,
        params: RmsNormParams,
        h: &Buffer,
        y: &Buffer,
    ) -> Result<Dispatch, ModelError> {
        let tensor = self.tensor(name)?.clone();
        let gain = self.loader.vector(&tensor).await?;
        let gain = self.gpu.storage(name, &gain).await?;
        let params = self.gpu.uniform("rms_norm.params", &params).await?;
        let pipeline = self.gpu.kernel("rms_norm", &[self.path.norm()]).await?;
        let slices = [params.whole(), step.whole(), h.whole(), gain.whole(), y.whole()];
        Ok(self.gpu.bind(&pipeline, &slices).await?)
    }

    /// A product of the tensor `name` with rows of `x`, as `y` or added to it.
    pub(crate) async fn product_of(
        &mut self,
        name: &str,
        x: &Buffer,
        add: bool,
        y: &Buffer,
    ) -> Result<Product, ModelError> {
        let tensor = self.tensor(name)?.clone();
        let rows = u32::try_from(tensor.rows()).map_err(|_| ModelError::Shape {
            what: "rows of a matrix",
            found: tensor.rows(),
            expected: "below 2^32",
        })?;
        let matrix = self.loader.matrix(name, &[&tensor], &rows_of(0, rows), false).await?;
        self.matmul(&matrix, x, rows, add, y).await
    }

    pub(crate) async fn layer(&mut self, index: u32, capture: Option<Dispatch>) -> Result<Layer, ModelError> {
        let b = self.buffers;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let attention_norm = self.norm(&name("attn_norm"), &b.step).await?;
        let qkv_rope = self.qkv_rope(index).await?;
        let attention = self.attention(index as usize).await?;
        let output = self.residual(&name("attn_output"), &b.mixed).await?;
        let ffn_norm = self.norm(&name("ffn_norm"), &b.step).await?;
        let gate_up = self.gate_up(index).await?;
        let down = self.residual(&name("ffn_down"), &b.act).await?;
        Ok(Layer { capture, attention_norm, qkv_rope, attention, output, ffn_norm, gate_up, down })
    }

    /// The layer of a drafter, whose first norm is its own affair.
    pub(crate) async fn drafter_layer(&mut self, attention_norm: Dispatch) -> Result<Layer, ModelError> {
        let b = self.buffers;
        Ok(Layer {
            capture: None,
            attention_norm,
            qkv_rope: self.qkv_rope(0).await?,
            attention: self.attention(0).await?,
            output: self.residual("blk.0.attn_output.weight", &b.mixed).await?,
            ffn_norm: self.norm("blk.0.ffn_norm.weight", &b.step).await?,
            gate_up: self.gate_up(0).await?,
            down: self.residual("blk.0.ffn_down.weight", &b.act).await?,
        })
    }

    async fn qkv_rope(&mut self, layer: u32) -> Result<Vec<Product>, ModelError> {
        let config = self.config;
        let half = config.head_dim / 2;
        let (q_pairs, kv_pairs) = (config.heads * half, config.kv_heads * half);
        let parts = [("q", config.heads, true), ("k", config.kv_heads, true), ("v", config.kv_heads, false)];
        let tensors = parts
            .iter()
            .map(|(part, ..)| self.tensor(&format!("blk.{layer}.attn_{part}.weight")).cloned())
            .collect::<Result<Vec<_>, _>>()?;
        // The pairs of Q, K and V in order, each as its two source rows.
        let pairs: Vec<[RowSource; 2]> = (0usize..)
            .zip(parts)
            .flat_map(|(tensor, (_, heads, rotated))| (0..heads).map(move |head| (tensor, head, rotated)))
            .flat_map(|(tensor, head, rotated)| (0..half).map(move |pair| (tensor, head, rotated, pair)))
            .map(|(tensor, head, rotated, pair)| {
                rope::pair_rows(config, pair, rotated)
                    .map(|row| RowSource { tensor, row: head * config.head_dim + row })
            })
            .collect();
        let bias = self.bias(layer, &pairs).await?;
        let first_pairs = [0, q_pairs, q_pairs + kv_pairs, q_pairs + 2 * kv_pairs];
        // Neighbours of the same type share a matrix: one dispatch for most files.
        let mut products = Vec::new();
        let mut start = 0;
        while start < 3 {
            let end = (start + 1..3).find(|i| tensors[*i].kind != tensors[start].kind).unwrap_or(3);
            let range = first_pairs[start]..first_pairs[end];
            let own = pairs.get(range.start as usize..range.end as usize).unwrap_or_default();
            let list: Vec<_> = tensors.iter().collect();
            let order = in_panels(own);
            let shared: Vec<_> = list[start..end].to_vec();
            let order: Vec<_> =
                order.iter().map(|r| RowSource { tensor: r.tensor - start, row: r.row }).collect();
            let label = format!("blk.{layer}.qkv");
            let matrix = self.loader.matrix(&label, &shared, &order, false).await?;
            products.push(self.qkv_product(layer, &matrix, range, &bias).await?);
            start = end;
        }
        Ok(products)
    }

    /// The biases in the order of the pairs, zero where there are none.
    async fn bias(&mut self, layer: u32, pairs: &[[RowSource; 2]]) -> Result<Buffer, ModelError> {
        let mut values = vec![0.0f32; if self.config.qkv_bias { pairs.len() * 2 } else { 2 }];
        if self.config.qkv_bias {
            let mut sources = Vec::new();
            for part in ["q", "k", "v"] {
                let tensor = self.tensor(&format!("blk.{layer}.attn_{part}.bias"))?.clone();
                sources.push(self.loader.vector(&tensor).await?);
            }
            for (value, row) in values.iter_mut().zip(pairs.iter().flatten()) {
                *value =
                    sources.get(row.tensor).and_then(|s| s.get(row.row as usize)).copied().unwrap_or(0.0);
            }
        }
        Ok(self.gpu.storage("bias", &values).await?)
    }

    async fn qkv_product(
        &self,
        layer: u32,
        matrix: &Matrix,
        pairs: std::ops::Range<u32>,
        bias: &Buffer,
    ) -> Result<Product, ModelError> {
        let config = self.config;
        let half = config.head_dim / 2;
        let b = self.buffers;
        let (keys, values) = b.kv.get(layer as usize).ok_or(ModelError::Shape {
            what: "layer",
            found: u64::from(layer),
            expected: "one of the model",
        })?;
        let params = |part: &Part| QkvRopeParams {
            pairs: part.rows / 2,
            blocks: matrix.blocks,
            first_pair: pairs.start + part.first / 2,
            q_pairs: config.heads * half,
            kv_pairs: config.kv_heads * half,
            half,
            bias: u32::from(config.qkv_bias),
            kv32: u32::from(self.kv == KvType::F32),
        };
        // The last panels of the last part are padding: count real pairs.
        let count = pairs.end - pairs.start;
        let clip = |mut p: QkvRopeParams| {
            p.pairs = p.pairs.min(count - (p.first_pair - pairs.start));
            p
        };
        let rest =
            [bias.whole(), self.rope.whole(), b.rows.whole(), b.q.whole(), keys.whole(), values.whole()];
        self.product("qkv_rope", matrix, &b.x, |part| clip(params(part)), &rest).await
    }

    async fn gate_up(&mut self, layer: u32) -> Result<Product, ModelError> {
        let gate = self.tensor(&format!("blk.{layer}.ffn_gate.weight"))?.clone();
        let up = self.tensor(&format!("blk.{layer}.ffn_up.weight"))?.clone();
        let pairs: Vec<_> =
            (0..self.config.ffn).map(|row| [0, 1].map(|tensor| RowSource { tensor, row })).collect();
        let order = in_panels(&pairs);
        let widen = gate.kind != up.kind;
        let label = format!("blk.{layer}.gate_up");
        let matrix = self.loader.matrix(&label, &[&gate, &up], &order, widen).await?;
        let ffn = self.config.ffn;
        // Two packed rows make one column of the result.
        let params = |part: &Part| {
            let first = part.first / 2;
            GateUpParams { rows: (part.rows / 2).min(ffn - first), blocks: matrix.blocks, first, stride: ffn }
        };
        let b = self.buffers;
        self.product("gate_up", &matrix, &b.x, params, &[b.act.whole()]).await
    }

    /// A product that is added to the residual stream.
    async fn residual(&mut self, name: &str, x: &Buffer) -> Result<Product, ModelError> {
        let b = self.buffers;
        self.product_of(name, x, true, &b.h).await
    }

    pub(crate) async fn head(&self, table: &Matrix) -> Result<Product, ModelError> {
        let b = self.buffers;
        let params = |part: &Part| MatmulParams {
            rows: part.rows,
            blocks: table.blocks,
            first: part.first,
            stride: self.config.vocab,
            add: 0,
            pad0: 0,
            pad1: 0,
            pad2: 0,
        };
        self.product_at("matmul", table, &b.head_step, &b.x, params, &[b.logits.whole()]).await
    }

    async fn matmul(
        &self,
        matrix: &Matrix,
        x: &Buffer,
        stride: u32,
        add: bool,
        y: &Buffer,
    ) -> Result<Product, ModelError> {
        let params = |part: &Part| MatmulParams {
            rows: part.rows,
            blocks: matrix.blocks,
            first: part.first,
            stride,
            add: u32::from(add),
            pad0: 0,
            pad1: 0,
            pad2: 0,
        };
        self.product("matmul", matrix, x, params, &[y.whole()]).await
    }

    async fn product<T: bytemuck::Pod>(
        &self,
        kernel: &str,
        matrix: &Matrix,
        x: &Buffer,
        params: impl Fn(&Part) -> T,
        rest: &[Slice<'_>],
    ) -> Result<Product, ModelError> {
        self.product_at(kernel, matrix, &self.buffers.step, x, params, rest).await
    }

    /// Binds a product kernel: parameters, step, activations, weights, and `rest`.
    async fn product_at<T: bytemuck::Pod>(
        &self,
        kernel: &str,
        matrix: &Matrix,
        step: &Buffer,
        x: &Buffer,
        params: impl Fn(&Part) -> T,
        rest: &[Slice<'_>],
    ) -> Result<Product, ModelError> {
        let pipelines = ProductPipelines::new(self.gpu, kernel, matrix.format.name(), self.path).await?;
        let mut parts = Vec::new();
        for part in &matrix.parts {
            let params = self.gpu.uniform(&format!("{kernel}.params"), &params(part)).await?;
            let mut slices = vec![params.whole(), step.whole(), x.whole(), part.buffer.whole()];
            slices.extend_from_slice(rest);
            let panels = (part.rows as usize).div_ceil(PANEL).next_multiple_of(PANEL_GROUP);
            let panels = u32::try_from(panels).unwrap_or(u32::MAX);
            let [a, b, c, d] = &pipelines.0;
            let groups = TILES.map(|(rows, _)| panels / self.path.panels(rows));
            parts.push([
                (self.gpu.bind(a, &slices).await?, groups[0]),
                (self.gpu.bind(b, &slices).await?, groups[1]),
                (self.gpu.bind(c, &slices).await?, groups[2]),
                (self.gpu.bind(d, &slices).await?, groups[3]),
            ]);
        }
        Ok(Product { parts })
    }

    async fn attention(&self, layer: usize) -> Result<Attention, ModelError> {
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
            pad0: 0,
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
            Ok(Attention::Windows(bind("attention", &[kv], &rest).await?))
        }
    }
}

fn rows_of(tensor: usize, rows: u32) -> Vec<RowSource> {
    (0..rows).map(|row| RowSource { tensor, row }).collect()
}

/// Pairs in panels: eight first rows, then the eight second rows. The last panels repeat the last pair where there
/// are fewer than eight; the kernels drop it.
fn in_panels(pairs: &[[RowSource; 2]]) -> Vec<RowSource> {
    let mut order = Vec::with_capacity(pairs.len() * 2);
    for group in pairs.chunks(PANEL) {
        for which in 0..2 {
            for lane in 0..PANEL {
                order.extend(group.get(lane).or(group.last()).map(|pair| pair[which]));
            }
        }
    }
    order
}
