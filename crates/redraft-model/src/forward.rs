//! The forward pass: buffers, prebuilt dispatches, and the order they run in.

use crate::batch::batch;
use crate::buffers::Buffers;
use crate::kernels::{TILES, TileReport, Tiles};
use crate::matrix::Matrix;
use crate::{Batch, KvType, LogitRows, MemoryPlan, ModelError, Path};
use redraft_gguf::ModelConfig;
use redraft_gpu::{Buffer, Dispatch, Gpu, GpuError, Pass, Readback, Slice};
use redraft_shaders::params::Step;
use std::sync::Arc;

/// Most rows of a batch: prefill chunks and verified trees.
pub(crate) const MAX_ROWS: u32 = 64;

/// Layers at whose input the residual stream is captured; `layers` itself means the stream after the last one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptureLayers {
    /// None.
    #[default]
    None,
    /// The inputs of layers 2, L/2 and L − 3: what EAGLE-3 drafters read.
    Drafter,
    /// These, ascending.
    At(Vec<u32>),
}

impl CaptureLayers {
    pub(crate) fn resolve(&self, layers: u32) -> Result<Vec<u32>, ModelError> {
        let list = match self {
            Self::None => Vec::new(),
            Self::Drafter => vec![2, layers / 2, layers.saturating_sub(3)],
            Self::At(list) => list.clone(),
        };
        let ascending = list.windows(2).all(|pair| pair[0] < pair[1]);
        match list.iter().find(|layer| **layer > layers || !ascending) {
            Some(layer) => {
                Err(batch("captured layer", u64::from(*layer), format!("ascending and at most {layers}")))
            }
            None => Ok(list),
        }
    }
}

/// A product in its four tile variants, for each part of its matrix.
#[derive(Debug)]
pub(crate) struct Product {
    /// Per part: per tile the dispatch and its number of workgroups along the weight rows.
    pub(crate) parts: Vec<[(Dispatch, u32); TILES.len()]>,
}

impl Product {
    pub(crate) fn run(&self, pass: &mut Pass<'_>, tiles: Tiles, rows: u32) -> Result<(), GpuError> {
        let (tile, count) = tiles.cover(rows);
        for part in &self.parts {
            if let Some((dispatch, groups)) = part.get(tile) {
                pass.run(dispatch, [*groups, count, 1])?;
            }
        }
        Ok(())
    }
}

/// Attention of a layer.
#[derive(Debug)]
pub(crate) enum Attention {
    /// Scores, then values.
    Rows(Dispatch, Dispatch),
    /// One kernel.
    Windows(Dispatch),
}

/// The dispatches of a layer, in order.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) capture: Option<Dispatch>,
    pub(crate) attention_norm: Dispatch,
    pub(crate) qkv_rope: Vec<Product>,
    pub(crate) attention: Attention,
    pub(crate) output: Product,
    pub(crate) ffn_norm: Dispatch,
    pub(crate) gate_up: Product,
    pub(crate) down: Product,
}

impl Layer {
    /// One decoder layer over `rows` rows, none of which attends past key `last`.
    pub(crate) fn record(
        &self,
        pass: &mut Pass<'_>,
        config: &ModelConfig,
        tiles: Tiles,
        rows: u32,
        last: u32,
    ) -> Result<(), GpuError> {
        // x = norm(h); q, k, v = W x; rotate q and k; k and v go to the cache
        pass.run(&self.attention_norm, [rows, 1, 1])?;
        self.record_behind_norm(pass, config, tiles, rows, last)
    }

    /// The layer without its first norm.
    pub(crate) fn record_behind_norm(
        &self,
        pass: &mut Pass<'_>,
        config: &ModelConfig,
        tiles: Tiles,
        rows: u32,
        last: u32,
    ) -> Result<(), GpuError> {
        for product in &self.qkv_rope {
            product.run(pass, tiles, rows)?;
        }
        // mixed = softmax(q k / sqrt(d)) v
        match &self.attention {
            Attention::Rows(scores, values) => {
                pass.run(scores, [(last + 1).div_ceil(8), config.heads, rows])?;
                pass.run(values, [config.heads, rows, config.head_dim.div_ceil(64)])?;
            }
            Attention::Windows(attention) => pass.run(attention, [config.heads, rows, 1])?,
        }
        // h += W mixed
        self.output.run(pass, tiles, rows)?;
        // x = norm(h); act = silu(G x) * (U x); h += D act
        pass.run(&self.ffn_norm, [rows, 1, 1])?;
        self.gate_up.run(pass, tiles, rows)?;
        self.down.run(pass, tiles, rows)
    }
}

