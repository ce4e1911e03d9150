//! The training loop: stage A trains the base drafter, stage B its second pass alone, stage C both.

pub mod batch;
mod checkpoint;
mod curves;
mod gradients;
pub mod loss;
mod metrics;
mod rows;
pub mod unroll;

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::grad_clipping::GradientClippingConfig;
use burn::module::Module as _;
use burn::optim::{AdamWConfig, ModuleOptimizer};
use burn::tensor::{Device, Tensor};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::corpus::Corpus;
use crate::data::Split;
use crate::drafter::{Drafter, Frame, SecondPass};
use crate::error::TrainError;
use checkpoint::{Checkpoints, State};
use gradients::{evaluate, frozen, load, step};
use loss::Objective;
pub use metrics::{Metrics, StepMetrics};

/// Which weights learn, and from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The first pass.
    Base,
    /// Pass embedding and adapter; the first pass stays bit for bit.
    Reconsider,
    /// All weights, by the losses of both passes.
    Joint,
}

/// How to train. Changing any of it makes another run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// What learns.
    pub stage: Stage,
    /// Passes over the text.
    pub epochs: u32,
    /// Steps of the unrolling: the depth that drafting is trained for.
    pub steps: usize,
    /// Tokens of a batch, padding included.
    pub batch_tokens: usize,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Optimizer steps until it is reached.
    pub warmup: u64,
    /// Share of it that is left at the end of a half cosine.
    pub final_share: f64,
    /// Weight decay of AdamW.
    pub weight_decay: f32,
    /// Longest gradient of a tensor.
    pub clip: f32,
    /// Weight of step s is this to the power s.
    pub decay: f64,
    /// What the loss is.
    pub objective: Objective,
    /// Weight λ of the second pass's loss.
    pub second_weight: f64,
    /// α0: weight of rows that are not hesitant.
    pub second_base: f64,
    /// β: additional weight where the target is decisive.
    pub second_decisive: f64,
    /// Additional weight of hesitant rows whose first guess is wrong.
    pub second_wrong: f64,
    /// What the second pass consists of.
    #[serde(default, skip_serializing_if = "SecondPass::is_served")]
    pub second_pass: SecondPass,
    /// 1 − q(top-1) above which a row is hesitant.
    pub hesitant: f64,
    /// Texts of the corpus, from its first, that are trained on and evaluated with; all if 0.
    pub texts: usize,
    /// Of the order of samples.
    pub seed: u64,
    /// Held-out samples that each evaluation reads.
    pub evaluation_samples: usize,
    /// Optimizer steps between evaluations, each with a checkpoint.
    pub evaluate_every: u64,
    /// Ends after so many evaluations without a better one; 0 never does.
    pub patience: u32,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            stage: Stage::Base,
            epochs: 3,
            steps: 5,
            batch_tokens: 1024,
            learning_rate: 1e-3,
            warmup: 50,
            final_share: 0.05,
            weight_decay: 0.01,
            clip: 0.5,
            decay: 0.8,
            objective: Objective::CrossEntropy,
            second_weight: 1.0,
            second_base: 0.1,
            second_decisive: 1.0,
            second_wrong: 1.0,
            second_pass: SecondPass::Adapter,
            hesitant: 0.4,
            texts: 0,
            seed: 1,
            evaluation_samples: 64,
            evaluate_every: 100,
            patience: 0,
        }
    }
}

