//! Log-probabilities of a row of raw logits, in f64 on the CPU.

use std::cmp::Ordering;

use crate::TokenId;

/// A token and its natural log-probability under the model, before any sampling parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// The token.
    pub token: TokenId,
    /// ln p, at most 0. Minus infinity for a logit of minus infinity or NaN.
    pub log_prob: f64,
}

/// The log-probability of a chosen token and of the likeliest ones.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbs {
    /// The chosen token.
    pub chosen: LogProb,
    /// The likeliest tokens, likeliest first, ties by lower id.
    pub top: Vec<LogProb>,
}

/// Why log-probabilities were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogProbsError {
    /// The chosen token is no token of the row.
    #[error(
        "chosen token {token} is outside the row of {vocab} logits; pass the id that was drawn from this row"
    )]
    TokenOutOfRange {
        /// The token asked for.
        token: TokenId,
        /// Number of logits in the row.
        vocab: usize,
    },
    /// No logit of the row is a finite number, so it defines no distribution.
    #[error(
        "the row of {vocab} logits holds no finite number; the model computed nonsense or the row was not read back"
    )]
    NoDistribution {
        /// Number of logits in the row.
        vocab: usize,
    },
}

/// Log-probabilities of `chosen` and of the `top_n` likeliest tokens in a row of raw logits `[vocab]`.
///
/// The log-sum-exp is taken about the largest logit, in f64. NaN counts as minus infinity. `top_n` above the
/// vocabulary gives the whole vocabulary.
///
/// # Errors
/// [`LogProbsError::TokenOutOfRange`] for a token outside the row, [`LogProbsError::NoDistribution`] for a row whose
/// largest logit is not finite.
pub fn log_probs(logits: &[f32], chosen: TokenId, top_n: usize) -> Result<LogProbs, LogProbsError> {
    let vocab = logits.len();
    let chosen_logit = usize::try_from(chosen.0)
        .ok()
        .and_then(|index| logits.get(index))
        .ok_or(LogProbsError::TokenOutOfRange { token: chosen, vocab })?;
    let max = logits.iter().copied().map(number).fold(f64::NEG_INFINITY, f64::max);
    if !max.is_finite() {
        return Err(LogProbsError::NoDistribution { vocab });
    }
    let sum: f64 = logits.iter().map(|&logit| (number(logit) - max).exp()).sum();
    let log_sum = max + sum.ln();
    let log_prob = |logit: f32| number(logit) - log_sum;

    let mut order: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    let by_rank = |a: &(u32, f32), b: &(u32, f32)| -> Ordering {
        number(b.1).total_cmp(&number(a.1)).then(a.0.cmp(&b.0))
    };
    let top_n = top_n.min(vocab);
    if top_n < order.len() {
        order.select_nth_unstable_by(top_n, by_rank);
        order.truncate(top_n);
    }
    order.sort_unstable_by(by_rank);
    let top = order
        .into_iter()
        .map(|(id, logit)| LogProb { token: TokenId(id), log_prob: log_prob(logit) })
        .collect();
    Ok(LogProbs { chosen: LogProb { token: chosen, log_prob: log_prob(*chosen_logit) }, top })
}

/// The logit as f64, NaN as minus infinity, and -0 as 0 so that it ties with it.
fn number(logit: f32) -> f64 {
    if logit.is_nan() { f64::NEG_INFINITY } else { f64::from(logit) + 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_a_known_row() {
        let logits = [1.0, 3.0, f32::NEG_INFINITY, 3.0, f32::NAN, -2.0];
        let got = log_probs(&logits, TokenId(0), 3).unwrap();
        let z = 1f64.exp() + 2.0 * 3f64.exp() + (-2f64).exp();
        let expected = |logit: f64| (logit.exp() / z).ln();
        assert!((got.chosen.log_prob - expected(1.0)).abs() < 1e-12, "{got:?}");
        let ids: Vec<u32> = got.top.iter().map(|entry| entry.token.0).collect();
        assert_eq!(ids, [1, 3, 0], "ties by lower id");
        assert!((got.top[1].log_prob - expected(3.0)).abs() < 1e-12, "{got:?}");
        let all = log_probs(&logits, TokenId(2), 99).unwrap();
        assert_eq!(all.top.len(), 6, "clipped to the vocabulary");
        assert_eq!(all.chosen.log_prob, f64::NEG_INFINITY, "an impossible token");
        assert!(log_probs(&logits, TokenId(1), 0).unwrap().top.is_empty(), "none asked, none given");
    }

    #[test]
    fn large_logits_do_not_overflow_and_probabilities_sum_to_one() {
        let logits: Vec<f32> = (0..1000u16).map(|i| 3000.0 + f32::from(i % 37)).collect();
        let got = log_probs(&logits, TokenId(5), 1000).unwrap();
        let total: f64 = got.top.iter().map(|entry| entry.log_prob.exp()).sum();
        assert!((total - 1.0).abs() < 1e-9, "sum {total}");
    }

    #[test]
    fn bad_rows_are_errors() {
        let error = log_probs(&[0.0; 3], TokenId(3), 1).unwrap_err();
        assert_eq!(error, LogProbsError::TokenOutOfRange { token: TokenId(3), vocab: 3 }, "one past the end");
        assert!(log_probs(&[], TokenId(0), 1).is_err(), "empty row");
        for bad in [f32::NAN, f32::NEG_INFINITY, f32::INFINITY] {
            let error = log_probs(&[bad; 2], TokenId(0), 1).unwrap_err();
            assert_eq!(error, LogProbsError::NoDistribution { vocab: 2 }, "{bad}");
        }
    }
}
