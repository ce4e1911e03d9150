//! A whole study of a tiny drafter of a tiny target.

use std::cell::RefCell;
use std::path::Path;

use burn::tensor::Device;
use redraft_testing::{Prng, TinyDrafter};

use super::*;

const TEXTS: usize = 6;

fn samples(seed: u64, vocab: usize) -> Vec<Sample> {
    let mut prng = Prng::new(seed);
    let mut tokens = |count: usize| -> Vec<u32> {
        (0..count).map(|_| u32::try_from(prng.below(vocab)).unwrap()).collect()
    };
    (0..TEXTS).map(|_| Sample { prompt: tokens(5), response: tokens(9) }).collect()
}

/// Target, drafter, a corpus and evaluation texts in `directory`.
fn options(directory: &Path) -> StudyOptions {
    let tiny = TinyDrafter::default();
    let at = |name: &str| directory.join(name);
    std::fs::write(at("target.gguf"), tiny.target.to_gguf().unwrap()).unwrap();
    std::fs::write(at("drafter.safetensors"), tiny.to_file().unwrap().write()).unwrap();
    let file = TargetFile::open(&at("target.gguf")).unwrap();
    let made = PrepareOptions {
        captures: tiny.captures,
        draft_vocab: 160,
        held_out: 0.5,
        batch_tokens: 256,
        progress: false,
    };
    let vocab = tiny.target.vocab;
    prepare(&file, samples(1, vocab), &at("corpus"), &made, &Device::flex()).unwrap();
    let lines: Vec<String> = samples(2, vocab)
        .iter()
        .zip(["here", "there"].iter().cycle())
        .map(|(sample, set)| {
            let (prompt, response) = (&sample.prompt, &sample.response);
            serde_json::json!({"set": set, "prompt_ids": prompt, "greedy_ids": response}).to_string()
        })
        .collect();
    std::fs::write(at("evaluation.jsonl"), lines.join("\n")).unwrap();
    StudyOptions {
        target: at("target.gguf"),
        drafter: at("drafter.safetensors"),
        blocks: Blocks::F32,
        corpus: at("corpus"),
        evaluation: at("evaluation.jsonl"),
        work: at("work"),
        out: at("study"),
        texts: None,
        ablation_texts: 3,
        drawn_texts: 4,
        drawn_tokens: 7,
        held_out_texts: None,
        sampled: 1.0,
        training_tokens: None,
        earlier: vec![(7, at("drafter.safetensors"))],
        bench: None,
        seed: 1,
    }
}

fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_study_runs_once_and_says_the_same_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let said = RefCell::new(Vec::new());
    let progress = |line: &str| said.borrow_mut().push(line.to_owned());
    run(&options, &Device::flex(), &progress).unwrap();
    let written = files(&options.out);
    let text = |name: &str| {
        let (_, bytes) = written.iter().find(|(found, _)| found == name).unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    };
    let headline: serde_json::Value = serde_json::from_str(&text("headline.json")).unwrap();
    assert_eq!((&headline["n"], &headline["d"]), (&15.into(), &5.into()), "the size");
    let tau = headline["tau_baseline"].as_f64().unwrap();
    assert!((1.0..6.0).contains(&tau), "one token a round at least: {tau}");
    let results: serde_json::Value = serde_json::from_str(&text("results.json")).unwrap();
    let drawn: u64 = std::fs::read_to_string(options.work.join("drawn-4-7-1.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["response_ids"].as_array().unwrap().len() as u64 - 1)
        .sum();
    let mut temperatures = std::collections::BTreeMap::new();
    for experiment in results["experiments"].as_array().unwrap() {
        let (texts, hot) = (experiment["texts"].as_u64().unwrap(), experiment["temperature"] == 1.0);
        *temperatures.entry(hot).or_insert(0) += 1;
        for entry in experiment["entries"].as_array().unwrap() {
            let emitted = entry["all"]["emitted"].as_u64().unwrap();
            // The first token of an answer is the prompt's.
            assert_eq!(emitted, if hot { drawn } else { texts * 8 }, "{}", entry["plan"]);
        }
    }
    assert!(temperatures[&false] > 9 && temperatures[&true] == 5, "{temperatures:?}");
    let growth = results["baseline_by_training_tokens"].as_array().unwrap();
    assert_eq!(growth[0]["tau"], growth[1]["tau"], "the same drafter at two times");
    assert!(text("README.md").contains("## Verdict at N = 15"), "a verdict");
    let replayed = |said: &RefCell<Vec<String>>| {
        said.borrow().iter().filter(|line| line.ends_with(" plans") || line.contains("tables for")).count()
    };
    assert!(replayed(&said) > 2, "{said:?}");

    // Again: nothing is replayed, and the same is written.
    said.borrow_mut().clear();
    std::fs::remove_dir_all(&options.out).unwrap();
    run(&options, &Device::flex(), &progress).unwrap();
    assert_eq!(replayed(&said), 0, "{said:?}");
    assert_eq!(files(&options.out), written, "the same files");

    // A run that was not finished, or is damaged, is run again.
    let run_of = std::fs::read_dir(options.work.join("runs")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&run_of, b"{").unwrap();
    run(&options, &Device::flex(), &progress).unwrap();
    assert!(replayed(&said) > 0, "{said:?}");
    assert_eq!(files(&options.out), written, "the same files");
}

#[test]
fn prompts_of_the_corpus_prove_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let known = samples(1, TinyDrafter::default().target.vocab).remove(3);
    let line = serde_json::json!({"set": "here", "prompt_ids": known.prompt, "greedy_ids": [1, 2, 3]});
    let mut text = std::fs::read_to_string(&options.evaluation).unwrap();
    text += &format!("\n{line}\n");
    std::fs::write(&options.evaluation, text).unwrap();
    let error = run(&options, &Device::flex(), &|_| {}).unwrap_err().to_string();
    assert!(error.contains("evaluation.jsonl:7") && error.contains("training corpus"), "{error}");
    std::fs::write(&options.evaluation, "{\"prompt_ids\": [1], \"greedy_ids\": [2]}\n").unwrap();
    let error = run(&StudyOptions { work: options.work.join("2"), ..options }, &Device::flex(), &|_| {});
    let error = error.unwrap_err().to_string();
    assert!(error.contains("evaluation.jsonl:1") && error.contains("set"), "{error}");
}
