//! Reading files that a user named, whole and up to a limit.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::error::CliError;

/// The bytes of a regular file of at most `limit` bytes. Devices and pipes are refused before they are opened: they may
/// have no end, and opening one may wait for ever.
pub(crate) fn read(file: &Path, limit: u64) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let too_large = || io::Error::other(format!("it is larger than {} MiB", limit >> 20));
    let mut read = || {
        let metadata = fs::metadata(file)?;
        if metadata.is_dir() {
            return Err(io::Error::other("it is a folder; name a file"));
        }
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file; name a file on disk"));
        }
        if metadata.len() > limit {
            return Err(too_large());
        }
        fs::File::open(file)?.take(limit + 1).read_to_end(&mut bytes)
    };
    match read() {
        Err(source) => Err(failed(file, source)),
        // It may have grown since.
        Ok(_) if bytes.len() as u64 > limit => Err(failed(file, too_large())),
        Ok(_) => Ok(bytes),
    }
}

/// The error of a file that cannot be read.
pub(crate) fn failed(file: &Path, source: io::Error) -> CliError {
    CliError::File { action: "read", path: file.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, [7; 100]).unwrap();
        assert_eq!(read(&file, 100).unwrap(), [7; 100]);
        let reason = |path: &Path, limit| read(path, limit).unwrap_err().to_string();
        assert!(reason(&file, 99).contains("larger than"));
        assert!(reason(folder.path(), 99).contains("folder"));
        assert!(reason(&folder.path().join("absent"), 99).contains("cannot read"));
        #[cfg(unix)]
        assert!(reason(Path::new("/dev/zero"), 99).contains("no regular file"));
    }
}
