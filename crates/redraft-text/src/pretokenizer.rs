//! The rules that cut text into words before byte-level BPE, by the names that GGUF files use.

use crate::error::TokenizerError;
use tokenizers::SplitDelimiterBehavior;
use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

/// Words of Llama 3: contractions, a letter run with one leading sign, up to three digits, sign runs, line ends.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The same with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A supported value of `tokenizer.ggml.pre`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreTokenizer {
    Gpt2,
    SmolLm,
    Llama3,
    Qwen2,
}

impl PreTokenizer {
    /// For error messages. `default` is not among them: it means that the converter did not know the rule, and
    /// any guess would give wrong ids without a word.
    pub(crate) const SUPPORTED: &'static str = "gpt-2, smollm, llama-bpe, qwen2";

    /// Reads a name; some rules have several.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "gpt-2" | "gpt2" => Self::Gpt2,
            "smollm" => Self::SmolLm,
            "llama-bpe" | "llama3" | "llama-v3" => Self::Llama3,
            "qwen2" => Self::Qwen2,
            _ => return None,
        })
    }

    /// Whether a word that is itself a token is taken whole, even where the merges would not build it.
    pub(crate) fn takes_whole_words(self) -> bool {
        self == Self::Llama3
    }

    /// Qwen composes accents before anything else.
    pub(crate) fn normalizer(self) -> Option<NormalizerWrapper> {
        (self == Self::Qwen2).then(|| NFC.into())
    }

    /// The rule, followed by the change to the byte alphabet.
    pub(crate) fn build(self) -> Result<PreTokenizerWrapper, TokenizerError> {
        let bytes = |split_words| ByteLevel::new(false, true, split_words);
        let split = |rule: &str| {
            Split::new(SplitPattern::Regex(rule.to_owned()), SplitDelimiterBehavior::Isolated, false)
                .map_err(|error| TokenizerError::component("pre-tokenizer", &error))
        };
        let stages: Vec<PreTokenizerWrapper> = match self {
            Self::Gpt2 => vec![bytes(true).into()],
            Self::SmolLm => vec![Digits::new(true).into(), bytes(true).into()],
            Self::Llama3 => vec![split(LLAMA3)?.into(), bytes(false).into()],
            Self::Qwen2 => vec![split(QWEN2)?.into(), bytes(false).into()],
        };
        Ok(Sequence::new(stages).into())
    }
}

#[cfg(test)]
mod tests {
    use super::PreTokenizer;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    fn words(rule: PreTokenizer, text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        rule.build().unwrap().pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(word, ..)| word.to_owned()).collect()
    }

    #[test]
    fn each_rule_cuts_its_own_way() {
        let text = "We'LL pay $1234\n";
        for (rule, expected) in [
            (PreTokenizer::Gpt2, vec!["We", "'", "LL", "Ġpay", "Ġ$", "1234", "Ċ"]),
            (PreTokenizer::SmolLm, vec!["We", "'", "LL", "Ġpay", "Ġ$", "1", "2", "3", "4", "Ċ"]),
            (PreTokenizer::Llama3, vec!["We", "'LL", "Ġpay", "Ġ$", "123", "4", "Ċ"]),
            (PreTokenizer::Qwen2, vec!["We", "'LL", "Ġpay", "Ġ$", "1", "2", "3", "4", "Ċ"]),
        ] {
            assert_eq!(words(rule, text), expected, "{rule:?}");
        }
    }

    #[test]
    fn every_supported_name_is_read() {
        for name in PreTokenizer::SUPPORTED.split(", ") {
            assert!(PreTokenizer::from_name(name).is_some(), "{name} is listed as supported");
        }
        assert_eq!(PreTokenizer::from_name("default"), None, "a guess would give wrong ids");
    }
}
