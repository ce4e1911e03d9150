//! Fetching one file so that it survives cut lines, closed lids and lying servers: what has arrived is kept in a
//! `.part` file, continued by byte range if the content is still the same, hashed on the way and only then renamed.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;

use super::cache::beside;
use super::hash::{self, Hasher};
use super::http::{Client, Reply};
use crate::{output, progress};

/// Tries in a row that bring no byte before giving up.
const FRUITLESS_TRIES: u32 = 3;
const MAGIC: &[u8] = b"GGUF";

/// Why a download failed. Every message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DownloadError {
    /// One of the hub's environment variables cannot be used.
    #[error("{variable} is {found}; expected {expected}, or unset it")]
    Setting {
        /// Its name.
        variable: &'static str,
        /// What it is, in quotes; of a secret only what is wrong with it.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// No connection to the server.
    #[error("no connection to {url}: {reason}; check the network, HTTPS_PROXY and HF_ENDPOINT")]
    Connection { url: String, reason: String },
    /// The server accepted the connection and fell silent.
    #[error(
        "{url} sent nothing for too long; run the same command again to go on where it stopped \
             (HF_HUB_DOWNLOAD_TIMEOUT=SECONDS makes it wait longer)"
    )]
    Timeout { url: String },
    /// The connection broke during the body, several times.
    #[error(
        "the connection to {url} broke after {have} bytes: {reason}; \
             run the same command again to go on where it stopped"
    )]
    Cut { url: String, have: u64, reason: String },
    /// Redirected in circles or to somewhere forbidden.
    #[error("{url} redirects to where a download cannot go: {reason}")]
    Redirect { url: String, reason: String },
    /// 404 or 410.
    #[error("{url} does not exist (HTTP {status}); check the spelling of owner, repository and file")]
    NotFound { url: String, status: u16 },
    /// 401 or 403.
    #[error(
        "access to {url} is denied (HTTP {status}); the repository may be misspelt, private or need its terms \
             accepted: accept them on the hub and set HF_TOKEN"
    )]
    Denied { url: String, status: u16 },
    /// Any other status.
    #[error("{url} answered HTTP {status}; try again later")]
    Status { url: String, status: u16 },
    /// The content is not what was asked for.
    #[error(
        "{url} sent {found} instead of a GGUF file; check the address, and whether a login page or proxy is in \
             the way"
    )]
    NotGguf { url: String, found: String },
    /// The size differs from the known one.
    #[error("{url} has {found} bytes, expected {expected}: it is not the file that redraft knows")]
    Size { url: String, expected: u64, found: u64 },
    /// The hash differs from the known or announced one.
    #[error(
        "{url} has SHA-256 {found}, expected {expected}: damaged on the way or not the same file; nothing was kept"
    )]
    Hash { url: String, expected: String, found: String },
    /// The cache cannot be written.
    #[error("cannot write {path}: {source}{}", advice(source))]
    Write { path: PathBuf, source: io::Error },
}

impl DownloadError {
    /// Whether the same request may well succeed in a moment.
    fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Cut { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}

/// What to do about an error of the file system.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or point XDG_CACHE_HOME to a larger disk, then run the same command again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; make the cache folder writable or point XDG_CACHE_HOME elsewhere"
        }
        _ => "",
    }
}

/// What to fetch and what is known about it.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) url: String,
    /// Where it goes.
    pub(crate) path: &'a Path,
    pub(crate) sha256: Option<&'a str>,
    pub(crate) size: Option<u64>,
}

/// Fetches `wanted` and returns the SHA-256 of what is now at its path.
pub(crate) fn fetch(client: &Client, wanted: &Wanted<'_>) -> Result<String, DownloadError> {
    let mut part = Part::open(wanted)?;
    let bar = progress::bytes("downloading", wanted.size.unwrap_or(0));
    let complete = fetch_into(&mut part, client, wanted, &bar);
    bar.finish_and_clear();
    let finished = complete.and_then(|()| part.check(wanted));
    if finished.is_err() && part.length == 0 {
        part.remove(); // Nothing to continue with.
        return finished;
    }
    let sha256 = finished?;
    part.move_into_place(wanted)?;
    Ok(sha256)
}

