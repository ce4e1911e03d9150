//! The real model against the recorded float32 reference: texts and ids exactly, logits within what rounding costs,
//! greedy answers wherever the reference is clear. Skipped, and said so, where the model or the reference is missing.

use pollster::block_on;
use redraft::{
    DrafterFile, Engine, EngineOptions, FileSource, GenerateOptions, Generation, KvType, Message,
    OracleEntry, Plan, Precision, RenderOptions, Rows, SamplingParams, Speculation, StopReason, TokenId,
    Want,
};
use redraft_testing::{model_path, reference::argmax, shared_data};
use redraft_tests::{answer, gap, ids, load, load_in_f16};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    messages: Vec<Message>,
    text: String,
    prompt_ids: Vec<u32>,
    first_step_top5: Top,
    greedy_ids: Vec<u32>,
    margins: Vec<f32>,
}

#[derive(Deserialize)]
struct Top {
    ids: Vec<u32>,
    logits: Vec<f32>,
}

/// What arithmetic may cost, in logits.
struct Allowed {
    logit: f32,
    margin: f32,
    /// Below this distance of the two best logits rounding may choose the other one.
    clear: f32,
}

/// Sums in another order, and margins that are written with four digits; measured: 3.5e-5 and 1.1e-4.
const F32: Allowed = Allowed { logit: 1e-3, margin: 1e-3, clear: 0.05 };
/// Keys and values rounded to f16; measured in PyTorch over all logits: 0.034 and 0.013, here: 0.007 and 0.013.
const F16: Allowed = Allowed { logit: 0.06, margin: 0.03, clear: 0.05 };
/// Products in f16, keys and values in f32. What f16 can cost at most, 121 products each with 2.1 u² of its mean square, is
/// a standard deviation of about 0.05 in logits of about 4, u = 2^-11; measured: 0.026 at most in a logit and 0.044 in a
/// margin, the difference of two.
const HALF: Allowed = Allowed { logit: 0.06, margin: 0.09, clear: 0.1 };

fn open(name: &str, options: EngineOptions) -> Option<(Engine, Vec<Prompt>)> {
    let path = model_path(name)?;
    let reference = shared_data(env!("CARGO_MANIFEST_DIR"), "reference/smollm2_reference.json", name)?;
    let json = std::fs::read(reference).expect("readable");
    let reference: Reference = serde_json::from_slice(&json).expect("the reference's shape");
    assert_eq!(reference.prompts.len(), 5, "prompts");
    let file = FileSource::open(path).expect("readable");
    // The longest prompt has 68 tokens, an answer 48.
    let options = EngineOptions { context: Some(192), ..options };
    let engine = match options.precision {
        Precision::F32 => load(name, &file, options),
        Precision::F16 => load_in_f16(name, &file, options)?,
    };
    Some((engine, reference.prompts))
}

fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// The logits of every step of the reference's answer, all rows at once.
fn teacher_forced(engine: &mut Engine, prompt: &Prompt, allowed: &Allowed) {
    let vocab = engine.config().vocab as usize;
    let input = tokens(&[&prompt.prompt_ids[..], &prompt.greedy_ids].concat());
    let (before, answer) = input[..input.len() - 1].split_at(prompt.prompt_ids.len() - 1);
    engine.reset();
    let mut forward = |tokens: &[TokenId], logits: Rows| {
        block_on(engine.forward(tokens, Want { logits, captures: false })).expect("a valid batch").logits
    };
    forward(before, Rows::None);
    let logits = forward(answer, Rows::All);
    let rows: Vec<&[f32]> = logits.chunks(vocab).collect();
    let question = &prompt.messages.last().expect("a question").content;
    assert_eq!(rows.len(), prompt.greedy_ids.len(), "{question}");
    let (mut worst, mut worst_margin) = (0.0f32, 0.0f32);
    for (id, expected) in prompt.first_step_top5.ids.iter().zip(&prompt.first_step_top5.logits) {
        worst = worst.max((rows[0][*id as usize] - expected).abs());
    }
    for (step, ((row, id), margin)) in rows.iter().zip(&prompt.greedy_ids).zip(&prompt.margins).enumerate() {
        if *margin >= allowed.clear {
            assert_eq!(argmax(row), *id, "{question}: step {step} of margin {margin}");
        }
        // A margin within what rounding moves it may change its sign; the gap is never below 0.
        let moved = if argmax(row) == *id { gap(row) - margin } else { gap(row) + margin };
        worst_margin = worst_margin.max(moved.abs());
    }
    eprintln!("{question:.30?}: logits differ by at most {worst}, margins by {worst_margin}");
    assert!(worst <= allowed.logit, "{question}: the first step's logits differ by {worst}");
    assert!(worst_margin <= allowed.margin, "{question}: margins differ by {worst_margin}");
}

