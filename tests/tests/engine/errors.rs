//! What is refused, by which error, and that the engine goes on after it.

use pollster::block_on;
use redraft::{
    AdapterChoice, CaptureLayers, Engine, EngineOptions, Error, GenerateOptions, GpuError, Message,
    ModelError, Rows, SamplingParams, TokenId, Want,
};
use redraft_testing::TinyModel;
use redraft_tests::{Parts, answer, load, tiny, tokens};

fn options() -> GenerateOptions {
    GenerateOptions { max_tokens: 6, ignore_eos: true, ..GenerateOptions::default() }
}

fn sampling(change: impl FnOnce(&mut SamplingParams)) -> GenerateOptions {
    let mut options = options();
    change(&mut options.sampling);
    options
}

type Refused = (&'static str, Vec<TokenId>, GenerateOptions, fn(&Error) -> bool);

#[test]
fn bad_requests_are_typed_errors_and_change_nothing() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("engine.errors", &file, EngineOptions::default());
    let prompt = tokens(91, 40, 320);
    let (_, expected) = answer(&mut engine, &prompt, options()).expect("an answer");
    let held = engine.position();
    let sampled = |error: &Error| matches!(error, Error::Sampling(_));
    let cases: Vec<Refused> = vec![
        ("an empty prompt", vec![], options(), |e| matches!(e, Error::EmptyPrompt)),
        ("a strange token", vec![TokenId(1), TokenId(320)], options(), |e| {
            matches!(e, Error::Token { id: 320, vocab: 320 })
        }),
        ("a far token", vec![TokenId(u32::MAX)], options(), |e| {
            matches!(e, Error::Token { id: u32::MAX, vocab: 320 })
        }),
        ("a long prompt", tokens(1, 512, 320), options(), |e| {
            matches!(e, Error::PromptTooLong { tokens: 512, context: 512 })
        }),
        ("temperature", prompt.clone(), sampling(|s| s.temperature = -1.0), sampled),
        ("NaN", prompt.clone(), sampling(|s| s.temperature = f32::NAN), sampled),
        ("top_p", prompt.clone(), sampling(|s| s.top_p = 1.5), sampled),
        ("min_p", prompt.clone(), sampling(|s| s.min_p = -0.1), sampled),
        ("repetition", prompt.clone(), sampling(|s| s.repetition_penalty = 0.0), sampled),
        ("window", prompt.clone(), sampling(|s| s.penalty_window = 5000), sampled),
        ("bias", prompt.clone(), sampling(|s| s.logit_bias = vec![(TokenId(320), 1.0)]), sampled),
        ("twice", prompt.clone(), sampling(|s| s.logit_bias = vec![(TokenId(3), 1.0); 2]), sampled),
        (
            "an empty stop string",
            prompt.clone(),
            GenerateOptions { stop: vec!["a".to_owned(), String::new()], ..options() },
            |e| matches!(e, Error::Stop(_)),
        ),
    ];
    for (what, prompt, options, matches) in cases {
        let error = engine.generate(&prompt, options).map(|_| ()).expect_err(what);
        assert!(matches(&error), "{what}: {error:?}");
        assert!(error.to_string().len() > 20, "{what}: {error}");
        assert_eq!(engine.position(), held, "{what}: the sequence is untouched");
    }
    for (tokens, matches) in [
        (vec![], (|e| matches!(e, Error::EmptyPrompt)) as fn(&Error) -> bool),
        (vec![TokenId(400)], |e| matches!(e, Error::Token { id: 400, .. })),
        (tokens(1, 513, 320), |e| matches!(e, Error::PromptTooLong { .. })),
    ] {
        let error = block_on(engine.forward(&tokens, Want::default())).expect_err("refused");
        assert!(matches(&error), "{error:?}");
    }
    let error = block_on(engine.time_rows(65, 0)).expect_err("too many rows");
    assert!(matches!(error, Error::Model(ModelError::Batch { .. })), "{error:?}");
    block_on(engine.time_rows(0, 0)).expect_err("no rows");
    block_on(engine.time_rows(4, 511)).expect_err("past the context");
    let report = block_on(engine.check()).expect("a healthy device");
    assert!(report.passed(), "{report:?}");
    let (_, again) = answer(&mut engine, &prompt, options()).expect("an answer");
    assert_eq!(again.ids, expected.ids, "after all that");
}

