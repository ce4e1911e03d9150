//! `run`.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use redraft_drafter::{DrafterConfig, DrafterFile};
use redraft_train::TrainError;
use redraft_train::corpus::Corpus;
use redraft_train::drafter::{Drafter, Frame, SecondPass};
use redraft_train::target::{Target, TargetFile};
use redraft_train::train::loss::Objective;
use redraft_train::train::{Setting, Stage, TrainOptions, directory, train};

use super::Backend;

/// Trains one stage: `base` from the target's head, the others from the file that the stage before wrote.
#[derive(Args)]
pub(super) struct Run {
    /// What learns.
    #[arg(value_enum)]
    stage: Stage,
    /// The target, a GGUF file.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The corpus that `prepare` made.
    #[arg(long, value_name = "DIRECTORY")]
    corpus: PathBuf,
    /// Where checkpoints, curves and the drafter (STAGE.safetensors) go.
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// Start from this drafter instead.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Passes over the text.
    #[arg(long, default_value_t = TrainOptions::default().epochs)]
    epochs: u32,
    /// Steps of the unrolling.
    #[arg(long, default_value_t = TrainOptions::default().steps)]
    steps: usize,
    /// Tokens of a batch, padding included.
    #[arg(long, default_value_t = TrainOptions::default().batch_tokens)]
    batch_tokens: usize,
    /// Highest learning rate.
    #[arg(long, default_value_t = TrainOptions::default().learning_rate)]
    learning_rate: f64,
    /// Optimizer steps until it is reached.
    #[arg(long, default_value_t = TrainOptions::default().warmup)]
    warmup: u64,
    /// Share of it that is left at the end.
    #[arg(long, default_value_t = TrainOptions::default().final_share)]
    final_share: f64,
    /// Weight decay.
    #[arg(long, default_value_t = TrainOptions::default().weight_decay)]
    weight_decay: f32,
    /// Longest gradient of a tensor.
    #[arg(long, default_value_t = TrainOptions::default().clip)]
    clip: f32,
    /// Weight of step s is this to the power s.
    #[arg(long, default_value_t = TrainOptions::default().decay)]
    decay: f64,
    /// What is lowered.
    #[arg(long, value_enum, default_value_t = Objective::CrossEntropy)]
    objective: Objective,
    /// Weight of the second pass's loss.
    #[arg(long, default_value_t = TrainOptions::default().second_weight)]
    second_weight: f64,
    /// Weight of rows that are not hesitant in it.
    #[arg(long, default_value_t = TrainOptions::default().second_base)]
    second_base: f64,
    /// Additional weight where the target is decisive.
    #[arg(long, default_value_t = TrainOptions::default().second_decisive)]
    second_decisive: f64,
    /// Additional weight where the first guess is wrong.
    #[arg(long, default_value_t = TrainOptions::default().second_wrong)]
    second_wrong: f64,
    /// 1 - q(top-1) above which a row is hesitant.
    #[arg(long, default_value_t = TrainOptions::default().hesitant)]
    hesitant: f64,
    /// What the second pass consists of; the alternatives are measured and not written.
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    second_pass: SecondPass,
    /// Rank of the second pass's adapter, a multiple of 32; 32 by default. A drafter that has an adapter keeps its rank.
    #[arg(long)]
    rank: Option<usize>,
    /// Texts of the corpus, from its first, to train on; all by default.
    #[arg(long, default_value_t = TrainOptions::default().texts, hide_default_value = true)]
    texts: usize,
    /// Of weights and order.
    #[arg(long, default_value_t = TrainOptions::default().seed)]
    seed: u64,
    /// Held-out texts that each evaluation reads.
    #[arg(long, default_value_t = TrainOptions::default().evaluation_samples)]
    evaluation_samples: usize,
    /// Optimizer steps between evaluations and checkpoints.
    #[arg(long, default_value_t = TrainOptions::default().evaluate_every)]
    evaluate_every: u64,
    /// Ends after so many evaluations without a better one; 0 never does.
    #[arg(long, default_value_t = TrainOptions::default().patience)]
    patience: u32,
    /// Width of the drafter's feed-forward layer; the target's by default.
    #[arg(long)]
    ffn: Option<u32>,
    /// Key heads of the drafter; as many as query heads by default.
    #[arg(long)]
    kv_heads: Option<u32>,
    /// Feed back the output as it is and fuse captures as they are (EAGLE-3); without, both are normed (EAGLE-3.1).
    #[arg(long)]
    eagle3: bool,
    /// What computes.
    #[arg(long, value_enum, default_value_t)]
    device: Backend,
}

