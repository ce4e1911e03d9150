//! Files as a source of bytes. Native targets only.

use crate::error::ReadError;
use crate::source::ReadAt;
use std::fs::File;
use std::io;
use std::path::Path;

/// An open file, read at offsets without moving a shared cursor.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    size: u64,
}

impl FileSource {
    /// Opens a regular file for reading. Its size is taken now; a file that shrinks later fails on reading.
    ///
    /// # Errors
    ///
    /// [`ReadError::Open`] when the path cannot be opened or is no regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let path = path.as_ref();
        let failed = |source| ReadError::Open { path: path.display().to_string(), source };
        // Asked before opening, because opening a named pipe would wait for its other end.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        Ok(Self { file, size })
    }
}

impl ReadAt for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let length = into.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return Err(ReadError::OutOfRange { offset, length, size: self.size });
        }
        read_exact_at(&self.file, offset, into).map_err(|source| ReadError::Io { offset, length, source })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                into = into.get_mut(read..).unwrap_or_default();
                offset = offset.saturating_add(read as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FileSource;
    use crate::{ReadAt, ReadError};

    #[test]
    fn reads_this_file_and_refuses_what_is_none() {
        // Asked while it runs: a build folder outlives the checkout that filled it.
        let root = &std::env::var("CARGO_MANIFEST_DIR").unwrap();
        let path = format!("{root}/Cargo.toml");
        let whole = std::fs::read(&path).unwrap();
        let source = FileSource::open(&path).unwrap();
        assert_eq!(source.size(), whole.len() as u64);
        let mut part = [0; 10];
        pollster::block_on(source.read_at(3, &mut part)).unwrap();
        assert_eq!(part, whole[3..13]);
        let error = pollster::block_on(source.read_at(source.size() - 9, &mut part)).unwrap_err();
        assert!(matches!(error, ReadError::OutOfRange { .. }), "{error}");

        for (path, word) in [(format!("{root}/absent"), "absent"), (root.to_owned(), "not a regular file")] {
            let error = FileSource::open(&path).unwrap_err();
            assert!(matches!(error, ReadError::Open { .. }), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