/// What of a forward pass changes from step to step, besides what is in buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Rows of the batch.
    pub(crate) rows: u32,
    /// The last key that any of them attends to.
    pub(crate) last: u32,
    /// Rows whose logits are computed.
    pub(crate) logits: u32,
    /// Whether the residual stream is captured.
    pub(crate) captures: bool,
}

/// A model on the GPU.
#[derive(Debug)]
pub struct Model {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) config: ModelConfig,
    pub(crate) path: Path,
    pub(crate) kv: KvType,
    pub(crate) context: u32,
    pub(crate) plan: MemoryPlan,
    pub(crate) tiles: TileReport,
    pub(crate) capture_layers: Vec<u32>,
    pub(crate) buffers: Buffers,
    pub(crate) token_table: Matrix,
    pub(crate) embed: Vec<Dispatch>,
    pub(crate) layers: Vec<Layer>,
    /// Capture of the stream after the last layer.
    pub(crate) last_capture: Option<Dispatch>,
    pub(crate) output_norm: Dispatch,
    pub(crate) head: Product,
}

impl Model {
    /// The device.
    #[must_use]
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The model's shape.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Tokens that the KV cache holds.
    #[must_use]
    pub fn context(&self) -> u32 {
        self.context
    }

    /// Most rows of a batch.
    #[must_use]
    pub fn max_rows(&self) -> u32 {
        MAX_ROWS
    }

    /// The kernel family.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// The tiles in use, and whether they were compared on this adapter.
    #[must_use]
    pub fn tiles(&self) -> TileReport {
        self.tiles
    }

    /// Type of the KV cache.
    #[must_use]
    pub fn kv_type(&self) -> KvType {
        self.kv
    }

    /// Device memory in use.
    #[must_use]
    pub fn memory(&self) -> MemoryPlan {
        self.plan
    }

    /// Layers whose input is captured, ascending.
    #[must_use]
    pub fn capture_layers(&self) -> &[u32] {
        &self.capture_layers
    }

    /// Logits of the last step: `[logit rows][vocab]`, f32.
    #[must_use]
    pub fn logits(&self) -> &Buffer {
        &self.buffers.logits
    }

