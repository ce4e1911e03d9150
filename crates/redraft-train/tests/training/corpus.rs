//! Text in and features on disk: bad lines, interruptions, other targets.

use std::fs;
use std::io::Write as _;

use burn::tensor::Device;
use redraft_testing::TinyModel;
use redraft_train::TrainError;
use redraft_train::corpus::Corpus;
use redraft_train::data::{Reader, Sample, Split};
use redraft_train::generate::{GenerateOptions, generate};
use redraft_train::prepare::prepare;
use redraft_train::target::Target;

use crate::support::{Tiny, corpus, options, samples, tiny};

fn read(tiny: &Tiny, text: &str) -> Result<Vec<Sample>, TrainError> {
    let path = tiny.path("text.jsonl");
    fs::write(&path, text).expect("written");
    let tokenizer = tiny.file.tokenizer().expect("a tokenizer");
    let template = tiny.file.template().expect("a template");
    Reader { vocab: 320, tokenizer: &tokenizer, template: template.as_ref(), max_tokens: 12 }.read(&path)
}

#[test]
fn bad_lines_are_named() {
    let tiny = tiny(&TinyModel::default());
    let good = r#"{"prompt_ids":[1,2],"response_ids":[3,4],"source":"anything"}"#;
    for (bad, word) in [
        ("{", "not a sample"),
        ("[]", "not a sample"),
        (r#"{"prompt_ids":[1]}"#, "expected either"),
        (r#"{"prompt_ids":[1],"response_ids":[2],"messages":[]}"#, "expected either"),
        (r#"{"prompt_ids":[],"response_ids":[2]}"#, "no tokens"),
        (r#"{"prompt_ids":[1],"response_ids":[320]}"#, "token 320"),
        (r#"{"prompt_ids":[1],"response_ids":[-1]}"#, "not a sample"),
        (r#"{"prompt_ids":[1,1,1,1,1,1,1,1,1,1,1,1],"response_ids":[2]}"#, "12 tokens"),
        (r#"{"messages":[{"role":"user","content":"hi"}]}"#, "the last message"),
        (r#"{"messages":[]}"#, "the last message"),
    ] {
        let error = read(&tiny, &format!("{good}\n\n{bad}\n")).expect_err(bad).to_string();
        assert!(error.contains("text.jsonl:3: ") && error.contains(word), "{bad}: {error}");
    }
    let read = read(&tiny, &format!("{good}\n{}\n", good.replace("[3,4]", "[3,4,5,6,7,8,9,10,11,12,13,14]")));
    let read = read.expect("two samples");
    assert_eq!((read[0].response.len(), read[1].response.len()), (2, 10), "cut to --max-tokens");
}

#[test]
fn compressed_text_is_read_and_garbage_is_not() {
    let tiny = tiny(&TinyModel::default());
    let tokenizer = tiny.file.tokenizer().expect("a tokenizer");
    let reader = Reader { vocab: 320, tokenizer: &tokenizer, template: None, max_tokens: 64 };
    let path = tiny.path("text.jsonl.zst");
    let text = b"{\"prompt_ids\":[1],\"response_ids\":[2,3]}\n";
    let packed =
        ruzstd::encoding::compress_to_vec(text.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    fs::write(&path, &packed).expect("written");
    assert_eq!(reader.read(&path).expect("a sample"), [Sample { prompt: vec![1], response: vec![2, 3] }]);
    fs::write(&path, b"not zstd at all").expect("written");
    let error = reader.read(&path).expect_err("garbage").to_string();
    assert!(error.contains("Zstandard"), "{error}");
    fs::write(&path, &packed[..packed.len() - 8]).expect("written");
    let error = reader.read(&path).expect_err("cut off").to_string();
    assert!(error.contains("text.jsonl.zst:1"), "{error}");
}

#[test]
fn an_interrupted_corpus_is_finished_to_the_same_bytes() {
    let tiny = tiny(&TinyModel::default());
    let whole = corpus(&tiny, "whole", 90);
    assert_eq!(whole.ready(), 90);
    let held = whole.indices(Split::HeldOut).len();
    assert!(held > 5 && whole.indices(Split::Train).len() + held == 90, "{held} held out");
    let bytes = fs::read(tiny.path("whole").join("features.bin")).expect("features");

    // As if it had been killed while it wrote.
    let path = tiny.path("cut").join("features.bin");
    corpus(&tiny, "cut", 90);
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("open")
        .set_len(bytes.len() as u64 / 2 + 13)
        .expect("cut");
    let partial = Corpus::open(&tiny.path("cut")).expect("a corpus");
    assert!((20..70).contains(&partial.ready()), "{} samples are whole", partial.ready());
    let error = partial.record(89).expect_err("no record yet").to_string();
    assert!(error.contains("prepare"), "{error}");
    assert_eq!(corpus(&tiny, "cut", 90).ready(), 90);
    let again = fs::read(&path).expect("features");
    assert!(again.len() == bytes.len(), "as long as the whole one");
    let different = again.iter().zip(&bytes).filter(|(a, b)| a != b).count();
    // Groups begin elsewhere, so batches differ, and sums of other shapes in the last bits.
    assert!(different * 50 < bytes.len(), "{different} of {} bytes differ", bytes.len());
}

#[test]
fn a_corpus_grows_and_refuses_another() {
    let tiny = tiny(&TinyModel::default());
    let ids = corpus(&tiny, "corpus", 40).manifest().draft_ids.clone();
    let grown = corpus(&tiny, "corpus", 50);
    assert_eq!((grown.ready(), &grown.manifest().draft_ids), (50, &ids), "the draft vocabulary stays");
    let error =
        prepare(&tiny.file, samples(50).split_off(1), &tiny.path("corpus"), &options(), &Device::flex());
    let error = error.expect_err("other text").to_string();
    assert!(error.contains("other text"), "{error}");
    fs::write(tiny.path("corpus").join("corpus.json"), b"{}").expect("written");
    let error = Corpus::open(&tiny.path("corpus")).expect_err("damaged").to_string();
    assert!(error.contains("corpus.json"), "{error}");
}

#[test]
fn answers_are_written_once_whenever_it_ends() {
    let (tiny, device) = (tiny(&TinyModel::default()), Device::flex());
    let target = Target::load(&tiny.file, [0, 1, 2], 64, &device).expect("a target");
    let prompts: Vec<Vec<u32>> = samples(9).into_iter().map(|sample| sample.prompt).collect();
    let settings = |temperature| GenerateOptions {
        max_new: 6,
        temperature,
        top_p: 0.9,
        seed: 3,
        batch: 4,
        progress: false,
    };
    let path = tiny.path("answers.jsonl");
    let run = |temperature| generate(&target, &prompts, &[2], &path, &settings(temperature), &device);
    for temperature in [0.0, 1.0] {
        if path.exists() {
            fs::remove_file(&path).expect("removed");
        }
        run(temperature).expect("answers");
        let whole = fs::read_to_string(&path).expect("text");
        assert_eq!(whole.lines().count(), 9);
        let half = &whole[..whole.len() / 2];
        fs::write(&path, half).expect("cut in the middle of a line");
        run(temperature).expect("the rest");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let again = fs::read_to_string(&path).expect("text");
        assert_eq!(sorted(&again), sorted(&whole), "T = {temperature}");
    }
    // Greedy answers are the reference's.
    fs::remove_file(&path).expect("removed");
    run(0.0).expect("answers");
    for line in fs::read_to_string(&path).expect("text").lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let ids = |key: &str| -> Vec<u32> { serde_json::from_value(line[key].clone()).expect("ids") };
        let mut reference = redraft_testing::reference::Forward::load(&tiny.bytes).expect("a reference");
        let mut logits = reference.prefill(&ids("prompt_ids")).expect("a prompt");
        for id in ids("response_ids") {
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("a token");
            let margin = logits[best] - logits[id as usize];
            assert!(margin < 1e-4, "token {id} is {margin} behind the reference's {best}");
            logits = reference.step(id).expect("a step");
        }
    }
    fs::OpenOptions::new().append(true).open(&path).expect("open").write_all(b"{}\n").expect("written");
    let error = run(0.0).expect_err("another file").to_string();
    assert!(error.contains("answers.jsonl:10"), "{error}");
}
