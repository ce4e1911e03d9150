//! A tokenizer that comes as a `tokenizer.json` beside the model file.

use pollster::block_on;
use redraft::{Engine, EngineOptions, Error, GenerateOptions, Message, Value};
use redraft_testing::TinyModel;
use redraft_tests::{Parts, answer, load, tiny};

fn with(json: impl Into<Vec<u8>>) -> EngineOptions {
    EngineOptions { tokenizer: Some(json.into()), skip_first_steps: true, ..EngineOptions::default() }
}

#[test]
fn the_same_tokenizer_as_json_gives_the_same_answers() {
    let model = TinyModel::default();
    let file = tiny(&model);
    // The same model without any tokenizer, but with its template.
    let mut parts = Parts::of(&file);
    parts.metadata.retain(|(key, _)| !key.starts_with("tokenizer.ggml."));
    let bare = parts.to_bytes();
    let plain = EngineOptions { skip_first_steps: true, ..EngineOptions::default() };
    let mut own = load("engine.tokenizer_json", &file, plain);
    let mut given = load("engine.tokenizer_json", &bare, with(model.tokenizer_json()));
    assert_eq!(given.tokenizer().eos_ids(), own.tokenizer().eos_ids(), "what ends an answer");
    let text = "The year 1984, <|im_end|> in 日本 😀";
    assert_eq!(given.encode(text).expect("ids"), own.encode(text).expect("ids"), "a plain text");
    let messages = [Message::user("How are you in the morning?")];
    let prompt = given.encode_chat(&messages).expect("ids");
    assert_eq!(prompt, own.encode_chat(&messages).expect("ids"), "a conversation");
    let options = || GenerateOptions { max_tokens: 12, ..GenerateOptions::default() };
    let (_, expected) = answer(&mut own, &prompt, options()).expect("an answer");
    let (_, found) = answer(&mut given, &prompt, options()).expect("an answer");
    assert_eq!((found.text, found.ids), (expected.text, expected.ids), "the answer");
}

#[test]
fn a_tokenizer_that_cannot_be_used_is_refused_before_a_device_is_opened() {
    let model = TinyModel::default();
    let file = tiny(&model);
    let larger = TinyModel { vocab: 400, ..model.clone() }.tokenizer_json();
    let refused =
        |options| block_on(Engine::load(&file, options, |_| {})).map(|_| ()).expect_err("a bad tokenizer");
    let error = refused(with(larger));
    assert!(matches!(error, Error::Vocabulary { tokenizer: 400, model: 320 }), "{error}");
    for bad in [&b""[..], b"{}", b"\xff\xfe", b"[1, 2"] {
        let error = refused(with(bad));
        assert!(matches!(error, Error::Tokenizer(_)), "{error}");
    }
    // Without the file the model's own is needed.
    let mut parts = Parts::of(&file);
    parts.set("tokenizer.ggml.model", Value::String("unknown".to_owned()));
    let error = block_on(Engine::load(&parts.to_bytes(), EngineOptions::default(), |_| {}));
    assert!(matches!(error.map(|_| ()), Err(Error::Tokenizer(_))), "an unknown tokenizer");
}
