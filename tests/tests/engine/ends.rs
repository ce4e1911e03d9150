//! Where answers end: context, limits, end-of-sequence, stop strings, cancellation.

use pollster::block_on;
use redraft::{
    CancelToken, Engine, EngineOptions, Error, GenerateOptions, Generation, SamplingParams, StopReason,
    TokenId,
};
use redraft_testing::{Forward, TinyModel, reference};
use redraft_tests::{answer, follow, load, tiny, tokens};
use std::time::{Duration, Instant};

fn options(max_tokens: u32) -> GenerateOptions {
    GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() }
}

/// Draws among some tokens alone.
fn among(engine: &Engine, texts: &[&str], seed: u64) -> SamplingParams {
    let id = |text: &&str| TokenId(engine.tokenizer().id_of(text).expect("a token of every tiny model"));
    SamplingParams {
        temperature: 3.0,
        logit_bias: texts.iter().map(|text| (id(text), 1e4)).collect(),
        seed,
        ..SamplingParams::default()
    }
}

fn generate(engine: &mut Engine, prompt: &[TokenId], options: GenerateOptions) -> Generation {
    answer(engine, prompt, options).expect("an answer").1
}

#[test]
fn the_context_is_filled_to_its_last_slot() {
    let file = tiny(&TinyModel::default());
    let small = EngineOptions { context: Some(96), ..EngineOptions::default() };
    let mut engine = load("engine.context", &file, small);
    let mut oracle = Forward::load(&file).expect("a valid file").with_kv(reference::KvType::F16);
    assert_eq!(engine.context(), 96, "as asked for");
    for length in [95, 90, 1] {
        let prompt = tokens(31, length, 320);
        let full = generate(&mut engine, &prompt, options(1000));
        assert_eq!(full.stop_reason, StopReason::ContextFull, "{length} tokens");
        assert_eq!(full.ids.len(), 96 - length, "{length} tokens");
        follow(&mut oracle, &prompt, &full.ids, 1e-2);
    }
    // The limit and the context reached by the same token: the limit is the reason, as it would be elsewhere.
    let both = generate(&mut engine, &tokens(31, 90, 320), options(6));
    assert_eq!((both.ids.len(), both.stop_reason), (6, StopReason::MaxTokens), "both at once");
    for length in [96, 97, 500] {
        let error = engine.generate(&tokens(31, length, 320), options(1)).map(|_| ()).expect_err("no room");
        let expected = length as u64;
        assert!(
            matches!(error, Error::PromptTooLong { tokens, context: 96 } if tokens == expected),
            "{length}: {error}"
        );
    }
}

#[test]
fn limits_and_end_of_sequence() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("engine.limits", &file, EngineOptions::default());
    let prompt = tokens(41, 20, 320);
    let none = generate(&mut engine, &prompt, options(0));
    assert_eq!((none.ids.len(), none.stop_reason), (0, StopReason::MaxTokens), "no token at all");
    assert_eq!((none.text.as_str(), none.timings.prefill_tokens), ("", 0), "nothing is computed for it");
    let one = generate(&mut engine, &prompt, options(1));
    assert_eq!((one.ids.len(), one.stop_reason), (1, StopReason::MaxTokens), "one token");
    let five = generate(&mut engine, &prompt, options(5));
    assert_eq!(five.ids[..1], one.ids, "a limit changes nothing before it");

    let eos = engine.tokenizer().eos_ids();
    assert!(eos.contains(&2), "the tiny tokenizer ends with <|im_end|>, not {eos:?}");
    let mut ends = Vec::new();
    for seed in 0..8 {
        let sampling = among(&engine, &["<|im_end|>", "he", "in"], seed);
        let on = GenerateOptions { sampling, ..options(30) };
        let off = GenerateOptions { ignore_eos: false, ..on.clone() };
        let through = generate(&mut engine, &prompt, on);
        assert_eq!((through.ids.len(), through.stop_reason), (30, StopReason::MaxTokens), "seed {seed}");
        let at = through.ids.iter().position(|id| id.0 == 2).expect("one of thirty draws among three");
        let ended = generate(&mut engine, &prompt, off);
        assert_eq!(ended.stop_reason, StopReason::EndOfSequence, "seed {seed}");
        assert_eq!(ended.ids, through.ids[..=at], "seed {seed}: the end is among the ids");
        let text = engine.tokenizer().decode(&redraft_tests::ids(&ended.ids)).expect("known ids");
        assert_eq!(ended.text, text, "seed {seed}: but not in the text");
        assert!(through.text.starts_with(&ended.text), "seed {seed}");
        ends.push(at);
    }
    assert!(ends.contains(&0) && ends.iter().any(|at| *at > 1), "at once and later: {ends:?}");
}