impl TrainOptions {
    /// Checks every number.
    ///
    /// # Errors
    /// [`TrainError::Setting`] names the first that is out of range.
    pub fn check(&self) -> Result<(), TrainError> {
        let positive = |setting, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(TrainError::setting(setting, "a number above 0", value)),
        };
        let least = |setting, value: f64| match value >= 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(TrainError::setting(setting, "a number of at least 0", value)),
        };
        positive("--epochs", self.epochs.into())?;
        positive("--learning-rate", self.learning_rate)?;
        positive("--clip", self.clip.into())?;
        positive("--decay", self.decay)?;
        positive("--evaluate-every", self.evaluate_every as f64)?;
        least("--weight-decay", self.weight_decay.into())?;
        least("--second-weight", self.second_weight)?;
        least("--second-base", self.second_base)?;
        least("--second-decisive", self.second_decisive)?;
        least("--second-wrong", self.second_wrong)?;
        if !(1..=8).contains(&self.steps) {
            return Err(TrainError::setting("--steps", "1 to 8", self.steps));
        }
        if !(0.0..=1.0).contains(&self.final_share) {
            return Err(TrainError::setting("--final-share", "0 to 1", self.final_share));
        }
        if !(0.0..=1.0).contains(&self.hesitant) {
            return Err(TrainError::setting("--hesitant", "0 to 1", self.hesitant));
        }
        if !self.second_pass.is_served() && self.stage != Stage::Reconsider {
            let wanted = "adapter, but in the stage reconsider";
            return Err(TrainError::setting("--second-pass", wanted, format!("{:?}", self.second_pass)));
        }
        if self.batch_tokens < 32 {
            return Err(TrainError::setting("--batch-tokens", "at least 32", self.batch_tokens));
        }
        Ok(())
    }

    /// The learning rate of an optimizer step, from 0, of `total`.
    fn rate(&self, step: u64, total: u64) -> f64 {
        if step < self.warmup {
            return self.learning_rate * (step + 1) as f64 / self.warmup as f64;
        }
        let span = total.saturating_sub(self.warmup).max(1) as f64;
        let way = ((step - self.warmup) as f64 / span).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * way).cos());
        self.learning_rate * (self.final_share + (1.0 - self.final_share) * cosine)
    }
}

/// Everything that a run reads and never changes.
pub struct Setting<'a> {
    /// Text and features.
    pub corpus: &'a Corpus,
    /// Shape, embedding, positions.
    pub frame: Frame,
    /// The target's head over the draft vocabulary, `[draft vocab, target hidden]`.
    pub teacher_head: Tensor<2>,
    /// Of every token of the target its index in the draft vocabulary.
    pub draft_index: Vec<Option<u32>>,
    /// Where tensors are, without gradients.
    pub device: Device,
    /// Where checkpoints and curves go.
    pub directory: PathBuf,
    /// Whether to print progress.
    pub progress: bool,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The best drafter by held-out expected τ.
    pub drafter: Drafter,
    /// Its held-out metrics.
    pub best: Metrics,
    /// Optimizer steps in all.
    pub steps: u64,
}

