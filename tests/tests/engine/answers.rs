//! What is answered: against the oracle, with and without a reused prefix, by seed.

use redraft::{
    Architecture, Chat, Engine, EngineOptions, GenerateOptions, KvType, LogProbs, SamplingParams, TokenId,
};
use redraft_testing::{Forward, TinyModel, reference};
use redraft_tests::{answer, follow, ids, load, tiny, tokens};

fn greedy(max_tokens: u32) -> GenerateOptions {
    GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() }
}

fn sampled(seed: u64) -> GenerateOptions {
    let sampling = SamplingParams {
        temperature: 1.0,
        presence_penalty: 1.5,
        frequency_penalty: 0.2,
        penalty_window: 300,
        seed,
        ..SamplingParams::default()
    };
    GenerateOptions { sampling, ..greedy(24) }
}

/// Prompts of one token, of less and more than a chunk of 64 rows, and of several chunks.
const PROMPTS: [usize; 6] = [1, 7, 64, 65, 130, 300];

fn greedy_follows_the_reference(name: &str, strict: bool) {
    let llama = TinyModel::default();
    let qwen2 = TinyModel { architecture: Architecture::Qwen2, tied: false, seed: 5, ..TinyModel::default() };
    for (model, kv, margin) in [(&llama, KvType::F32, 1e-3), (&qwen2, KvType::F16, 1e-2)] {
        let file = tiny(model);
        let mut engine = load(name, &file, EngineOptions { kv, strict, ..EngineOptions::default() });
        let stored = match kv {
            KvType::F16 => reference::KvType::F16,
            KvType::F32 => reference::KvType::F32,
        };
        let mut oracle = Forward::load(&file).expect("a valid file").with_kv(stored);
        let (mut clear, mut all) = (0, 0);
        for (seed, length) in (1..).zip(PROMPTS) {
            let prompt = tokens(seed, length, engine.config().vocab);
            let (_, generation) = answer(&mut engine, &prompt, greedy(24)).expect("an answer");
            assert_eq!(generation.ids.len(), 24, "as long as asked for");
            clear += follow(&mut oracle, &prompt, &generation.ids, margin);
            all += generation.ids.len();
        }
        assert!(clear * 10 >= all * 9, "{name}: only {clear} of {all} steps had a margin of {margin}");
    }
}

#[test]
fn greedy_answers_follow_the_reference() {
    greedy_follows_the_reference("engine.greedy", false);
}

#[test]
fn greedy_answers_follow_the_reference_in_the_strict_tier() {
    greedy_follows_the_reference("engine.greedy", true);
}

#[test]
fn a_reused_prefix_changes_nothing() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("engine.reuse", &file, EngineOptions::default());
    let mut fresh = load("engine.reuse", &file, EngineOptions::default());
    let first = tokens(9, 150, 320);
    let (_, begun) = answer(&mut engine, &first, sampled(3)).expect("an answer");
    assert_eq!((begun.reused_tokens, begun.timings.prefill_tokens), (0, 150), "nothing to reuse yet");

    let other = tokens(10, 60, 320);
    let continued = [&first[..], &begun.ids, &other[..20]].concat();
    let forked = [&first[..40], &other[..]].concat();
    let cases = [
        // The last token of an answer was never computed.
        ("the conversation goes on", continued, 150 + 23),
        ("the first prompt again", first.clone(), 149),
        ("a part of it", first[..70].to_vec(), 69),
        ("another end", forked, 40),
        ("one token", first[..1].to_vec(), 0),
        ("something else", other, 0),
    ];
    for (what, prompt, reused) in &cases {
        for options in [greedy(12), sampled(4)] {
            // Every case begins in the same state: behind the first answer.
            engine.reset();
            let (_, again) = answer(&mut engine, &first, sampled(3)).expect("an answer");
            assert_eq!(again.ids, begun.ids, "{what}: the first answer once more");
            let (_, warm) = answer(&mut engine, prompt, options.clone()).expect("an answer");
            fresh.reset();
            let (_, cold) = answer(&mut fresh, prompt, options).expect("an answer");
            assert_eq!((ids(&warm.ids), &warm.text), (ids(&cold.ids), &cold.text), "{what}");
            assert_eq!((warm.reused_tokens, cold.reused_tokens), (*reused, 0), "{what}");
            for (found, generation) in [(warm.reused_tokens, &warm), (0, &cold)] {
                let computed = generation.timings.prefill_tokens + found;
                assert_eq!(computed as usize, prompt.len(), "{what}: computed or reused");
            }
        }
    }
}