    /// The logits of row `row`, counted over the rows whose logits the last step computed.
    #[must_use]
    pub fn logits_row(&self, row: u32) -> Slice<'_> {
        let bytes = u64::from(self.config.vocab) * 4;
        self.buffers.logits.slice(u64::from(row) * bytes, bytes)
    }

    /// Captures of the last step that asked for them: rows `0 … rows` of captured layer number `index`, f32
    /// `[rows][hidden]`; `None` if the model was loaded without such a layer.
    #[must_use]
    pub fn capture(&self, index: usize, rows: u32) -> Option<Slice<'_>> {
        let row = u64::from(self.config.hidden) * 4;
        let buffer = self.buffers.captures.as_ref().filter(|_| index < self.capture_layers.len())?;
        Some(buffer.slice(index as u64 * u64::from(MAX_ROWS) * row, u64::from(rows.min(MAX_ROWS)) * row))
    }

    /// Key and value of a slot in a layer, in the cache's type: `[kv_heads * head_dim]` each. Heads of half-split
    /// models keep the two elements of a RoPE pair side by side in keys.
    #[must_use]
    pub fn key_value(&self, layer: usize, slot: u32) -> Option<(Slice<'_>, Slice<'_>)> {
        let bytes = u64::from(self.config.kv_heads * self.config.head_dim) * self.kv.bytes();
        let (keys, values) = self.buffers.kv.get(layer).filter(|_| slot < self.context + MAX_ROWS)?;
        let at = u64::from(slot) * bytes;
        Some((keys.slice(at, bytes), values.slice(at, bytes)))
    }

    /// Computes one batch in one compute pass and submits it. `after` records what follows on the logits in the same
    /// pass (sampling), `copies` are read back. Returns the number of dispatches.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if the batch is empty, too large, does not fit the context, or names a token outside the
    /// vocabulary; [`ModelError::Gpu`]. The KV cache up to `committed` is untouched in every case.
    pub fn submit(
        &self,
        batch: &Batch,
        after: impl FnOnce(&mut Pass<'_>) -> Result<(), ModelError>,
        copies: &[(Slice<'_>, &Readback)],
    ) -> Result<u32, ModelError> {
        let last = self.prepare(batch)?;
        self.gpu.submit(
            |pass| {
                let shape =
                    Shape { rows: batch.rows(), last, logits: logit_rows(batch), captures: batch.captures };
                self.record(pass, &shape)?;
                after(pass)
            },
            copies,
        )
    }

    /// Checks the batch and writes what the kernels read of it. Returns the greatest position.
    fn prepare(&self, step: &Batch) -> Result<u32, ModelError> {
        let rows = step.rows();
        if rows == 0 || rows > MAX_ROWS {
            return Err(batch("number of rows", u64::from(rows), format!("1 to {MAX_ROWS}")));
        }
        if let Some(token) = step.tokens.iter().find(|token| token.0 >= self.config.vocab) {
            return Err(batch("token", u64::from(token.0), format!("below {}", self.config.vocab)));
        }
        if step.captures && self.buffers.captures.is_none() {
            return Err(batch("number of capture layers", 0, "chosen when the model is loaded".to_owned()));
        }
        let depths = step.depths()?;
        let deepest = depths.iter().copied().max().unwrap_or(0);
        let last = u64::from(step.committed) + u64::from(deepest);
        if last >= u64::from(self.context) {
            return Err(batch("position", last, format!("below the context of {} tokens", self.context)));
        }
        let last = step.committed + deepest;
        let mut table: Vec<[u32; 4]> = (0u32..)
            .zip(step.tokens.iter().zip(&depths))
            .map(|(row, (token, depth))| [token.0, step.committed + depth, step.committed + row, 0])
            .collect();
        // Tiles compute rows past the batch too; their keys and values go to the last slot, which no batch uses.
        table.resize(rows.next_multiple_of(8) as usize, [0, 0, self.context + MAX_ROWS - 1, 0]);
        self.gpu.write(self.buffers.rows.whole(), bytemuck::cast_slice(&table));
        let tree_start = if step.parents.is_some() {
            self.gpu.write(self.buffers.slots.whole(), bytemuck::cast_slice(&step.slots(&depths, MAX_ROWS)));
            step.committed
        } else {
            u32::MAX
        };
        let whole = Step { rows, source: 0, tree_start, pad0: 0 };
        self.gpu.write(self.buffers.step.whole(), bytemuck::bytes_of(&whole));
        let logits = logit_rows(step);
        let head = Step { rows: logits, source: rows - logits, tree_start, pad0: 0 };
        self.gpu.write(self.buffers.head_step.whole(), bytemuck::bytes_of(&head));
        Ok(last)
    }

    /// The forward pass, in the order of the paper (Llama, arXiv 2302.13971).
    pub(crate) fn record(&self, pass: &mut Pass<'_>, shape: &Shape) -> Result<(), ModelError> {
        let Shape { rows, last, logits, captures } = *shape;
        let (config, tiles) = (&self.config, self.tiles.used);
        let capture = |pass: &mut Pass<'_>, dispatch: &Option<Dispatch>| match dispatch {
            Some(dispatch) if captures => pass.run(dispatch, [config.hidden.div_ceil(64), rows, 1]),
            _ => Ok(()),
        };
        // h = E[token]
        for part in &self.embed {
            pass.run(part, [config.hidden.div_ceil(64), rows, 1])?;
        }
        for layer in &self.layers {
            capture(pass, &layer.capture)?;
            layer.record(pass, config, tiles, rows, last)?;
        }
        capture(pass, &self.last_capture)?;
        // logits = W norm(h), for the last rows only
        if logits > 0 {
            pass.run(&self.output_norm, [logits, 1, 1])?;
            self.head.run(pass, tiles, logits)?;
        }
        Ok(())
    }
}

fn logit_rows(batch: &Batch) -> u32 {
    match batch.logits {
        LogitRows::None => 0,
        LogitRows::Last => 1,
        LogitRows::All => batch.rows(),
    }
}
