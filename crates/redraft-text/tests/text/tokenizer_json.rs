//! `tokenizer.json`.

use crate::fixtures::{build, byte_level, letter};
use redraft_text::Special::{Parse, Plain};
use redraft_text::Tokenizer;
use serde_json::{Value, json};

fn added(id: u32, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": special})
}

/// The vocabulary of the fixture as transformers would write it.
fn byte_level_json() -> Value {
    let mut vocabulary = serde_json::Map::new();
    for byte in 0..=255u8 {
        vocabulary.insert(letter(byte).to_string(), json!(byte));
    }
    for (id, text) in (256..).zip(["he", "ll", "hell", "Ġw"]) {
        vocabulary.insert(text.to_owned(), json!(id));
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(260, "<think>", false), added(261, "<|im_start|>", true), added(262, "<|im_end|>", true)],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [["h", "e"], ["l", "l"], ["he", "ll"], "Ġ w"]}
    })
}

fn read(value: &Value) -> Result<Tokenizer, redraft_text::TokenizerError> {
    Tokenizer::from_json(value.to_string().as_bytes())
}

#[test]
fn it_gives_the_same_tokenizer_as_the_gguf_file() {
    let (json, gguf) = (read(&byte_level_json()).unwrap(), build(&byte_level()));
    assert_eq!(json.fingerprint(), gguf.fingerprint());
    assert_eq!((json.len(), json.bos(), json.eos_ids()), (263, Some(261), &[262][..]));
    assert!(json.add_bos() && !json.add_eos(), "from the post-processor");
    for text in ["hello w 12", "<|im_start|>he<think>", "日本 😀"] {
        for special in [Parse, Plain] {
            let ids = json.encode(text, special).unwrap();
            assert_eq!(ids, gguf.encode(text, special).unwrap(), "{text}");
            assert_eq!(json.decode(&ids).unwrap(), gguf.decode(&ids).unwrap(), "{text}");
        }
    }
}

#[test]
fn sentence_piece_spelling_is_read_from_the_decoder() {
    let file = json!({
        "added_tokens": [added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0xC3>": 3, "<0xA9>": 4, "▁": 5, "a": 6, "▁a": 7},
            "merges": ["▁ a"]}
    });
    let tokenizer = read(&file).unwrap();
    let ids = tokenizer.encode("a aé", Plain).unwrap();
    assert_eq!(ids, [7, 7, 3, 4]);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "a aé");
    assert_eq!(tokenizer.eos_ids(), [2]);
    assert_eq!(
        tokenizer.encode("日", Plain).unwrap(),
        [5, 0],
        "bytes that are missing become the unknown token"
    );
}

#[test]
fn hostile_files_are_refused_by_name() {
    // JSON pointer, new value, words of the message.
    let cases = [
        ("/model/type", json!("WordPiece"), "model.type"),
        ("/model/dropout", json!(0.5), "model.dropout"),
        ("/model/continuing_subword_prefix", json!("##"), "model.continuing_subword_prefix"),
        ("/model/end_of_word_suffix", json!("</w>"), "model.end_of_word_suffix"),
        ("/model/vocab", json!({}), "model.vocab"),
        ("/model/vocab", json!([["a", 0.0]]), "model.vocab"),
        ("/model/vocab/!", json!(-1), "model.vocab"),
        ("/model/vocab/!", json!("x"), "model.vocab"),
        ("/model/vocab/!", json!(4_294_967_295_u32), "model.vocab"),
        ("/model/vocab/!", json!(99_999_999_999_u64), "model.vocab"),
        ("/model/vocab/!", json!(34), "model.vocab"),
        ("/model/merges", json!(null), "model.merges"),
        ("/model/merges/0", json!(["h", "x"]), "model.merges"),
        ("/model/merges/0", json!(["hell", "hell"]), "hellhell"),
        ("/model/merges/0", json!(["h"]), "model.merges"),
        ("/model/merges/0", json!("h"), "model.merges"),
        ("/model/merges/0", json!(7), "index 0"),
        ("/model/unk_token", json!("<none>"), "model.unk_token"),
        ("/added_tokens/0/id", json!(3), "added_tokens"),
        ("/added_tokens/0/id", json!(4_000_000), "model.vocab"),
        ("/added_tokens/0/content", json!("<|im_end|>"), "added_tokens"),
        ("/added_tokens/0/content", json!("he"), "added_tokens"),
        ("/added_tokens/0", json!({"id": 1}), "tokenizer.json"),
        ("/decoder", json!(null), "decoder"),
        ("/decoder/type", json!("CTC"), "decoder"),
        ("/post_processor/type", json!("BertProcessing"), "post_processor"),
        ("/post_processor/single/0/SpecialToken/id", json!("<none>"), "post_processor"),
        (
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
            "tokenizer.json",
        ),
        ("/normalizer", json!({"type": "Nonsense"}), "tokenizer.json"),
        ("/model", json!(null), "tokenizer.json"),
    ];
    let mut wrong = Vec::new();
    for (pointer, value, words) in cases {
        let mut file = byte_level_json();
        *file.pointer_mut(pointer).unwrap() = value.clone();
        match read(&file) {
            Ok(_) => wrong.push(format!("{pointer} = {value}: accepted")),
            Err(error) if error.to_string().contains(words) => {}
            Err(error) => wrong.push(format!("{pointer} = {value}: expected {words:?} in: {error}")),
        }
    }
    for bytes in [&b""[..], b"{", b"[]", b"\xff\xfe", b"{\"model\":{}}"] {
        if let Ok(tokenizer) = Tokenizer::from_json(bytes) {
            wrong.push(format!("{bytes:?}: accepted with {} tokens", tokenizer.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
