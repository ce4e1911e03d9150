//! Packages on Debian and its relatives, and Debian's backports when a package of the release is too old.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::process::{Cmd, which};

const BACKPORTS_FILE: &str = "/etc/apt/sources.list.d/redraft-backports.sources";

/// Installs packages, from `release` (such as `bookworm-backports`) when one is named.
pub(crate) fn install(packages: &[&str], release: Option<&str>) -> Outcome {
    let apt = apt_get().map_err(|why| format!("{why}; install {} by hand", packages.join(" ")))?;
    let mut install = apt(&["install", "--yes", "--no-install-recommends"]);
    if let Some(release) = release {
        install = install.args(["--target-release", release]);
    }
    install.args(packages.iter().copied()).run()
}

/// Reads the package lists anew.
pub(crate) fn update() -> Outcome {
    apt_get()?(&["update"]).run()
}

/// The versions of `package` that can be installed, each with the release that has it, newest first.
pub(crate) fn versions(package: &str) -> Outcome<Vec<(String, String)>> {
    let table = Cmd::new("apt-cache").args(["madison", package]).read()?;
    Ok(parse_versions(&table))
}

/// The installed version of `package`, where dpkg knows it.
pub(crate) fn installed(package: &str) -> Option<String> {
    let query =
        Cmd::new("dpkg-query").args(["--show", "--showformat", "${db:Status-Status} ${Version}", package]);
    query.read().ok()?.strip_prefix("installed ").map(str::to_owned)
}

/// Adds the backports of `codename` on the mirror that the machine uses already, and reads its list.
pub(crate) fn add_backports(codename: &str) -> Outcome {
    let mirror =
        sources().iter().find_map(|(path, text)| find_mirror(path, text, codename)).ok_or_else(|| {
            format!("no apt source names the release {codename}, so its backports mirror is not known")
        })?;
    write_as_root(Path::new(BACKPORTS_FILE), &mirror.stanza(codename))?;
    update().map_err(|error| {
        let removed = Cmd::as_root("rm").is_some_and(|rm| rm.args(["--force", BACKPORTS_FILE]).succeeds());
        let left = if removed { "" } else { ", and it could not be removed" };
        format!("{error}\nthe mirror seems to have no {codename}-backports; {BACKPORTS_FILE} was added for it{left}")
    })
}

/// How to call apt-get here; an error says why it cannot be called.
fn apt_get() -> Outcome<impl Fn(&[&str]) -> Cmd> {
    if which("apt-get").is_none() {
        return Err("this is not Debian or Ubuntu (no apt-get)".to_owned());
    }
    if Cmd::as_root("env").is_none() {
        return Err("installing packages needs root or sudo".to_owned());
    }
    Ok(|args: &[&str]| {
        // `env`, because sudo drops the variable otherwise.
        let env = Cmd::as_root("env").unwrap_or_else(|| Cmd::new("env"));
        let apt = ["DEBIAN_FRONTEND=noninteractive", "apt-get", "--option", "DPkg::Lock::Timeout=300"];
        env.args(apt).args(args.iter().copied())
    })
}

fn write_as_root(file: &Path, text: &str) -> Outcome {
    let scratch = std::env::temp_dir().join(format!("redraft-xtask-{}", std::process::id()));
    fs::write(&scratch, text).map_err(|error| format!("cannot write {}: {error}", scratch.display()))?;
    let install = Cmd::as_root("install").ok_or("writing apt's sources needs root or sudo")?;
    let outcome = install.args(["-m", "644"]).arg(&scratch).arg(file).run();
    // A scratch file left behind does no harm.
    let _ = fs::remove_file(&scratch);
    outcome
}

/// Apt's source files, the main one first.
fn sources() -> Vec<(PathBuf, String)> {
    let mut files: Vec<PathBuf> = fs::read_dir("/etc/apt/sources.list.d")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    files.insert(0, "/etc/apt/sources.list".into());
    files.into_iter().filter_map(|file| fs::read_to_string(&file).ok().map(|text| (file, text))).collect()
}

/// A package archive as apt's sources describe it.
#[derive(Debug, PartialEq)]
struct Mirror {
    uri: String,
    /// Lines such as `Signed-By: …`, copied into the new source.
    options: Vec<String>,
}