/// Decoding gives the reference's ids up to the first step that is not clear; at least `least` of them.
fn greedy(engine: &mut Engine, prompt: &Prompt, allowed: &Allowed, least: usize) {
    engine.reset();
    let clear = prompt.margins.iter().take_while(|margin| **margin >= allowed.clear).count();
    assert!(clear >= least, "{clear} clear steps");
    let max_tokens = u32::try_from(clear).expect("few");
    let options = GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() };
    let (_, generation) = answer(engine, &tokens(&prompt.prompt_ids), options).expect("an answer");
    assert_eq!(ids(&generation.ids), prompt.greedy_ids[..clear], "{}", prompt.text);
}

#[test]
fn answers_in_f32_are_the_references() {
    let options = EngineOptions { kv: KvType::F32, ..EngineOptions::default() };
    let Some((mut engine, prompts)) = open("smollm2.f32", options) else { return };
    for prompt in &prompts {
        let template = engine.template().expect("a template");
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        assert_eq!(template.render(&prompt.messages, options).expect("rendered"), prompt.text, "the text");
        let found = engine.encode_chat(&prompt.messages).expect("encoded");
        assert_eq!(ids(&found), prompt.prompt_ids, "the ids of {:?}", prompt.text);
        teacher_forced(&mut engine, prompt, &F32);
    }
    for (prompt, least) in prompts.iter().zip([48, 48, 18, 14, 9]) {
        greedy(&mut engine, prompt, &F32, least);
    }
}

#[test]
fn answers_in_f16_are_within_rounding_and_rows_are_exact() {
    let Some((mut engine, prompts)) = open("smollm2.f16", EngineOptions::default()) else { return };
    for prompt in &prompts {
        teacher_forced(&mut engine, prompt, &F16);
    }
    greedy(&mut engine, &prompts[0], &F16, 48);
    let answer = engine.tokenizer().decode(&prompts[0].greedy_ids[..8]).expect("known ids");
    assert_eq!(answer, "The capital of France is Paris.", "the first answer, up to its end");
    let report = block_on(engine.check()).expect("a healthy device");
    assert!(report.passed(), "{report:#?}");
}

fn half(strict: bool) -> EngineOptions {
    EngineOptions { precision: Precision::F16, strict, ..EngineOptions::default() }
}

/// Products in f16. Prints how many of the reference's ids decoding gives before it goes another way, and how many come
/// before the first near-tie of the reference.
#[test]
fn answers_with_products_in_f16_are_within_rounding() {
    let options = EngineOptions { kv: KvType::F32, ..half(false) };
    let Some((mut engine, prompts)) = open("smollm2.half", options) else { return };
    for prompt in &prompts {
        teacher_forced(&mut engine, prompt, &HALF);
    }
    for prompt in &prompts[..3] {
        engine.reset();
        let options = GenerateOptions { max_tokens: 48, ignore_eos: true, ..GenerateOptions::default() };
        let (_, generation) = answer(&mut engine, &tokens(&prompt.prompt_ids), options).expect("an answer");
        let clear = prompt.margins.iter().take_while(|margin| **margin >= HALF.clear).count();
        let pairs = generation.ids.iter().zip(&prompt.greedy_ids);
        let same = pairs.take_while(|(found, expected)| found.0 == **expected).count();
        eprintln!("{same} of 48 ids are the reference's, {clear} before its first near-tie");
        assert!(same >= clear, "{}: only {same} ids of {clear}", prompt.text);
    }
}

#[test]
fn answers_are_the_same_with_speculation_and_products_in_f16() {
    let plans = [Plan::chain(3), Plan { lookup: true, ..Plan::reconsider(15, 4, 2, 2, 2, 2) }];
    speculation_changes_nothing("smollm2.speculation.half", half(false), &plans);
}

#[test]
fn the_strict_tier_is_within_rounding() {
    let options = EngineOptions { strict: true, ..EngineOptions::default() };
    let Some((mut engine, prompts)) = open("smollm2.strict", options) else { return };
    teacher_forced(&mut engine, &prompts[3], &F16);
}

/// Greedy, at two temperatures, and with penalties, a cut and a stop string: what is asked of each prompt in turn.
fn cases(max_tokens: u32) -> [GenerateOptions; 4] {
    let options = GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() };
    let base = SamplingParams { seed: 5, ..SamplingParams::default() };
    let everything = SamplingParams {
        temperature: 0.9,
        top_p: 0.9,
        repetition_penalty: 1.2,
        presence_penalty: 0.3,
        ..base.clone()
    };
    let at = |temperature| SamplingParams { temperature, ..base.clone() };
    [at(0.0), at(0.7), at(1.0), everything].map(|sampling| GenerateOptions { sampling, ..options.clone() })
}

/// Of the cases every one, or the first and the last where products are in f16, which a CPU adapter is slow at.
fn stride(options: &EngineOptions) -> usize {
    if options.precision == Precision::F16 { 3 } else { 1 }
}

