//! The study: does reconsideration pay, on this target, with this drafter?
//!
//! Everything that can be chosen is settled on held-out text, the experiments then run once on
//! the evaluation sets, all by replay with the drafter as it is served. What was run is kept, so a study that is stopped
//! goes on; what is written is a function of what was run.

pub mod args;
mod cache;
mod costs;
mod plans;
mod plot;
mod report;
mod select;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde::Deserialize;

use crate::calibrate::FitOptions;
use crate::corpus::Corpus;
use crate::data::{Reader, Sample, Split};
use crate::error::TrainError;
use crate::prepare::{PrepareOptions, prepare};
use crate::replay::args::{Blocks, Loaded};
use crate::replay::{Run, TextSet};
use crate::target::TargetFile;
use cache::Runner;
use costs::Bench;
use report::{Facts, Report};
use spec::Spec;

/// What a study reads and writes.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// The target: a GGUF file.
    pub target: PathBuf,
    /// The drafter.
    pub drafter: PathBuf,
    /// Blocks that its float matrices are rounded to.
    pub blocks: Blocks,
    /// The corpus that it was trained on, whose held-out texts everything is chosen on.
    pub corpus: PathBuf,
    /// The target's greedy answers to the evaluation prompts: JSON lines with `set`, `prompt_ids`, `greedy_ids`.
    pub evaluation: PathBuf,
    /// Where features of the evaluation texts and runs are kept.
    pub work: PathBuf,
    /// Where tables, pictures and figures go.
    pub out: PathBuf,
    /// Prompts of the evaluation sets, spread over all; all if absent.
    pub texts: Option<usize>,
    /// Prompts of the held-out texts.
    pub held_out_texts: Option<usize>,
    /// Held-out texts of which more than this share of tokens is not the target's likeliest are left out.
    pub sampled: f64,
    /// Answer tokens that the drafter was trained on; those of the corpus if absent.
    pub training_tokens: Option<u64>,
    /// What `redraft bench --speculate … --json` measured with this drafter.
    pub bench: Option<PathBuf>,
    /// Of the bootstrap.
    pub seed: u64,
}

#[derive(Deserialize)]
struct Line {
    set: String,
    prompt_ids: Vec<u32>,
}

/// Runs the study and writes its files. `progress` is told what is being done.
///
/// # Errors
/// [`TrainError`] names the file or setting; what was run stays.
pub fn run(options: &StudyOptions, device: &Device, progress: &dyn Fn(&str)) -> Result<(), TrainError> {
    let bench = options.bench.as_deref().map(Bench::read).transpose()?;
    let corpus = Corpus::open(&options.corpus)?;
    let mut held_out =
        TextSet::new(&corpus, &corpus.indices(Split::HeldOut), "held-out").greedy(options.sampled)?;
    if let Some(count) = options.held_out_texts {
        held_out = held_out.subsample(count);
    }
    progress("features of the evaluation texts");
    let evaluation = evaluation(options, corpus.manifest().target.capture_layers, device)?;
    disjoint(&corpus, &evaluation, &options.evaluation)?;
    let names = sets(&options.evaluation)?;
    let named =
        evaluation.manifest().samples.iter().enumerate().map(|(index, entry)| {
            (index, names.get(&entry.tokens[..entry.prompt]).cloned().unwrap_or_default())
        });
    let mut texts = TextSet::named(&evaluation, named.collect());
    if let Some(count) = options.texts {
        texts = texts.subsample(count);
    }
    if held_out.is_empty() || texts.is_empty() {
        let found = format!("{} held-out and {} evaluation texts", held_out.len(), texts.len());
        return Err(TrainError::setting("--corpus", "greedy held-out texts and evaluation texts", found));
    }
    let longest = held_out.longest().max(texts.longest());
    let loaded = Loaded::open(&options.target, &options.drafter, options.blocks, longest, device)?;
    loaded.check(&corpus)?;
    let runner = Runner {
        evaluator: &loaded.evaluator,
        fingerprint: &loaded.fingerprint,
        directory: &options.work.join("runs"),
        held_out: &held_out,
        fit: FitOptions::default(),
        progress,
    };
    progress("choosing on held-out text");
    let (chosen, sweep) = select::select(&runner, &held_out)?;
    let experiments = plans::experiments(&chosen);
    let mut specs: Vec<Spec> = Vec::new();
    for (_, spec) in experiments.iter().flat_map(|experiment| &experiment.entries) {
        if !specs.contains(spec) {
            specs.push(*spec);
        }
    }
    progress(&format!("{} plans on {} evaluation texts", specs.len(), texts.len()));
    let runs: HashMap<Spec, Run> = specs.iter().copied().zip(runner.runs(&texts, &specs)?).collect();
    let trained = corpus.manifest().samples.iter().filter(|entry| entry.split == Split::Train);
    let facts = Facts {
        target: file_name(&options.target),
        drafter: format!("{} ({})", file_name(&options.drafter), loaded.fingerprint),
        training_tokens: options
            .training_tokens
            .unwrap_or_else(|| trained.map(|entry| (entry.tokens.len() - entry.prompt) as u64).sum()),
        held_out: held_out.len(),
        texts: texts.len(),
        sets: texts.sets(),
        seed: options.seed,
    };
    Report { facts, chosen, sweep, experiments, runs, bench }.write(&options.out)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The evaluation texts with their features.
fn evaluation(options: &StudyOptions, captures: [u32; 3], device: &Device) -> Result<Corpus, TrainError> {
    let file = TargetFile::open(&options.target)?;
    let (tokenizer, template) = (file.tokenizer()?, file.template()?);
    let reader = Reader {
        vocab: file.config.vocab,
        tokenizer: &tokenizer,
        template: template.as_ref(),
        max_tokens: file.config.context as usize,
    };
    let samples: Vec<Sample> = reader.read(&options.evaluation)?;
    if samples.is_empty() {
        return Err(TrainError::setting("--evaluation", "at least one text", "none"));
    }
    // No split and no vocabulary: only features are wanted.
    let features =
        PrepareOptions { captures, draft_vocab: 1, held_out: 0.0, batch_tokens: 2048, progress: false };
    prepare(&file, samples, &options.work.join("features"), &features, device)
}

/// The set of each prompt.
fn sets(path: &Path) -> Result<HashMap<Vec<u32>, String>, TrainError> {
    let text = std::fs::read_to_string(path).map_err(TrainError::io(path))?;
    let mut sets = HashMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).map_err(|error| TrainError::Data {
            file: path.to_owned(),
            line: number,
            problem: format!("not an evaluation text with set and prompt_ids: {error}"),
        })?;
        sets.insert(line.prompt_ids, line.set);
    }
    Ok(sets)
}

/// Refuses evaluation prompts that are among the corpus's: a drafter that was trained on them proves nothing.
fn disjoint(corpus: &Corpus, evaluation: &Corpus, path: &Path) -> Result<(), TrainError> {
    let prompts: std::collections::HashSet<&[u32]> =
        corpus.manifest().samples.iter().map(|entry| &entry.tokens[..entry.prompt]).collect();
    for (number, entry) in (1..).zip(&evaluation.manifest().samples) {
        if prompts.contains(&entry.tokens[..entry.prompt]) {
            return Err(TrainError::Data {
                file: path.to_owned(),
                line: number,
                problem: "this evaluation prompt is in the training corpus".to_owned(),
            });
        }
    }
    Ok(())
}
