//! From text to ids: added tokens, normaliser, pre-tokenizer, model.

use crate::error::TokenizerError;
use crate::piece::{Piece, PieceKind};
use crate::sentence::SentenceModel;
use crate::source::{Algorithm, MERGES, VocabularySource};
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::{NormalizerWrapper, Sequence};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, AddedVocabulary, Model as _, OffsetReferential, OffsetType, PreTokenizer as _};

/// No context holds a longer text, and the stages need many bytes for each byte of it.
pub(crate) const MAX_TEXT: usize = 8 << 20;

/// What becomes of special tokens that are written out in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// They become their token. For text that a chat template made.
    Parse,
    /// They are text like any other. For text that somebody else wrote, who must not steer the model with it.
    Plain,
}

/// The last stage, which cuts words into tokens.
#[derive(Debug)]
pub(crate) enum WordModel {
    BytePair(Box<BPE>),
    Sentence(SentenceModel),
}

/// All stages, with the added tokens twice because the library keeps "ignore special ones" as a state.
#[derive(Debug)]
pub(crate) struct Pipeline {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: WordModel,
    parse: AddedVocabulary,
    plain: AddedVocabulary,
}

impl Pipeline {
    /// Joins the stages. `added` holds each added token with its id.
    pub(crate) fn new(
        normalizer: Option<NormalizerWrapper>,
        pre_tokenizer: Option<PreTokenizerWrapper>,
        model: WordModel,
        added: Vec<(AddedToken, u32)>,
    ) -> Result<Self, TokenizerError> {
        let parse = added_vocabulary(added, normalizer.as_ref())?;
        let mut plain = parse.clone();
        plain.set_encode_special_tokens(true);
        Ok(Self { normalizer, pre_tokenizer, model, parse, plain })
    }

    /// Builds the stages of a GGUF vocabulary; `pieces` are its tokens by id.
    pub(crate) fn from_source(
        source: &VocabularySource<'_>,
        pieces: &[Piece],
    ) -> Result<Self, TokenizerError> {
        let added = (0u32..)
            .zip(pieces)
            .filter(|(_, piece)| piece.kind.is_special() || piece.kind == PieceKind::UserDefined)
            .map(|(id, piece)| {
                (AddedToken::from(piece.text.clone(), piece.kind.is_special()).normalized(false), id)
            })
            .collect();
        let (normalizer, pre_tokenizer, model) = match source.algorithm {
            Algorithm::BytePair { pre, merges } => {
                let model = byte_pair(pieces, merges, pre.takes_whole_words())?;
                (pre.normalizer(), Some(pre.build()?), WordModel::BytePair(Box::new(model)))
            }
            Algorithm::Sentence { scores, space_prefix } => {
                let model = SentenceModel::new(pieces, scores, source.unknown);
                (Some(spaces(space_prefix)?), None, WordModel::Sentence(model))
            }
        };
        Self::new(normalizer, pre_tokenizer, model, added)
    }

    /// The ids of a text; nothing is put before or after it.
    pub(crate) fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        if text.len() > MAX_TEXT {
            return Err(TokenizerError::TextTooLong { limit: MAX_TEXT, found: text.len() });
        }
        let added = match special {
            Special::Parse => &self.parse,
            Special::Plain => &self.plain,
        };
        let mut words = added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(stage) = &self.pre_tokenizer {
            stage
                .pre_tokenize(&mut words)
                .map_err(|error| TokenizerError::component("pre-tokenizer", &error))?;
        }
        let mut ids = Vec::with_capacity(text.len() / 4);
        for (word, _, tokens) in words.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            match tokens {
                Some(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
                None => self.model.encode(word, &mut ids)?,
            }
        }
        Ok(ids)
    }
}

