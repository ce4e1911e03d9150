//! Text from a stream of tokens, in whole characters.

use crate::error::TokenizerError;
use crate::piece::Spelling;
use crate::tokenizer::Tokenizer;

/// Turns ids into text as they arrive.
///
/// A character may be spread over several tokens; its bytes are held back until it is complete. Bytes that can
/// never become a character turn into U+FFFD as in [`String::from_utf8_lossy`]. Everything that
/// [`push`](Self::push) and [`finish`](Self::finish) return, joined, equals [`Tokenizer::decode`] of all ids.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    /// The beginning of a character, at most 3 bytes between pushes.
    held: Vec<u8>,
    /// Whether the next text begins with a space that the encoder put there.
    strip: bool,
    specials: bool,
}

impl Detokenizer {
    /// A stream that begins a text. Special tokens are left out.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let strip = matches!(tokenizer.spelling(), Spelling::Sentence { strip: true });
        Self { tokenizer: tokenizer.clone(), held: Vec::new(), strip, specials: false }
    }

    /// The same stream with special tokens written out.
    #[must_use]
    pub fn with_specials(mut self) -> Self {
        self.specials = true;
        self
    }

    /// The same stream as the continuation of a text: a leading space is part of it.
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.strip = false;
        self
    }

    /// Takes the next token and returns the text that is complete with it, which may be empty.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::UnknownToken`] when the id is outside the vocabulary; the stream is unchanged.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let mut text = String::new();
        self.push_onto(id, &mut text)?;
        Ok(text)
    }

    /// [`push`](Self::push) that appends to a text.
    pub(crate) fn push_onto(&mut self, id: u32, text: &mut String) -> Result<(), TokenizerError> {
        let unknown = TokenizerError::UnknownToken { id, len: self.tokenizer.len() };
        let piece = self.tokenizer.piece(id).ok_or(unknown)?;
        if piece.kind.is_special() && !self.specials {
            return Ok(());
        }
        let start = self.held.len();
        piece.append_bytes(self.tokenizer.spelling(), &mut self.held);
        if self.strip && self.held.len() > start {
            self.strip = false;
            if self.held.get(start) == Some(&b' ') {
                self.held.remove(start);
            }
        }
        let used = append_lossy(&self.held, text);
        self.held.drain(..used);
        Ok(())
    }

    /// Ends the text: the beginning of a character that never became complete turns into U+FFFD. The stream is
    /// then as after its last whole character.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        rest
    }
}

/// Appends all that is decided about some bytes and returns how many they are; the rest begins a character.
fn append_lossy(bytes: &[u8], text: &mut String) -> usize {
    let mut used = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        used += chunk.valid().len();
        let invalid = chunk.invalid();
        let at_end = used + invalid.len() == bytes.len();
        let begins_character = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
        if at_end && begins_character {
            return used;
        }
        if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            used += invalid.len();
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::append_lossy;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_cutting_of_bytes_equals_the_lossy_conversion(
            // Lead and continuation bytes, so that half characters are common.
            bytes in prop::collection::vec(prop::sample::select(vec![
                b'a', 0x80, 0x9f, 0xa0, 0xbf, 0xc3, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xff,
            ]), 0..40),
            cut in 1usize..5,
        ) {
            let (mut held, mut text) = (Vec::new(), String::new());
            for piece in bytes.chunks(cut) {
                held.extend_from_slice(piece);
                let used = append_lossy(&held, &mut text);
                held.drain(..used);
                prop_assert!(held.len() < 4, "no more than the beginning of a character is held");
            }
            text.push_str(&String::from_utf8_lossy(&held));
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
