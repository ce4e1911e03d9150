//! `prepare`.

use std::path::PathBuf;

use clap::Args;
use redraft_train::TrainError;
use redraft_train::data::{Reader, Split, read_files};
use redraft_train::prepare::{PrepareOptions, prepare};
use redraft_train::target::TargetFile;

use super::Backend;

/// Makes a corpus: one pass of the target over every text, its features on disk (about 8 kB a token of a target that is
/// 1,024 wide).
#[derive(Args)]
pub(super) struct Prepare {
    /// The target, a GGUF file.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Text: JSON lines, plain or .zst, each {"prompt_ids": […], "response_ids": […]} or {"messages": […]} with the
    /// target's answer last.
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    /// The corpus' directory.
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// Tokens that the drafter proposes: the most frequent ones of the answers.
    #[arg(long, value_name = "COUNT", default_value_t = 8192)]
    draft_vocab: usize,
    /// Share of the prompts that nothing is trained on.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    held_out: f64,
    /// Longest text; answers beyond it are cut.
    #[arg(long, value_name = "TOKENS", default_value_t = 1024)]
    max_tokens: usize,
    /// Tokens that the target reads at a time.
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    batch_tokens: usize,
    /// Layers of the target whose input is captured; 2, L/2 and L-3 by default.
    #[arg(long, value_name = "LOW,MID,HIGH", value_delimiter = ',', num_args = 3)]
    captures: Option<Vec<u32>>,
    /// What computes.
    #[arg(long, value_enum, default_value_t)]
    device: Backend,
}

impl Prepare {
    pub(super) fn run(self) -> Result<(), TrainError> {
        let file = TargetFile::open(&self.model)?;
        let layers = file.config.layers;
        let captures = match self.captures.as_deref() {
            Some(&[low, middle, high]) if low < middle && middle < high && high <= layers => {
                [low, middle, high]
            }
            Some(found) => {
                let wanted = format!("three ascending layers of a target of {layers}");
                return Err(TrainError::setting("--captures", wanted, format!("{found:?}")));
            }
            None => [2, layers / 2, layers.saturating_sub(3)],
        };
        let (tokenizer, template) = (file.tokenizer()?, file.template()?);
        let reader = Reader {
            vocab: file.config.vocab,
            tokenizer: &tokenizer,
            template: template.as_ref(),
            max_tokens: self.max_tokens,
        };
        let samples = read_files(&reader, &self.data)?;
        let options = PrepareOptions {
            captures,
            draft_vocab: self.draft_vocab,
            held_out: self.held_out,
            batch_tokens: self.batch_tokens,
            progress: true,
        };
        let corpus = prepare(&file, samples, &self.out, &options, &self.device.device())?;
        let (train, held) = (corpus.indices(Split::Train), corpus.indices(Split::HeldOut));
        let tokens = |of: &[usize]| -> usize {
            of.iter().map(|&index| &corpus.manifest().samples[index]).map(|s| s.tokens.len() - s.prompt).sum()
        };
        println!("{} texts, {} answer tokens to train on", train.len(), tokens(&train));
        println!("{} texts, {} answer tokens held out", held.len(), tokens(&held));
        let share = 100.0 * corpus.manifest().coverage;
        println!(
            "{} tokens in the draft vocabulary, {share:.1} % of the answers",
            corpus.manifest().draft_ids.len()
        );
        Ok(())
    }
}
