//! The public tokenizer.

use crate::detokenizer::Detokenizer;
use crate::error::TokenizerError;
use crate::piece::{Piece, Spelling};
use crate::pipeline::{Pipeline, Special};
use crate::source::{Algorithm, TOKENS, VocabularySource};
use redraft_gguf::Metadata;
use std::sync::Arc;

/// Tokens by which models of different families end a turn. They count only where the vocabulary marks them as
/// control tokens.
const END_NAMES: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|eot|>",
    "<|EOT|>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
    "</s>",
];

/// Turns text into token ids and back.
///
/// Cloning is cheap: clones share the vocabulary.
///
/// [`encode`](Self::encode) never adds tokens that are not in the text, because chat templates write the
/// beginning marker themselves; [`encode_prompt`](Self::encode_prompt) adds what the model expects around raw text.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

/// The parts of a tokenizer, as its two builders hand them over.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) spelling: Spelling,
    pub(crate) pipeline: Pipeline,
    pub(crate) bos: Option<u32>,
    pub(crate) ends: Vec<u32>,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
}

#[derive(Debug)]
struct Shared {
    parts: Parts,
    /// All ids in the order of their texts, for searching.
    by_text: Vec<u32>,
    fingerprint: u64,
}

impl Tokenizer {
    /// Builds the tokenizer that a GGUF file describes in its `tokenizer.ggml.*` keys: model `gpt2` with the
    /// pre-tokenizers gpt-2, smollm, llama-bpe and qwen2, or model `llama`.
    ///
    /// # Errors
    ///
    /// A [`TokenizerError`] that names the key that is absent, wrong, damaged or unsupported.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let source = VocabularySource::from_metadata(metadata)?;
        let pieces: Vec<Piece> = source
            .tokens
            .iter()
            .zip(&source.kinds)
            .map(|(text, &kind)| Piece { text: text.clone(), kind })
            .collect();
        let by_text = sorted_by_text(TOKENS, &pieces)?;
        let pipeline = Pipeline::from_source(&source, &pieces)?;
        let spelling = match source.algorithm {
            Algorithm::BytePair { .. } => Spelling::ByteLevel,
            Algorithm::Sentence { space_prefix, .. } => Spelling::Sentence { strip: space_prefix },
        };
        let VocabularySource { bos, ends, add_bos, add_eos, .. } = source;
        Ok(Self::assemble(Parts { pieces, spelling, pipeline, bos, ends, add_bos, add_eos }, by_text))
    }

    /// Builds the tokenizer of a `tokenizer.json` file: BPE models that spell text in bytes or as SentencePiece
    /// does.
    ///
    /// The file does not say which token ends a sequence; the well-known names among its special tokens do.
    ///
    /// # Errors
    ///
    /// A [`TokenizerError`] that names the field that is absent, wrong, damaged or unsupported.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        let parts = crate::json::read(json)?;
        let by_text = sorted_by_text(crate::json::VOCABULARY, &parts.pieces)?;
        Ok(Self::assemble(parts, by_text))
    }

    fn assemble(mut parts: Parts, by_text: Vec<u32>) -> Self {
        let fingerprint = fingerprint(&parts.pieces);
        for name in END_NAMES {
            let found = find(&parts.pieces, &by_text, name);
            if let Some((id, _)) = found.filter(|(_, piece)| piece.kind.is_special()) {
                parts.ends.push(id);
            }
        }
        let mut seen = Vec::with_capacity(parts.ends.len());
        parts.ends.retain(|&id| {
            let new = !seen.contains(&id);
            seen.push(id);
            new
        });
        Self { shared: Arc::new(Shared { parts, by_text, fingerprint }) }
    }

    /// The ids of a text, without anything before or after it.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::Unencodable`] when the vocabulary cannot spell the text,
    /// [`TokenizerError::TextTooLong`] beyond 8 MiB.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        self.shared.parts.pipeline.encode(text, special)
    }

    /// The ids of a raw prompt, with the beginning and end markers that the model expects, never twice.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text, special)?;
        if let Some(bos) = self.bos().filter(|bos| self.add_bos() && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        if let Some(&eos) = self.eos_ids().first().filter(|eos| self.add_eos() && ids.last() != Some(eos)) {
            ids.push(eos);
        }
        Ok(ids)
    }

    /// The text of some ids as a reader should see it: special tokens are left out, bytes that are not UTF-8
    /// become U+FFFD, and the space that a SentencePiece encoder puts before a text is removed.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::UnknownToken`] when an id is outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        Self::decode_through(Detokenizer::new(self), ids)
    }

    /// The same with special tokens written out.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn decode_with_specials(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        Self::decode_through(Detokenizer::new(self).with_specials(), ids)
    }

    fn decode_through(mut stream: Detokenizer, ids: &[u32]) -> Result<String, TokenizerError> {
        let mut text = String::new();
        for &id in ids {
            stream.push_onto(id, &mut text)?;
        }
        text.push_str(&stream.finish());
        Ok(text)
    }

    /// A token as the vocabulary spells it, such as `Ġthe` or `▁the`; `None` outside the vocabulary.
    #[must_use]
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.piece(id).map(|piece| piece.text.as_str())
    }

    /// The bytes that a token stands for, which need not be UTF-8; `None` outside the vocabulary.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.piece(id)?.append_bytes(self.spelling(), &mut bytes);
        Some(bytes)
    }

    /// The id of a token by its spelling in the vocabulary.
    #[must_use]
    pub fn id_of(&self, text: &str) -> Option<u32> {
        find(&self.shared.parts.pieces, &self.shared.by_text, text).map(|(id, _)| id)
    }

    /// Whether a token is markup and never part of a text, such as the end of a turn.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.piece(id).is_some_and(|piece| piece.kind.is_special())
    }

    /// Number of token ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.parts.pieces.len()
    }

    /// Whether there are no tokens; never true of a tokenizer that was built.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.parts.pieces.is_empty()
    }

    /// The token that begins a sequence.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.shared.parts.bos
    }

    /// All tokens that end an answer: the end of sequence first where the model names one, then those that end a
    /// turn or a message.
    #[must_use]
    pub fn eos_ids(&self) -> &[u32] {
        &self.shared.parts.ends
    }

    /// Whether raw prompts begin with [`bos`](Self::bos).
    #[must_use]
    pub fn add_bos(&self) -> bool {
        self.shared.parts.add_bos
    }

    /// Whether raw prompts end with the first of [`eos_ids`](Self::eos_ids).
    #[must_use]
    pub fn add_eos(&self) -> bool {
        self.shared.parts.add_eos
    }

    /// A hash of all token texts in the order of their ids. It is the same on every machine and for a GGUF file
    /// and a `tokenizer.json` of one model, so that a drafter with another vocabulary is noticed.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.shared.fingerprint
    }

    pub(crate) fn piece(&self, id: u32) -> Option<&Piece> {
        self.shared.parts.pieces.get(usize::try_from(id).ok()?)
    }

    pub(crate) fn spelling(&self) -> Spelling {
        self.shared.parts.spelling
    }
}

