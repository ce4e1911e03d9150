//! Streams against whole decoding.

use crate::fixtures::{build, byte_level, sentence};
use proptest::prelude::*;
use redraft_text::{Detokenizer, Tokenizer};

fn stream(mut stream: Detokenizer, ids: &[u32]) -> String {
    let mut text: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    text.push_str(&stream.finish());
    text
}

/// All bytes at once, with the encoder's leading space removed.
fn whole(tokenizer: &Tokenizer, ids: &[u32], specials: bool, strip: bool) -> String {
    let shown = ids.iter().filter(|&&id| specials || !tokenizer.is_special(id));
    let bytes: Vec<u8> = shown.flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
    let bytes = if strip { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
    String::from_utf8_lossy(bytes).into_owned()
}

proptest! {
    #[test]
    fn streams_of_any_ids_equal_the_whole(ids in prop::collection::vec(0u32..263, 0..60)) {
        for (tokenizer, strip) in [(build(&byte_level()), false), (build(&sentence()), true)] {
            let decoded = tokenizer.decode(&ids).unwrap();
            prop_assert_eq!(&stream(Detokenizer::new(&tokenizer), &ids), &decoded);
            prop_assert_eq!(&decoded, &whole(&tokenizer, &ids, false, strip));
            let shown = tokenizer.decode_with_specials(&ids).unwrap();
            prop_assert_eq!(&stream(Detokenizer::new(&tokenizer).with_specials(), &ids), &shown);
            prop_assert_eq!(&shown, &whole(&tokenizer, &ids, true, strip));
            let continued = stream(Detokenizer::new(&tokenizer).continuing(), &ids);
            prop_assert_eq!(&continued, &whole(&tokenizer, &ids, false, false));
        }
    }

    #[test]
    fn texts_come_back_from_both_kinds_of_vocabulary(text in "\\PC{0,30}|[ ab\u{e9}\n\u{65e5}\u{1f600}<>]{0,30}") {
        for tokenizer in [build(&byte_level()), build(&sentence())] {
            // The mark of SentencePiece is read as a space; no encoder keeps it.
            prop_assume!(!text.contains('▁'));
            for special in [redraft_text::Special::Plain, redraft_text::Special::Parse] {
                let ids = tokenizer.encode(&text, special).unwrap();
                prop_assert_eq!(tokenizer.decode_with_specials(&ids).unwrap(), text.as_str());
            }
        }
    }
}

#[test]
fn characters_are_never_halved() {
    let tokenizer = build(&byte_level());
    let mut stream = Detokenizer::new(&tokenizer);
    let pushes: Vec<String> = "😀é".bytes().map(|byte| stream.push(u32::from(byte)).unwrap()).collect();
    assert_eq!(pushes, ["", "", "", "😀", "", "é"]);
    assert_eq!(stream.push(0xe6).unwrap(), "", "the beginning of a character waits");
    assert_eq!(stream.push(0x41).unwrap(), "\u{fffd}A", "and is given up when another follows");
    stream.push(0xf0).unwrap();
    assert_eq!(stream.finish(), "\u{fffd}", "or at the end");
    assert_eq!(stream.finish(), "", "once");
}

#[test]
fn special_tokens_do_not_use_up_the_leading_space() {
    let tokenizer = build(&sentence());
    let ids = [1, tokenizer.id_of("▁a").unwrap(), tokenizer.id_of("▁ab").unwrap(), 2];
    assert_eq!(tokenizer.decode(&ids).unwrap(), "a ab");
    assert_eq!(tokenizer.decode_with_specials(&ids).unwrap(), "<s> a ab</s>");
}

#[test]
fn ids_outside_the_vocabulary_are_refused_and_change_nothing() {
    let tokenizer = build(&byte_level());
    let mut stream = Detokenizer::new(&tokenizer);
    stream.push(0xc3).unwrap();
    let error = stream.push(263).unwrap_err().to_string();
    assert!(error.contains("263"), "{error}");
    assert_eq!(stream.push(0xa9).unwrap(), "é", "the stream goes on");
    assert!(tokenizer.decode(&[u32::MAX]).is_err());
    assert_eq!(tokenizer.token_bytes(263), None);
    assert_eq!(tokenizer.token_text(u32::MAX), None);
}
