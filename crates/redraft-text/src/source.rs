//! The vocabulary as a GGUF file states it, checked and not yet built.

use crate::error::TokenizerError;
use crate::piece::PieceKind;
use crate::pretokenizer::PreTokenizer;
use redraft_gguf::Metadata;

/// No model comes near; a larger list is a lie or an attack.
pub(crate) const MAX_TOKENS: usize = 1 << 22;

pub(crate) const MODEL: &str = "tokenizer.ggml.model";
pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(crate) const MERGES: &str = "tokenizer.ggml.merges";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const EOT: &str = "tokenizer.ggml.eot_token_id";
const EOM: &str = "tokenizer.ggml.eom_token_id";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";

/// The two ways to cut text into tokens, with what only they need.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Algorithm<'a> {
    /// `gpt2`: byte-level BPE with listed merges.
    BytePair { pre: PreTokenizer, merges: &'a [String] },
    /// `llama`: merges in the order of the scores of their results.
    Sentence { scores: &'a [f32], space_prefix: bool },
}

/// Everything about a vocabulary; borrowed, because the lists are long.
#[derive(Debug, Clone)]
pub(crate) struct VocabularySource<'a> {
    pub(crate) algorithm: Algorithm<'a>,
    pub(crate) tokens: &'a [String],
    /// As many as there are tokens.
    pub(crate) kinds: Vec<PieceKind>,
    pub(crate) bos: Option<u32>,
    /// End of sequence, of turn and of message, where the file names them.
    pub(crate) ends: Vec<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
}

impl<'a> VocabularySource<'a> {
    /// Reads the `tokenizer.ggml.*` keys.
    pub(crate) fn from_metadata(metadata: &'a Metadata) -> Result<Self, TokenizerError> {
        let tokens = tokens(metadata)?;
        let model = metadata
            .str(MODEL)?
            .ok_or(TokenizerError::Missing { field: MODEL, expected: "the name of a tokenizer model" })?;
        let algorithm = match model {
            "gpt2" => byte_pair(metadata)?,
            "llama" => sentence(metadata, tokens.len())?,
            other => {
                return Err(TokenizerError::Unsupported {
                    field: MODEL,
                    found: other.to_owned(),
                    supported: "gpt2, llama",
                });
            }
        };
        let kinds = kinds(metadata, tokens.len())?;
        let id = |field| special_id(metadata, field, tokens.len());
        let is_sentence = matches!(algorithm, Algorithm::Sentence { .. });
        // SentencePiece puts its markers at fixed ids, and old files leave them out.
        let or_fixed = |found: Option<u32>, fixed: u32| {
            found.or_else(|| {
                let kind = usize::try_from(fixed).ok().and_then(|at| kinds.get(at));
                (is_sentence && kind.is_some_and(|kind| kind.is_special())).then_some(fixed)
            })
        };
        // Llama 3 always begins with its marker; the key is younger than the first files.
        let begins =
            is_sentence || matches!(algorithm, Algorithm::BytePair { pre: PreTokenizer::Llama3, .. });
        Ok(Self {
            algorithm,
            tokens,
            bos: or_fixed(id(BOS)?, 1),
            ends: [or_fixed(id(EOS)?, 2), id(EOT)?, id(EOM)?].into_iter().flatten().collect(),
            unknown: or_fixed(id(UNKNOWN)?, 0),
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(begins),
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            kinds,
        })
    }
}

/// The text of the token that a key names, for chat templates. `Ok(None)` when the key is absent.
pub(crate) fn special_text(metadata: &Metadata, field: SpecialField) -> Result<Option<&str>, TokenizerError> {
    let key = match field {
        SpecialField::Bos => BOS,
        SpecialField::Eos => EOS,
    };
    if metadata.get(key).is_none() {
        return Ok(None);
    }
    let tokens = tokens(metadata)?;
    let id = special_id(metadata, key, tokens.len())?;
    Ok(id.and_then(|id| tokens.get(usize::try_from(id).ok()?)).map(String::as_str))
}

/// The special tokens that chat templates can name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SpecialField {
    Bos,
    Eos,
}

fn tokens(metadata: &Metadata) -> Result<&[String], TokenizerError> {
    let tokens = metadata.strings(TOKENS)?.unwrap_or_default();
    if tokens.is_empty() {
        return Err(TokenizerError::Missing { field: TOKENS, expected: "the texts of all tokens" });
    }
    if tokens.len() > MAX_TOKENS {
        return Err(TokenizerError::TooMany { field: TOKENS, limit: MAX_TOKENS, found: tokens.len() });
    }
    Ok(tokens)
}

fn special_id(metadata: &Metadata, field: &'static str, len: usize) -> Result<Option<u32>, TokenizerError> {
    match metadata.u32(field)? {
        Some(id) if usize::try_from(id).is_ok_and(|at| at < len) => Ok(Some(id)),
        Some(id) => Err(TokenizerError::SpecialOutOfRange { field, id, len }),
        None => Ok(None),
    }
}

fn kinds(metadata: &Metadata, len: usize) -> Result<Vec<PieceKind>, TokenizerError> {
    let Some(numbers) = metadata.i32s(TYPES)? else {
        return Ok(vec![PieceKind::Normal; len]);
    };
    if numbers.len() != len {
        return Err(TokenizerError::Length { field: TYPES, expected: len, found: numbers.len() });
    }
    numbers.iter().enumerate().map(|(index, &number)| PieceKind::from_gguf(TYPES, index, number)).collect()
}

fn byte_pair(metadata: &Metadata) -> Result<Algorithm<'_>, TokenizerError> {
    const PRE: &str = "tokenizer.ggml.pre";
    let name = metadata
        .str(PRE)?
        .ok_or(TokenizerError::Missing { field: PRE, expected: "the name of a pre-tokenizer" })?;
    let pre = PreTokenizer::from_name(name).ok_or_else(|| TokenizerError::Unsupported {
        field: PRE,
        found: name.to_owned(),
        supported: PreTokenizer::SUPPORTED,
    })?;
    let merges = metadata
        .strings(MERGES)?
        .ok_or(TokenizerError::Missing { field: MERGES, expected: "the merges of the BPE model" })?;
    Ok(Algorithm::BytePair { pre, merges })
}

fn sentence(metadata: &Metadata, len: usize) -> Result<Algorithm<'_>, TokenizerError> {
    let scores = metadata
        .f32s(SCORES)?
        .ok_or(TokenizerError::Missing { field: SCORES, expected: "a score for each token" })?;
    if scores.len() != len {
        return Err(TokenizerError::Length { field: SCORES, expected: len, found: scores.len() });
    }
    if let Some(index) = scores.iter().position(|score| score.is_nan()) {
        return Err(TokenizerError::Entry {
            field: SCORES,
            index,
            expected: "a number",
            found: "NaN".to_owned(),
        });
    }
    let space_prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    Ok(Algorithm::Sentence { scores, space_prefix })
}
