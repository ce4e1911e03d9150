//! SentencePiece's way of merging: always the pair whose result has the best score.
//!
//! The tokenizers library can express this only as a list of merges in a strict order. That is not the same where
//! one token can be made from several pairs (the leftmost place must win, not the pair that is listed first), and
//! it costs a list several times the size of the vocabulary. So the loop is our own; it is short.

use crate::error::TokenizerError;
use crate::piece::{Piece, PieceKind, byte_of_escape};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// A vocabulary in which any two neighbours may merge when their joint text is a token.
#[derive(Debug, Clone)]
pub(crate) struct SentenceModel {
    /// Text of ordinary tokens. Markup is absent, so that plain text can never merge into it.
    ids: HashMap<String, u32>,
    /// By id.
    scores: Vec<f32>,
    /// The token of each byte, where there is one.
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
}

/// A run of the text that is one token so far; a doubly linked list by index.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: usize,
    /// 0 once the symbol has been merged into its left neighbour.
    len: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// A possible merge. `len` tells whether it is still possible when its turn comes.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Candidate {
    /// The best score first, then the leftmost.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl SentenceModel {
    /// `pieces` and `scores` are both by id and of equal length.
    pub(crate) fn new(pieces: &[Piece], scores: &[f32], unknown: Option<u32>) -> Self {
        let mut ids = HashMap::with_capacity(pieces.len());
        let mut bytes = vec![None; 256];
        for (id, piece) in (0u32..).zip(pieces) {
            match piece.kind {
                PieceKind::Normal | PieceKind::UserDefined => {
                    ids.insert(piece.text.clone(), id);
                }
                PieceKind::Byte => {
                    let slot = byte_of_escape(&piece.text).and_then(|byte| bytes.get_mut(usize::from(byte)));
                    if let Some(slot) = slot {
                        *slot = Some(id);
                    }
                }
                PieceKind::Unknown | PieceKind::Control | PieceKind::Unused => {}
            }
        }
        Self { ids, scores: scores.to_vec(), bytes, unknown }
    }

    /// Cuts text, in which spaces are already `▁`, into tokens.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, letter))| Symbol {
                start,
                len: letter.len_utf8(),
                previous: index.checked_sub(1),
                next: Some(index + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        self.merge(text, &mut symbols);
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            self.emit(text.get(symbol.start..symbol.start + symbol.len).unwrap_or_default(), out)?;
        }
        Ok(())
    }

    fn merge(&self, text: &str, symbols: &mut [Symbol]) {
        let mut queue: BinaryHeap<Candidate> = (1..symbols.len())
            .filter_map(|right| self.candidate(text, symbols, Some(right - 1), Some(right)))
            .collect();
        while let Some(Candidate { left, right, len, .. }) = queue.pop() {
            let (Some(&first), Some(&second)) = (symbols.get(left), symbols.get(right)) else { continue };
            // One of the two has meanwhile merged with another neighbour.
            if first.len == 0 || second.len == 0 || first.len + second.len != len {
                continue;
            }
            if let Some(symbol) = symbols.get_mut(left) {
                *symbol = Symbol { len, next: second.next, ..first };
            }
            if let Some(symbol) = symbols.get_mut(right) {
                symbol.len = 0;
            }
            if let Some(after) = second.next.and_then(|next| symbols.get_mut(next)) {
                after.previous = Some(left);
            }
            queue.extend(self.candidate(text, symbols, first.previous, Some(left)));
            queue.extend(self.candidate(text, symbols, Some(left), second.next));
        }
    }

    fn candidate(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: Option<usize>,
        right: Option<usize>,
    ) -> Option<Candidate> {
        let (left, right) = (left?, right?);
        let (first, second) = (symbols.get(left)?, symbols.get(right)?);
        let len = first.len + second.len;
        let id = *self.ids.get(text.get(first.start..first.start + len)?)?;
        let score = *self.scores.get(usize::try_from(id).ok()?)?;
        Some(Candidate { score, left, right, len })
    }

    /// One symbol: a token, or bytes, or the unknown token.
    fn emit(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if let Some(&id) = self.ids.get(text) {
            out.push(id);
            return Ok(());
        }
        let spelled: Option<Vec<u32>> =
            text.bytes().map(|byte| self.bytes.get(usize::from(byte)).copied().flatten()).collect();
        match (spelled, self.unknown) {
            (Some(ids), _) => out.extend(ids),
            (None, Some(unknown)) => out.push(unknown),
            (None, None) => return Err(TokenizerError::Unencodable { text: text.to_owned() }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::SentenceModel;
    use crate::piece::{Piece, PieceKind};

    fn model(entries: &[(&str, PieceKind, f32)], unknown: Option<u32>) -> SentenceModel {
        let pieces: Vec<Piece> =
            entries.iter().map(|&(text, kind, _)| Piece { text: text.to_owned(), kind }).collect();
        let scores: Vec<f32> = entries.iter().map(|entry| entry.2).collect();
        SentenceModel::new(&pieces, &scores, unknown)
    }

    fn ids(model: &SentenceModel, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        model.encode(text, &mut out).unwrap();
        out
    }

    #[test]
    fn the_best_score_merges_first_and_the_leftmost_of_equals() {
        use PieceKind::Normal;
        let model = model(
            &[
                ("a", Normal, 0.0),
                ("b", Normal, 0.0),
                ("ab", Normal, -2.0),
                ("ba", Normal, -1.0),
                ("aa", Normal, -3.0),
            ],
            None,
        );
        assert_eq!(ids(&model, "aba"), [0, 3], "ba beats ab");
        assert_eq!(ids(&model, "aaa"), [4, 0], "the left pair merges");
        assert_eq!(ids(&model, ""), [0u32; 0], "nothing in, nothing out");
    }

    #[test]
    fn parts_need_not_be_tokens_and_markup_is_out_of_reach() {
        use PieceKind::{Byte, Control, Normal, Unknown};
        let model = model(
            &[("<unk>", Unknown, 0.0), ("xy", Normal, -1.0), ("xyz", Control, 0.0), ("<0x7A>", Byte, 0.0)],
            Some(0),
        );
        assert_eq!(
            ids(&model, "xyz"),
            [1, 3],
            "xy merges, z is spelled as a byte, the control token is not made"
        );
        assert_eq!(ids(&model, "é"), [0], "no token and no bytes: unknown");
    }

    #[test]
    fn text_that_cannot_be_spelled_is_an_error_without_an_unknown_token() {
        let error = model(&[("a", PieceKind::Normal, 0.0)], None).encode("b", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("\"b\""), "the message shows the text: {error}");
    }
}
