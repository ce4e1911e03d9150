//! One entry of a vocabulary, and the bytes that it stands for.

use crate::error::TokenizerError;

/// What a token is for, as GGUF's `tokenizer.ggml.token_type` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    /// Ordinary text.
    Normal,
    /// Stands for text that the vocabulary cannot spell.
    Unknown,
    /// Steers the model and is never part of its text, such as end of sequence.
    Control,
    /// Text that is never split, found in any input.
    UserDefined,
    /// Reserved.
    Unused,
    /// One byte, spelled `<0xNN>`.
    Byte,
}

impl PieceKind {
    /// Reads GGUF's number; `index` is for the message.
    pub(crate) fn from_gguf(field: &'static str, index: usize, number: i32) -> Result<Self, TokenizerError> {
        Ok(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            other => {
                return Err(TokenizerError::Entry {
                    field,
                    index,
                    expected: "a token type from 1 to 6",
                    found: other.to_string(),
                });
            }
        })
    }

    /// Whether the token is markup and not text: hidden when decoding, parsed only on request.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// A token's spelling in the vocabulary and its kind.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) kind: PieceKind,
}

/// How a vocabulary spells bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Each byte is one letter of GPT-2's alphabet of 256 printable characters.
    ByteLevel,
    /// Plain UTF-8 with `▁` for a space; `<0xNN>` for single bytes. `strip` removes the space that the encoder
    /// put before the text.
    Sentence { strip: bool },
}

impl Piece {
    /// Appends the bytes that the token stands for.
    pub(crate) fn append_bytes(&self, spelling: Spelling, out: &mut Vec<u8>) {
        match (self.kind, spelling) {
            // Added tokens are kept as they are written, whatever the alphabet.
            (PieceKind::Control | PieceKind::Unknown | PieceKind::UserDefined, Spelling::ByteLevel)
            | (PieceKind::Control | PieceKind::Unknown, Spelling::Sentence { .. }) => {
                out.extend_from_slice(self.text.as_bytes());
            }
            (_, Spelling::ByteLevel) => {
                let start = out.len();
                for letter in self.text.chars() {
                    if let Some(byte) = byte_of_letter(letter) {
                        out.push(byte);
                    } else {
                        // Not spelled in the alphabet: the text stands for itself, as in the tokenizers library.
                        out.truncate(start);
                        out.extend_from_slice(self.text.as_bytes());
                        return;
                    }
                }
            }
            (kind, Spelling::Sentence { .. }) => match byte_of_escape(&self.text) {
                Some(byte) if kind == PieceKind::Byte => out.push(byte),
                _ => {
                    for (index, part) in self.text.split('▁').enumerate() {
                        if index > 0 {
                            out.push(b' ');
                        }
                        out.extend_from_slice(part.as_bytes());
                    }
                }
            },
        }
    }
}

/// Whether GPT-2's alphabet writes a byte as the character of the same number.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes that are not printable, in order; the alphabet writes the n-th as the character 256 + n.
const SHIFTED: [u8; 68] = {
    let mut table = [0; 68];
    let (mut byte, mut next) = (0u8, 0);
    loop {
        if !is_printable(byte) {
            table[next] = byte;
            next += 1;
        }
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// The byte that a letter of GPT-2's alphabet stands for.
pub(crate) fn byte_of_letter(letter: char) -> Option<u8> {
    match u8::try_from(u32::from(letter)) {
        Ok(byte) => is_printable(byte).then_some(byte),
        Err(_) => SHIFTED.get(usize::try_from(u32::from(letter) - 256).ok()?).copied(),
    }
}

/// The byte that `<0xNN>` stands for.
pub(crate) fn byte_of_escape(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{Piece, PieceKind, Spelling, byte_of_escape, byte_of_letter};
    use std::collections::HashSet;

    fn bytes(text: &str, kind: PieceKind, spelling: Spelling) -> Vec<u8> {
        let mut out = b"x".to_vec();
        Piece { text: text.to_owned(), kind }.append_bytes(spelling, &mut out);
        out.split_off(1)
    }

    #[test]
    fn the_alphabet_has_one_letter_for_each_byte() {
        let found: HashSet<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of_letter).collect();
        assert_eq!(found.len(), 256, "every byte is reachable");
        assert_eq!(byte_of_letter('Ġ'), Some(b' '), "the space is written as U+0120");
        assert_eq!(byte_of_letter('Ċ'), Some(b'\n'), "the newline is written as U+010A");
        assert_eq!(byte_of_letter('Ń'), Some(0xad), "the last shifted byte is the soft hyphen");
        assert_eq!(byte_of_letter('日'), None, "other characters are no letters");
    }

    #[test]
    fn escapes_are_exact() {
        assert_eq!(byte_of_escape("<0x0A>"), Some(10), "upper case");
        for text in ["<0x0A", "0x0A>", "<0x0>", "<0x+1>", "<0x00A>", "<0xG0>", "<0xé>", ""] {
            assert_eq!(byte_of_escape(text), None, "{text:?} is no byte");
        }
    }

    #[test]
    fn pieces_become_bytes() {
        use PieceKind::{Byte, Control, Normal, UserDefined};
        let sentence = Spelling::Sentence { strip: true };
        for (text, kind, spelling, expected) in [
            ("Ġhi", Normal, Spelling::ByteLevel, " hi"),
            ("é", UserDefined, Spelling::ByteLevel, "é"),
            ("日Ġ", Normal, Spelling::ByteLevel, "日Ġ"),
            ("<|a b|>", Control, Spelling::ByteLevel, "<|a b|>"),
            ("▁hi▁▁", Normal, sentence, " hi  "),
            ("<0x41>", Byte, sentence, "A"),
            ("<0x41>", Normal, sentence, "<0x41>"),
            ("<s▁>", Control, sentence, "<s▁>"),
        ] {
            assert_eq!(bytes(text, kind, spelling), expected.as_bytes(), "{text:?} as {kind:?}");
        }
        assert_eq!(bytes("é", Normal, Spelling::ByteLevel), [0xe9], "a letter of the alphabet is one byte");
    }
}