impl WordModel {
    fn encode(&self, word: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        match self {
            Self::Sentence(model) => model.encode(word, out),
            Self::BytePair(model) => {
                let tokens =
                    model.tokenize(word).map_err(|error| TokenizerError::component("BPE model", &error))?;
                // The library leaves out letters that are no token; that would change the text without a word.
                let covered = tokens.last().map_or(0, |token| token.offsets.1);
                if covered != word.len() {
                    return Err(TokenizerError::Unencodable { text: word.to_owned() });
                }
                out.extend(tokens.iter().map(|token| token.id));
                Ok(())
            }
        }
    }
}

/// Added tokens under the ids that they have in the vocabulary. The library asks a model for those ids, so it
/// gets one that holds nothing else.
fn added_vocabulary(
    added: Vec<(AddedToken, u32)>,
    normalizer: Option<&NormalizerWrapper>,
) -> Result<AddedVocabulary, TokenizerError> {
    let failed = |error: tokenizers::Error| TokenizerError::component("table of added tokens", &error);
    let ids: Vocab = added.iter().map(|(token, id)| (token.content.clone(), *id)).collect();
    let ids = BPE::builder().vocab_and_merges(ids, Vec::new()).build().map_err(failed)?;
    let mut table = AddedVocabulary::new();
    table.add_tokens(added.into_iter().map(|(token, _)| token), &ids, normalizer).map_err(failed)?;
    Ok(table)
}

/// The normaliser of SentencePiece models: `▁` for spaces, and one before each stretch of text.
fn spaces(prefix: bool) -> Result<NormalizerWrapper, TokenizerError> {
    let replace = Replace::new(" ", "▁").map_err(|error| TokenizerError::component("normaliser", &error))?;
    let mut stages: Vec<NormalizerWrapper> = Vec::new();
    if prefix {
        stages.push(Prepend::new("▁".to_owned()).into());
    }
    stages.push(replace.into());
    Ok(Sequence::new(stages).into())
}

/// The merge model of a GGUF file. Markup is left out, so that plain text can never merge into it.
fn byte_pair(pieces: &[Piece], merges: &[String], whole_words: bool) -> Result<BPE, TokenizerError> {
    let vocabulary: Vocab = (0u32..)
        .zip(pieces)
        .filter(|(_, piece)| {
            matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Byte)
        })
        .map(|(id, piece)| (piece.text.clone(), id))
        .collect();
    let mut pairs = Vec::with_capacity(merges.len());
    for (index, merge) in merges.iter().enumerate() {
        let pair = merge
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
            .ok_or_else(|| TokenizerError::Entry {
                field: MERGES,
                index,
                expected: "two tokens with a space between them",
                found: format!("{merge:?}"),
            })?;
        pairs.push((pair.0.to_owned(), pair.1.to_owned()));
    }
    build_byte_pair(MERGES, vocabulary, pairs, |builder| builder.ignore_merges(whole_words))
}

/// Checks merges against the vocabulary and builds the model. The library panics on a merge whose result is
/// longer than every token, and its messages do not say where.
pub(crate) fn build_byte_pair(
    field: &'static str,
    vocabulary: Vocab,
    merges: Merges,
    options: impl FnOnce(tokenizers::models::bpe::BpeBuilder) -> tokenizers::models::bpe::BpeBuilder,
) -> Result<BPE, TokenizerError> {
    let mut joint = String::new();
    for (index, (left, right)) in merges.iter().enumerate() {
        joint.clear();
        joint.push_str(left);
        joint.push_str(right);
        let missing = [left, right, &joint].into_iter().find(|text| !vocabulary.contains_key(text.as_str()));
        if let Some(text) = missing {
            return Err(TokenizerError::Entry {
                field,
                index,
                expected: "two tokens whose joint text is a token",
                found: format!("{left:?} + {right:?}, but {text:?} is not in the vocabulary"),
            });
        }
    }
    // The library's cache of words lives in thread-local storage and outlives the tokenizer.
    let builder = BPE::builder().vocab_and_merges(vocabulary, merges).cache_capacity(0);
    options(builder).build().map_err(|error| TokenizerError::component("BPE model", &error))
}