/// Asks until `part` is complete or asking is hopeless.
fn fetch_into(
    part: &mut Part,
    client: &Client,
    wanted: &Wanted<'_>,
    bar: &ProgressBar,
) -> Result<(), DownloadError> {
    let mut fruitless = 0;
    loop {
        let before = part.length;
        match transfer(client, wanted, part, bar) {
            Ok(()) => return Ok(()),
            Err(error) if error.is_transient() => {
                fruitless = if part.length > before { 1 } else { fruitless + 1 };
                if fruitless > FRUITLESS_TRIES {
                    return Err(error);
                }
                bar.suspend(|| output::note(format_args!("{error}; trying again")));
                std::thread::sleep(Duration::from_millis(250 << fruitless));
            }
            Err(error) => return Err(error),
        }
    }
}

/// One request: appends what comes to `part`. Ok means that the file is complete, as far as its size tells.
fn transfer(
    client: &Client,
    wanted: &Wanted<'_>,
    part: &mut Part,
    bar: &ProgressBar,
) -> Result<(), DownloadError> {
    // Without a hash or a tag nothing could tell whether both halves belong together.
    if part.length > 0 && wanted.sha256.is_none() && part.validator.is_none() {
        part.restart()?;
    }
    let mut reply = client.get(&wanted.url, part.length)?;
    check_status(&reply, &wanted.url)?;
    check_announcement(&reply, wanted)?;
    part.announced.clone_from(&reply.sha256);
    let changed = reply.validator != part.validator && wanted.sha256.is_none();
    if reply.status == 416 && reply.total == Some(part.length) && !changed {
        return Ok(()); // All of it had arrived, only the renaming was missing.
    }
    let continues = reply.status == 206 && reply.start == part.length && !changed;
    if part.length > 0 && !continues {
        bar.suspend(|| output::note("the server cannot continue the earlier download; starting over"));
        part.restart()?;
        if reply.status != 200 {
            reply = client.get(&wanted.url, 0)?;
            check_status(&reply, &wanted.url)?;
            part.announced.clone_from(&reply.sha256);
        }
    }
    part.describe(&reply)?;
    if let Some(total) = reply.total {
        bar.set_length(total);
    }
    bar.set_position(part.length);
    append_body(reply, wanted, part, bar)
}

