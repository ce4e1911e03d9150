//! Vocabularies that lie: each is a typed error that names the key.

use crate::fixtures::{byte_level, letter, sentence, strings};
use redraft_gguf::{Array, Metadata, Value};
use redraft_text::{Tokenizer, TokenizerError};

fn kind(error: &TokenizerError) -> &'static str {
    match error {
        TokenizerError::Metadata(_) => "Metadata",
        TokenizerError::Missing { .. } => "Missing",
        TokenizerError::Unsupported { .. } => "Unsupported",
        TokenizerError::Length { .. } => "Length",
        TokenizerError::TooMany { .. } => "TooMany",
        TokenizerError::Duplicate { .. } => "Duplicate",
        TokenizerError::Entry { .. } => "Entry",
        TokenizerError::SpecialOutOfRange { .. } => "SpecialOutOfRange",
        TokenizerError::Unencodable { .. } => "Unencodable",
        TokenizerError::TextTooLong { .. } => "TextTooLong",
        TokenizerError::Json { .. } => "Json",
        TokenizerError::Component { .. } => "Component",
        _ => "another",
    }
}

/// A copy of the metadata without one key.
fn without(metadata: &Metadata, key: &str) -> Metadata {
    let mut copy = Metadata::new();
    for (name, value) in metadata.iter().filter(|(name, _)| *name != key) {
        copy.insert(name, value.clone());
    }
    copy
}

