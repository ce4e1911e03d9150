//! Training text: what a sample is, where it is held out, which tokens a drafter proposes.

mod read;
mod vocabulary;

pub use read::{Reader, open, read_files};
pub use vocabulary::draft_vocabulary;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A prompt and the target's answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Tokens of the prompt, the template included.
    pub prompt: Vec<u32>,
    /// Tokens of the answer; the loss is on these.
    pub response: Vec<u32>,
}

impl Sample {
    /// Tokens of both.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prompt.len() + self.response.len()
    }

    /// Whether there is no token at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part that the sample belongs to: decided by its prompt alone, so that two answers to one prompt are never on
    /// both sides, and so that it stays where it is when data is added.
    #[must_use]
    pub fn split(&self, held_out: f64) -> Split {
        let mut hash = Sha256::new();
        for token in &self.prompt {
            hash.update(token.to_le_bytes());
        }
        let digest = hash.finalize();
        let head = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
        if f64::from(head) < held_out * (f64::from(u32::MAX) + 1.0) { Split::HeldOut } else { Split::Train }
    }
}

/// What a sample is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Gradients come from it.
    Train,
    /// Everything is chosen on it: when to stop, calibration, the gate.
    HeldOut,
}

#[cfg(test)]
mod tests {
    use super::{Sample, Split};

    #[test]
    fn samples_are_held_out_by_prompt() {
        let sample =
            |prompt: u32, response: u32| Sample { prompt: vec![1, prompt], response: vec![response] };
        let held = |share| (0..4000).filter(|&id| sample(id, 0).split(share) == Split::HeldOut).count();
        assert_eq!(held(0.0), 0);
        assert!((150..250).contains(&held(0.05)), "{} of 4000", held(0.05));
        assert_eq!(held(1.0), 4000);
        for id in 0..200 {
            assert_eq!(sample(id, 1).split(0.5), sample(id, 2).split(0.5), "two answers to prompt {id}");
        }
    }
}
