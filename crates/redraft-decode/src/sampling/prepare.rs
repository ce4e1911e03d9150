//! The stages that walk a row once: `prepare`, `draw`, and the `pick` over their partial results.

use super::{Coefficients, Cut, WindowEntry, float_key, gumbel, key_float};
use crate::{Position, TokenId};

/// The best candidate of a part of the vocabulary: larger key first, then lower id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// [`float_key`] of its value.
    pub key: u32,
    /// Its token id.
    pub id: u32,
}

impl Best {
    /// Nothing seen yet: loses against every token.
    pub const NONE: Self = Self { key: 0, id: u32::MAX };

    /// The better of the two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if other.key > self.key || (other.key == self.key && other.id < self.id) { other } else { self }
    }
}

/// Penalties, bias and temperature; twin of `sample_prepare`.
///
/// - `scaled`: `[vocab]`, raw logits on entry, scaled logits on return.
/// - `window`: the row's penalty window; `None` when penalties are off. Ids outside the vocabulary are passed over.
/// - `bias`: each token at most once, as [`sorted_bias`](super::SamplingParams::sorted_bias) gives them.
///
/// Returns the largest scaled logit; it is the greedy token.
pub fn prepare(
    scaled: &mut [f32],
    window: Option<&[WindowEntry]>,
    bias: &[(TokenId, f32)],
    by: &Coefficients,
) -> Best {
    for entry in window.unwrap_or_default().iter().filter(|entry| entry.count > 0) {
        if let Some(logit) = scaled.get_mut(entry.id as usize) {
            *logit = penalised(*logit, entry.count, by);
        }
    }
    for &(token, value) in bias {
        if let Some(logit) = scaled.get_mut(token.0 as usize) {
            *logit += value;
        }
    }
    let mut best = Best::NONE;
    for (id, logit) in (0u32..).zip(scaled) {
        *logit *= by.inv_temperature;
        best = best.or(Best { key: float_key(*logit), id });
    }
    best
}

/// The logit of a token seen `count > 0` times in the window.
fn penalised(logit: f32, count: u32, by: &Coefficients) -> f32 {
    let factor = if logit > 0.0 { by.inv_repetition } else { by.repetition };
    #[expect(clippy::cast_precision_loss, reason = "a count is at most the window, 4096")]
    let count = count as f32;
    by.fma.mul_add(logit, factor, -by.fma.mul_add(count, by.frequency, by.presence))
}

/// The best of some partial results; twin of `sample_pick`.
#[must_use]
pub fn pick(partials: &[Best]) -> Best {
    partials.iter().copied().fold(Best::NONE, Best::or)
}

/// The perturbed argmax over what stayed; twin of `sample_draw`.
///
/// - `scaled`: `[vocab]` scaled logits; `max_key` the key of the largest.
/// - `cut`: what top-k and top-p left, [`Cut::ALL`] without them.
/// - `min_p`: whether to apply min-p.
/// - `position`: the absolute position that the drawn token will take.
#[must_use]
pub fn draw(
    scaled: &[f32],
    max_key: u32,
    cut: Cut,
    min_p: bool,
    position: Position,
    by: &Coefficients,
) -> Best {
    let floor = if min_p { float_key(key_float(max_key) + by.min_p_ln) } else { 0 };
    let seed = u64::from(by.seed_hi) << 32 | u64::from(by.seed_lo);
    let mut best = Best::NONE;
    for (id, &logit) in (0u32..).zip(scaled) {
        let key = float_key(logit);
        if cut.keeps(key, id) && key >= floor {
            let score = logit + gumbel(seed, position, TokenId(id), by.fma);
            best = best.or(Best { key: float_key(score), id });
        }
    }
    best
}