#[test]
fn chats_reuse_what_was_said() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("engine.chat", &file, EngineOptions::default());
    // Letters only, so that the answer is text that encodes again.
    let letters = ["he", "in", "o"].map(|text| letter(&engine, text));
    let sampling = SamplingParams {
        temperature: 1.0,
        logit_bias: letters.map(|id| (id, 1e4)).to_vec(),
        ..SamplingParams::default()
    };
    let options = GenerateOptions { max_tokens: 9, sampling, ..GenerateOptions::default() };
    let mut chat = Chat::new(Some("Be brief.".to_owned()));
    let mut before = 0;
    for (turn, question) in ["Is the sea there?", "And on land?", "Then again."].into_iter().enumerate() {
        chat.push_user(question);
        let prompt = engine.encode_chat(chat.messages()).expect("a template");
        let mut stream = chat.stream(&mut engine, options.clone()).expect("a stream");
        while pollster::block_on(stream.next()).expect("a token").is_some() {}
        let generation = stream.finish();
        assert_eq!(generation.prompt_ids, prompt, "turn {turn}");
        assert!(generation.reused_tokens as usize >= before, "turn {turn}: {generation:?}");
        assert!(generation.ids.iter().all(|id| letters.contains(id)), "turn {turn}: {generation:?}");
        assert!(!generation.text.is_empty(), "turn {turn}");
        chat.record(&generation);
        before = prompt.len();
    }
    let roles: Vec<&str> = chat.messages().iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "user", "assistant"], "turns");
}

fn letter(engine: &Engine, text: &str) -> TokenId {
    TokenId(engine.tokenizer().id_of(text).expect("a token of every tiny model"))
}

#[test]
fn seeds_and_log_probabilities() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("engine.seeds", &file, EngineOptions::default());
    let prompt = tokens(21, 33, 320);
    let run = |engine: &mut Engine, seed| {
        let options = GenerateOptions { log_probs: Some(7), ..sampled(seed) };
        answer(engine, &prompt, options).expect("an answer")
    };
    let (steps, one) = run(&mut engine, 1);
    let (same_steps, same) = run(&mut engine, 1);
    assert_eq!((&one.ids, &one.text, &steps), (&same.ids, &same.text, &same_steps), "the same seed");
    let answers: Vec<_> = (1..6).map(|seed| run(&mut engine, seed).1.ids).collect();
    for (at, answer) in answers.iter().enumerate() {
        assert!(!answers[..at].contains(answer), "seeds {answers:?}");
    }
    let (plain, _) = answer(&mut engine, &prompt, sampled(1)).expect("an answer");
    assert!(plain.iter().all(|step| step.log_probs.is_none()), "only on request");

    let mut oracle = Forward::load(&file).expect("a valid file").with_kv(reference::KvType::F16);
    let mut logits = oracle.prefill(&ids(&prompt)).expect("a valid prompt");
    for step in &steps {
        let found = step.log_probs.as_ref().expect("asked for");
        check_log_probs(found, step.id);
        // Of the raw logits, before penalties and temperature.
        let expected = redraft_decode::log_probs(&logits, step.id, 0).expect("a distribution");
        let difference = (found.chosen.log_prob - expected.chosen.log_prob).abs();
        assert!(difference < 0.02, "{found:?}, the oracle says {expected:?}");
        logits = oracle.step(step.id.0).expect("a valid token");
    }
    let options = GenerateOptions { log_probs: Some(0), ..greedy(3) };
    let (steps, _) = answer(&mut engine, &prompt, options).expect("an answer");
    for step in steps {
        let found = step.log_probs.expect("asked for");
        assert!(found.top.is_empty() && found.chosen.log_prob.is_finite(), "{found:?}");
    }
}

fn check_log_probs(found: &LogProbs, chosen: TokenId) {
    assert_eq!(found.chosen.token, chosen, "the chosen token");
    assert_eq!(found.top.len(), 7, "as many as asked for");
    let all = found.top.iter().chain([&found.chosen]);
    assert!(all.clone().all(|entry| entry.log_prob.is_finite() && entry.log_prob <= 0.0), "{found:?}");
    let sorted = found.top.windows(2).all(|pair| pair[0].log_prob >= pair[1].log_prob);
    assert!(sorted, "likeliest first: {found:?}");
    let total: f64 = found.top.iter().map(|entry| entry.log_prob.exp()).sum();
    assert!(total <= 1.0 + 1e-9, "{total} of {found:?}");
    let last = found.top.last().map_or(0.0, |entry| entry.log_prob);
    let among = found.top.contains(&found.chosen);
    assert_eq!(among, found.chosen.log_prob >= last, "the chosen is among the likeliest or below: {found:?}");
}