/// The plain answer to a case, and what was foretold of it. The last case gets a stop string from the middle of its own
/// answer, which goes on beyond it.
fn plainly(
    engine: &mut Engine,
    input: &[TokenId],
    options: &mut GenerateOptions,
) -> (Generation, Vec<TokenId>) {
    let (steps, plain) = answer(engine, input, options.clone()).expect("an answer");
    let beyond = plain.ids.clone();
    if options.sampling.top_p == 1.0 {
        return (plain, beyond);
    }
    let middle = steps.iter().skip(steps.len() / 2).take(3);
    options.stop = vec![middle.map(|step| step.text.as_str()).collect()];
    let (_, stopped) = answer(engine, input, options.clone()).expect("an answer");
    assert_eq!(stopped.stop_reason, StopReason::StopString, "{:?} in {:?}", options.stop, plain.text);
    assert!(stopped.ids.len() < beyond.len(), "it ends early");
    (stopped, beyond)
}

/// Answers with speculation are those without, whoever proposes.
fn speculation_changes_nothing(name: &str, options: EngineOptions, plans: &[Plan]) {
    let stride = stride(&options);
    let Some((mut engine, prompts)) = open(name, EngineOptions { oracle: true, ..options }) else { return };
    for (prompt, mut options) in prompts.iter().zip(cases(24)).step_by(stride) {
        let input = tokens(&prompt.prompt_ids);
        let (plain, beyond) = plainly(&mut engine, &input, &mut options);
        // Every third token is foretold wrongly.
        let entries: Vec<_> = beyond
            .iter()
            .enumerate()
            .map(|(at, id)| {
                let token = TokenId(if at % 3 == 2 { 5 } else { id.0 });
                OracleEntry {
                    first: vec![(token, -0.5), (TokenId(7), -2.0)],
                    second: vec![(*id, -1.0)],
                    unsure: 0.6,
                }
            })
            .collect();
        engine.foretell(u32::try_from(input.len()).expect("short"), &entries).expect("fits");
        for plan in plans {
            let fast = with_plan(&mut engine, &input, &options, *plan, &plain);
            let stats = fast.speculation.expect("speculation was on");
            // An answer that ends in the middle is half as long.
            assert!(!plan.drafter || stats.accepted > 3, "{plan:?}: {stats:?}");
        }
    }
}

/// The answer with a plan, which is the plain one.
fn with_plan(
    engine: &mut Engine,
    input: &[TokenId],
    options: &GenerateOptions,
    plan: Plan,
    plain: &Generation,
) -> Generation {
    let speculation = Speculation::Plan(plan);
    let (_, fast) =
        answer(engine, input, GenerateOptions { speculation, ..options.clone() }).expect("an answer");
    let what = format!("{plan:?}, {:?}", options.sampling);
    assert_eq!(fast.ids, plain.ids, "{what}");
    assert_eq!((&fast.text, fast.stop_reason), (&plain.text, plain.stop_reason), "{what}");
    fast
}

#[test]
fn answers_are_the_same_with_speculation() {
    let reconsider = Plan::reconsider(15, 4, 2, 2, 2, 2);
    let plans = [Plan::chain(1), Plan::chain(3), Plan { lookup: true, ..reconsider }, Plan::lookup(4)];
    speculation_changes_nothing("smollm2.speculation", EngineOptions::default(), &plans);
}

#[test]
fn answers_are_the_same_with_speculation_strictly() {
    let options = EngineOptions { strict: true, ..EngineOptions::default() };
    speculation_changes_nothing("smollm2.speculation.strict", options, &[Plan::chain(3)]);
}

/// The drafter that comes with the project: it is for this model, much of what it drafts is accepted, and answers stay as
/// they are.
#[test]
fn the_shipped_drafter_is_accepted_and_changes_nothing() {
    shipped_drafter("smollm2.drafter", EngineOptions::default());
}

#[test]
fn the_shipped_drafter_is_accepted_by_a_target_in_f16() {
    shipped_drafter("smollm2.drafter.half", half(false));
}

fn shipped_drafter(name: &str, options: EngineOptions) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/smollm2-135m-drafter/drafter.safetensors");
    let drafter = DrafterFile::read(&std::fs::read(path).expect("it is in the checkout")).expect("a drafter");
    let options = EngineOptions { drafter: Some(drafter), ..options };
    let stride = stride(&options);
    let Some((mut engine, prompts)) = open(name, options) else { return };
    assert!(engine.warnings().is_empty(), "{:?}", engine.warnings());
    let (mut accepted, mut rounds) = (0, 0);
    for (prompt, mut options) in prompts.iter().zip(cases(24)).step_by(stride) {
        let input = tokens(&prompt.prompt_ids);
        let (plain, _) = plainly(&mut engine, &input, &mut options);
        for plan in [Plan::chain(2), Plan::reconsider(7, 3, 2, 3, 2, 2)] {
            let stats = with_plan(&mut engine, &input, &options, plan, &plain).speculation;
            let stats = stats.expect("speculation was on");
            accepted += stats.accepted;
            rounds += stats.rounds;
        }
    }
    // Held-out text gives about 0.6 accepted a round with a chain of two.
    assert!(accepted * 5 > rounds, "{accepted} accepted in {rounds} rounds");
}
