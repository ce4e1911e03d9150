//! Where an answer ends.
//!
//! A round may emit several tokens at once. [`StopPolicy::end`] walks such a run as plain decoding would have met it,
//! one token after another, and says where it would have stopped; what lies behind is dropped.

use std::fmt;

use crate::TokenId;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The model emitted an end-of-sequence token.
    EndOfSequence,
    /// The text reached a stop string. Found by whoever turns ids into text; never by [`StopPolicy`].
    StopString,
    /// The token limit was reached.
    MaxTokens,
    /// The context has no room for a further token.
    ContextFull,
    /// The caller cancelled.
    Cancelled,
}

impl StopReason {
    /// The stable name in machine-readable output: `eos`, `stop`, `length`, `context` or `cancelled`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EndOfSequence => "eos",
            Self::StopString => "stop",
            Self::MaxTokens => "length",
            Self::ContextFull => "context",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The rules that end an answer by ids and counts alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopPolicy {
    /// The end-of-sequence set. An id of it ends the answer and is no part of its text.
    pub eos: Vec<TokenId>,
    /// Most tokens that an answer may hold, an end-of-sequence token included; `None` for no limit.
    pub max_tokens: Option<u32>,
    /// Number of positions that the context holds, prompt included.
    pub context: u32,
}

/// How a run of tokens ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// How many ids of the run were emitted, a closing end-of-sequence id included. The ids behind are dropped.
    pub taken: usize,
    /// How many of the taken ids carry text: `taken`, less one when the run was ended by end-of-sequence.
    pub text: usize,
    /// Why the answer ends after `taken` ids; `None` when it goes on.
    pub reason: Option<StopReason>,
}

impl StopPolicy {
    /// Where `run` ends.
    ///
    /// - `prompt`: tokens of the context before this answer, in tokens.
    /// - `answered`: tokens of this answer emitted before `run`, in tokens.
    ///
    /// After each token the rules are tried in this order: end-of-sequence, token limit, context. The token at the
    /// last position of the context is still emitted; it is the next one that has no room. An answer that may hold
    /// no token at all ends with `taken` 0.
    #[must_use]
    pub fn end(&self, prompt: u32, answered: u32, run: &[TokenId]) -> Ending {
        let mut answered = answered;
        for (index, token) in run.iter().enumerate() {
            if let Some(reason) = self.full(prompt, answered) {
                return Ending { taken: index, text: index, reason: Some(reason) };
            }
            if self.eos.contains(token) {
                return Ending { taken: index + 1, text: index, reason: Some(StopReason::EndOfSequence) };
            }
            answered = answered.saturating_add(1);
        }
        Ending { taken: run.len(), text: run.len(), reason: self.full(prompt, answered) }
    }

    /// Why no token may follow `answered` tokens of answer behind `prompt` tokens of context, if so.
    #[must_use]
    pub fn full(&self, prompt: u32, answered: u32) -> Option<StopReason> {
        if self.max_tokens.is_some_and(|most| answered >= most) {
            Some(StopReason::MaxTokens)
        } else if prompt.saturating_add(answered) >= self.context {
            Some(StopReason::ContextFull)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn policy(max_tokens: Option<u32>, context: u32) -> StopPolicy {
        StopPolicy { eos: ids(&[2, 9]), max_tokens, context }
    }

    #[test]
    fn each_rule_cuts_where_it_applies() {
        let run = ids(&[5, 6, 9, 7]);
        let cases = [
            (policy(None, 100), Ending { taken: 3, text: 2, reason: Some(StopReason::EndOfSequence) }),
            (policy(Some(2), 100), Ending { taken: 2, text: 2, reason: Some(StopReason::MaxTokens) }),
            (policy(Some(3), 100), Ending { taken: 3, text: 2, reason: Some(StopReason::EndOfSequence) }),
            (policy(None, 11), Ending { taken: 1, text: 1, reason: Some(StopReason::ContextFull) }),
            (policy(Some(0), 100), Ending { taken: 0, text: 0, reason: Some(StopReason::MaxTokens) }),
            (policy(None, 10), Ending { taken: 0, text: 0, reason: Some(StopReason::ContextFull) }),
            (policy(Some(1), 11), Ending { taken: 1, text: 1, reason: Some(StopReason::MaxTokens) }),
        ];
        for (policy, expected) in cases {
            assert_eq!(policy.end(10, 0, &run), expected, "{policy:?}");
        }
        let open = policy(None, 100).end(10, 0, &run[..2]);
        assert_eq!(open, Ending { taken: 2, text: 2, reason: None }, "nothing applies");
    }

    #[test]
    fn a_run_ends_where_single_tokens_would() {
        let run = ids(&[5, 6, 7, 8, 2, 5]);
        for max in 0..8 {
            for context in 0..12 {
                let policy = policy(Some(max), context);
                let whole = policy.end(4, 1, &run);
                let (mut taken, mut reason) = (0, policy.full(4, 1));
                while reason.is_none() && taken < run.len() {
                    reason = policy.end(4, 1 + u32::try_from(taken).unwrap(), &run[taken..=taken]).reason;
                    taken += 1;
                }
                assert_eq!((whole.taken, whole.reason), (taken, reason), "max {max}, context {context}");
            }
        }
    }

    #[test]
    fn names_are_stable() {
        let names = [
            (StopReason::EndOfSequence, "eos"),
            (StopReason::StopString, "stop"),
            (StopReason::MaxTokens, "length"),
            (StopReason::ContextFull, "context"),
            (StopReason::Cancelled, "cancelled"),
        ];
        for (reason, name) in names {
            assert_eq!(reason.to_string(), name, "{reason:?}");
        }
    }
}
