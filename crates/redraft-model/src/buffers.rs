//! The buffers that a forward pass computes with.

use crate::forward::MAX_ROWS;
use crate::{KvType, ModelError, Path};
use redraft_gguf::ModelConfig;
use redraft_gpu::{Buffer, BufferUse, Gpu};
use redraft_shaders::params::Step;

/// Everything a step computes with; made at load time.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// [`Step`] of the whole batch, and of the rows whose logits are computed.
    pub(crate) step: Buffer,
    pub(crate) head_step: Buffer,
    /// `[rows]` of token, position, slot, 0.
    pub(crate) rows: Buffer,
    /// `[rows][MAX_ROWS]` slots of ancestors.
    pub(crate) slots: Buffer,
    /// `[rows][hidden]` residual stream.
    pub(crate) h: Buffer,
    /// `[rows][hidden]` normalised.
    pub(crate) x: Buffer,
    /// `[rows][heads * head_dim]`.
    pub(crate) q: Buffer,
    /// `[rows][heads * head_dim]` attention output.
    pub(crate) mixed: Buffer,
    /// `[rows][ffn]`.
    pub(crate) act: Buffer,
    /// `[rows][heads][context + MAX_ROWS]`; small where attention needs none.
    pub(crate) scores: Buffer,
    /// `[rows][vocab]`.
    pub(crate) logits: Buffer,
    /// `[captured layers][MAX_ROWS][hidden]`.
    pub(crate) captures: Option<Buffer>,
    /// Per layer: keys and values, `[context + MAX_ROWS][kv_heads * head_dim]`.
    pub(crate) kv: Vec<(Buffer, Buffer)>,
}

/// What the buffers of a forward pass depend on beyond the model's shape.
pub(crate) struct Sizes {
    /// Positions and slots of the KV cache.
    pub(crate) slots: u32,
    /// Columns of the normalised rows that products read.
    pub(crate) x_columns: u32,
    /// Layers that are captured.
    pub(crate) captures: usize,
}

impl Buffers {
    pub(crate) async fn new(
        gpu: &Gpu,
        config: &ModelConfig,
        path: Path,
        kv: KvType,
        sizes: &Sizes,
    ) -> Result<Self, ModelError> {
        let rows = |columns: u32| u64::from(MAX_ROWS) * u64::from(columns) * 4;
        let storage = async |label: &str, bytes: u64| gpu.buffer(label, bytes, BufferUse::Storage).await;
        let slots = u64::from(sizes.slots);
        let kv_bytes = slots * u64::from(config.kv_heads * config.head_dim) * kv.bytes();
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            layers.push((
                storage(&format!("keys.{layer}"), kv_bytes).await?,
                storage(&format!("values.{layer}"), kv_bytes).await?,
            ));
        }
        let q = config.heads * config.head_dim;
        let scores = if path.whole_rows() { rows(config.heads) * slots } else { 16 };
        let blank = Step { rows: 0, source: 0, tree_start: 0, pad0: 0 };
        Ok(Self {
            step: gpu.shared_uniform("step", &blank).await?,
            head_step: gpu.shared_uniform("head_step", &blank).await?,
            rows: storage("rows", rows(4)).await?,
            slots: storage("slots", rows(MAX_ROWS)).await?,
            h: storage("h", rows(config.hidden)).await?,
            x: storage("x", rows(sizes.x_columns)).await?,
            q: storage("q", rows(q)).await?,
            mixed: storage("mixed", rows(q)).await?,
            act: storage("act", rows(config.ffn)).await?,
            scores: storage("scores", scores).await?,
            logits: storage("logits", rows(config.vocab)).await?,
            captures: match sizes.captures {
                0 => None,
                count => Some(storage("captures", rows(config.hidden) * count as u64).await?),
            },
            kv: layers,
        })
    }
}
