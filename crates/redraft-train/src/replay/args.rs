//! The command line of replays.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use redraft_decode::draft::{Gate, MAX_DEPTH, Plan};
use redraft_drafter::{DrafterFile, Quantization};
use sha2::{Digest as _, Sha256};

use super::{Evaluator, Interval, TextSet, Variant, replay, tables_of, tau};
use crate::corpus::Corpus;
use crate::data::Split;
use crate::error::TrainError;
use crate::target::TargetFile;

/// What a replay reads.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// The target: a GGUF file
    #[arg(long = "model", value_name = "FILE")]
    pub target: PathBuf,
    /// The drafter: a safetensors file of this project
    #[arg(long, value_name = "FILE")]
    pub drafter: PathBuf,
    /// Text with features, as `redraft-train prepare` makes it
    #[arg(long, value_name = "DIR")]
    pub corpus: PathBuf,
    /// Take at most so many prompts, spread over all
    #[arg(long, value_name = "N")]
    pub texts: Option<usize>,
    /// Blocks that float matrices of the drafter are rounded to, as serving does
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Blocks::Q8_0)]
    pub blocks: Blocks,
    /// Leave out texts of which more than this share of tokens is not the target's likeliest: they were sampled
    #[arg(long, value_name = "SHARE", default_value_t = 0.03)]
    pub sampled: f64,
}

/// Types of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Blocks {
    /// 8 bits with a scale for 32 weights
    #[value(name = "q8_0")]
    Q8_0,
    /// 4 bits with a scale for 32 weights
    #[value(name = "q4_0")]
    Q4_0,
    /// Half precision
    F16,
    /// As they are
    F32,
}

impl From<Blocks> for Quantization {
    fn from(blocks: Blocks) -> Self {
        match blocks {
            Blocks::Q8_0 => Self::Q8_0,
            Blocks::Q4_0 => Self::Q4_0,
            Blocks::F16 => Self::F16,
            Blocks::F32 => Self::F32,
        }
    }
}

/// A drafter with all that replaying it takes.
pub struct Loaded {
    /// The drafter, its matrices in the blocks asked for.
    pub file: DrafterFile,
    /// SHA-256 of the file, and the type of blocks.
    pub fingerprint: String,
    /// It, ready to evaluate.
    pub evaluator: Evaluator,
    /// The target.
    pub target: TargetFile,
}

impl Loaded {
    /// Reads a drafter for texts of up to `longest` tokens.
    ///
    /// # Errors
    /// [`TrainError`] names the file.
    pub fn open(
        target: &Path,
        drafter: &Path,
        blocks: Blocks,
        longest: usize,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let target = TargetFile::open(target)?;
        let bytes = std::fs::read(drafter).map_err(TrainError::io(drafter))?;
        let sha =
            Sha256::digest(&bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
        let file = DrafterFile::read(&bytes)?.quantized(blocks.into())?;
        let captures = file.config().captures(target.config.layers)?;
        for warning in file.check_target(&target.fingerprint(captures)?)? {
            log::warn!("{warning}");
        }
        let embedding = target.matrix("token_embd.weight", device)?;
        let evaluator = Evaluator::new(&file, embedding, longest + MAX_DEPTH as usize + 1, device)?;
        Ok(Self { file, fingerprint: format!("{sha}-{blocks:?}").to_lowercase(), evaluator, target })
    }

    /// Checks that a corpus has the features that the drafter reads.
    ///
    /// # Errors
    /// [`TrainError::Setting`] when it is of another target or has other captures.
    pub fn check(&self, corpus: &Corpus) -> Result<(), TrainError> {
        self.file.check_target(&corpus.manifest().target)?;
        Ok(())
    }
}

impl InputArgs {
    /// Opens the corpus.
    ///
    /// # Errors
    /// As [`Corpus::open`].
    pub fn corpus(&self) -> Result<Corpus, TrainError> {
        Corpus::open(&self.corpus)
    }

    /// The texts of a split that were asked for.
    ///
    /// # Errors
    /// [`TrainError::Setting`] when there is none.
    pub fn texts<'a>(&self, corpus: &'a Corpus, split: Split) -> Result<TextSet<'a>, TrainError> {
        if !(0.0..=1.0).contains(&self.sampled) {
            return Err(TrainError::setting("--sampled", "0 to 1", self.sampled));
        }
        let name = match split {
            Split::HeldOut => "held-out",
            Split::Train => "train",
        };
        let mut texts = TextSet::new(corpus, &corpus.indices(split), name).greedy(self.sampled)?;
        if let Some(count) = self.texts {
            texts = texts.subsample(count);
        }
        if texts.is_empty() {
            let wanted = format!("{name} texts with features, answered greedily");
            return Err(TrainError::setting("--corpus", wanted, "none"));
        }
        Ok(texts)
    }

    /// Reads the drafter.
    ///
    /// # Errors
    /// As [`Loaded::open`].
    pub fn load(&self, longest: usize, device: &Device) -> Result<Loaded, TrainError> {
        Loaded::open(&self.target, &self.drafter, self.blocks, longest, device)
    }
}