#[test]
fn stop_strings_end_the_text_and_are_not_in_it() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("engine.stop", &file, EngineOptions::default());
    let prompt = tokens(51, 11, 320);
    let mut stopped = 0;
    for seed in 0..4 {
        // Whole tokens, and the two halves of "é" (bytes C3 and A9).
        let sampling = among(&engine, &["he", "in", "Ã", "©"], seed);
        let free = GenerateOptions { sampling, ..options(40) };
        let whole = generate(&mut engine, &prompt, free.clone());
        let pieces: Vec<String> = (0..=whole.ids.len())
            .map(|end| engine.tokenizer().decode(&redraft_tests::ids(&whole.ids[..end])).expect("known ids"))
            .collect();
        assert_eq!(pieces.last(), Some(&whole.text), "the text is that of the ids");
        // Across tokens, in the middle of one, beginning and ending within one, half characters put together.
        for stop in ["hein", "e", "ei", "nhe", "é", "inin", "heé", "n\u{fffd}"] {
            let with = GenerateOptions { stop: vec!["absent".to_owned(), stop.to_owned()], ..free.clone() };
            let found = generate(&mut engine, &prompt, with);
            let Some(at) = whole.text.find(stop) else {
                assert_eq!((&found.text, found.stop_reason), (&whole.text, StopReason::MaxTokens), "{stop}");
                continue;
            };
            stopped += 1;
            assert_eq!(found.text, whole.text[..at], "{stop:?} in {:?}", whole.text);
            assert_eq!(found.stop_reason, StopReason::StopString, "{stop:?} in {:?}", whole.text);
            assert_eq!(found.ids, whole.ids[..found.ids.len()], "{stop:?}: no other tokens");
            let here = &pieces[found.ids.len()];
            assert!(here.contains(stop) || found.ids.len() == whole.ids.len(), "{stop:?}: {here:?} is early");
            // Decoding a part turns a half character at its end into U+FFFD, which is not yet decided.
            let before = pieces[found.ids.len() - 1].trim_end_matches('\u{fffd}');
            assert!(!before.contains(stop), "{stop:?}: {before:?} had it");
        }
    }
    assert!(stopped >= 12, "only {stopped} stops were met");
    let first = among(&engine, &["he"], 0);
    let two =
        GenerateOptions { sampling: first, stop: vec!["hehe".to_owned(), "eh".to_owned()], ..options(10) };
    let found = generate(&mut engine, &prompt, two);
    assert_eq!((found.text.as_str(), found.ids.len()), ("h", 2), "the first to be complete wins");
}

#[test]
fn cancelled_answers_leave_a_usable_engine() {
    let file = tiny(&TinyModel { context: 2048, ..TinyModel::default() });
    let mut engine = load("engine.cancel", &file, EngineOptions::default());
    let prompt = tokens(61, 1000, 320);
    let started = Instant::now();
    let whole = generate(&mut engine, &prompt, options(8));
    let all = started.elapsed();
    let check = |engine: &mut Engine, what: &str| {
        let again = generate(engine, &prompt, options(8));
        assert_eq!((again.ids, again.text), (whole.ids.clone(), whole.text.clone()), "after {what}");
        again.reused_tokens
    };

    engine.reset();
    let cancelled = |after| GenerateOptions { cancel: after, ..options(8) };
    let cancel = CancelToken::default();
    cancel.cancel();
    let none = generate(&mut engine, &prompt, cancelled(cancel));
    assert_eq!((none.ids.len(), none.stop_reason), (0, StopReason::Cancelled), "before the prompt");
    assert_eq!((none.timings.prefill_tokens, engine.position()), (0, 0), "nothing was computed");
    check(&mut engine, "a cancelled prompt");

    // Between chunks: another thread cancels at some time within the prompt. When is the machine's business, so
    // several times are tried.
    let mut between = 0;
    for part in 1..40 {
        engine.reset();
        let cancel = CancelToken::default();
        let (other, wait) = (cancel.clone(), all * part / 60);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(wait.max(Duration::from_micros(50)));
            other.cancel();
        });
        let some = generate(&mut engine, &prompt, cancelled(cancel));
        thread.join().expect("a thread that sleeps");
        let computed = some.timings.prefill_tokens;
        if some.ids.is_empty() && computed > 0 {
            between += 1;
            assert_eq!(some.stop_reason, StopReason::Cancelled, "within the prompt");
            assert_eq!((computed % 64, engine.position()), (0, computed), "whole chunks are kept");
            assert_eq!(check(&mut engine, "a cancelled chunk"), computed, "and reused");
        }
        if between == 2 {
            break;
        }
    }
    assert!(between > 0, "no cancellation fell between chunks of a prompt of {all:?}");

    for after in [1, 3] {
        let cancel = CancelToken::default();
        let mut stream = engine.generate(&prompt, cancelled(cancel.clone())).expect("a stream");
        for _ in 0..after {
            assert!(block_on(stream.next()).expect("a token").is_some(), "not yet cancelled");
        }
        cancel.cancel();
        assert!(block_on(stream.next()).expect("an end").is_none(), "cancelled");
        let part = stream.finish();
        assert_eq!((part.ids.len(), part.stop_reason), (after, StopReason::Cancelled), "while decoding");
        assert_eq!(part.ids, whole.ids[..after], "the tokens so far");
        check(&mut engine, "a cancelled answer");
    }

    let mut stream = engine.generate(&prompt, options(8)).expect("a stream");
    block_on(stream.next()).expect("a token");
    drop(stream);
    check(&mut engine, "a dropped stream");
    let unread = engine.generate(&prompt, options(8)).expect("a stream").finish();
    assert_eq!((unread.ids.len(), unread.stop_reason), (0, StopReason::Cancelled), "never read");
    check(&mut engine, "a stream that nobody read");
}
