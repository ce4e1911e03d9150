//! The tokenizer of tiny models: byte-level BPE of any size from 259 tokens up.

use serde_json::json;
use std::collections::HashSet;

/// The control tokens, first in the vocabulary as SmolLM2 has them.
pub(super) const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// Control tokens and the 256 bytes: what every vocabulary has.
pub(super) const SMALLEST: usize = CONTROL.len() + 256;

/// llama.cpp's token type numbers.
const NORMAL: i32 = 1;
const CONTROL_TYPE: i32 = 3;
const UNUSED: i32 = 5;

/// Real merges first, so that small vocabularies split English in more than bytes (`Ġ` is the space).
const ENGLISH: &str = "Ġ t|Ġ a|i n|h e|r e|o n|e r|Ġt he|a t|Ġ s|Ġ o|e n|Ġ c|e s|Ġ w|n d|i t|o r|i s|o u|a n|Ġ in|\
     e d|Ġ b|Ġ f|Ġ p|in g|a l|Ġo f|Ġ m|Ġa nd|a r|Ġ d|Ġt o|Ġ h|o m|i c|Ġ l|l e|r o|Ġ y|Ġy ou|s t|a s|v e|c t|en t|\
     Ġb e|l l|i d|Ġ is|i on|Ġ re|u s|e r s";

/// Tokens, their types and the merges that make them.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<String>,
    pub(super) types: Vec<i32>,
    pub(super) merges: Vec<String>,
}

impl Vocabulary {
    /// `size` tokens: control, bytes, then one token a merge: English ones, all pairs of small letters, pairs
    /// followed by a letter. What is left is filled up with unused tokens.
    pub(super) fn new(size: usize) -> Self {
        let mut tokens: Vec<String> = CONTROL.iter().map(|&name| name.to_owned()).collect();
        tokens.extend(byte_characters().iter().map(char::to_string));
        let mut known: HashSet<String> = tokens.iter().cloned().collect();
        let mut types = vec![CONTROL_TYPE; CONTROL.len()];
        types.resize(tokens.len(), NORMAL);
        let mut merges = Vec::new();
        for (left, right) in candidates() {
            if tokens.len() >= size {
                break;
            }
            let made = format!("{left}{right}");
            if known.contains(&left) && known.contains(&right) && known.insert(made.clone()) {
                merges.push(format!("{left} {right}"));
                tokens.push(made);
                types.push(NORMAL);
            }
        }
        for index in tokens.len()..size {
            tokens.push(format!("<|unused_{index}|>"));
            types.push(UNUSED);
        }
        Self { tokens, types, merges }
    }

    /// A `tokenizer.json` as transformers writes it, with SmolLM2's way to cut words.
    pub(super) fn to_json(&self) -> String {
        let added = |(id, content): (usize, &String)| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        };
        let all = || self.tokens.iter().enumerate();
        let control: Vec<_> = all().take(CONTROL.len()).map(added).collect();
        let spelt: serde_json::Map<_, _> =
            all().skip(CONTROL.len()).map(|(id, token)| (token.clone(), json!(id))).collect();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": control, "normalizer": null,
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
                { "type": "Digits", "individual_digits": true },
                { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
            ] },
            "post_processor": null,
            "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": spelt, "merges": self.merges,
            },
        })
        .to_string()
    }
}

fn candidates() -> impl Iterator<Item = (String, String)> {
    let english = ENGLISH.split('|').filter_map(|merge| merge.split_once(' '));
    let english = english.map(|(left, right)| (left.to_owned(), right.replace(' ', "")));
    let letters = || ('a'..='z').map(|letter| letter.to_string());
    let pairs = move || letters().flat_map(move |left| letters().map(move |right| (left.clone(), right)));
    let triples = pairs().flat_map(move |(a, b)| letters().map(move |c| (format!("{a}{b}"), c)));
    english.chain(pairs()).chain(triples)
}

/// GPT-2's characters for the bytes: printable Latin-1 stands for itself, the others are moved to U+0100 and
/// up in order. In the order of the characters, as GPT-2 vocabularies list them.
fn byte_characters() -> Vec<char> {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let kept = (0..256).filter(|&byte| printable(byte));
    let moved = (0..256).filter(|&byte| !printable(byte)).zip(256..).map(|(_, character)| character);
    kept.chain(moved).filter_map(char::from_u32).collect()
}

#[cfg(test)]
mod tests {
    use super::{SMALLEST, Vocabulary, byte_characters};
    use std::collections::HashSet;

    #[test]
    fn bytes_have_256_distinct_characters() {
        let characters: HashSet<char> = byte_characters().into_iter().collect();
        assert_eq!(characters.len(), 256);
        // Known from GPT-2: space is Ġ, newline is Ċ.
        assert!(characters.contains(&'Ġ') && characters.contains(&'Ċ') && !characters.contains(&' '));
    }

    #[test]
    fn vocabularies_have_the_size_asked_for_and_merges_make_known_tokens() {
        for size in [SMALLEST, 300, 320, 1000, 5000, 20_000] {
            let vocabulary = Vocabulary::new(size);
            assert_eq!(vocabulary.tokens.len(), size);
            assert_eq!(vocabulary.types.len(), size);
            let known: HashSet<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
            assert_eq!(known.len(), size, "tokens are distinct");
            for merge in &vocabulary.merges {
                let (left, right) = merge.split_once(' ').unwrap();
                assert!(known.contains(left) && known.contains(right), "parts of {merge}");
                assert!(known.contains(format!("{left}{right}").as_str()), "result of {merge}");
            }
        }
    }
}
