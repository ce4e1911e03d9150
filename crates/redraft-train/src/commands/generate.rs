//! `generate`.

use std::io::BufRead as _;
use std::path::PathBuf;

use clap::Args;
use redraft_text::{Message, RenderOptions, Special};
use redraft_train::TrainError;
use redraft_train::data::open;
use redraft_train::generate::{GenerateOptions, generate};
use redraft_train::target::{Target, TargetFile};
use serde::Deserialize;

use super::Backend;

/// Writes the target's answers to prompts, for `prepare`.
#[derive(Args)]
pub(super) struct Generate {
    /// The target, a GGUF file.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Prompts: JSON lines, plain or .zst, each {"prompt": "…"}: one message of a user, in the target's template.
    #[arg(long, value_name = "FILE")]
    prompts: PathBuf,
    /// The answers, JSON lines; those that are there already are kept.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Longest answer.
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    max_new: usize,
    /// Longest prompt; longer ones are left out.
    #[arg(long, value_name = "TOKENS", default_value_t = 320)]
    max_prompt: usize,
    /// 0 takes the likeliest token.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Draw from the fewest tokens whose chances sum up to this.
    #[arg(long, default_value_t = 0.95)]
    top_p: f32,
    /// Of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Texts that are written at a time.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// What computes.
    #[arg(long, value_enum, default_value_t)]
    device: Backend,
}

#[derive(Deserialize)]
struct Line {
    prompt: String,
}

impl Generate {
    pub(super) fn run(self) -> Result<(), TrainError> {
        let file = TargetFile::open(&self.model)?;
        let tokenizer = file.tokenizer()?;
        let template = file.template()?.ok_or_else(|| TrainError::Target {
            problem: "has no chat template to put prompts in".to_owned(),
        })?;
        let (mut prompts, mut left_out) = (Vec::new(), 0);
        for (line, text) in open(&self.prompts)?.lines().enumerate() {
            let text = text.map_err(TrainError::io(&self.prompts))?;
            let failed =
                |problem: String| TrainError::Data { file: self.prompts.clone(), line: line + 1, problem };
            if text.trim().is_empty() {
                continue;
            }
            let parsed: Line =
                serde_json::from_str(&text).map_err(|error| failed(format!("not a prompt: {error}")))?;
            let text = template
                .render(&[Message::user(parsed.prompt)], RenderOptions::default())
                .map_err(|error| failed(error.to_string()))?;
            let ids = tokenizer.encode(&text, Special::Parse).map_err(|error| failed(error.to_string()))?;
            if ids.len() > self.max_prompt { left_out += 1 } else { prompts.push(ids) }
        }
        if prompts.is_empty() {
            return Err(TrainError::setting("--prompts", "at least one prompt", "none that is short enough"));
        }
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let device = self.device.device();
        let target = Target::load(&file, [0, 1, 2], longest + self.max_new, &device)?;
        let options = GenerateOptions {
            max_new: self.max_new,
            temperature: self.temperature,
            top_p: self.top_p,
            seed: self.seed,
            batch: self.batch,
            progress: true,
        };
        generate(&target, &prompts, tokenizer.eos_ids(), &self.out, &options, &device)?;
        println!("{} answers in {}; {left_out} prompts were too long", prompts.len(), self.out.display());
        Ok(())
    }
}
