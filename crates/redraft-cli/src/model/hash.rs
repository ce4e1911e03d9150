//! SHA-256 of files and streams, as lower-case hexadecimal.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Bytes read at a time.
pub(super) const CHUNK: usize = 256 * 1024;

/// A running hash.
#[derive(Debug, Clone, Default)]
pub(super) struct Hasher(Sha256);

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn hex(self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.0.finalize() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Reads `source` to its end through `each`.
pub(super) fn read_chunks(
    source: &mut impl Read,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => each(buffer.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The hash of a file, reporting bytes as they are read.
pub(super) fn file(path: &Path, mut progress: impl FnMut(u64)) -> io::Result<String> {
    let mut hasher = Hasher::default();
    read_chunks(&mut File::open(path)?, |bytes| {
        hasher.update(bytes);
        progress(bytes.len() as u64);
        Ok(())
    })?;
    Ok(hasher.hex())
}

/// The hash of some bytes.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.hex()
}

/// The hash of a large file's size, beginning and end, which is quick: for what only wants to know whether it is the
/// same model, not whether it is intact.
pub(crate) fn identity(path: &Path) -> io::Result<String> {
    const HEAD: u64 = 16 << 20;
    const TAIL: u64 = 1 << 20;
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut hasher = Hasher::default();
    hasher.update(&size.to_le_bytes());
    let mut each = |bytes: &[u8]| {
        hasher.update(bytes);
        Ok(())
    };
    read_chunks(&mut (&mut file).take(HEAD), &mut each)?;
    if size > HEAD {
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL).max(HEAD)))?;
        read_chunks(&mut file, &mut each)?;
    }
    Ok(hasher.hex())
}

/// Whether `text` looks like a SHA-256 in hexadecimal.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard() {
        let mut hasher = Hasher::default();
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_sha256(&Hasher::default().hex()));
        assert!(!is_sha256("abc"));
        assert_eq!(bytes(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn an_identity_sees_size_beginning_and_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut content = vec![7; 18 << 20];
            change(&mut content);
            std::fs::write(file.path(), content).unwrap();
            identity(file.path()).unwrap()
        };
        let same = of(&|_| {});
        assert_eq!(same, of(&|_| {}));
        assert_ne!(same, of(&|content| content[0] = 8));
        assert_ne!(same, of(&|content| *content.last_mut().unwrap() = 8));
        assert_ne!(same, of(&|content| content.push(7)));
        assert_ne!(of(&|content| content.clear()), of(&|content| content.truncate(1)));
    }
}
