//! `redraft train`: the program beside the command, or what to do when there is none.

use std::process::Command;

use crate::{expect, text};

/// A copy of the command in a folder of its own.
fn alone(home: &std::path::Path) -> Command {
    let path = home.join(if cfg!(windows) { "redraft.exe" } else { "redraft" });
    std::fs::copy(env!("CARGO_BIN_EXE_redraft"), &path).expect("a copy");
    let mut command = Command::new(path);
    command.env("PATH", home.join("bin")).current_dir(home);
    command
}

#[test]
fn without_the_trainer_the_error_says_how_to_build_it() {
    let home = tempfile::tempdir().expect("a directory");
    let output =
        alone(home.path()).args(["train", "run", "base", "--epochs", "3"]).output().expect("it runs");
    expect(&output, 1, &["redraft-train", "cargo build --release -p redraft-train"]);
}

#[cfg(unix)]
#[test]
fn arguments_and_status_pass_through() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().expect("a directory");
    let trainer = home.path().join("redraft-train");
    std::fs::write(&trainer, "#!/bin/sh\nprintf '%s|' \"$@\"\nexit 7\n").expect("written");
    std::fs::set_permissions(&trainer, std::fs::Permissions::from_mode(0o755)).expect("executable");
    for (arguments, wanted) in [
        (vec!["train", "--help"], "--help|"),
        (vec!["train", "run", "base", "--out", "a b"], "run|base|--out|a b|"),
        (vec!["train"], "|"),
    ] {
        let output = alone(home.path()).args(&arguments).output().expect("it runs");
        assert_eq!(text(&output.stdout), wanted, "{arguments:?}");
        assert_eq!(output.status.code(), Some(7), "{arguments:?}");
    }
}
