//! What a caller may ask of the sampler, and what is refused.

use super::{BANNED, Fma, ln};
use crate::TokenId;

/// Longest penalty window, in tokens.
pub const MAX_PENALTY_WINDOW: u32 = 4096;
/// Largest vocabulary, in tokens.
pub const MAX_VOCAB: u32 = 1 << 20;
/// Smallest temperature above 0; its reciprocal must not push a logit out of f32.
pub const MIN_TEMPERATURE: f32 = 1e-5;

const MAX_TEMPERATURE: f32 = 100.0;
const MIN_REPETITION: f32 = 0.01;
const MAX_REPETITION: f32 = 100.0;
const MAX_PENALTY: f32 = 100.0;
const MAX_BIAS: f32 = 1e6;

/// How a token is drawn. The default is greedy, without penalties.
///
/// The order in which the parts apply is that of the [module](super).
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 for greedy, else [`MIN_TEMPERATURE`] to 100.
    pub temperature: f32,
    /// Number of largest logits that stay; 0, or anything from the vocabulary size on, for all.
    pub top_k: u32,
    /// Mass that the kept set must reach, 0 to 1; 1 is off, 0 keeps the likeliest token alone.
    pub top_p: f32,
    /// Least probability relative to the likeliest token, 0 to 1; 0 is off.
    pub min_p: f32,
    /// Divides positive logits of tokens seen in the window and multiplies the others; 0.01 to 100, 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of each token seen in the window; -100 to 100, 0 is off.
    pub presence_penalty: f32,
    /// Subtracted for each time the token was seen in the window; -100 to 100, 0 is off.
    pub frequency_penalty: f32,
    /// The penalties look at the last so many tokens of prompt and answer together; 0 is off, at most
    /// [`MAX_PENALTY_WINDOW`].
    pub penalty_window: u32,
    /// Added to the logits of single tokens; -1e6 to 1e6, or minus infinity to ban a token. Each token at most once.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Picks the noise. The same seed, prompt and parameters give the same answer.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 64,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// Why sampling was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// A parameter outside its range, or not a number.
    #[error("sampling parameter {field} must be {expected}, found {found}")]
    OutOfRange {
        /// Name of the field of [`SamplingParams`].
        field: &'static str,
        /// The range, in words.
        expected: &'static str,
        /// The value found.
        found: f32,
    },
    /// A penalty window longer than [`MAX_PENALTY_WINDOW`].
    #[error("sampling parameter penalty_window must be at most {MAX_PENALTY_WINDOW} tokens, found {found}")]
    WindowTooLong {
        /// The length found, in tokens.
        found: u32,
    },
    /// A bias for a token that the vocabulary does not have.
    #[error("logit_bias names token {token}, but the vocabulary has {vocab} tokens; ids start at 0")]
    BiasOutOfVocab {
        /// The token named.
        token: TokenId,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// A token with two biases.
    #[error("logit_bias names token {token} more than once; give each token one bias")]
    BiasTwice {
        /// The token named.
        token: TokenId,
    },
    /// A vocabulary of no tokens or of more than [`MAX_VOCAB`].
    #[error("the vocabulary must have 1 to {MAX_VOCAB} tokens, found {found}")]
    VocabSize {
        /// Size of the vocabulary.
        found: u32,
    },
    /// A row of logits whose length is not the vocabulary size.
    #[error(
        "a row of logits must have {expected} entries, found {found}; pass one row of this model's vocabulary"
    )]
    RowLength {
        /// Size of the vocabulary.
        expected: u32,
        /// Entries found.
        found: usize,
    },
}

impl SamplingParams {
    /// Checks every field against a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// The first field found wrong, by name.
    pub fn validate(&self, vocab: u32) -> Result<(), SamplingError> {
        if vocab == 0 || vocab > MAX_VOCAB {
            return Err(SamplingError::VocabSize { found: vocab });
        }
        let warm = (MIN_TEMPERATURE..=MAX_TEMPERATURE).contains(&self.temperature);
        within(
            "temperature",
            "0 (greedy) or 0.00001 to 100",
            self.temperature,
            warm || self.temperature == 0.0,
        )?;
        within("top_p", "0 to 1 (1 is off)", self.top_p, (0.0..=1.0).contains(&self.top_p))?;
        within("min_p", "0 to 1 (0 is off)", self.min_p, (0.0..=1.0).contains(&self.min_p))?;
        let repetition = (MIN_REPETITION..=MAX_REPETITION).contains(&self.repetition_penalty);
        within("repetition_penalty", "0.01 to 100 (1 is off)", self.repetition_penalty, repetition)?;
        let penalty = |value: f32| (-MAX_PENALTY..=MAX_PENALTY).contains(&value);
        within("presence_penalty", "-100 to 100", self.presence_penalty, penalty(self.presence_penalty))?;
        within("frequency_penalty", "-100 to 100", self.frequency_penalty, penalty(self.frequency_penalty))?;
        if self.penalty_window > MAX_PENALTY_WINDOW {
            return Err(SamplingError::WindowTooLong { found: self.penalty_window });
        }
        self.validate_bias(vocab)
    }

