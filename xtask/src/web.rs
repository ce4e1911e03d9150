//! The browser package and its demo: built, served, tested.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::Cmd;
use crate::setup::{self, WASM, web::npm};
use crate::{Outcome, root, target_dir};

/// What wasm-bindgen may leave to wasm-opt: what Chrome 113, Firefox 141 and Safari 18 all have.
const FEATURES: [&str; 6] = [
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-sign-ext",
];

/// Names the folder of models to the demo's server and to the tests.
const MODELS: &str = "REDRAFT_WEB_MODELS";

/// Builds everything, then serves the demo with the default model from the cache folder.
pub(crate) fn serve() -> Outcome {
    setup::model()?;
    build()?;
    npm(&["run", "serve", "--workspace", "redraft-demo"]).env(MODELS, setup::web::models()?).run()
}

/// The module, the package, the demo.
pub(crate) fn build() -> Outcome {
    setup::web::for_building()?;
    module()?;
    npm(&["run", "build"]).run()
}

/// The tests that need no browser.
pub(crate) fn unit_tests() -> Outcome {
    npm(&["run", "test:unit"]).run()
}

/// Small models and kernels for the browser tests, then the tests.
pub(crate) fn browser_tests() -> Outcome {
    setup::web::for_testing()?;
    let fixtures = root().join("web").join(".build").join("fixtures");
    let example = |package: &str, name: &str| {
        Cmd::cargo("run").args([
            "--release",
            "--locked",
            "--quiet",
            "--package",
            package,
            "--example",
            name,
            "--",
        ])
    };
    let models = setup::web::models()?;
    example("redraft-testing", "web_fixtures").arg(&fixtures).arg(&models).run()?;
    let shaders = example("redraft-shaders", "print").arg("--browser").read()?;
    write(&fixtures.join("shaders.jsonl"), &shaders)?;
    npm(&["run", "test:browser"]).env(MODELS, models).run()
}

/// Packs the package.
pub(crate) fn pack() -> Outcome {
    build()?;
    let folder = root().join("web").join(".build");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    npm(&["pack", "--workspace", "@redraft/web", "--pack-destination"]).arg(folder).run()
}

/// Compiles the module, binds it and makes it small, unless that was done with the same bytes.
fn module() -> Outcome {
    Cmd::cargo("build")
        .args(["--profile", "web", "--locked", "--target", WASM, "--package", "redraft-wasm"])
        .env("CARGO_ENCODED_RUSTFLAGS", flags())
        .run()?;
    let compiled = target_dir().join(WASM).join("web").join("redraft_wasm.wasm");
    let folder = root().join("web").join("package").join("src").join("wasm");
    let small = folder.join("redraft_wasm_bg.wasm");
    let bytes =
        fs::read(&compiled).map_err(|error| format!("cannot read {}: {error}", compiled.display()))?;
    let done = root().join("web").join(".build").join("compiled.wasm");
    if small.is_file() && fs::read(&done).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    let scratch = target_dir().join("web-module");
    Cmd::new(setup::web::wasm_bindgen()?)
        .args(["--target", "web", "--omit-default-module-path", "--out-dir"])
        .arg(&scratch)
        .arg(&compiled)
        .run()?;
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    for file in ["redraft_wasm.js", "redraft_wasm.d.ts"] {
        let copied = fs::copy(scratch.join(file), folder.join(file));
        copied.map_err(|error| format!("cannot copy {file} to {}: {error}", folder.display()))?;
    }
    let optimizer = root().join("web").join("node_modules").join(".bin").join("wasm-opt");
    Cmd::new(optimizer)
        .args(["-Os", "--strip-debug", "--strip-producers"])
        .args(FEATURES)
        .arg("--output")
        .arg(&small)
        .arg(scratch.join("redraft_wasm_bg.wasm"))
        .run()?;
    write(&done, &bytes)
}

/// Flags of the compiler, the user's and our own: messages of panics name source files, those of dependencies with the
/// folders of whoever built the module, which are nobody's business.
fn flags() -> OsString {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry").join("src")).ok());
    let mut registries: Vec<PathBuf> =
        registries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    // The same flags each time: others would have everything compiled again.
    registries.sort();
    let usual = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut flags: Vec<OsString> = usual.split_whitespace().map(OsString::from).collect();
    for folder in registries {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(folder);
        flag.push("=.");
        flags.push(flag);
    }
    flags.join(OsStr::new("\u{1f}"))
}

fn write(file: &Path, bytes: impl AsRef<[u8]>) -> Outcome {
    let folder = file.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(file, bytes));
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))
}
