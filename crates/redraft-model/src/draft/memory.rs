//! What drafting needs on the device, computed before it is allocated.

use super::arena::{ROOT_INPUT, SCRATCH, TreeBuffers};
use crate::forward::MAX_ROWS;
use crate::memory::{matrix, rounded, weights};
use crate::{KvType, MemoryPlan, Model, ModelError, Path};
use redraft_decode::draft::WIDTH;
use redraft_drafter::{DrafterFile, DrafterModel, Quantization};

impl MemoryPlan {
    /// The same with draft trees, and with a drafter whose matrices are rewritten in `quantization`.
    ///
    /// # Errors
    /// [`ModelError::Drafter`] if the drafter cannot be rewritten, [`ModelError::Pack`] if a type has no GPU format.
    pub fn with_drafter(
        self,
        context: u32,
        kv: KvType,
        path: Path,
        drafter: Option<(&DrafterFile, Quantization)>,
    ) -> Result<Self, ModelError> {
        let packed = match drafter {
            Some((file, quantization)) => Some(file.to_model(quantization)?),
            None => None,
        };
        with_speculation(self, context, kv, path, packed.as_ref())
    }
}

/// The plan of `model` with what speculation adds.
pub(super) fn plan(model: &Model, packed: Option<&DrafterModel>) -> Result<MemoryPlan, ModelError> {
    with_speculation(model.plan, model.context, model.kv, model.path, packed)
}

fn with_speculation(
    target: MemoryPlan,
    context: u32,
    kv: KvType,
    path: Path,
    packed: Option<&DrafterModel>,
) -> Result<MemoryPlan, ModelError> {
    let drafter = packed.map_or(Ok(0), |packed| drafter(packed, context, kv, path))?;
    Ok(MemoryPlan { trees: trees(), drafter, ..target })
}

/// Refuses a plan that exceeds the limit.
pub(super) fn check(plan: &MemoryPlan, limit: Option<u64>) -> Result<(), ModelError> {
    match limit.filter(|limit| plan.total() > *limit) {
        Some(limit) => Err(ModelError::Memory { needed: plan.total(), limit, plan: plan.to_string() }),
        None => Ok(()),
    }
}

/// What the trees of any plan take.
pub(super) fn trees() -> u64 {
    TreeBuffers::WORDS.iter().map(|(_, words)| rounded(words * 4)).sum()
}

/// Weights, cache and everything a forward pass of the drafter computes.
fn drafter(packed: &DrafterModel, context: u32, kv: KvType, path: Path) -> Result<u64, ModelError> {
    let (config, shape) = (&packed.config, &packed.drafter);
    let wide = |value: u32| u64::from(value);
    let (h, ht, rows) = (wide(config.hidden), wide(shape.target_hidden), wide(MAX_ROWS));
    let words = |words: u64| rounded(words * 4);
    let slots = wide(context + MAX_ROWS + SCRATCH);
    let rank = wide(packed.reconsider.rank.unwrap_or(0));

    let mut total = weights(config, &packed.gguf)? + words(h);
    for name in ["fc.weight", "reconsider.down.weight", "reconsider.up.weight"] {
        let Some(tensor) = packed.gguf.tensor(name) else { continue };
        total += matrix(tensor, tensor.kind, tensor.rows())?;
    }
    total += words(h) + words(packed.draft_ids.len() as u64);
    if shape.fc_norm {
        total += 3 * words(ht) + words(rows * 3 * ht);
    }
    if rank > 0 {
        total += words(rows * rank);
    }

    let q = wide(config.heads) * wide(config.head_dim);
    let kv_layer = slots * wide(config.kv_heads) * wide(config.head_dim) * kv.bytes();
    let scores = if path.whole_rows() { rows * wide(config.heads) * slots * 4 } else { 16 };
    // Per row: h, x of twice the width; q, mixed; act; logits. The batch is the tree's.
    let per_row = h + 2 * h + 2 * q + wide(config.ffn) + wide(config.vocab);
    total += 2 * rounded(kv_layer) + scores + per_row * rows * 4;
    total += words(wide(context + MAX_ROWS) * wide(config.head_dim));
    total += words(rows * 3 * ht) + words(rows * h) + words(wide(ROOT_INPUT + 1) * h);
    let (best, sums) = (wide(WIDTH) * 64 * 8 * 2, wide(WIDTH) * 64 * 2);
    Ok(total + words(best) + words(sums))
}