    fn validate_bias(&self, vocab: u32) -> Result<(), SamplingError> {
        for &(token, bias) in &self.logit_bias {
            if token.0 >= vocab {
                return Err(SamplingError::BiasOutOfVocab { token, vocab });
            }
            let allowed = bias == f32::NEG_INFINITY || (-MAX_BIAS..=MAX_BIAS).contains(&bias);
            within("logit_bias", "-1000000 to 1000000, or minus infinity to ban a token", bias, allowed)?;
        }
        let mut tokens: Vec<TokenId> = self.logit_bias.iter().map(|&(token, _)| token).collect();
        tokens.sort_unstable();
        match tokens.windows(2).find(|pair| pair.first() == pair.last()) {
            Some(pair) => Err(SamplingError::BiasTwice { token: pair.first().copied().unwrap_or_default() }),
            None => Ok(()),
        }
    }

    /// Whether the largest logit simply wins.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// The stages that these parameters need on a vocabulary of `vocab` tokens.
    #[must_use]
    pub fn stages(&self, vocab: u32) -> Stages {
        let draw = !self.is_greedy();
        let penalties =
            self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0;
        Stages {
            penalties: penalties && self.penalty_window > 0,
            bias: !self.logit_bias.is_empty(),
            top_k: draw && self.top_k > 0 && self.top_k < vocab,
            top_p: draw && self.top_p < 1.0,
            min_p: draw && self.min_p > 0.0,
            draw,
        }
    }

    /// The numbers that the arithmetic takes, derived in one place for the CPU twin and the kernels.
    ///
    /// `fma` is for the twin alone; kernels ignore it.
    #[must_use]
    pub fn coefficients(&self, fma: Fma) -> Coefficients {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the seed")]
        let (seed_lo, seed_hi) = (self.seed as u32, (self.seed >> 32) as u32);
        Coefficients {
            inv_temperature: if self.is_greedy() { 1.0 } else { 1.0 / self.temperature },
            repetition: self.repetition_penalty,
            inv_repetition: 1.0 / self.repetition_penalty,
            presence: self.presence_penalty,
            frequency: self.frequency_penalty,
            top_p: fraction(self.top_p),
            min_p_ln: ln(self.min_p.max(f32::MIN_POSITIVE), Fma::Split),
            seed_lo,
            seed_hi,
            fma,
        }
    }

    /// The biases by ascending id, a ban as [`BANNED`].
    #[must_use]
    pub fn sorted_bias(&self) -> Vec<(TokenId, f32)> {
        let mut bias: Vec<(TokenId, f32)> =
            self.logit_bias.iter().map(|&(token, value)| (token, value.max(BANNED))).collect();
        bias.sort_unstable_by_key(|&(token, _)| token);
        bias
    }
}

/// Which stages a parameter set needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named after its stage")]
pub struct Stages {
    /// Some penalty is on and the window is not empty.
    pub penalties: bool,
    /// Some token has a bias.
    pub bias: bool,
    /// The top-k threshold is searched.
    pub top_k: bool,
    /// The top-p threshold is searched.
    pub top_p: bool,
    /// Tokens far below the maximum are dropped.
    pub min_p: bool,
    /// The token is drawn with noise; `false` for greedy, which needs `prepare` and `pick` alone.
    pub draw: bool,
}

/// The numbers of [`SamplingParams`] as the arithmetic takes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// 1 / temperature; 1 for greedy.
    pub inv_temperature: f32,
    /// The repetition penalty.
    pub repetition: f32,
    /// Its reciprocal.
    pub inv_repetition: f32,
    /// The presence penalty.
    pub presence: f32,
    /// The frequency penalty.
    pub frequency: f32,
    /// `top_p` as a fraction of 2³², rounded.
    pub top_p: u32,
    /// ln `min_p`.
    pub min_p_ln: f32,
    /// Low half of the seed.
    pub seed_lo: u32,
    /// High half of the seed.
    pub seed_hi: u32,
    /// How the twin computes `fma`.
    pub fma: Fma,
}

fn within(field: &'static str, expected: &'static str, found: f32, ok: bool) -> Result<(), SamplingError> {
    if ok { Ok(()) } else { Err(SamplingError::OutOfRange { field, expected, found }) }
}

