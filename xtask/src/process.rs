//! Child processes: each is printed before it runs, and a failure names the whole command.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Outcome;

/// One command line, started in the root of the checkout.
pub(crate) struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
}

impl Cmd {
    pub(crate) fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    /// `cargo SUBCOMMAND`, by the cargo that runs this program.
    pub(crate) fn cargo(subcommand: &str) -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).arg(subcommand)
    }

    /// The program as root: itself when we are root, else through sudo. `None` without either.
    pub(crate) fn as_root(program: &str) -> Option<Self> {
        if is_root() {
            Some(Self::new(program))
        } else {
            which("sudo").map(|sudo| Self::new(sudo).arg(program))
        }
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Runs it with our own standard streams; an exit status other than 0 is an error.
    pub(crate) fn run(&self) -> Outcome {
        eprintln!("$ {self}");
        let status = self.command().status().map_err(|error| self.not_started(&error))?;
        if status.success() { Ok(()) } else { Err(format!("{self}: {status}")) }
    }

    /// Runs it in silence and returns its standard output; standard error is part of the error message.
    pub(crate) fn read(&self) -> Outcome<String> {
        let output =
            self.command().stdin(Stdio::null()).output().map_err(|error| self.not_started(&error))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{self}: {}: {}", output.status, said.trim()))
        }
    }

    /// Runs it in silence; whether it ended with status 0.
    pub(crate) fn succeeds(&self) -> bool {
        self.read().is_ok()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().cloned()).current_dir(crate::root());
        command
    }

    fn not_started(&self, error: &std::io::Error) -> String {
        format!("{} did not start: {error}; is it installed and on PATH?", self.program.display())
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        let program = std::path::Path::new(&self.program);
        f.write_str(&quoted(program.file_name().unwrap_or(&self.program)))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// As a shell would need it written; long scripts are shortened, since this is only printed.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    let first = word.lines().next().unwrap_or_default();
    if first.len() < word.len() { format!("'{first} …'") } else { format!("'{word}'") }
}

/// The file that `program` names on PATH.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let name = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(&path).map(|dir| dir.join(&name)).find(|file| file.is_file())
}

fn is_root() -> bool {
    Cmd::new("id").arg("-u").read().is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_a_shell_would_read_it() {
        let cmd = Cmd::new("/usr/bin/printf").env("A", "b c").args(["%s", "two words", ""]);
        assert_eq!(cmd.to_string(), "A='b c' printf '%s' 'two words' ''");
    }

    #[test]
    fn failure_names_the_command_and_what_it_said() {
        let error = Cmd::new("cargo").arg("no-such-subcommand").read().unwrap_err();
        assert!(
            error.starts_with("cargo no-such-subcommand: ") && error.contains("no such command"),
            "{error}"
        );
        let error = Cmd::new("no-such-program-here").run().unwrap_err();
        assert!(error.contains("no-such-program-here did not start"), "{error}");
    }
}
