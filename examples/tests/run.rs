//! Runs each example on a tiny random model and compares what it prints with the library and with the oracle.

use pollster::block_on;
use redraft::{Engine, EngineOptions, FileSource, GenerateOptions, Message};
use redraft_testing::reference::argmax;
use redraft_testing::{Forward, KvType, TinyModel, ran_on_gpu};
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Command;

const TEXT: &str = "the sea is in the";

/// A model file of this test's own.
fn model(test: &str) -> (PathBuf, Vec<u8>) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.gguf"));
    let bytes = TinyModel::default().to_gguf().expect("a possible shape");
    std::fs::write(&path, &bytes).expect("a folder for temporary files");
    (path, bytes)
}

/// What an example writes to standard output and to standard error.
fn run(test: &str, program: &str, model: &PathBuf, text: &str) -> (String, String) {
    let output = Command::new(program).arg(model).arg(text).output().expect("a built example");
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
    assert!(output.status.success(), "{test}: {}: {err}", output.status);
    let adapter = err.lines().find_map(|line| line.strip_prefix("adapter: ")).expect("the adapter is named");
    ran_on_gpu(test, adapter, false);
    (out, err)
}

fn engine(model: &PathBuf) -> Engine {
    let file = FileSource::open(model).expect("readable");
    block_on(Engine::load(&file, EngineOptions::default(), |_| {})).expect("a loadable model")
}

#[test]
fn chat_streams_the_answer() {
    let (path, _) = model("chat");
    let (out, _) = run("examples.chat", env!("CARGO_BIN_EXE_chat"), &path, TEXT);
    let mut engine = engine(&path);
    let prompt = engine.encode_chat(&[Message::user(TEXT)]).expect("a template");
    let mut stream = engine.generate(&prompt, GenerateOptions::default()).expect("a stream");
    while block_on(stream.next()).expect("a token").is_some() {}
    let expected = stream.finish();
    assert!(!expected.ids.is_empty(), "{expected:?}");
    assert_eq!(out, format!("{}\n", expected.text), "the answer and a line end");
}

#[test]
fn logits_lists_tokens_and_layers() {
    let (path, bytes) = model("logits");
    let (out, _) = run("examples.logits", env!("CARGO_BIN_EXE_logits"), &path, TEXT);
    let mut oracle =
        Forward::load(&bytes).expect("a valid file").with_kv(KvType::F16).with_captures(&[0, 1, 2]);
    let prompt: Vec<u32> = engine(&path).encode(TEXT).expect("text").iter().map(|token| token.0).collect();
    let logits = oracle.prefill(&prompt).expect("a valid prompt");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 5 + 3, "five tokens, three layers: {out}");
    let tokens: Vec<(f64, u32)> = lines[..5]
        .iter()
        .map(|line| {
            let (percent, rest) = line.split_once('%').expect("a percentage");
            let id = rest.split_whitespace().next().expect("an id");
            (percent.trim().parse().expect("a number"), id.parse().expect("a number"))
        })
        .collect();
    assert_eq!(tokens[0].1, argmax(&logits), "the likeliest first: {out}");
    assert!(tokens.windows(2).all(|pair| pair[0].0 >= pair[1].0), "sorted: {out}");
    let sum: f64 = tokens.iter().map(|token| token.0).sum();
    assert!(sum > 1.0 && sum <= 100.1, "{sum} per cent: {out}");
    for (line, (layer, capture)) in lines[5..].iter().zip(oracle.captures().iter().enumerate()) {
        assert!(line.starts_with(&format!("layer {layer:3}:")), "{line}");
        let last = &capture[capture.len() - 64..];
        let length: f32 = last.iter().map(|value| value * value).sum::<f32>().sqrt();
        let found: f32 = line.rsplit(' ').next().expect("a length").parse().expect("a number");
        assert!((found - length).abs() < 0.01 * length, "{line}, the oracle has {length}");
    }
}

#[test]
fn custom_sampler_repeats_no_pair() {
    let (path, bytes) = model("custom_sampler");
    let (out, err) = run("examples.custom_sampler", env!("CARGO_BIN_EXE_custom_sampler"), &path, TEXT);
    let engine = engine(&path);
    let list = err.lines().find_map(|line| line.strip_prefix("ids: [")).expect("the ids");
    let ids: Vec<u32> = list.trim_end_matches(']').split(", ").map(|id| id.parse().expect("an id")).collect();
    assert!(ids.len() > 1, "{err}");
    assert_eq!(out, format!("{}\n", engine.tokenizer().decode(&ids).expect("known ids")), "the text");
    let prompt: Vec<u32> = engine.encode(TEXT).expect("text").iter().map(|token| token.0).collect();
    let all = [&prompt[..], &ids].concat();
    let mut pairs: HashSet<_> = prompt.windows(2).collect();
    assert!(all[prompt.len() - 1..].windows(2).all(|pair| pairs.insert(pair)), "a pair twice: {all:?}");
    let mut oracle = Forward::load(&bytes).expect("a valid file").with_kv(KvType::F16);
    let logits = oracle.prefill(&prompt).expect("a valid prompt");
    let seen = |id: u32| prompt.windows(2).any(|pair| pair[0] == prompt[prompt.len() - 1] && pair[1] == id);
    let best = (0u32..).zip(&logits).filter(|(id, _)| !seen(*id)).max_by(|a, b| a.1.total_cmp(b.1));
    assert_eq!(Some(ids[0]), best.map(|(id, _)| id), "the likeliest that is allowed");
}

#[test]
fn wrong_use_is_explained() {
    for program in
        [env!("CARGO_BIN_EXE_chat"), env!("CARGO_BIN_EXE_logits"), env!("CARGO_BIN_EXE_custom_sampler")]
    {
        let output = Command::new(program).output().expect("a built example");
        assert!(!output.status.success(), "{program} without arguments");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage"), "{program}: {output:?}");
        let output = Command::new(program).args(["absent.gguf", "text"]).output().expect("a built example");
        assert!(!output.status.success(), "{program} without a model");
        assert!(String::from_utf8_lossy(&output.stderr).contains("absent.gguf"), "{program}: {output:?}");
    }
}
