//! The study: does reconsideration pay, on this target, with this drafter?
//!
//! Everything that can be chosen is settled on held-out text, the experiments then run once on
//! the evaluation sets, all by replay with the drafter as it is served. The arms run on all evaluation texts, at
//! temperature 0 and on sampled answers; what explains them runs on some. What was run is kept, so a study that is stopped
//! goes on; what is written is a function of what was run.

pub mod args;
mod cache;
mod costs;
mod drawn;
mod plans;
mod plot;
mod reasons;
mod report;
mod select;
mod spec;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde::Deserialize;

use crate::corpus::Corpus;
use crate::data::{Reader, Sample, Split};
use crate::error::TrainError;
use crate::prepare::{PrepareOptions, prepare};
use crate::replay::args::{Blocks, Loaded};
use crate::replay::{Run, TextSet, tau};
use crate::target::TargetFile;
use cache::{HeldOut, Runner};
use costs::Bench;
use drawn::{Drawn, TEMPERATURE};
use plans::Experiment;
use report::{Earlier, Facts, Report};
use spec::Spec;
use tables::Part;

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
    /// Prompts of the evaluation sets that the ablations are replayed on.
    pub ablation_texts: usize,
    /// Prompts of the evaluation sets whose answers are also drawn at temperature 1; 0 leaves that out.
    pub drawn_texts: usize,
    /// Longest of these answers.
    pub drawn_tokens: usize,
    /// Prompts of the held-out texts.
    pub held_out_texts: Option<usize>,
    /// Held-out texts of which more than this share of tokens is not the target's likeliest are left out.
    pub sampled: f64,
    /// Answer tokens that the drafter was trained on; those of the corpus if absent.
    pub training_tokens: Option<u64>,
    /// Drafters of earlier stages of training, by their answer tokens.
    pub earlier: Vec<(u64, PathBuf)>,
    /// What `redraft bench --speculate … --json` measured with this drafter.
    pub bench: Option<PathBuf>,
    /// Of the bootstrap, and of the sampled answers.
    pub seed: u64,
}

/// How features of texts to be replayed are made: no split and no vocabulary, only features are wanted.
const FEATURES: PrepareOptions = PrepareOptions {
    captures: [0, 1, 2],
    draft_vocab: 1,
    held_out: 0.0,
    batch_tokens: 2048,
    progress: false,
};

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
    let captures = corpus.manifest().target.capture_layers;
    let mut held_out =
        TextSet::new(&corpus, &corpus.indices(Split::HeldOut), "held-out").greedy(options.sampled)?;
    if let Some(count) = options.held_out_texts {
        held_out = held_out.subsample(count);
    }
    progress("features of the evaluation texts");
    let evaluation = evaluation(options, captures, device)?;
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
    if texts.is_empty() {
        return Err(TrainError::setting("--evaluation", "at least one text", "none"));
    }
    let fewer = texts.subsample(options.ablation_texts);
    let drawn = match options.drawn_texts {
        0 => None,
        count => {
            progress("answers at temperature 1, and their features");
            Some(Drawn::new(options, &texts.subsample(count), captures, device)?)
        }
    };
    let drawn_texts = drawn.as_ref().map(Drawn::texts);
    let all = [&held_out, &texts].into_iter().chain(&drawn_texts);
    let longest = all.map(TextSet::longest).max().unwrap_or(0);
    let held_out = HeldOut::new(held_out)?;
    let load = |path: &Path| -> Result<Loaded, TrainError> {
        let loaded = Loaded::open(&options.target, path, options.blocks, longest, device)?;
        loaded.check(&corpus)?;
        Ok(loaded)
    };
    let loaded = load(&options.drafter)?;
    let runner = Runner::new(&loaded, &options.work, &held_out, progress);
    progress("choosing on held-out text");
    let (chosen, budget, sweep) = select::select(&runner, bench.as_ref().map(|bench| &bench.costs))?;
    let part = |texts: &TextSet<'_>, experiments: Vec<Experiment>, temperature| {
        let mut specs: Vec<Spec> = Vec::new();
        for (_, spec) in experiments.iter().flat_map(|experiment| &experiment.entries) {
            if !specs.contains(spec) {
                specs.push(*spec);
            }
        }
        progress(&format!("{} plans on {} texts, temperature {temperature}", specs.len(), texts.len()));
        let runs: HashMap<Spec, Run> = specs.iter().copied().zip(runner.runs(texts, &specs)?).collect();
        let (count, sets, seed) = (texts.len(), texts.sets(), options.seed);
        Ok::<Part, TrainError>(Part { temperature, texts: count, sets, experiments, runs, seed })
    };
    let main = part(&texts, plans::arms(&chosen), 0.0)?;
    let drawn_part = drawn_texts.map(|texts| part(&texts, plans::drawn(&chosen), TEMPERATURE)).transpose()?;
    let ablations = part(&fewer, plans::ablations(&chosen), 0.0)?;
    let trained = corpus.manifest().samples.iter().filter(|entry| entry.split == Split::Train);
    let training_tokens = options
        .training_tokens
        .unwrap_or_else(|| trained.map(|entry| (entry.tokens.len() - entry.prompt) as u64).sum());
    let mut growth = Vec::new();
    if let Some((_, chosen)) = chosen.first() {
        for (tokens, path) in &options.earlier {
            let loaded = load(path)?;
            let runner = Runner::new(&loaded, &options.work, &held_out, progress);
            growth.push(grown(&runner, &fewer, chosen.baseline, *tokens, path, options.seed)?);
        }
        let now = &options.drafter;
        growth.push(grown(&runner, &fewer, chosen.baseline, training_tokens, now, options.seed)?);
    }
    let seeds = format!("drawn at temperature {TEMPERATURE} with seeds from {} on", options.seed);
    let facts = Facts {
        target: file_name(&options.target),
        drafter: format!("{} ({})", file_name(&options.drafter), loaded.fingerprint),
        training_tokens,
        held_out: held_out.len(),
        drawn: drawn.as_ref().map(|_| format!("{seeds}, of at most {} tokens", options.drawn_tokens)),
        flags: options.flags(),
    };
    let report = Report { facts, chosen, budget, sweep, main, ablations, drawn: drawn_part, growth, bench };
    report.write(&options.out)
}