/// `value` of 0 to 1 as a fraction of 2³², the largest `u32` standing for 1.
fn fraction(value: f32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range, and saturating at 1"
    )]
    let fraction = (f64::from(value) * 4_294_967_296.0).round() as u32;
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
        let mut params = SamplingParams::default();
        change(&mut params);
        params
    }

    #[test]
    fn the_default_is_greedy_and_valid() {
        let params = SamplingParams::default();
        assert_eq!(params.validate(10), Ok(()), "valid");
        let stages = params.stages(10);
        assert!(
            !(stages.penalties || stages.bias || stages.top_k || stages.top_p || stages.draw),
            "{stages:?}"
        );
    }

    #[test]
    fn each_float_field_is_named_when_wrong() {
        type Set = fn(&mut SamplingParams, f32);
        let fields: [(&str, Set, &[f32], &[f32]); 7] = [
            ("temperature", |p, v| p.temperature = v, &[-0.1, 1e-6, 101.0], &[0.0, -0.0, 1e-5, 100.0]),
            ("top_p", |p, v| p.top_p = v, &[-0.1, 1.1], &[0.0, 1.0, 0.5]),
            ("min_p", |p, v| p.min_p = v, &[-0.1, 1.1], &[0.0, 1.0, 1e-45]),
            ("repetition_penalty", |p, v| p.repetition_penalty = v, &[0.0, -1.0, 101.0], &[0.01, 1.1, 100.0]),
            ("presence_penalty", |p, v| p.presence_penalty = v, &[-101.0, 101.0], &[-2.0, 2.0]),
            ("frequency_penalty", |p, v| p.frequency_penalty = v, &[-101.0, 101.0], &[-2.0, 2.0]),
            (
                "logit_bias",
                |p, v| p.logit_bias = vec![(TokenId(1), v)],
                &[2e6, -2e6],
                &[f32::NEG_INFINITY, 5.0],
            ),
        ];
        for (name, set, bad, good) in fields {
            for &value in bad.iter().chain(&[f32::NAN, f32::INFINITY]) {
                let error = with(|params| set(params, value)).validate(10).unwrap_err();
                assert!(error.to_string().contains(name), "{name} = {value}: {error}");
            }
            for &value in good {
                assert_eq!(with(|params| set(params, value)).validate(10), Ok(()), "{name} = {value}");
            }
        }
    }

    #[test]
    fn windows_biases_and_vocabularies_are_checked() {
        let long = with(|params| params.penalty_window = 4097).validate(10);
        assert_eq!(long, Err(SamplingError::WindowTooLong { found: 4097 }), "window");
        let outside = with(|params| params.logit_bias = vec![(TokenId(10), 1.0)]).validate(10);
        assert_eq!(outside, Err(SamplingError::BiasOutOfVocab { token: TokenId(10), vocab: 10 }), "id");
        let twice = vec![(TokenId(3), 1.0), (TokenId(1), 1.0), (TokenId(3), 2.0)];
        let twice = with(|params| params.logit_bias = twice).validate(10);
        assert_eq!(twice, Err(SamplingError::BiasTwice { token: TokenId(3) }), "twice");
        for vocab in [0, MAX_VOCAB + 1, u32::MAX] {
            let error = SamplingParams::default().validate(vocab);
            assert_eq!(error, Err(SamplingError::VocabSize { found: vocab }), "vocabulary");
        }
    }

    #[test]
    fn stages_follow_the_parameters() {
        let params = with(|params| {
            params.temperature = 1.0;
            params.top_k = 10;
            params.top_p = 0.9;
            params.min_p = 0.1;
            params.presence_penalty = 0.5;
        });
        let stages = params.stages(11);
        assert!(
            stages.top_k && stages.top_p && stages.min_p && stages.penalties && stages.draw,
            "{stages:?}"
        );
        assert!(!params.stages(10).top_k, "top-k of the whole vocabulary");
        let greedy = SamplingParams { temperature: 0.0, penalty_window: 0, ..params }.stages(11);
        assert!(
            !(greedy.top_k || greedy.top_p || greedy.min_p || greedy.penalties || greedy.draw),
            "{greedy:?}"
        );
    }

    #[test]
    fn coefficients_are_derived_once() {
        let params = with(|params| {
            params.temperature = 0.8;
            params.top_p = 0.25;
            params.min_p = 0.05;
            params.seed = 0x0123_4567_89ab_cdef;
            params.logit_bias = vec![(TokenId(4), f32::NEG_INFINITY), (TokenId(2), 1.5)];
        });
        let derived = params.coefficients(Fma::Split);
        assert_eq!(derived.inv_temperature, 1.25, "reciprocal");
        assert_eq!(derived.top_p, 1 << 30, "a quarter");
        assert!((derived.min_p_ln - 0.05f32.ln()).abs() < 1e-6, "ln");
        assert_eq!((derived.seed_hi, derived.seed_lo), (0x0123_4567, 0x89ab_cdef), "halves");
        assert_eq!(params.sorted_bias(), [(TokenId(2), 1.5), (TokenId(4), BANNED)], "sorted, the ban finite");
        assert_eq!(with(|params| params.top_p = 1.0).coefficients(Fma::Split).top_p, u32::MAX, "saturates");
    }
}
