//! Reading `tokenizer.json`, the format of the tokenizers library.
//!
//! The library's own reader is not used: it panics on some damaged files, ignores ids that disagree, and leaves
//! no way to the decoder. Its components are.

use crate::error::TokenizerError;
use crate::piece::{Piece, PieceKind, Spelling, byte_of_escape};
use crate::pipeline::{Pipeline, WordModel, build_byte_pair};
use crate::source::MAX_TOKENS;
use crate::tokenizer::Parts;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

pub(crate) const VOCABULARY: &str = "model.vocab";
const ADDED: &str = "added_tokens";
const MERGES: &str = "model.merges";

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Option<NormalizerWrapper>,
    #[serde(default)]
    pre_tokenizer: Option<PreTokenizerWrapper>,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// The fields of a BPE model; other models fail on `type` or on the absence of `merges`.
#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    dropout: Option<f32>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    /// A map, or the list of a Unigram model, which is refused by its type.
    #[serde(default)]
    vocab: Value,
    #[serde(default)]
    merges: Value,
}

/// Reads a file into the parts of a tokenizer.
pub(crate) fn read(json: &[u8]) -> Result<Parts, TokenizerError> {
    let file: File =
        serde_json::from_slice(json).map_err(|error| TokenizerError::Json { detail: error.to_string() })?;
    check_model(&file.model)?;
    let spelling = spelling(&file.decoder)?;
    let vocabulary = vocabulary(&file.model.vocab)?;
    let pieces = pieces(&vocabulary, &file.added_tokens, file.model.byte_fallback)?;
    let model = byte_pair(vocabulary, &file.model)?;
    let affixes = affixes(&file.post_processor)?;
    let find = |name: &Option<String>| -> Result<Option<u32>, TokenizerError> {
        let Some(name) = name else { return Ok(None) };
        let at = pieces.iter().position(|piece| piece.text == *name);
        at.and_then(|at| u32::try_from(at).ok()).map(Some).ok_or_else(|| TokenizerError::Entry {
            field: "post_processor",
            index: 0,
            expected: "tokens of the vocabulary",
            found: format!("{name:?}"),
        })
    };
    let (bos, eos) = (find(&affixes.0)?, find(&affixes.1)?);
    let added = file.added_tokens.into_iter().map(|added| (added.token, added.id)).collect();
    let model = WordModel::BytePair(Box::new(model));
    let pipeline = Pipeline::new(file.normalizer, file.pre_tokenizer, model, added)?;
    Ok(Parts {
        pieces,
        spelling,
        pipeline,
        bos,
        ends: eos.into_iter().collect(),
        add_bos: bos.is_some(),
        add_eos: eos.is_some(),
    })
}

/// Refuses models that are no BPE, and BPE features that no language model uses and whose library code panics.
fn check_model(model: &Model) -> Result<(), TokenizerError> {
    let unsupported =
        |field, found: String, supported| Err(TokenizerError::Unsupported { field, found, supported });
    if let Some(kind) = model.kind.as_ref().filter(|kind| *kind != "BPE") {
        return unsupported("model.type", kind.clone(), "BPE");
    }
    for (field, affix) in [
        ("model.continuing_subword_prefix", &model.continuing_subword_prefix),
        ("model.end_of_word_suffix", &model.end_of_word_suffix),
    ] {
        if let Some(affix) = affix.as_ref().filter(|affix| !affix.is_empty()) {
            return unsupported(field, affix.clone(), "none");
        }
    }
    match model.dropout {
        Some(dropout) if dropout != 0.0 => unsupported("model.dropout", dropout.to_string(), "0"),
        _ => Ok(()),
    }
}

fn vocabulary(value: &Value) -> Result<Vocab, TokenizerError> {
    let entries = value.as_object().filter(|entries| !entries.is_empty());
    let entries = entries
        .ok_or(TokenizerError::Missing { field: VOCABULARY, expected: "a map from token texts to ids" })?;
    let entry = |(index, (text, id)): (usize, (&String, &Value))| {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| TokenizerError::Entry {
            field: VOCABULARY,
            index,
            expected: "a token id",
            found: format!("{id} for {text:?}"),
        })?;
        Ok((text.clone(), id))
    };
    entries.iter().enumerate().map(entry).collect()
}

