//! What the browser package needs: node, npm's packages, wasm-bindgen's command, a Chromium for its tests.

use std::path::PathBuf;

use super::{WASM, apt, model, targets};
use crate::process::{Cmd, which};
use crate::{Outcome, root};

/// The oldest node that Vite runs on.
const OLDEST_NODE: (u32, u32) = (20, 19);
/// Where Chromium and its kin are looked for besides PATH; the list of `web/tests/chromium.ts`.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What building the package and the demo needs.
pub(crate) fn for_building() -> Outcome {
    targets(&[WASM])?;
    node()?;
    wasm_bindgen()?;
    packages()
}

/// What testing them needs as well.
pub(crate) fn for_testing() -> Outcome {
    for_building()?;
    chromium()
}

/// The command wasm-bindgen in the version of the crate.
pub(crate) fn wasm_bindgen() -> Outcome<PathBuf> {
    let version = locked_version("wasm-bindgen")?;
    let tools = model::cache()?.join("tools");
    let own = tools.join("bin").join(format!("wasm-bindgen{}", std::env::consts::EXE_SUFFIX));
    let fits = |program: &PathBuf| {
        let said = Cmd::new(program).arg("--version").read();
        said.is_ok_and(|said| said.split_whitespace().nth(1) == Some(version.as_str()))
    };
    if let Some(found) = [Some(own.clone()), which("wasm-bindgen")].into_iter().flatten().find(fits) {
        return Ok(found);
    }
    // Its lock file names a version of a crate that cannot be had any more, so not with --locked. Built outside the
    // target folder of the checkout, whose settings are not its own.
    let install =
        Cmd::cargo("install").args(["wasm-bindgen-cli", "--version", &version, "--root"]).arg(&tools);
    install.env("CARGO_TARGET_DIR", tools.join("target")).run()?;
    // What was compiled on the way is of no more use.
    let _ = std::fs::remove_dir_all(tools.join("target"));
    Ok(own)
}

fn locked_version(package: &str) -> Outcome<String> {
    let file = root().join("Cargo.lock");
    let lock =
        std::fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    version_in(&lock, package).ok_or_else(|| format!("Cargo.lock names no {package}"))
}

fn version_in(lock: &str, package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| **line != name);
    let version = lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')?;
    Some(version.to_owned())
}

fn node() -> Outcome {
    let (major, minor) = OLDEST_NODE;
    let wanted = format!("Node.js {major}.{minor} or later with npm");
    let version =
        Cmd::new("node").arg("--version").read().map_err(|error| format!("{error}\ninstall {wanted}"))?;
    let mut parts =
        version.trim().trim_start_matches('v').split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < OLDEST_NODE {
        return Err(format!("node is {}, too old; install {wanted}", version.trim()));
    }
    if which("npm").is_none() {
        return Err(format!("npm is not on PATH; install {wanted}"));
    }
    Ok(())
}

/// npm's packages, as locked; nothing is done where they are as the lock file says.
fn packages() -> Outcome {
    let web = root().join("web");
    let read = |path: &str| std::fs::read(web.join(path)).ok();
    let lock = read("package-lock.json");
    if lock.is_some() && lock == read("node_modules/.redraft-lock") {
        return Ok(());
    }
    npm(&["ci", "--no-audit", "--no-fund"]).run()?;
    let noted = web.join("node_modules/.redraft-lock");
    std::fs::write(&noted, lock.unwrap_or_default())
        .map_err(|error| format!("cannot write {}: {error}", noted.display()))
}

/// The folder of fetched models, for the programs of `web/` that cannot know it on every system.
pub(crate) fn models() -> Outcome<PathBuf> {
    Ok(model::cache()?.join("models"))
}

/// npm in `web/`.
pub(crate) fn npm(args: &[&str]) -> Cmd {
    Cmd::new(which("npm").unwrap_or_else(|| "npm".into()))
        .args(["--prefix", "web"])
        .args(args.iter().copied())
}

fn chromium() -> Outcome {
    if std::env::var_os("REDRAFT_CHROMIUM").is_some() || BROWSERS.iter().any(|name| which(name).is_some()) {
        return Ok(());
    }
    apt::update()?;
    apt::install(&["chromium"], None)
        .map_err(|error| format!("{error}\nthe browser tests need Chromium; REDRAFT_CHROMIUM may name one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.2.3\"\n\n[[package]]\nname = \"a-b\"\nversion = \"4.5.6\"\n";
        assert_eq!(version_in(lock, "a").as_deref(), Some("1.2.3"), "the first");
        assert_eq!(version_in(lock, "a-b").as_deref(), Some("4.5.6"), "not a prefix");
        assert_eq!(version_in(lock, "b"), None, "absent");
    }
}
