//! The command.
use std::path::PathBuf;
use redraft_train::{data::{Reader, read_files}, prepare::{PrepareOptions, prepare}, target::TargetFile};
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    let file = TargetFile::open(&args[0])?;
    let (tokenizer, template) = (file.tokenizer()?, file.template()?);
    let reader = Reader { vocab: file.config.vocab, tokenizer: &tokenizer, template: template.as_ref(), max_tokens: 640 };
    let samples = read_files(&reader, &args[2..])?;
    let l = file.config.layers;
    let options = PrepareOptions { captures: [2, l / 2, l - 3], draft_vocab: 8192, held_out: 0.05, batch_tokens: 2048, progress: true };
    let corpus = prepare(&file, samples, &args[1], &options, &burn::tensor::Device::flex())?;
    println!("{} samples, coverage {:.4}", corpus.ready(), corpus.manifest().coverage);
    Ok(())
}
