//! Drawing a token from a row of logits: parameters and the CPU twin of the sampling kernels.
//!
//! # Order
//!
//! 1. **Penalties**, over the last `penalty_window` tokens of prompt, answer and, in a tree, the row's own path.
//!    A token seen `c > 0` times has its logit divided by `repetition_penalty` if positive, multiplied by it otherwise,
//!    and then lowered by `c · frequency_penalty + presence_penalty`. Then the token's **bias** is added.
//! 2. **Temperature**: the logit is multiplied by the f32 reciprocal of it. Temperature 0 is greedy: the largest
//!    logit wins here and nothing below applies.
//! 3. **Top-k**: the `k` largest logits stay.
//! 4. **Top-p**: of those, renormalised, the smallest set of largest logits whose mass is at least `top_p` stays.
//! 5. **Min-p**: of those, the ones at least `min_p` times as likely as the likeliest stay.
//! 6. The token is the argmax over what stayed of `logit + G(seed, position, id)`, G being standard Gumbel noise
//!    ([`gumbel`]) and `position` the absolute position that the drawn token will take. This draws from the softmax of
//!    what stayed, and it is a pure function of logits, history, seed and position.
//!
//! Every tie, also at a threshold, goes to the lower id. A ban (bias of minus infinity) is a bias of -1e30. Logits are
//! compared by an order-preserving integer key ([`float_key`]) in which NaN stands below everything.
//!
//! # Twins
//!
//! Each stage is a kernel in `shaders/sample_*.wgsl` and a function here under the same name without `sample_`:
//!
//! | stage | owns | when |
//! |---|---|---|
//! | [`window`] | counts the tokens of the penalty window | penalties |
//! | [`prepare`] | penalties, bias, temperature; argmax partials | always |
//! | [`pick`] | argmax over partials: the greedy token, the maximum, the drawn token | always |
//! | [`histogram`] | one 8-bit level of the radix search for the top-k or top-p threshold | top-k, top-p: four each |
//! | [`cut`] | the threshold and how many of its ties stay | top-k, top-p |
//! | [`draw`] | min-p and the perturbed argmax partials | temperature above 0 |
//!
//! [`Stages`] says which of them a parameter set needs. Sums are integers, so no result depends on the order of
//! threads, and `exp` and `ln` are explicit multiply-adds ([`exp_weight`], [`ln`]), so the twin agrees with a device bit
//! for bit once it is told whether the device's `fma` rounds the product ([`Fma`]).

mod gumbel;
mod key;
mod math;
mod params;
mod prepare;
mod sampler;
mod select;
mod window;

pub use gumbel::{exponential, gumbel, pcg4d, unit};
pub use key::{BANNED, float_key, key_float};
pub use math::{Fma, WEIGHT_ONE, exp_weight, ln};
pub use params::{
    Coefficients, MAX_PENALTY_WINDOW, MAX_VOCAB, MIN_TEMPERATURE, SamplingError, SamplingParams, Stages,
};
pub use prepare::{Best, draw, pick, prepare};
pub use sampler::Sampler;
pub use select::{BINS, Cut, LEVELS, Measure, Search, cut, histogram};
pub use window::{WindowEntry, window, window_of_row};