#[test]
fn a_lost_device_is_an_error_and_a_new_engine_works() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("engine.lost", &file, EngineOptions::default());
    let prompt = tokens(92, 40, 320);
    let (_, expected) = answer(&mut engine, &prompt, options()).expect("an answer");
    let lost = |error: &Error| {
        matches!(
            error,
            Error::Gpu(GpuError::DeviceLost { .. })
                | Error::Model(ModelError::Gpu(GpuError::DeviceLost { .. }))
        )
    };
    let mut stream = engine.generate(&prompt, options()).expect("a stream");
    block_on(stream.next()).expect("a token").expect("a token");
    drop(stream);
    engine.model().gpu().destroy();
    for attempt in 0..2 {
        let error = answer(&mut engine, &prompt, options()).expect_err("the device is gone");
        assert!(lost(&error), "attempt {attempt}: {error:?}");
        assert!(error.to_string().contains("load the model again"), "attempt {attempt}: {error}");
    }
    let want = Want { logits: Rows::Last, captures: false };
    let error = block_on(engine.forward(&prompt[..3], want)).expect_err("the device is gone");
    assert!(lost(&error), "{error:?}");
    drop(engine);
    let mut engine = load("engine.lost", &file, EngineOptions::default());
    let (_, again) = answer(&mut engine, &prompt, options()).expect("an answer");
    assert_eq!(again.ids, expected.ids, "on a new device");
}

#[test]
fn bad_load_options_are_refused() {
    let file = tiny(&TinyModel::default());
    let refused = |what: &str, options: EngineOptions| {
        let error = block_on(Engine::load(&file, options, |_| {})).map(|_| ()).expect_err(what);
        assert!(error.to_string().len() > 20, "{what}: {error}");
        error
    };
    let default = EngineOptions::default;
    for context in [0, 513, u32::MAX] {
        let error = refused("context", EngineOptions { context: Some(context), ..default() });
        assert!(
            matches!(error, Error::Model(ModelError::Batch { what: "context", found, .. }) if found == u64::from(context)),
            "{context}: {error:?}"
        );
    }
    let engine = load("engine.load_options", &file, default());
    let needed = engine.memory().total();
    let error = refused("memory", EngineOptions { memory_limit: Some(needed - 1), ..default() });
    assert!(
        matches!(error, Error::Model(ModelError::Memory { needed: found, .. }) if found == needed),
        "{error:?}"
    );
    drop(engine);
    load("engine.load_options", &file, EngineOptions { memory_limit: Some(needed), ..default() });
    for layers in [vec![3], vec![1, 0], vec![1, 1]] {
        let captures = CaptureLayers::At(layers.clone());
        let error = refused("captures", EngineOptions { captures, ..default() });
        assert!(matches!(error, Error::Model(ModelError::Batch { .. })), "{layers:?}: {error:?}");
    }
    for adapter in [AdapterChoice::Index(999), AdapterChoice::Name("no such adapter".to_owned())] {
        let error = refused("adapter", EngineOptions { adapter, ..default() });
        assert!(matches!(error, Error::Gpu(GpuError::NoAdapter { .. })), "{error:?}");
    }
}

#[test]
fn models_without_a_template_refuse_messages_but_not_text() {
    let file = tiny(&TinyModel::default());
    let mut parts = Parts::of(&file);
    parts.metadata.retain(|(key, _)| key != "tokenizer.chat_template");
    let mut engine = load("engine.no_template", &parts.to_bytes(), EngineOptions::default());
    assert!(engine.template().is_none(), "a base model");
    let error = engine.encode_chat(&[Message::user("Hi")]).expect_err("no template");
    assert!(matches!(error, Error::NoTemplate), "{error:?}");
    let prompt = engine.encode("the tin is").expect("text");
    let (_, found) = answer(&mut engine, &prompt, options()).expect("an answer");
    assert_eq!(found.ids.len(), 6, "plain text works");
}

#[test]
fn weights_that_are_not_numbers_are_an_error_not_an_empty_answer() {
    let model = TinyModel::default();
    let mut tensors = model.tensors();
    for tensor in &mut tensors {
        if tensor.name == "output_norm.weight" {
            // Overflows to infinity; the writer itself refuses what is not finite.
            tensor.values.fill(f32::MAX);
        }
    }
    let file = model.write(&tensors).expect("a possible shape");
    let mut engine = load("engine.not_finite", &file, EngineOptions::default());
    for temperature in [0.0, 1.0] {
        let error = answer(&mut engine, &tokens(92, 5, 320), sampling(|s| s.temperature = temperature));
        let error = error.expect_err("no number, no answer");
        assert!(
            matches!(error, Error::Model(ModelError::NotFinite { .. })),
            "temperature {temperature}: {error}"
        );
    }
}