/// All tokens by id. Ids that the file leaves out get a text that no text contains.
fn pieces(vocabulary: &Vocab, added: &[Added], byte_fallback: bool) -> Result<Vec<Piece>, TokenizerError> {
    let ids = vocabulary.values().copied().chain(added.iter().map(|added| added.id));
    let highest = usize::try_from(ids.max().unwrap_or(0)).unwrap_or(usize::MAX);
    // Real files leave few gaps; a huge id must not make a huge table.
    let limit = MAX_TOKENS.min(2 * (vocabulary.len() + added.len()) + 1024);
    if highest >= limit {
        return Err(TokenizerError::TooMany { field: VOCABULARY, limit, found: highest.saturating_add(1) });
    }
    let mut slots: Vec<Option<Piece>> = vec![None; highest + 1];
    let mut place = |field, id: u32, piece: Piece| {
        let slot = usize::try_from(id).ok().and_then(|at| slots.get_mut(at));
        let Some(slot) = slot else { return Ok(()) };
        match slot {
            Some(old) if old.text != piece.text => Err(TokenizerError::Entry {
                field,
                index: usize::try_from(id).unwrap_or(usize::MAX),
                expected: "one text for each id",
                found: format!("{:?} and {:?}", old.text, piece.text),
            }),
            _ => {
                *slot = Some(piece);
                Ok(())
            }
        }
    };
    for (text, &id) in vocabulary {
        let is_byte = byte_fallback && byte_of_escape(text).is_some();
        let kind = if is_byte { PieceKind::Byte } else { PieceKind::Normal };
        place(VOCABULARY, id, Piece { text: text.clone(), kind })?;
    }
    let mut seen: HashMap<&str, u32> = HashMap::new();
    for Added { id, token } in added {
        let earlier = seen
            .insert(&token.content, *id)
            .or_else(|| vocabulary.get(&token.content).copied().filter(|v| v != id));
        if let Some(first) = earlier {
            return Err(TokenizerError::Duplicate {
                field: ADDED,
                token: token.content.clone(),
                first,
                second: *id,
            });
        }
        let kind = if token.special { PieceKind::Control } else { PieceKind::UserDefined };
        place(ADDED, *id, Piece { text: token.content.clone(), kind })?;
    }
    let gap = |(id, piece): (usize, Option<Piece>)| {
        piece.unwrap_or_else(|| Piece { text: format!("\0unused {id}"), kind: PieceKind::Unused })
    };
    Ok(slots.into_iter().enumerate().map(gap).collect())
}

fn byte_pair(vocabulary: Vocab, model: &Model) -> Result<BPE, TokenizerError> {
    let list = model.merges.as_array();
    let list =
        list.ok_or(TokenizerError::Missing { field: MERGES, expected: "the merges of the BPE model" })?;
    let merge = |(index, merge): (usize, &Value)| {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
                _ => None,
            },
            _ => None,
        };
        let pair = pair.filter(|(left, right)| !left.is_empty() && !right.is_empty());
        pair.map(|(left, right)| (left.to_owned(), right.to_owned())).ok_or_else(|| TokenizerError::Entry {
            field: MERGES,
            index,
            expected: "two tokens",
            found: merge.to_string(),
        })
    };
    let mut merges = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        merges.push(merge((index, value))?);
    }
    if let Some(unknown) =
        model.unk_token.as_ref().filter(|unknown| !vocabulary.contains_key(unknown.as_str()))
    {
        return Err(TokenizerError::Entry {
            field: "model.unk_token",
            index: 0,
            expected: "a token of the vocabulary",
            found: format!("{unknown:?}"),
        });
    }
    build_byte_pair(MERGES, vocabulary, merges, |builder| {
        let builder = builder
            .fuse_unk(model.fuse_unk)
            .byte_fallback(model.byte_fallback)
            .ignore_merges(model.ignore_merges);
        match &model.unk_token {
            Some(unknown) => builder.unk_token(unknown.clone()),
            None => builder,
        }
    })
}

/// Finds out from the decoder how the vocabulary spells bytes.
fn spelling(decoder: &Value) -> Result<Spelling, TokenizerError> {
    let mut stages = Vec::new();
    flatten(decoder, "decoders", &mut stages);
    let kind = |stage: &Value| stage.get("type").and_then(Value::as_str).unwrap_or("none").to_owned();
    let mut found = None;
    for stage in &stages {
        match kind(stage).as_str() {
            "ByteLevel" => found = Some(Spelling::ByteLevel),
            "Replace" | "ByteFallback" => found = found.or(Some(Spelling::Sentence { strip: false })),
            "Metaspace" => {
                let never = stage.get("prepend_scheme").and_then(Value::as_str) == Some("never");
                found = Some(Spelling::Sentence { strip: !never });
            }
            "Strip" => {
                let strip = stage.get("start").and_then(Value::as_u64).unwrap_or(0) > 0;
                found = Some(Spelling::Sentence { strip });
            }
            "Fuse" => {}
            _ => {
                found = None;
                break;
            }
        }
    }
    found.ok_or_else(|| TokenizerError::Unsupported {
        field: "decoder",
        found: stages.iter().map(|stage| kind(stage)).collect::<Vec<_>>().join(" + "),
        supported: "ByteLevel, Metaspace, and sequences of Replace, ByteFallback, Fuse and Strip",
    })
}

/// The tokens that the post-processor puts before and after a text.
fn affixes(processor: &Value) -> Result<(Option<String>, Option<String>), TokenizerError> {
    let mut stages = Vec::new();
    flatten(processor, "processors", &mut stages);
    let mut affixes = (None, None);
    for stage in stages {
        match stage.get("type").and_then(Value::as_str) {
            None | Some("ByteLevel") => {}
            Some("TemplateProcessing") => {
                let mut after = false;
                for part in stage.get("single").and_then(Value::as_array).into_iter().flatten() {
                    let token = part.pointer("/SpecialToken/id").and_then(Value::as_str);
                    match token {
                        None => after = true,
                        Some(token) if after => affixes.1 = Some(token.to_owned()),
                        Some(token) => affixes.0 = Some(token.to_owned()),
                    }
                }
            }
            Some(other) => {
                return Err(TokenizerError::Unsupported {
                    field: "post_processor",
                    found: other.to_owned(),
                    supported: "ByteLevel, TemplateProcessing, and sequences of them",
                });
            }
        }
    }
    Ok(affixes)
}

/// The stages of a component that may be a sequence. Sequences of sequences are not written by anyone.
fn flatten<'a>(component: &'a Value, list: &str, out: &mut Vec<&'a Value>) {
    match component.get(list).and_then(Value::as_array) {
        Some(stages) => out.extend(stages),
        None => out.push(component),
    }
}
