//! Where tests find what is not in the repository, and how they say that it is missing.
//!
//! The only file of this crate that reads the environment or the file system.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// File name of the reference model, wherever it lies.
pub const MODEL_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// A test, or a part of one, that did not run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The test or part that was left out.
    pub what: String,
    /// What it would have needed.
    pub why: String,
}

static SKIPS: Mutex<Vec<Skip>> = Mutex::new(Vec::new());

/// Declares that `what` does not run because of `why`: never silently.
///
/// Prints `SKIP what: why` on stderr (past the test harness's capture), records it for
/// [`declared_skips`], and appends `what<TAB>why` to the file that `REDRAFT_SKIP_LOG` names, if it is set.
pub fn declared_skip(what: &str, why: &str) {
    // `eprintln!` would be captured and lost for a passing test; a direct write is not.
    let mut stderr = std::io::stderr().lock();
    let printed = writeln!(stderr, "SKIP {what}: {why}");
    debug_assert!(printed.is_ok(), "stderr is closed");
    if let Some(path) = env::var_os("REDRAFT_SKIP_LOG") {
        let logged = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(format!("{what}\t{why}\n").as_bytes()));
        if let Err(error) = logged {
            let told = writeln!(stderr, "cannot append to REDRAFT_SKIP_LOG {}: {error}", path.display());
            debug_assert!(told.is_ok(), "stderr is closed");
        }
    }
    let skip = Skip { what: what.to_owned(), why: why.to_owned() };
    SKIPS.lock().unwrap_or_else(PoisonError::into_inner).push(skip);
}

/// The skips this process has declared so far.
pub fn declared_skips() -> Vec<Skip> {
    SKIPS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A file below `../shared/data` of the repository root, if it is there.
///
/// `manifest_dir` is the calling crate's `env!("CARGO_MANIFEST_DIR")`, from which the root is found as the
/// nearest ancestor with a `Cargo.lock`. `what` is the test that asks; a missing file is declared as its skip.
pub fn shared_data(manifest_dir: &str, relative: &str, what: &str) -> Option<PathBuf> {
    let root = Path::new(manifest_dir).ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    let path = root.and_then(Path::parent).map(|parent| parent.join("shared/data").join(relative));
    let path = path.filter(|path| path.is_file());
    if path.is_none() {
        declared_skip(what, &format!("../shared/data/{relative} is not beside the repository"));
    }
    path
}

/// The reference model ([`MODEL_FILE`]) if it is on this machine.
///
/// Looks at the path in `REDRAFT_MODEL` and otherwise in `redraft/models` of `XDG_CACHE_HOME` or
/// `~/.cache`, where the set-up command puts it. `what` is the test that asks; a missing file is declared as
/// its skip.
///
/// # Panics
/// When `REDRAFT_MODEL` is set but names no file: a wrong setting must not turn into a skip.
pub fn model_path(what: &str) -> Option<PathBuf> {
    if let Some(named) = env::var_os("REDRAFT_MODEL").filter(|value| !value.is_empty()) {
        let path = PathBuf::from(named);
        assert!(path.is_file(), "REDRAFT_MODEL names no file: {}", path.display());
        return Some(path);
    }
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::home_dir().map(|home| home.join(".cache")));
    let path = cache.map(|cache| cache.join("redraft/models").join(MODEL_FILE)).filter(|path| path.is_file());
    if path.is_none() {
        declared_skip(what, &format!("no {MODEL_FILE}: set REDRAFT_MODEL to it or run the set-up command"));
    }
    path
}