/// Flags of a plan. What is absent is that of [`Plan::default`]; whether a plan without `--reconsider` has second passes is
/// for the command to say.
#[derive(Clone, Debug, Default, Args)]
pub struct PlanArgs {
    /// Drafted tokens that are verified at once
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Levels of drafted tokens
    #[arg(long, value_name = "D")]
    pub depth: Option<u32>,
    /// Tokens that one step of the drafter goes on from
    #[arg(long, value_name = "K")]
    pub width: Option<u32>,
    /// Continuations kept of each
    #[arg(long, value_name = "C")]
    pub children: Option<u32>,
    /// Hesitant tokens that a step considers a second time [default: replay 0, calibrate 2]
    #[arg(long, value_name = "R")]
    pub reconsider: Option<u32>,
    /// Candidates taken of each second pass
    #[arg(long, value_name = "E")]
    pub refined: Option<u32>,
    /// How hesitant tokens are told
    #[arg(long, value_enum, value_name = "GATE", default_value_t = GateArg::Top1)]
    pub gate: GateArg,
    /// Refined candidates may be expanded a step later
    #[arg(long)]
    pub expand_refined: bool,
    /// Control: what a second pass would add is taken from the first pass
    #[arg(long)]
    pub control: bool,
    /// Ablation: the second pass starts from what the first one read
    #[arg(long)]
    pub no_recurrence: bool,
    /// Continuations found in the text so far join the tree
    #[arg(long)]
    pub lookup: bool,
}

/// A gate on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GateArg {
    /// By the probability of the best candidate
    #[default]
    Top1,
    /// By the entropy of the candidates
    Entropy,
    /// By the table of gains in the drafter's file
    Calibrated,
    /// At random, for comparison
    Random,
}

impl PlanArgs {
    /// The plan, with `reconsider` second passes in a step unless the flags say how many.
    ///
    /// # Errors
    /// [`TrainError::Setting`] when it does not validate, or flags ask for second passes that it does not have.
    pub fn plan(&self, reconsider: u32) -> Result<Plan, TrainError> {
        let default = Plan::default();
        let reconsider = self.reconsider.unwrap_or(reconsider);
        let asked = self.refined.is_some() || self.expand_refined || self.control || self.no_recurrence;
        if reconsider == 0 && asked {
            let wanted = "at least 1 with --refined, --expand-refined, --control or --no-recurrence";
            return Err(TrainError::setting("--reconsider", wanted, reconsider));
        }
        let gate = match self.gate {
            _ if reconsider == 0 => Gate::Off,
            GateArg::Top1 => Gate::Top1,
            GateArg::Entropy => Gate::Entropy,
            GateArg::Calibrated => Gate::Calibrated,
            GateArg::Random => Gate::Random,
        };
        let plan = Plan {
            nodes: self.nodes.unwrap_or(default.nodes),
            depth: self.depth.unwrap_or(default.depth),
            width: self.width.unwrap_or(default.width),
            children: self.children.unwrap_or(default.children),
            reconsider,
            refined: self.refined.unwrap_or(if reconsider == 0 { 0 } else { default.refined }),
            gate,
            expand_refined: self.expand_refined,
            control: self.control,
            no_recurrence: self.no_recurrence,
            lookup: self.lookup,
            drafter: true,
        };
        plan.validate().map_err(|error| TrainError::setting("plan", "one within the limits", error))?;
        Ok(plan)
    }
}

/// τ of a drafter by replay.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// What is read
    #[command(flatten)]
    pub input: InputArgs,
    /// The plan
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Replay all texts of the corpus, not only the held-out ones: for a corpus of evaluation texts
    #[arg(long)]
    pub all: bool,
}

impl ReplayArgs {
    /// Replays, and says how it went.
    ///
    /// # Errors
    /// [`TrainError`] names the file or flag.
    pub fn run(&self, device: &Device) -> Result<String, TrainError> {
        let plan = self.plan.plan(0)?;
        let corpus = self.input.corpus()?;
        let split = if self.all { Split::Train } else { Split::HeldOut };
        let texts = self.input.texts(&corpus, split)?;
        let loaded = self.input.load(texts.longest(), device)?;
        loaded.check(&corpus)?;
        let started = std::time::Instant::now();
        let variant = Variant::new(plan, tables_of(&loaded.file));
        let runs = replay(&loaded.evaluator, &texts, std::slice::from_ref(&variant), |_| {})?;
        let seconds = started.elapsed().as_secs_f64();
        let run = runs.first().cloned().unwrap_or_default();
        let total = run.total();
        let mut text = String::new();
        let Interval { value, low, high } = tau(&run, 1)
            .ok_or_else(|| TrainError::setting("--corpus", "answers of at least two tokens", "none"))?;
        // Writing to a string cannot fail.
        _ = writeln!(text, "tau {value:.3} ({low:.3} to {high:.3}), {} texts", texts.len());
        _ = writeln!(text, "{} rounds, {} tokens, {seconds:.1} s", total.rounds, total.emitted);
        let rates: Vec<String> = (total.tried.iter().zip(&total.accepted))
            .map(|(tried, accepted)| format!("{:.3}", *accepted as f64 / (*tried).max(1) as f64))
            .collect();
        _ = writeln!(text, "accepted by depth {}", rates.join(" "));
        _ = writeln!(
            text,
            "reconsidered {}, refined candidates {}, rescues {}",
            total.reconsidered, total.refined, total.rescues
        );
        Ok(text)
    }
}