fn append_body(
    mut reply: Reply,
    wanted: &Wanted<'_>,
    part: &mut Part,
    bar: &ProgressBar,
) -> Result<(), DownloadError> {
    let url = || wanted.url.clone();
    let total = reply.total;
    let limit = total.or(wanted.size).unwrap_or(u64::MAX);
    let mut failure = None;
    let read = hash::read_chunks(&mut reply.body, |bytes| {
        let appended = part.append(bytes, wanted);
        bar.set_position(part.length);
        let too_long = (part.length > limit).then(|| DownloadError::Size {
            url: url(),
            expected: limit,
            found: part.length,
        });
        failure = appended.err().or(too_long);
        if failure.is_some() { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let cut = |reason: String| DownloadError::Cut { url: url(), have: part.length, reason };
    match read {
        Err(error) if is_timeout(&error) => Err(DownloadError::Timeout { url: url() }),
        Err(error) => Err(cut(error.to_string())),
        Ok(()) if total.is_some_and(|total| part.length < total) => Err(cut("closed early".into())),
        Ok(()) => Ok(()),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<ureq::Error>());
    matches!(inner, Some(ureq::Error::Timeout(_)))
        || matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn check_status(reply: &Reply, url: &str) -> Result<(), DownloadError> {
    let (url, status) = (url.to_owned(), reply.status);
    match status {
        416 => Ok(()),
        200 | 206 if !reply.html => Ok(()),
        200 | 206 => Err(DownloadError::NotGguf { url, found: "a web page".into() }),
        401 | 403 => Err(DownloadError::Denied { url, status }),
        404 | 410 => Err(DownloadError::NotFound { url, status }),
        _ => Err(DownloadError::Status { url, status }),
    }
}

/// Compares what the hub says about the file with what is known, before a byte of it is fetched.
fn check_announcement(reply: &Reply, wanted: &Wanted<'_>) -> Result<(), DownloadError> {
    if let (Some(expected), Some(found)) = (wanted.sha256, &reply.sha256)
        && !expected.eq_ignore_ascii_case(found)
    {
        return Err(DownloadError::Hash {
            url: wanted.url.clone(),
            expected: expected.into(),
            found: found.clone(),
        });
    }
    match (wanted.size, reply.total) {
        (Some(expected), Some(found)) if expected != found => {
            Err(DownloadError::Size { url: wanted.url.clone(), expected, found })
        }
        _ => Ok(()),
    }
}

/// The part of the file that has arrived.
struct Part {
    file: File,
    path: PathBuf,
    length: u64,
    hasher: Hasher,
    head: Vec<u8>,
    /// Identity of the content, kept beside the part so that a later process can tell whether to continue.
    validator: Option<String>,
    /// Hash announced by the hub.
    announced: Option<String>,
}

impl Part {
    /// Opens or creates the part and hashes what is there.
    fn open(wanted: &Wanted<'_>) -> Result<Self, DownloadError> {
        let path = beside(wanted.path, ".part");
        let failed = |source| DownloadError::Write { path: path.clone(), source };
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let (mut hasher, mut length, mut head) = (Hasher::default(), 0, Vec::new());
        hash::read_chunks(&mut file, |bytes| {
            head.extend(bytes.iter().take(MAGIC.len() - head.len()));
            hasher.update(bytes);
            length += bytes.len() as u64;
            Ok(())
        })
        .map_err(failed)?;
        let validator = fs::read_to_string(beside(&path, ".tag")).ok().filter(|tag| !tag.is_empty());
        Ok(Self { file, path, length, hasher, head, validator, announced: None })
    }

    fn write_error(&self, source: io::Error) -> DownloadError {
        DownloadError::Write { path: self.path.clone(), source }
    }

    /// Forgets what has arrived.
    fn restart(&mut self) -> Result<(), DownloadError> {
        self.file.set_len(0).map_err(|e| self.write_error(e))?;
        self.file.seek(SeekFrom::Start(0)).map_err(|e| self.write_error(e))?;
        self.length = 0;
        self.hasher = Hasher::default();
        self.head.clear();
        self.validator = None;
        Ok(())
    }

    /// Notes the identity of the content that is about to be appended.
    fn describe(&mut self, reply: &Reply) -> Result<(), DownloadError> {
        if self.validator != reply.validator {
            self.validator.clone_from(&reply.validator);
            let tag = self.validator.as_deref().unwrap_or_default();
            fs::write(beside(&self.path, ".tag"), tag).map_err(|e| self.write_error(e))?;
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8], wanted: &Wanted<'_>) -> Result<(), DownloadError> {
        self.head.extend(bytes.iter().take(MAGIC.len() - self.head.len()));
        self.check_magic(wanted)?;
        self.file.write_all(bytes).map_err(|e| self.write_error(e))?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Refuses content that does not begin as GGUF does; a login page is noticed before gigabytes of it have come.
    fn check_magic(&mut self, wanted: &Wanted<'_>) -> Result<(), DownloadError> {
        if MAGIC.starts_with(&self.head) {
            return Ok(());
        }
        let found = format!("something that begins with '{}'", self.head.escape_ascii());
        self.restart()?;
        Err(DownloadError::NotGguf { url: wanted.url.clone(), found })
    }

    /// Checks size and hash, and returns the hash. What is wrong is not kept.
    fn check(&mut self, wanted: &Wanted<'_>) -> Result<String, DownloadError> {
        let url = || wanted.url.clone();
        if self.head.len() < MAGIC.len() {
            return Err(DownloadError::NotGguf { url: url(), found: "an empty answer".into() });
        }
        if let Some(expected) = wanted.size
            && expected != self.length
        {
            let found = self.length;
            self.restart()?;
            return Err(DownloadError::Size { url: url(), expected, found });
        }
        let found = self.hasher.clone().hex();
        let expected = wanted.sha256.map(str::to_owned).or(self.announced.take());
        if let Some(expected) = expected
            && !expected.eq_ignore_ascii_case(&found)
        {
            self.restart()?;
            return Err(DownloadError::Hash { url: url(), expected, found });
        }
        Ok(found)
    }

    fn move_into_place(self, wanted: &Wanted<'_>) -> Result<(), DownloadError> {
        self.file.sync_all().map_err(|e| self.write_error(e))?;
        let Self { file, path, .. } = self;
        drop(file); // Windows does not rename open files.
        fs::rename(&path, wanted.path)
            .map_err(|source| DownloadError::Write { path: path.clone(), source })?;
        let _ = fs::remove_file(beside(&path, ".tag"));
        Ok(())
    }

    /// Removes the part and its tag.
    fn remove(self) {
        let Self { file, path, .. } = self;
        drop(file);
        for file in [beside(&path, ".tag"), path] {
            let _ = fs::remove_file(file);
        }
    }
}
