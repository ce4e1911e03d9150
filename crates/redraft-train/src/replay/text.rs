//! Texts to be replayed, and what the drafter makes of their true features.

use std::collections::HashMap;

use redraft_decode::TokenId;
use serde::{Deserialize, Serialize};

use super::evaluate::Said;
use crate::corpus::{Corpus, Entry, Record};
use crate::error::TrainError;

/// A text whose continuation is known, with what the target says of it.
#[derive(Clone, Debug)]
pub struct Text {
    /// What it is counted under: an evaluation set, or `held-out`.
    pub set: String,
    /// Texts with the same prompt are resampled together.
    pub prompt_id: u64,
    /// Prompt and answer.
    pub tokens: Vec<TokenId>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Features, choices and certainties.
    pub record: Record,
    /// What the answer was drawn with; `None` for a greedy one.
    pub noise: Option<Noise>,
}

/// Keyed noise that an answer was drawn with, at a temperature above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The seed of its sampler.
    pub seed: u64,
    /// 1 / temperature.
    pub inv_temperature: f32,
}

/// A sample of a corpus.
#[derive(Clone, Debug)]
struct Item {
    index: usize,
    set: String,
    noise: Option<Noise>,
}

/// Which texts of a corpus, and what each is counted under.
#[derive(Clone, Debug)]
pub struct TextSet<'a> {
    corpus: &'a Corpus,
    items: Vec<Item>,
}

impl<'a> TextSet<'a> {
    /// The samples `indices` of a corpus, all counted under `set`.
    #[must_use]
    pub fn new(corpus: &'a Corpus, indices: &[usize], set: &str) -> Self {
        Self::named(corpus, indices.iter().map(|&index| (index, set.to_owned())).collect())
    }

    /// The samples of a corpus by the set that each belongs to.
    #[must_use]
    pub fn named(corpus: &'a Corpus, items: Vec<(usize, String)>) -> Self {
        let item = |(index, set)| Item { index, set, noise: None };
        Self { corpus, items: items.into_iter().map(item).collect() }
    }

    /// The same texts, each with what `noise` says that its answer was drawn with, by its prompt.
    #[must_use]
    pub fn drawn(mut self, noise: impl Fn(&[u32]) -> Option<Noise>) -> Self {
        for item in &mut self.items {
            let entry = &self.corpus.manifest().samples[item.index];
            item.noise = noise(&entry.tokens[..entry.prompt]);
        }
        self
    }

    /// Of each text the half that it belongs to, 0 or 1: prompts by turns, in the order of a hash.
    #[must_use]
    pub fn halves(&self) -> Vec<usize> {
        let ids: Vec<u64> = self.items.iter().map(|item| prompt_id(self.entry(item.index))).collect();
        let mut prompts = ids.clone();
        prompts.sort_unstable();
        prompts.dedup();
        ids.iter().map(|id| prompts.partition_point(|other| other < id) % 2).collect()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// At most `count` texts from `start` on.
    #[must_use]
    pub fn part(&self, start: usize, count: usize) -> Self {
        let items = self.items.iter().skip(start).take(count).cloned().collect();
        Self { corpus: self.corpus, items }
    }

    /// Prompt and set of each text.
    pub fn prompts(&self) -> impl Iterator<Item = (&[u32], &str)> {
        self.items.iter().map(|item| {
            let entry = self.entry(item.index);
            (&entry.tokens[..entry.prompt], item.set.as_str())
        })
    }

    /// The sets, each once, in order.
    #[must_use]
    pub fn sets(&self) -> Vec<String> {
        let mut sets: Vec<String> = Vec::new();
        for Item { set, .. } in &self.items {
            if !sets.contains(set) {
                sets.push(set.clone());
            }
        }
        sets
    }

    /// Every `len / count`-th prompt, at most `count`, with all its texts; all of them if there are fewer. Sets keep
    /// their shares.
    #[must_use]
    pub fn subsample(&self, count: usize) -> Self {
        let mut prompts: Vec<u64> = Vec::new();
        for item in &self.items {
            let id = prompt_id(self.entry(item.index));
            if !prompts.contains(&id) {
                prompts.push(id);
            }
        }
        let total = prompts.len().max(1);
        let kept = |place: usize| count >= total || place * count / total != (place + 1) * count / total;
        let place: HashMap<u64, usize> = prompts.into_iter().enumerate().map(|(at, id)| (id, at)).collect();
        let chosen =
            |item: &&Item| place.get(&prompt_id(self.entry(item.index))).is_some_and(|&place| kept(place));
        Self { corpus: self.corpus, items: self.items.iter().filter(chosen).cloned().collect() }
    }

    /// The texts whose answers are the target's likeliest tokens, but for at most a share of `most` (near-ties that
    /// another order of summation decided otherwise).
    ///
    /// # Errors
    /// [`TrainError`] when a record cannot be read.
    pub fn greedy(&self, most: f64) -> Result<Self, TrainError> {
        let mut items = Vec::new();
        for item in &self.items {
            let (entry, record) = (self.entry(item.index), self.corpus.record(item.index)?);
            let behind = entry.tokens.iter().zip(&record.choice).enumerate();
            let answer = behind.skip(entry.prompt - 1).take(entry.tokens.len() - entry.prompt);
            let other = answer.filter(|(at, (_, choice))| entry.tokens.get(at + 1) != Some(*choice)).count();
            if other as f64 <= most * (entry.tokens.len() - entry.prompt) as f64 {
                items.push(item.clone());
            }
        }
        Ok(Self { corpus: self.corpus, items })
    }

    /// The longest text, in tokens.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.items.iter().map(|item| self.entry(item.index).tokens.len()).max().unwrap_or(0)
    }