/// Trains `drafter`, or goes on with the run in the setting's directory.
///
/// # Errors
/// [`TrainError`]; checkpoints that were written stay.
pub fn train(setting: &Setting<'_>, drafter: Drafter, options: &TrainOptions) -> Result<Outcome, TrainError> {
    options.check()?;
    if options.second_pass == SecondPass::Candidates && setting.frame.drafts.is_none() {
        let wanted = "a frame with the embeddings of the draft vocabulary";
        return Err(TrainError::setting("--second-pass candidates", wanted, "none"));
    }
    let all = setting.corpus.manifest().samples.len();
    let texts = if options.texts == 0 { all } else { options.texts };
    if texts > setting.corpus.ready() {
        let wanted = format!("at most {}, the texts that have features", setting.corpus.ready());
        return Err(TrainError::setting("--texts", wanted, texts));
    }
    let [mut samples, mut held_out] =
        [Split::Train, Split::HeldOut].map(|split| setting.corpus.indices(split));
    samples.retain(|&index| index < texts);
    held_out.retain(|&index| index < texts);
    held_out.truncate(options.evaluation_samples.max(1));
    if samples.is_empty() || held_out.is_empty() {
        return Err(TrainError::setting("--data", "samples on both sides of the split", "none on one side"));
    }
    let epoch_plan = |epoch: u32| {
        batch::plan(setting.corpus, &samples, options.batch_tokens, options.seed + u64::from(epoch))
    };
    // Batches of an epoch differ by a few from those of another: the schedule goes by the sum.
    let lengths: Vec<u64> = (0..options.epochs).map(|epoch| epoch_plan(epoch).len() as u64).collect();
    let total: u64 = lengths.iter().sum();

    let checkpoints = Checkpoints::open(&setting.directory, options)?;
    let adam = AdamWConfig::new()
        .with_beta_1(0.9)
        .with_beta_2(0.95)
        .with_epsilon(1e-8)
        .with_weight_decay(options.weight_decay)
        .with_grad_clipping(Some(GradientClippingConfig::Norm(options.clip)));
    let mut optimizer: ModuleOptimizer = adam.init();
    let mut drafter = frozen(drafter.with_second_pass(options.second_pass), options.stage);
    let mut state = State::default();
    if let Some(found) = checkpoints.load(drafter.clone(), adam.init())? {
        let (loaded, adam, at) = found;
        drafter = frozen(loaded, options.stage);
        (optimizer, state) = (adam, at);
    }
    let bar = if setting.progress { ProgressBar::new(total) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len}, {per_sec}, ETA {eta}, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(format!("{:?}", options.stage).to_lowercase());
    bar.set_position(state.step);
    bar.reset_eta();

    let mut before = 0;
    let mut sum = Metrics::default();
    let mut ended = state.ended;
    for (epoch, count) in (0..options.epochs).zip(&lengths) {
        let start = before;
        before += count;
        if ended || state.step >= before {
            continue;
        }
        let plan = epoch_plan(epoch);
        for indices in plan.iter().skip(usize::try_from(state.step - start).unwrap_or(usize::MAX)) {
            let begun = Instant::now();
            let batch = load(setting, indices, options.steps)?;
            let (gradients, metrics) = step(setting, &drafter, &batch, options)?;
            if !metrics.loss.is_finite() {
                return Err(TrainError::Diverged { step: state.step, loss: metrics.loss });
            }
            drafter = optimizer.step(options.rate(state.step, total), drafter, gradients);
            state.step += 1;
            state.seconds += begun.elapsed().as_secs_f64();
            sum.merge(&metrics);
            bar.inc(1);
            bar.set_message(metrics.line());
            if state.step.is_multiple_of(options.evaluate_every) || state.step == total {
                let held = evaluate(setting, &drafter, &held_out, options)?;
                let trained = std::mem::take(&mut sum);
                let better = state
                    .best
                    .as_ref()
                    .is_none_or(|best| held.measure(options.stage) > best.measure(options.stage));
                state.since_best = if better { 0 } else { state.since_best + 1 };
                if better {
                    state.best = Some(held.clone());
                }
                let text = format!("step {}: train {}, held out {}", state.step, trained.line(), held.line());
                if setting.progress {
                    bar.println(&text);
                }
                log::info!("{text}");
                state.curve.push(curves::Point {
                    step: state.step,
                    rate: options.rate(state.step - 1, total),
                    seconds: state.seconds,
                    train: trained,
                    held_out: held,
                });
                ended = options.patience > 0 && state.since_best >= options.patience;
                state.ended = ended;
                checkpoints.save(&drafter, &optimizer, &state, better)?;
                curves::write(&setting.directory, &state.curve)?;
                if ended {
                    break;
                }
            }
        }
    }
    bar.finish();
    let drafter = checkpoints.best(drafter)?;
    let best = state.best.unwrap_or_default();
    Ok(Outcome { drafter: drafter.valid(), best, steps: state.step })
}

/// The directory of a stage's run.
#[must_use]
pub fn directory(root: &Path, stage: Stage) -> PathBuf {
    root.join(match stage {
        Stage::Base => "base",
        Stage::Reconsider => "reconsider",
        Stage::Joint => "joint",
    })
}
