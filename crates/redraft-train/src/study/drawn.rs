//! Answers of the target at temperature 1, for replays of sampled text.
//!
//! What a keyed sampler draws is a function of seed, position and token, so a sampled answer is as fixed as a greedy one.

use std::collections::HashMap;
use std::path::Path;

use burn::tensor::Device;

use super::{FEATURES, StudyOptions, evaluation_samples};
use crate::corpus::Corpus;
use crate::error::TrainError;
use crate::generate::{GenerateOptions, generate};
use crate::prepare::{PrepareOptions, prepare};
use crate::replay::{Noise, TextSet};
use crate::target::{Target, TargetFile};

/// The temperature that answers are drawn at.
pub(super) const TEMPERATURE: f32 = 1.0;

/// Sampled answers with their features.
pub(super) struct Drawn {
    corpus: Corpus,
    /// Of each prompt its set and the noise of its answer.
    noise: HashMap<Vec<u32>, (String, Noise)>,
}

impl Drawn {
    /// Has the target answer the prompts of `texts`; what is there already is kept in `work`.
    pub(super) fn new(
        options: &StudyOptions,
        texts: &TextSet<'_>,
        captures: [u32; 3],
        device: &Device,
    ) -> Result<Self, TrainError> {
        let file = TargetFile::open(&options.target)?;
        let (mut prompts, mut noise) = (Vec::new(), HashMap::new());
        for (prompt, set) in texts.prompts() {
            // As `generate` numbers its seeds.
            let seed = options.seed.wrapping_add(prompts.len() as u64);
            let drawn = Noise { seed, inv_temperature: 1.0 / TEMPERATURE };
            if noise.insert(prompt.to_vec(), (set.to_owned(), drawn)).is_none() {
                prompts.push(prompt.to_vec());
            }
        }
        let name = format!("drawn-{}-{}-{}", prompts.len(), options.drawn_tokens, options.seed);
        let path = options.work.join(format!("{name}.jsonl"));
        std::fs::create_dir_all(&options.work).map_err(TrainError::io(&options.work))?;
        write(&file, &prompts, &path, options, device)?;
        let samples = evaluation_samples(&file, &path)?;
        let features = PrepareOptions { captures, ..FEATURES };
        let corpus = prepare(&file, samples, &options.work.join(name), &features, device)?;
        Ok(Self { corpus, noise })
    }

    /// The answers, each under its set and with its noise.
    pub(super) fn texts(&self) -> TextSet<'_> {
        let items = self.corpus.manifest().samples.iter().enumerate().map(|(index, entry)| {
            let found = self.noise.get(&entry.tokens[..entry.prompt]);
            (index, found.map(|(set, _)| set.clone()).unwrap_or_default())
        });
        TextSet::named(&self.corpus, items.collect())
            .drawn(|prompt| self.noise.get(prompt).map(|(_, noise)| *noise))
    }
}

fn write(
    file: &TargetFile,
    prompts: &[Vec<u32>],
    path: &Path,
    options: &StudyOptions,
    device: &Device,
) -> Result<(), TrainError> {
    let made = GenerateOptions {
        max_new: options.drawn_tokens,
        temperature: TEMPERATURE,
        top_p: 1.0,
        seed: options.seed,
        batch: 64,
        progress: false,
    };
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let target = Target::load(file, [0, 1, 2], longest + options.drawn_tokens, device)?;
    generate(&target, prompts, file.tokenizer()?.eos_ids(), path, &made, device)
}