#[test]
fn hostile_vocabularies_are_refused_by_name() {
    let text = |text: &str| Value::String(text.into());
    let floats = |values: &[f32]| Value::Array(Array::F32(values.to_vec()));
    let ints = |values: &[i32]| Value::Array(Array::I32(values.to_vec()));
    let letters = |extra: &[&str]| {
        strings(
            (0..=255).map(|byte| letter(byte).to_string()).chain(extra.iter().map(|text| (*text).to_owned())),
        )
    };
    let mut nan = vec![0.0; 267];
    nan[7] = f32::NAN;
    let mut kinds = vec![1; 263];
    kinds[9] = 77;
    let (bpe, spm) = (byte_level(), sentence());
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    // Base vocabulary, key, new value (none: removed), kind of the error, words of the message.
    let cases: Vec<(&Metadata, &str, Option<Value>, &str, &str)> = vec![
        (&bpe, "model", None, "Missing", "model"),
        (&bpe, "model", Some(Value::U8(1)), "Metadata", "tokenizer.ggml.model"),
        (&bpe, "model", Some(text("bert")), "Unsupported", "gpt2, llama"),
        (&bpe, "model", Some(text("")), "Unsupported", "\"\""),
        (&bpe, "pre", None, "Missing", "pre"),
        (&bpe, "pre", Some(Value::F32(1.0)), "Metadata", "tokenizer.ggml.pre"),
        (&bpe, "pre", Some(text("default")), "Unsupported", "gpt-2, smollm, llama-bpe, qwen2"),
        (&bpe, "pre", Some(text("tekken")), "Unsupported", "tekken"),
        (&bpe, "tokens", None, "Missing", "tokens"),
        (&bpe, "tokens", Some(strings([""; 0])), "Missing", "tokens"),
        (&bpe, "tokens", Some(ints(&[1])), "Metadata", "tokenizer.ggml.tokens"),
        (&bpe, "tokens", Some(text("a")), "Metadata", "tokenizer.ggml.tokens"),
        (&bpe, "tokens", Some(strings(["a"])), "Length", "token_type"),
        (&bpe, "tokens", Some(letters(&["he", "ll", "hell", "Ġw", "he", "b1", "b2"])), "Duplicate", "256"),
        (&bpe, "tokens", Some(letters(&["", "", "hell", "Ġw", "he", "b1", "b2"])), "Duplicate", "256"),
        (&bpe, "token_type", Some(ints(&[1, 2])), "Length", "expected 263 entries"),
        (&bpe, "token_type", Some(ints(&kinds)), "Entry", "index 9"),
        (&bpe, "token_type", Some(floats(&[1.0])), "Metadata", "tokenizer.ggml.token_type"),
        (&bpe, "merges", None, "Missing", "merges"),
        (&bpe, "merges", Some(Value::U8(3)), "Metadata", "tokenizer.ggml.merges"),
        (&bpe, "merges", Some(strings(["h e", "he x"])), "Entry", "index 1"),
        (&bpe, "merges", Some(strings(["zz z"])), "Entry", "\"zz\""),
        (&bpe, "merges", Some(strings(["h e", "l o"])), "Entry", "\"lo\""),
        (&bpe, "merges", Some(strings(["hell hell"])), "Entry", "\"hellhell\""),
        (&bpe, "merges", Some(strings(["h"])), "Entry", "two tokens"),
        (&bpe, "merges", Some(strings([""])), "Entry", "two tokens"),
        (&bpe, "merges", Some(strings([" e"])), "Entry", "two tokens"),
        (&bpe, "merges", Some(strings(["h e l"])), "Entry", "two tokens"),
        (&bpe, "merges", Some(strings(["h e", "<|im_start|> h"])), "Entry", "index 1"),
        (&bpe, "bos_token_id", Some(Value::U32(263)), "SpecialOutOfRange", "bos_token_id"),
        (&bpe, "eos_token_id", Some(Value::U32(u32::MAX)), "SpecialOutOfRange", "eos_token_id"),
        (&bpe, "eot_token_id", Some(Value::U32(1000)), "SpecialOutOfRange", "eot_token_id"),
        (&bpe, "eos_token_id", Some(Value::I32(-1)), "Metadata", "eos_token_id"),
        (&bpe, "eos_token_id", Some(text("2")), "Metadata", "eos_token_id"),
        (&bpe, "add_bos_token", Some(Value::U32(1)), "Metadata", "add_bos_token"),
        (&spm, "scores", None, "Missing", "scores"),
        (&spm, "scores", Some(floats(&[0.0; 3])), "Length", "scores"),
        (&spm, "scores", Some(floats(&[0.0; 999])), "Length", "999"),
        (&spm, "scores", Some(floats(&nan)), "Entry", "index 7"),
        (&spm, "scores", Some(ints(&[0; 267])), "Metadata", "scores"),
        (&spm, "add_space_prefix", Some(text("no")), "Metadata", "add_space_prefix"),
        (&spm, "unknown_token_id", Some(Value::U32(267)), "SpecialOutOfRange", "unknown_token_id"),
    ];
    assert!(cases.len() >= 20, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for (base, name, value, expected, words) in cases {
        let mut metadata = without(base, &key(name));
        let shown = value.as_ref().map_or("removed", Value::type_name);
        if let Some(value) = value {
            metadata.insert(key(name), value);
        }
        match Tokenizer::from_gguf(&metadata) {
            Ok(_) => wrong.push(format!("{name} ({shown}): accepted")),
            Err(error) => {
                let message = error.to_string();
                if kind(&error) != expected
                    || !message.contains(words)
                    || !message.contains("tokenizer.ggml.")
                {
                    wrong.push(format!(
                        "{name} ({shown}): expected {expected} with {words:?}, found {message}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn texts_beyond_the_vocabulary_or_the_limit_are_refused() {
    use redraft_text::Special::Plain;
    let mut small = byte_level();
    small.insert("tokenizer.ggml.tokens", strings(["h", "e", "he"]));
    small.insert("tokenizer.ggml.merges", strings(["h e"]));
    let mut small = without(&small, "tokenizer.ggml.token_type");
    small.insert("tokenizer.ggml.bos_token_id", Value::U32(0));
    small.insert("tokenizer.ggml.eos_token_id", Value::U32(1));
    let tokenizer = Tokenizer::from_gguf(&small).unwrap();
    assert_eq!(tokenizer.encode("hehe", Plain).unwrap(), [2, 2]);
    for text in ["x", "hex", "xhe", "he x"] {
        let error = tokenizer.encode(text, Plain).unwrap_err();
        assert_eq!(kind(&error), "Unencodable", "{text}: letters must not vanish");
        assert!(error.to_string().contains('x'), "{error}");
    }
    let error = tokenizer.encode(&"h".repeat((8 << 20) + 1), Plain).unwrap_err();
    assert_eq!(kind(&error), "TextTooLong");
}

#[test]
fn monotonous_texts_take_no_quadratic_time() {
    use redraft_text::Special::Parse;
    for metadata in [byte_level(), sentence()] {
        for pre in ["smollm", "llama-bpe", "qwen2", "gpt-2"] {
            let mut metadata = metadata.clone();
            metadata.insert("tokenizer.ggml.pre", Value::String(pre.into()));
            let tokenizer = Tokenizer::from_gguf(&metadata).unwrap();
            for unit in ["a", " ", "\n", "1", "<|im_end|>", "<", "\u{e9}", " a", "'s"] {
                let text = unit.repeat(100_000);
                let start = std::time::Instant::now();
                let ids = tokenizer.encode(&text, Parse).unwrap();
                let seconds = start.elapsed().as_secs_f64();
                assert!(seconds < 5.0, "{pre} {unit:?}: {seconds} s");
                assert_eq!(tokenizer.decode_with_specials(&ids).unwrap(), text, "{pre} {unit:?}");
            }
        }
    }
}
