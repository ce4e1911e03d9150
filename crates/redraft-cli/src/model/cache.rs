//! The folder where fetched models live, and the lock that lets one process fetch a file at a time.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::ModelError;
use super::reference::HubRef;
use crate::output;

/// Where redraft keeps what it can fetch or compute again: `$XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches` on
/// macOS, `%LOCALAPPDATA%` on Windows; then `redraft`.
pub(crate) fn root() -> Option<PathBuf> {
    // A relative path in XDG_CACHE_HOME is to be ignored by the XDG specification.
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| {
        if cfg!(windows) {
            absolute("LOCALAPPDATA")
        } else if cfg!(target_os = "macos") {
            Some(absolute("HOME")?.join("Library").join("Caches"))
        } else {
            Some(absolute("HOME")?.join(".cache"))
        }
    });
    base.map(|base| base.join("redraft"))
}

/// The folder of models.
pub(crate) fn models() -> Result<PathBuf, ModelError> {
    root().map(|root| root.join("models")).ok_or(ModelError::NoCacheFolder)
}

/// Where the file of `hub` is kept. The default revision has no folder of its own.
pub(crate) fn hub_path(hub: &HubRef) -> Result<PathBuf, ModelError> {
    let repository = match hub.revision.as_str() {
        "main" => hub.repository.clone(),
        other => format!("{}@{other}", hub.repository),
    };
    let mut path = models()?.join("hub");
    path.extend(repository.split('/').chain(hub.file.split('/')));
    Ok(path)
}

/// `path` with `suffix` appended to its file name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

/// Holds the right to fetch one file. Released when dropped and when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct FetchLock {
    _file: File,
}

impl FetchLock {
    /// Creates the folder of `path` and waits until no other process fetches `path`.
    pub(crate) fn acquire(path: &Path) -> Result<Self, ModelError> {
        let lock = beside(path, ".lock");
        let failed = |source: io::Error| ModelError::Write { path: lock.clone(), source };
        if let Some(folder) = lock.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = File::options().create(true).truncate(false).write(true).open(&lock).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                output::note(format_args!("another redraft is fetching {}; waiting for it", path.display()));
                file.lock().map_err(failed)?;
            }
            // Some network file systems have no locks: two downloads at once are then possible, and caught by the hash.
            Err(TryLockError::Error(error)) => log::warn!("cannot lock {}: {error}", lock.display()),
        }
        Ok(Self { _file: file })
    }
}
