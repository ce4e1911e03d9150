//! A tiny target on disk and text for it.

use std::path::PathBuf;

use burn::tensor::Device;
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_train::corpus::Corpus;
use redraft_train::data::Sample;
use redraft_train::prepare::{PrepareOptions, prepare};
use redraft_train::target::TargetFile;
use tempfile::TempDir;

pub(crate) struct Tiny {
    pub(crate) bytes: Vec<u8>,
    pub(crate) file: TargetFile,
    pub(crate) directory: TempDir,
}

pub(crate) fn tiny(model: &TinyModel) -> Tiny {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tiny.gguf");
    let bytes = model.to_gguf().expect("a tiny model");
    std::fs::write(&path, &bytes).expect("written");
    Tiny { bytes, file: TargetFile::open(&path).expect("a target"), directory }
}

impl Tiny {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Texts with a rule that can be learned: a token is often the one before plus one.
pub(crate) fn samples(count: u32) -> Vec<Sample> {
    let token = |sample: u32, at: u32| 3 + (sample * 37 + at + (sample * 7 + at) % 3) % 150;
    let text = |sample: u32, from: u32, to: u32| (from..to).map(|at| token(sample, at)).collect();
    (0..count)
        .map(|sample| {
            let (prompt, end) = (2 + sample % 5, 14 + sample % 11);
            Sample { prompt: text(sample, 0, prompt), response: text(sample, prompt, end) }
        })
        .collect()
}

pub(crate) fn options() -> PrepareOptions {
    PrepareOptions {
        captures: TinyDrafter::default().captures,
        draft_vocab: 160,
        held_out: 0.25,
        batch_tokens: 80,
        progress: false,
    }
}

pub(crate) fn corpus(tiny: &Tiny, name: &str, count: u32) -> Corpus {
    prepare(&tiny.file, samples(count), &tiny.path(name), &options(), &Device::flex()).expect("a corpus")
}
