//! Logits and captures by hand: many rows at once, row by row, after truncation.

use pollster::block_on;
use redraft::{CaptureLayers, Engine, EngineOptions, Error, ForwardOutput, KvType, Rows, TokenId, Want};
use redraft_testing::{Forward, TinyModel, Tolerance, assert_close};
use redraft_tests::{ids, load, tiny, tokens};

const ALL: Want = Want { logits: Rows::All, captures: true };
const VOCAB: usize = 320;
const HIDDEN: usize = 64;

fn forward(engine: &mut Engine, tokens: &[TokenId], want: Want) -> ForwardOutput {
    block_on(engine.forward(tokens, want)).expect("a valid batch")
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The captures of some rows, from `[layers][rows][hidden]` to `[layers][those rows][hidden]`.
fn capture_rows(captures: &[f32], rows: usize, wanted: std::ops::Range<usize>) -> Vec<f32> {
    let layers = captures.chunks(rows * HIDDEN);
    layers.flat_map(|layer| layer[wanted.start * HIDDEN..wanted.end * HIDDEN].to_vec()).collect()
}

fn rows_equal_steps(name: &str, strict: bool) {
    let file = tiny(&TinyModel::default());
    let captures = CaptureLayers::At(vec![0, 1, 2]);
    let options = EngineOptions { captures, strict, kv: KvType::F32, ..EngineOptions::default() };
    let mut engine = load(name, &file, options);
    let input = tokens(71, 150, 320);
    let whole = forward(&mut engine, &input, ALL);
    assert_eq!(whole.logits.len(), 150 * VOCAB, "logits of all rows");
    assert_eq!(whole.captures.len(), 3 * 150 * HIDDEN, "captures of all layers and rows");
    assert_eq!(engine.position(), 150, "the sequence has them all");

    engine.reset();
    for (row, token) in input.iter().enumerate() {
        let one = forward(&mut engine, &[*token], ALL);
        let logits = &whole.logits[row * VOCAB..(row + 1) * VOCAB];
        assert_eq!(bits(&one.logits), bits(logits), "{name}: logits of row {row}");
        let captures = capture_rows(&whole.captures, 150, row..row + 1);
        assert_eq!(bits(&one.captures), bits(&captures), "{name}: captures of row {row}");
    }
    engine.reset();
    let mut at = 0;
    for count in [1, 2, 3, 5, 8, 13, 21, 34, 63] {
        let last = forward(&mut engine, &input[at..at + count], Want { logits: Rows::Last, captures: true });
        at += count;
        let logits = &whole.logits[(at - 1) * VOCAB..at * VOCAB];
        assert_eq!(bits(&last.logits), bits(logits), "{name}: the last of {count} rows");
        let captures = capture_rows(&whole.captures, 150, at - count..at);
        assert_eq!(bits(&last.captures), bits(&captures), "{name}: captures of {count} rows");
    }
    against_the_reference(&file, &input, &whole);
}

fn against_the_reference(file: &[u8], input: &[TokenId], whole: &ForwardOutput) {
    let mut oracle = Forward::load(file).expect("a valid file").with_captures(&[0, 1, 2]);
    let chain: Vec<_> = (0..input.len()).map(|row: usize| row.checked_sub(1)).collect();
    let logits = oracle.forward_rows(&ids(input), &chain).expect("a valid chain");
    // Error grows along 150 positions of a random model, whose attention is sharp.
    let near = Tolerance::F32.with_absolute(2e-4).with_nmse(1e-6);
    assert_close("logits", &whole.logits, &logits, near);
    assert_close("captures", &whole.captures, &oracle.captures().concat(), near);
}

#[test]
fn rows_at_once_equal_single_steps() {
    rows_equal_steps("engine.rows", false);
}

#[test]
fn rows_at_once_equal_single_steps_in_the_strict_tier() {
    rows_equal_steps("engine.rows", true);
}

#[test]
fn sequences_can_be_cut_and_continued() {
    let file = tiny(&TinyModel::default());
    let small = EngineOptions { context: Some(100), ..EngineOptions::default() };
    let mut engine = load("engine.sequence", &file, small);
    let last = Want { logits: Rows::Last, captures: false };
    let input = tokens(81, 100, 320);
    let (other, tail) = (tokens(82, 30, 320), &input[60..]);
    let expected = forward(&mut engine, &input, last);
    assert_eq!(engine.position(), 100, "the context is full");
    let error = block_on(engine.forward(&input[..1], last)).expect_err("no room");
    assert!(matches!(error, Error::PromptTooLong { tokens: 101, context: 100 }), "{error}");

    engine.truncate(60);
    assert_eq!(engine.position(), 60, "cut");
    engine.truncate(80);
    assert_eq!(engine.position(), 60, "cutting never lengthens");
    assert_eq!(forward(&mut engine, tail, last), expected, "the same end again");
    engine.truncate(60);
    forward(&mut engine, &other, last);
    engine.truncate(60);
    assert_eq!(forward(&mut engine, tail, last), expected, "after another end");
    engine.reset();
    assert_eq!(engine.position(), 0, "forgotten");
    let none = forward(&mut engine, &input[..70], Want { logits: Rows::None, captures: false });
    assert_eq!(none, ForwardOutput::default(), "nothing asked for");
    assert_eq!(forward(&mut engine, &input[70..], last), expected, "from the start");

    // Captures were not declared when the model was loaded.
    engine.reset();
    let error = block_on(engine.forward(&input[..3], ALL)).expect_err("no captures");
    assert!(error.to_string().contains("capture"), "{error}");
    assert_eq!(engine.position(), 0, "a refused batch is not part of the sequence");
}
