//! The command line of the study.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;

use super::{StudyOptions, run};
use crate::error::TrainError;
use crate::replay::args::InputArgs;

/// Chooses on held-out text, replays the evaluation sets, and writes tables, pictures and figures.
#[derive(Clone, Debug, Args)]
pub struct StudyArgs {
    /// What is read; `--texts` counts evaluation prompts
    #[command(flatten)]
    pub input: InputArgs,
    /// The target's greedy answers to the evaluation prompts: JSON lines with set, prompt_ids and greedy_ids
    #[arg(long, value_name = "FILE")]
    pub evaluation: PathBuf,
    /// Where features of the evaluation texts and finished runs are kept
    #[arg(long, value_name = "DIR")]
    pub work: PathBuf,
    /// Where the report goes
    #[arg(long, value_name = "DIR", default_value = "docs/study")]
    pub out: PathBuf,
    /// Choose on at most so many held-out prompts
    #[arg(long, value_name = "N")]
    pub held_out_texts: Option<usize>,
    /// Replay what explains the arms on at most so many evaluation prompts
    #[arg(long, value_name = "N", default_value_t = 96)]
    pub ablation_texts: usize,
    /// Have the target answer so many evaluation prompts at temperature 1, too; 0 leaves that out
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub drawn_texts: usize,
    /// Longest of these answers
    #[arg(long, value_name = "TOKENS", default_value_t = 96)]
    pub drawn_tokens: usize,
    /// A drafter of an earlier stage, with the answer tokens that it was trained on; may be repeated
    #[arg(long, value_name = "TOKENS=FILE", value_parser = earlier)]
    pub earlier: Vec<(u64, PathBuf)>,
    /// Answer tokens that the drafter was trained on [default: those of the corpus]
    #[arg(long, value_name = "TOKENS")]
    pub training_tokens: Option<u64>,
    /// What `redraft bench --speculate tree,reconsider --json` printed for this drafter
    #[arg(long, value_name = "FILE")]
    pub bench: Option<PathBuf>,
    /// Seed of the bootstrap, and of the sampled answers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
}

impl StudyArgs {
    /// The options of the library.
    #[must_use]
    pub fn options(&self) -> StudyOptions {
        let InputArgs { target, drafter, corpus, texts, blocks, sampled } = self.input.clone();
        StudyOptions {
            target,
            drafter,
            blocks,
            corpus,
            evaluation: self.evaluation.clone(),
            work: self.work.clone(),
            out: self.out.clone(),
            texts,
            ablation_texts: self.ablation_texts,
            drawn_texts: self.drawn_texts,
            drawn_tokens: self.drawn_tokens,
            held_out_texts: self.held_out_texts,
            sampled,
            training_tokens: self.training_tokens,
            earlier: self.earlier.clone(),
            bench: self.bench.clone(),
            seed: self.seed,
        }
    }

    /// Runs the study.
    ///
    /// # Errors
    /// [`TrainError`] names the file or flag.
    pub fn run(&self, device: &Device, progress: &dyn Fn(&str)) -> Result<String, TrainError> {
        let options = self.options();
        run(&options, device, progress)?;
        Ok(format!("{}\n", options.out.display()))
    }
}

/// Reads TOKENS=FILE.
fn earlier(text: &str) -> Result<(u64, PathBuf), String> {
    let (tokens, file) = text.split_once('=').ok_or("expected TOKENS=FILE, as in 141143=base.safetensors")?;
    let tokens = tokens.parse().map_err(|error| format!("{tokens} is no number of tokens: {error}"))?;
    Ok((tokens, PathBuf::from(file)))
}