impl StudyOptions {
    /// The flags that figures depend on, without files.
    fn flags(&self) -> String {
        let blocks = format!("{:?}", self.blocks).to_lowercase();
        let mut flags = format!("--blocks {blocks} --seed {}", self.seed);
        for (flag, count) in [
            ("texts", self.texts),
            ("held-out-texts", self.held_out_texts),
            ("ablation-texts", Some(self.ablation_texts)),
            ("drawn-texts", Some(self.drawn_texts)),
            ("drawn-tokens", Some(self.drawn_tokens)),
        ] {
            flags += &count.map(|count| format!(" --{flag} {count}")).unwrap_or_default();
        }
        flags
    }
}

/// τ of a baseline under a drafter that was trained on `tokens` answer tokens.
fn grown(
    runner: &Runner<'_>,
    texts: &TextSet<'_>,
    baseline: Spec,
    tokens: u64,
    drafter: &Path,
    seed: u64,
) -> Result<Earlier, TrainError> {
    let runs = runner.runs(texts, &[baseline])?;
    let tau = runs
        .first()
        .and_then(|run| tau(run, seed))
        .ok_or_else(|| TrainError::setting("--evaluation", "answers of at least two tokens", "none"))?;
    Ok(Earlier { tokens, drafter: file_name(drafter), tau })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The evaluation texts with their features.
fn evaluation(options: &StudyOptions, captures: [u32; 3], device: &Device) -> Result<Corpus, TrainError> {
    let file = TargetFile::open(&options.target)?;
    let samples = evaluation_samples(&file, &options.evaluation)?;
    if samples.is_empty() {
        return Err(TrainError::setting("--evaluation", "at least one text", "none"));
    }
    let features = PrepareOptions { captures, ..FEATURES };
    prepare(&file, samples, &options.work.join("features"), &features, device)
}

fn evaluation_samples(file: &TargetFile, path: &Path) -> Result<Vec<Sample>, TrainError> {
    let (tokenizer, template) = (file.tokenizer()?, file.template()?);
    let reader = Reader {
        vocab: file.config.vocab,
        tokenizer: &tokenizer,
        template: template.as_ref(),
        max_tokens: file.config.context as usize,
    };
    reader.read(path)
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
