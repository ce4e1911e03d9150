//! The whole pipeline on one row.

use super::{
    Best, Cut, Fma, LEVELS, Measure, SamplingError, SamplingParams, Search, Stages, WindowEntry, cut, draw,
    histogram, prepare, window,
};
use crate::{Position, TokenId};

/// Draws tokens on the CPU, stage by stage as the kernels do. Keeps its scratch row between calls.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    stages: Stages,
    coefficients: super::Coefficients,
    bias: Vec<(TokenId, f32)>,
    vocab: u32,
    /// `[vocab]` scaled logits.
    scaled: Vec<f32>,
}

impl Sampler {
    /// A sampler for rows of `vocab` logits.
    ///
    /// # Errors
    /// Those of [`SamplingParams::validate`].
    pub fn new(params: SamplingParams, vocab: u32) -> Result<Self, SamplingError> {
        params.validate(vocab)?;
        let stages = params.stages(vocab);
        let coefficients = params.coefficients(Fma::default());
        let bias = params.sorted_bias();
        Ok(Self { params, stages, coefficients, bias, vocab, scaled: Vec::new() })
    }

    /// The same sampler computing `fma` as a certain device does. The default is [`Fma::Split`].
    #[must_use]
    pub fn with_fma(mut self, fma: Fma) -> Self {
        self.coefficients.fma = fma;
        self
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Draws the token that takes `position`.
    ///
    /// - `logits`: `[vocab]` raw logits.
    /// - `history`: every token before `position`, prompt included; only the penalty window at its end is read.
    ///
    /// # Errors
    /// [`SamplingError::RowLength`].
    pub fn sample(
        &mut self,
        logits: &[f32],
        history: &[TokenId],
        position: Position,
    ) -> Result<TokenId, SamplingError> {
        if self.stages.penalties {
            let entries = window(history, self.params.penalty_window);
            self.sample_with_window(logits, Some(&entries), position)
        } else {
            self.sample_with_window(logits, None, position)
        }
    }

    /// Draws the token that takes `position`, given the row's penalty window, as for a row of a tree.
    ///
    /// # Errors
    /// [`SamplingError::RowLength`].
    pub fn sample_with_window(
        &mut self,
        logits: &[f32],
        entries: Option<&[WindowEntry]>,
        position: Position,
    ) -> Result<TokenId, SamplingError> {
        let best = self.prepare(logits, entries)?;
        if !self.stages.draw {
            return Ok(TokenId(best.id));
        }
        let kept = self.cut_row(best.key);
        let drawn = draw(&self.scaled, best.key, kept, self.stages.min_p, position, &self.coefficients);
        Ok(TokenId(drawn.id))
    }

    /// The tokens that penalties, bias, top-k, top-p and min-p leave for this row, by ascending id. All of them for
    /// a greedy sampler.
    ///
    /// # Errors
    /// [`SamplingError::RowLength`].
    pub fn kept(
        &mut self,
        logits: &[f32],
        entries: Option<&[WindowEntry]>,
    ) -> Result<Vec<TokenId>, SamplingError> {
        let best = self.prepare(logits, entries)?;
        let kept = self.cut_row(best.key);
        let floor = if self.stages.min_p {
            super::float_key(super::key_float(best.key) + self.coefficients.min_p_ln)
        } else {
            0
        };
        let stays = |&(id, &logit): &(u32, &f32)| {
            let key = super::float_key(logit);
            kept.keeps(key, id) && key >= floor
        };
        Ok((0u32..).zip(&self.scaled).filter(stays).map(|(id, _)| TokenId(id)).collect())
    }

    /// `[vocab]` scaled logits of the last row: after penalties, bias and temperature. Empty before the first.
    #[must_use]
    pub fn scaled(&self) -> &[f32] {
        &self.scaled
    }

    fn prepare(&mut self, logits: &[f32], entries: Option<&[WindowEntry]>) -> Result<Best, SamplingError> {
        if u32::try_from(logits.len()) != Ok(self.vocab) {
            return Err(SamplingError::RowLength { expected: self.vocab, found: logits.len() });
        }
        self.scaled.clear();
        self.scaled.extend_from_slice(logits);
        let entries = if self.stages.penalties { entries } else { None };
        Ok(prepare(&mut self.scaled, entries, &self.bias, &self.coefficients))
    }

    fn cut_row(&self, max_key: u32) -> Cut {
        let mut kept = Cut::ALL;
        if self.stages.top_k {
            kept = search(&self.scaled, kept, Measure::Count { k: self.params.top_k });
        }
        if self.stages.top_p {
            let measure =
                Measure::Mass { fraction: self.coefficients.top_p, max_key, fma: self.coefficients.fma };
            kept = search(&self.scaled, kept, measure);
        }
        kept
    }
}

/// The four levels and the cut.
fn search(scaled: &[f32], kept: Cut, measure: Measure) -> Cut {
    let (mut found, mut sum) = (Search::default(), 0);
    for level in 0..LEVELS {
        let bins = histogram(scaled, kept, measure, found, level);
        (found, sum) = found.descend(&bins, measure, level);
    }
    cut(scaled, kept, measure, found, sum)
}