impl Mirror {
    fn stanza(&self, codename: &str) -> String {
        let mut lines = vec![
            "# Written by redraft's `cargo xtask setup`, for a newer Mesa.".to_owned(),
            "Types: deb".to_owned(),
            format!("URIs: {}", self.uri),
            format!("Suites: {codename}-backports"),
            "Components: main".to_owned(),
        ];
        lines.extend(self.options.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// The archive that a source file names for the release itself (not for its updates or security fixes).
fn find_mirror(path: &Path, text: &str, codename: &str) -> Option<Mirror> {
    match path.extension()?.to_str()? {
        "list" => text.lines().find_map(|line| mirror_of_line(line, codename)),
        "sources" => stanzas(text).iter().find_map(|stanza| mirror_of_stanza(stanza, codename)),
        _ => None,
    }
}

/// `deb [signed-by=FILE arch=amd64] URI SUITE COMPONENT…`
fn mirror_of_line(line: &str, codename: &str) -> Option<Mirror> {
    let rest = line.trim().strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let uri = words.next().filter(|uri| !uri.starts_with("cdrom:"))?.to_owned();
    if words.next()? != codename || !words.any(|component| component == "main") {
        return None;
    }
    let option = |option: &str| match option.split_once('=')? {
        ("signed-by", value) => Some(format!("Signed-By: {}", value.replace(',', " "))),
        ("arch", value) => Some(format!("Architectures: {}", value.replace(',', " "))),
        ("trusted", value) => Some(format!("Trusted: {value}")),
        _ => None,
    };
    Some(Mirror { uri, options: options.split_whitespace().filter_map(option).collect() })
}

/// One entry of a deb822 file: fields in order, a field's further lines kept as they stand.
type Stanza<'a> = Vec<(&'a str, Vec<&'a str>)>;

fn stanzas(text: &str) -> Vec<Stanza<'_>> {
    let mut stanzas: Vec<Stanza<'_>> = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(stanza) = stanzas.last_mut() else { break };
        if line.trim().is_empty() {
            stanzas.push(Vec::new());
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, lines)) = stanza.last_mut() {
                lines.push(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name, vec![value.trim()]));
        }
    }
    stanzas
}

fn mirror_of_stanza(stanza: &Stanza<'_>, codename: &str) -> Option<Mirror> {
    let field = |wanted: &str| stanza.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let words = |wanted| field(wanted).map(|(_, lines)| lines.join(" ")).unwrap_or_default();
    let has = |wanted, word| words(wanted).split_whitespace().any(|found| found == word);
    let enabled = !["no", "false", "0"].contains(&words("Enabled").to_ascii_lowercase().as_str());
    if !enabled || !has("Types", "deb") || !has("Suites", codename) || !has("Components", "main") {
        return None;
    }
    let uri = words("URIs").split_whitespace().next()?.to_owned();
    let kept = ["Signed-By", "Architectures", "Trusted"].into_iter().filter_map(field);
    Some(Mirror { uri, options: kept.map(|(name, lines)| format!("{name}: {}", lines.join("\n"))).collect() })
}

/// Lines `PACKAGE | VERSION | URI RELEASE/COMPONENT ARCHITECTURE Packages`.
fn parse_versions(table: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let mut columns = line.split('|').map(str::trim).skip(1);
        let version = columns.next()?.to_owned();
        let release = columns.next()?.split_whitespace().nth(1)?.split('/').next()?.to_owned();
        Some((version, release))
    };
    table.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# comment
Types: deb
URIs: http://mirror.test/debian-security
Suites: bookworm-security
Components: main

Types: deb deb-src
# a comment inside
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
";

    #[test]
    fn deb822_source_gives_the_release_mirror_with_its_key() {
        let mirror = find_mirror(Path::new("/etc/debian.sources"), DEB822, "bookworm").unwrap();
        assert_eq!(
            mirror.stanza("bookworm"),
            "# Written by redraft's `cargo xtask setup`, for a newer Mesa.\nTypes: deb\n\
             URIs: http://mirror.test/debian\nSuites: bookworm-backports\nComponents: main\n\
             Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
        );
        assert_eq!(find_mirror(Path::new("debian.sources"), DEB822, "trixie"), None);
        let disabled = DEB822.replace("Types: deb deb-src", "Types: deb\nEnabled: no");
        assert_eq!(find_mirror(Path::new("debian.sources"), &disabled, "bookworm"), None);
    }

    #[test]
    fn one_line_source_gives_the_release_mirror_with_its_options() {
        let list = "# deb http://old.test/debian bookworm main\n\
                    deb cdrom:[Debian 12]/ bookworm main\n\
                    deb-src http://mirror.test/debian bookworm main\n\
                    deb http://mirror.test/debian bookworm-updates main\n\
                    deb [arch=amd64,arm64 signed-by=/k.gpg lang=en] mirror+file:/etc/apt/mirrors bookworm main\n";
        let mirror = find_mirror(Path::new("/etc/apt/sources.list"), list, "bookworm").unwrap();
        assert_eq!(mirror.uri, "mirror+file:/etc/apt/mirrors");
        assert_eq!(mirror.options, ["Architectures: amd64 arm64", "Signed-By: /k.gpg"]);
        assert_eq!(find_mirror(Path::new("x.list.save"), list, "bookworm"), None);
    }

    #[test]
    fn versions_come_with_their_release() {
        let table = " mesa | 25.0.7-2~bpo12+1 | http://mirror.test/debian bookworm-backports/main amd64 Packages\n \
                     mesa | 22.3.6-1+deb12u2 | http://mirror.test/debian bookworm/main amd64 Packages\n";
        let expected = [("25.0.7-2~bpo12+1", "bookworm-backports"), ("22.3.6-1+deb12u2", "bookworm")];
        assert_eq!(
            parse_versions(table),
            expected.map(|(version, release)| (version.to_owned(), release.to_owned()))
        );
    }
}
