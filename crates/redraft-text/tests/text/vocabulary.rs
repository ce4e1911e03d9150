//! Small vocabularies whose ids are known by hand.

use crate::fixtures::{build, byte_level, sentence, strings};
use redraft_gguf::Value;
use redraft_text::Special::{Parse, Plain};

#[test]
fn merges_are_applied_in_order() {
    let tokenizer = build(&byte_level());
    assert_eq!(tokenizer.encode("hello w", Plain).unwrap(), [258, u32::from(b'o'), 259]);
    assert_eq!(tokenizer.encode("", Parse).unwrap(), [0u32; 0]);
}

#[test]
fn special_tokens_are_parsed_on_request_and_user_defined_ones_always() {
    let tokenizer = build(&byte_level());
    let text = "<|im_start|>he<think><|im_end|>";
    assert_eq!(tokenizer.encode(text, Parse).unwrap(), [261, 256, 260, 262]);
    let plain = tokenizer.encode(text, Plain).unwrap();
    assert!(!plain.contains(&261) && !plain.contains(&262) && plain.contains(&260), "{plain:?}");
    assert_eq!(tokenizer.decode(&plain).unwrap(), text);
    assert_eq!(tokenizer.decode(&[261, 256, 260, 262]).unwrap(), "he<think>", "control tokens are hidden");
}

#[test]
fn a_word_that_spells_a_control_token_is_not_one() {
    // Llama 3 takes whole words from the vocabulary; a control token that looks like a word must not be found.
    let mut metadata = byte_level();
    let mut tokens: Vec<String> = (0..=255).map(|byte| crate::fixtures::letter(byte).to_string()).collect();
    tokens.extend(
        ["he", "ll", "hell", "Ġw", "x", "stop"].map(|text| if text == "x" { "<x>" } else { text }.to_owned()),
    );
    tokens.push("hellstop".into());
    metadata.insert("tokenizer.ggml.tokens", strings(tokens));
    metadata.insert("tokenizer.ggml.pre", Value::String("llama-bpe".into()));
    let tokenizer = build(&metadata);
    let ids = tokenizer.encode("stop hellstop", Plain).unwrap();
    assert!(!ids.contains(&261) && !ids.contains(&262), "{ids:?}");
    assert_eq!(tokenizer.encode("stop", Parse).unwrap(), [261]);
}

#[test]
fn prompts_get_the_markers_that_the_model_wants_and_never_twice() {
    let mut metadata = byte_level();
    assert_eq!(build(&metadata).encode_prompt("he", Parse).unwrap(), [256], "none by default");
    metadata.insert("tokenizer.ggml.add_bos_token", Value::Bool(true));
    metadata.insert("tokenizer.ggml.add_eos_token", Value::Bool(true));
    let tokenizer = build(&metadata);
    assert_eq!(tokenizer.encode_prompt("he", Parse).unwrap(), [261, 256, 262]);
    assert_eq!(tokenizer.encode_prompt("<|im_start|>he<|im_end|>", Parse).unwrap(), [261, 256, 262]);
    assert_eq!(
        build(&sentence()).encode_prompt("a", Parse).unwrap(),
        [1, 263],
        "SentencePiece models begin so"
    );
}

#[test]
fn sentence_pieces_prefix_and_fall_back_to_bytes() {
    let tokenizer = build(&sentence());
    let id = |text| tokenizer.id_of(text).unwrap();
    assert_eq!(tokenizer.encode("ab a", Plain).unwrap(), [id("▁ab"), id("▁a")], "ab first, then ▁ab");
    assert_eq!(tokenizer.encode("é日", Plain).unwrap(), [id("▁"), id("é"), 3 + 0xe6, 3 + 0x97, 3 + 0xa5]);
    assert_eq!(
        tokenizer.encode("</s>a", Parse).unwrap(),
        [2, id("▁a")],
        "text after a special token is prefixed"
    );
    let mut bare = sentence();
    bare.insert("tokenizer.ggml.add_space_prefix", Value::Bool(false));
    let bare = build(&bare);
    assert_eq!(bare.encode("ab", Plain).unwrap(), [id("ab")]);
    assert_eq!(bare.decode(&[id("▁a")]).unwrap(), " a", "without the prefix nothing is removed");
}

#[test]
fn ends_are_found_by_key_and_by_name() {
    assert_eq!(build(&byte_level()).eos_ids(), [262], "named and keyed, once");
    let mut metadata = byte_level();
    metadata.insert("tokenizer.ggml.eos_token_id", Value::U32(5));
    metadata.insert("tokenizer.ggml.eot_token_id", Value::U32(6));
    assert_eq!(build(&metadata).eos_ids(), [5, 6, 262]);
    let spm = build(&sentence());
    assert_eq!((spm.bos(), spm.eos_ids()), (Some(1), &[2][..]), "the fixed ids of SentencePiece");
}

#[test]
fn fingerprints_tell_vocabularies_apart() {
    let (one, other) = (build(&byte_level()), build(&sentence()));
    assert_eq!(one.fingerprint(), build(&byte_level()).fingerprint());
    assert_ne!(one.fingerprint(), other.fingerprint());
    let mut changed = byte_level();
    changed.insert("tokenizer.ggml.pre", Value::String("gpt-2".into()));
    assert_eq!(one.fingerprint(), build(&changed).fingerprint(), "only the tokens count");
}

#[test]
fn every_token_is_found_by_its_text() {
    for metadata in [byte_level(), sentence()] {
        let tokenizer = build(&metadata);
        for id in 0..u32::try_from(tokenizer.len()).unwrap() {
            assert_eq!(tokenizer.id_of(tokenizer.token_text(id).unwrap()), Some(id));
        }
        assert_eq!(tokenizer.id_of("no such token"), None);
    }
}
