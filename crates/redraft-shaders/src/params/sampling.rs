//! Parameters of the sampling kernels.

use bytemuck::{Pod, Zeroable};

/// Parameters of every `sample_*` kernel. One parameter set needs eight copies, which differ in `measure` and `level`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct SampleParams {
    /// Tokens of the vocabulary: the length of a row of logits.
    pub vocab: u32,
    /// Ids that one invocation owns; a row has `ceil(vocab / (64 · chunk)) · 64` invocations and partial results.
    pub chunk: u32,
    /// Slots of a penalty window; 0 switches penalties off.
    pub window: u32,
    /// Row length of the ancestor table.
    pub levels: u32,
    /// Entries of the bias list.
    pub biases: u32,
    /// 1 at a temperature above 0, 0 for greedy.
    pub draws: u32,
    /// 0 searches the top-k threshold, 1 the top-p threshold.
    pub measure: u32,
    /// Level of the search, 0 to 3; 3 for `sample_cut`.
    pub level: u32,
    /// Number of largest logits that stay, at least 1 and at most the vocabulary.
    pub top_k: u32,
    /// Mass that must stay, as a fraction of 2³².
    pub top_p: u32,
    /// 1 applies min-p.
    pub min_p: u32,
    /// ln of min-p.
    pub min_p_ln: f32,
    /// 1 / temperature; 1 for greedy.
    pub inv_temperature: f32,
    /// Repetition penalty.
    pub repetition: f32,
    /// 1 / repetition penalty.
    pub inv_repetition: f32,
    /// Presence penalty.
    pub presence: f32,
    /// Frequency penalty.
    pub frequency: f32,
    /// Low half of the seed.
    pub seed_lo: u32,
    /// High half of the seed.
    pub seed_hi: u32,
    /// Padding.
    pub pad0: u32,
}