/// All ids in the order of their texts.
fn sorted_by_text(field: &'static str, pieces: &[Piece]) -> Result<Vec<u32>, TokenizerError> {
    let mut entries: Vec<(&str, u32)> = pieces.iter().map(|piece| piece.text.as_str()).zip(0u32..).collect();
    entries.sort_unstable();
    for pair in entries.windows(2) {
        if let [(text, first), (next, second)] = pair
            && text == next
        {
            return Err(TokenizerError::Duplicate {
                field,
                token: (*text).to_owned(),
                first: *first,
                second: *second,
            });
        }
    }
    Ok(entries.into_iter().map(|(_, id)| id).collect())
}

fn find<'a>(pieces: &'a [Piece], by_text: &[u32], text: &str) -> Option<(u32, &'a Piece)> {
    let piece = |id: u32| usize::try_from(id).ok().and_then(|at| pieces.get(at));
    let at = by_text.binary_search_by(|&id| piece(id).map_or("", |piece| &piece.text).cmp(text)).ok()?;
    let id = *by_text.get(at)?;
    Some((id, piece(id)?))
}

/// FNV-1a over lengths and texts.
fn fingerprint(pieces: &[Piece]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for piece in pieces {
        add(&(piece.text.len() as u64).to_le_bytes());
        add(piece.text.as_bytes());
    }
    hash
}
