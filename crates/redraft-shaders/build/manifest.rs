//! `kernels.toml`: which kernels there are, and which variants each has.

use super::{Problem, Problems};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The extensions a kernel may enable. Others have no support in naga or in browsers that we rely on.
pub(crate) const EXTENSIONS: [&str; 2] = ["f16", "subgroups"];

/// The whole manifest.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// One entry a kernel file.
    #[serde(default, rename = "kernel")]
    pub kernels: Vec<Entry>,
}

/// One kernel.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// File name inside `shaders/`, with its extension.
    pub file: String,
    /// Host struct that mirrors the struct type of binding 0.
    pub params: Option<String>,
    /// Further WGSL structs and the host structs that mirror them.
    #[serde(default)]
    pub structs: BTreeMap<String, String>,
    /// Bindings that take a dynamic offset.
    #[serde(default)]
    pub dynamic: Vec<String>,
    /// Permutation axes: tables of one key each, in label order.
    #[serde(default)]
    pub axes: Vec<BTreeMap<String, Vec<String>>>,
    /// Combinations to leave out: a variant that has all values of a row is not built.
    #[serde(default)]
    pub exclude: Vec<Vec<String>>,
    /// Flag to the extensions it needs.
    #[serde(default)]
    pub enable: BTreeMap<String, Vec<String>>,
    /// Whether the kernel may use workgroup or storage barriers.
    #[serde(default)]
    pub barriers: bool,
}

/// One choice of a value on each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Kernel name and values, joined by dots.
    pub label: String,
    /// The values, in axis order.
    pub flags: Vec<String>,
}

impl Manifest {
    /// Reads `kernels.toml` of the folder `shaders`.
    pub(crate) fn read(shaders: &Path) -> Result<Self, Problems> {
        let path = shaders.join("kernels.toml");
        let text = std::fs::read_to_string(&path)
            .map_err(|e| vec![Problem(format!("cannot read kernels.toml: {e}"))])?;
        Self::parse(&text).map_err(|p| vec![p])
    }

    /// Parses the manifest's text.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        toml::from_str(text).map_err(|e| Problem(format!("kernels.toml: {e}")))
    }

    /// Checks the manifest itself, and that it lists exactly the files `roots` found in the folder.
    pub(crate) fn check(&self, roots: &[String]) -> Result<(), Problems> {
        let mut problems = Problems::new();
        let mut listed = BTreeSet::new();
        for entry in &self.kernels {
            if !listed.insert(entry.file.as_str()) {
                problems.push(Problem(format!("kernels.toml lists {} twice", entry.file)));
            }
            if !roots.contains(&entry.file) {
                problems.push(Problem(format!(
                    "kernels.toml lists {}, which is no .wgsl file directly inside shaders/",
                    entry.file
                )));
            }
            problems.extend(entry.check());
        }
        for file in roots.iter().filter(|f| !listed.contains(f.as_str())) {
            problems.push(Problem(format!(
                "shaders/{file} is not listed in kernels.toml; add a [[kernel]] entry, or move shared code to shaders/lib/"
            )));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Every flag of every kernel, sorted: a flag outside this list in an `@if` is a misspelling.
    pub(crate) fn all_flags(&self) -> Vec<String> {
        let flags: BTreeSet<_> = self.kernels.iter().flat_map(Entry::all_flags).collect();
        flags.into_iter().cloned().collect()
    }
}

impl Entry {
    /// The kernel's name: the file's stem.
    pub(crate) fn name(&self) -> &str {
        self.file.strip_suffix(".wgsl").unwrap_or(&self.file)
    }

    /// All values of all axes.
    pub(crate) fn all_flags(&self) -> impl Iterator<Item = &String> {
        self.axes.iter().flat_map(BTreeMap::values).flatten()
    }

    fn check(&self) -> Problems {
        let mut messages = Vec::new();
        let mut seen = BTreeSet::new();
        for axis in &self.axes {
            if axis.len() != 1 {
                messages.push(format!("each table of `axes` names one axis, this one has {}", axis.len()));
            }
            for (name, values) in axis {
                if values.is_empty() {
                    messages.push(format!("axis `{name}` has no values"));
                }
            }
            for flag in axis.values().flatten() {
                if !is_identifier(flag) {
                    messages.push(format!("flag `{flag}` is no WGSL identifier"));
                }
                if !seen.insert(flag.as_str()) {
                    messages.push(format!("flag `{flag}` occurs twice in `axes`"));
                }
            }
        }
        let excluded = self.exclude.iter().flatten().map(|f| ("exclude", f));
        let enabling = self.enable.keys().map(|f| ("enable", f));
        for (field, flag) in excluded.chain(enabling) {
            if !seen.contains(flag.as_str()) {
                messages.push(format!("`{field}` names `{flag}`, which is on no axis"));
            }
        }
        for extension in self.enable.values().flatten() {
            if !EXTENSIONS.contains(&extension.as_str()) {
                messages.push(format!("extension `{extension}` is unknown, expected one of {EXTENSIONS:?}"));
            }
        }
        let name = &self.file;
        messages.into_iter().map(|m| Problem(format!("kernels.toml, {name}: {m}"))).collect()
    }

    /// The variants: the product of the axes, less what `exclude` names.
    pub(crate) fn variants(&self) -> Result<Vec<Variant>, Problems> {
        let mut choices: Vec<Vec<String>> = vec![Vec::new()];
        for values in self.axes.iter().flat_map(BTreeMap::values) {
            choices = choices
                .iter()
                .flat_map(|chosen| {
                    values.iter().map(move |value| {
                        let mut longer = chosen.clone();
                        longer.push(value.clone());
                        longer
                    })
                })
                .collect();
        }
        let excluded = |flags: &Vec<String>| {
            self.exclude.iter().any(|row| !row.is_empty() && row.iter().all(|flag| flags.contains(flag)))
        };
        choices.retain(|flags| !excluded(flags));
        if choices.is_empty() {
            return Err(vec![Problem(format!("kernels.toml, {}: `exclude` leaves no variant", self.file))]);
        }
        let label = |flags: &[String]| {
            std::iter::once(self.name()).chain(flags.iter().map(String::as_str)).collect::<Vec<_>>().join(".")
        };
        Ok(choices.into_iter().map(|flags| Variant { label: label(&flags), flags }).collect())
    }
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