impl Run {
    pub(super) fn run(self) -> Result<(), TrainError> {
        let options = self.options();
        options.check()?;
        if let Some(rank) = self.rank.filter(|&rank| rank == 0 || !rank.is_multiple_of(32)) {
            return Err(TrainError::setting("--rank", "a multiple of 32", rank));
        }
        let file = TargetFile::open(&self.model)?;
        let corpus = Corpus::open(&self.corpus)?;
        let manifest = corpus.manifest();
        let captures = manifest.target.capture_layers;
        if file.fingerprint(captures)? != manifest.target {
            return Err(TrainError::State {
                path: self.corpus.clone(),
                problem: "the corpus is of another target".to_owned(),
                hint: "give the --model that it was prepared with",
            });
        }
        let device = self.device.device();
        let longest = manifest.samples.iter().map(|sample| sample.tokens.len()).max().unwrap_or(1);
        let target = Target::load(&file, captures, 1, &device)?;
        let start = self.start()?;
        let config = match &start {
            Some(file) => {
                file.check_target(&manifest.target)?;
                file.config().clone()
            }
            None => self.config(&target, manifest.draft_ids.len(), captures),
        };
        let of_file = start.as_ref().and_then(|file| file.reconsider().rank).map(|rank| rank as usize);
        if let Some((found, asked)) = of_file.zip(self.rank).filter(|(found, asked)| found != asked) {
            let expected = format!("{found}, the rank of the drafter to start from, or no --rank");
            return Err(TrainError::setting("--rank", expected, asked));
        }
        let rank = of_file.or(self.rank).unwrap_or(32);
        // A drafter that learns on goes on proposing its own tokens: the corpus may be of other text.
        let draft_ids = start.as_ref().map_or(manifest.draft_ids.as_slice(), DrafterFile::draft_ids);
        let drafter = match &start {
            Some(file) => Drafter::from_file(file, rank, self.seed, &device)?,
            None => Drafter::new(&config, draft_ids, rank, &target, self.seed, &device)?,
        };
        let mut draft_index = vec![None; file.config.vocab as usize];
        for (index, &id) in (0_u32..).zip(draft_ids) {
            draft_index[id as usize] = Some(index);
        }
        let frame = Frame::new(config.clone(), target.embedding(), longest + options.steps, &device);
        let setting = Setting {
            corpus: &corpus,
            frame: match self.second_pass {
                SecondPass::Candidates => frame.with_drafts(draft_ids),
                _ => frame,
            },
            teacher_head: target.head_rows(draft_ids),
            draft_index,
            device,
            directory: directory(&self.out, self.stage),
            progress: true,
        };
        drop(target);
        let outcome = train(&setting, drafter, &options)?;
        if !self.second_pass.is_served() {
            println!("{} optimizer steps; held out: {}", outcome.steps, outcome.best.line());
            println!("no drafter is written: none can hold this second pass");
            return Ok(());
        }
        let second = self.stage != Stage::Base;
        let trained = outcome.drafter.to_file(&config, draft_ids, manifest.target.clone(), second)?;
        let path = self.path(self.stage);
        redraft_train::write_atomically(&path, &trained.write())?;
        println!("{} optimizer steps; held out: {}", outcome.steps, outcome.best.line());
        println!("{}", path.display());
        Ok(())
    }

    fn path(&self, stage: Stage) -> PathBuf {
        directory(&self.out, stage).with_extension("safetensors")
    }

    /// The drafter to start from.
    fn start(&self) -> Result<Option<DrafterFile>, TrainError> {
        let path = match (&self.from, self.stage) {
            (Some(path), _) => path.clone(),
            (None, Stage::Base) => return Ok(None),
            (None, Stage::Reconsider) => self.path(Stage::Base),
            (None, Stage::Joint) => self.path(Stage::Reconsider),
        };
        let bytes = fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => TrainError::State {
                path: path.clone(),
                problem: "absent".to_owned(),
                hint: "train the stage before, or give --from",
            },
            _ => TrainError::Io { path: path.clone(), source },
        })?;
        Ok(Some(DrafterFile::read(&bytes)?))
    }

    fn config(&self, target: &Target, draft_vocab: usize, captures: [u32; 3]) -> DrafterConfig {
        let of = target.config();
        DrafterConfig {
            hidden: of.hidden,
            target_hidden: of.hidden,
            heads: of.heads,
            kv_heads: self.kv_heads.unwrap_or(of.heads),
            head_dim: of.head_dim,
            ffn: self.ffn.unwrap_or(of.ffn),
            rms_eps: of.rms_eps,
            vocab: of.vocab,
            draft_vocab: u32::try_from(draft_vocab).unwrap_or(u32::MAX),
            rope_theta: 10_000.0,
            capture_layers: Some(captures),
            norm_output: !self.eagle3,
            fc_norm: !self.eagle3,
        }
    }

    fn options(&self) -> TrainOptions {
        TrainOptions {
            stage: self.stage,
            epochs: self.epochs,
            steps: self.steps,
            batch_tokens: self.batch_tokens,
            learning_rate: self.learning_rate,
            warmup: self.warmup,
            final_share: self.final_share,
            weight_decay: self.weight_decay,
            clip: self.clip,
            decay: self.decay,
            objective: self.objective,
            second_weight: self.second_weight,
            second_base: self.second_base,
            second_decisive: self.second_decisive,
            second_wrong: self.second_wrong,
            second_pass: self.second_pass,
            hesitant: self.hesitant,
            texts: self.texts,
            seed: self.seed,
            evaluation_samples: self.evaluation_samples,
            evaluate_every: self.evaluate_every,
            patience: self.patience,
        }
    }
}
