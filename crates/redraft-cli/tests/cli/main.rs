//! The `redraft` binary as a user or a script meets it: arguments, exit status, standard output and error.

mod arguments;
mod download;
mod drafter;
mod engine;
mod inspect;
mod named;
mod prompts;
mod scene;
mod server;
mod speculation;
mod train;
mod trees;

use std::path::Path;
use std::process::{Command, Output};

/// The binary with an environment of its own: caches in `home`, no hub, no Python, no proxy.
fn redraft(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redraft"));
    command.args(arguments).stdin(std::process::Stdio::null());
    // Outside the checkout, whose drafters would be found.
    command.current_dir(home);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_TOKEN", "RUST_LOG", "HF_HUB_DOWNLOAD_TIMEOUT"]
    {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.env_remove("REDRAFT_MODELS");
    command
        .env("XDG_CACHE_HOME", home)
        .env("HOME", home)
        .env("LOCALAPPDATA", home)
        // Mesa keeps compiled kernels here; without it every single run would compile them all again.
        .env("MESA_SHADER_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/mesa"))
        .env("PATH", home.join("bin"))
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .env("NO_PROXY", "127.0.0.1");
    command
}

/// Presses Ctrl-C.
#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let status = Command::new("/bin/sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
    assert!(status.expect("a shell").success(), "no process to interrupt");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Asserts the exit status, that standard error has every one of `words`, and that nothing panicked.
fn expect(output: &Output, status: i32, words: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "stderr: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in: {stderr}");
    }
    if status != 0 {
        assert_eq!(text(&output.stdout), "", "a failure printed a result");
    }
}
