//! How a model is named on the command line.

use std::path::PathBuf;
use std::str::FromStr;

use super::registry::{self, NamedModel};

/// What `--model` and `pull` accept.
#[derive(Debug, Clone)]
pub(crate) enum ModelRef {
    /// A short name of the registry.
    Named(&'static NamedModel),
    /// `hf:owner/repository[@revision]/path/to/file.gguf`.
    Hub(HubRef),
    /// A file.
    Path(PathBuf),
}

/// A file of a repository on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubRef {
    /// `owner/repository`.
    pub(crate) repository: String,
    /// Branch, tag or commit.
    pub(crate) revision: String,
    /// Path inside the repository, with `/`.
    pub(crate) file: String,
}

impl FromStr for ModelRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!(
                "a model is a name ({}), a path, or hf:owner/repo/file.gguf",
                registry::names()
            ));
        }
        if let Some(rest) = text.strip_prefix("hf:") {
            return rest.parse().map(Self::Hub);
        }
        Ok(match registry::find(text) {
            Some(named) => Self::Named(named),
            None => Self::Path(PathBuf::from(text)),
        })
    }
}

impl FromStr for HubRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("expected hf:owner/repo[@revision]/file.gguf, found 'hf:{text}'");
        let mut parts = text.splitn(3, '/');
        let (Some(owner), Some(repo), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wanted());
        };
        let (repo, revision) = repo.split_once('@').unwrap_or((repo, "main"));
        // Each part becomes a folder or file of the cache, so only plain names pass: no `..`, no drive, no device.
        for part in [owner, repo, revision].into_iter().chain(file.split('/')) {
            if !is_plain_name(part) {
                return Err(format!("{}: '{part}' is not a plain name", wanted()));
            }
        }
        Ok(Self { repository: format!("{owner}/{repo}"), revision: revision.into(), file: file.into() })
    }
}

/// Whether `part` is safe as one component of a path on every system.
fn is_plain_name(part: &str) -> bool {
    let good =
        |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | ' ' | '(' | ')' | ',' | '=');
    !part.is_empty()
        && part.len() <= 200
        && part.chars().all(good)
        && !part.starts_with('.')
        && !part.ends_with(['.', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_references_are_split_into_repository_revision_and_file() {
        let plain: HubRef = "owner/repo/file.gguf".parse().unwrap();
        assert_eq!(plain.repository, "owner/repo");
        assert_eq!(plain.revision, "main");
        assert_eq!(plain.file, "file.gguf");
        let deep: HubRef = "owner/repo@v1.0/sub/dir/file-Q4_K.gguf".parse().unwrap();
        assert_eq!((deep.revision.as_str(), deep.file.as_str()), ("v1.0", "sub/dir/file-Q4_K.gguf"));
    }

    #[test]
    fn references_that_would_leave_the_cache_are_refused() {
        for bad in [
            "",
            "/",
            "owner",
            "owner/repo",
            "owner/repo/",
            "owner//file.gguf",
            "../repo/file.gguf",
            "owner/../x.gguf",
            "owner/repo/../../x.gguf",
            "owner/repo/a/./b",
            "owner/repo/c:\\x",
            "owner/repo/a\\b.gguf",
            "owner/repo@/x.gguf",
            "owner/repo@../x.gguf",
            "owner/repo/a?b",
            "owner/repo/a#b",
            "owner/repo/a\0b",
            "owner/repo/.hidden",
            "owner/repo/x.gguf.",
        ] {
            assert!(bad.parse::<HubRef>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn names_win_over_paths_and_ignore_case() {
        assert!(matches!("SmolLM2-135M".parse(), Ok(ModelRef::Named(m)) if m.name == "smollm2-135m"));
        assert!(matches!("./smollm2-135m".parse(), Ok(ModelRef::Path(_))));
        assert!("".parse::<ModelRef>().is_err());
    }
}