    /// Reads a text with its records.
    ///
    /// # Errors
    /// [`TrainError::State`] when it has no features yet.
    pub fn read(&self, place: usize) -> Result<Text, TrainError> {
        let Item { index, set, noise } = self
            .items
            .get(place)
            .ok_or_else(|| TrainError::setting("text", format!("below {}", self.items.len()), place))?;
        let entry = self.entry(*index);
        Ok(Text {
            set: set.clone(),
            noise: *noise,
            prompt_id: prompt_id(entry),
            tokens: entry.tokens.iter().copied().map(TokenId).collect(),
            prompt: entry.prompt,
            record: self.corpus.record(*index)?,
        })
    }

    /// Tells this set of texts from others.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        use sha2::{Digest as _, Sha256};
        let mut hash = Sha256::new();
        for Item { index, set, noise } in &self.items {
            let entry = self.entry(*index);
            if let Some(Noise { seed, inv_temperature }) = noise {
                hash.update(seed.to_le_bytes());
                hash.update(inv_temperature.to_le_bytes());
            }
            hash.update((entry.tokens.len() as u64).to_le_bytes());
            hash.update((entry.prompt as u64).to_le_bytes());
            entry.tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
            hash.update(set.as_bytes());
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    fn entry(&self, index: usize) -> &'a Entry {
        &self.corpus.manifest().samples[index]
    }
}

/// Equal for equal prompts.
fn prompt_id(entry: &Entry) -> u64 {
    // FNV-1a: stable over versions, unlike the standard library's hash.
    let bytes = entry.tokens[..entry.prompt].iter().flat_map(|token| token.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What the drafter made of the true features of a text: its stable rows.
///
/// Row t has the target's feature of token t and the token t + 1; it is the first pass of a root at t + 1.
#[derive(Clone, Debug, Default)]
pub(super) struct Extended {
    pub(super) rows: usize,
    pub(super) width: usize,      // of a head
    pub(super) keys: Vec<f32>,    // [key heads, rows, width]
    pub(super) values: Vec<f32>,  // [key heads, rows, width]
    pub(super) first: usize,      // row that the following begin with
    pub(super) feature: Vec<f32>, // [rows − first, hidden] fused feature that the row read
    pub(super) hidden: Vec<f32>,  // [rows − first, hidden] output
    pub(super) said: Vec<Said>,   // [rows − first]
    pub(super) noise: Option<Noise>,
}

impl Extended {
    /// Keys and values of one head, rows 0 to `count`.
    pub(super) fn stable(&self, head: usize, count: usize) -> (&[f32], &[f32]) {
        let (start, end) = (head * self.rows * self.width, (head * self.rows + count) * self.width);
        (&self.keys[start..end], &self.values[start..end])
    }

    /// Row `row` of a `[rows − first, hidden]` array.
    fn line<'a>(&self, values: &'a [f32], row: usize) -> &'a [f32] {
        let hidden = values.len() / self.said.len().max(1);
        &values[(row - self.first) * hidden..][..hidden]
    }

    pub(super) fn feature(&self, row: usize) -> &[f32] {
        self.line(&self.feature, row)
    }

    pub(super) fn hidden(&self, row: usize) -> &[f32] {
        self.line(&self.hidden, row)
    }

    pub(super) fn said(&self, row: usize) -> &Said {
        &self.said[row - self.first]
    }
}

/// A text, extended, without its features.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) id: TextId,
    pub(super) tokens: Vec<TokenId>,
    pub(super) prompt: usize,
    pub(super) choice: Vec<u32>,
    pub(super) certainty: Vec<f32>,
    pub(super) extended: Extended,
}

/// Which text counts are of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TextId {
    /// What it is counted under.
    pub set: String,
    /// Equal for texts with the same prompt.
    pub prompt_id: u64,
}
