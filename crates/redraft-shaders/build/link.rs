//! WESL to plain WGSL: imports and `@if` resolved, unused declarations stripped, `enable` lines taken out.

use super::manifest::{EXTENSIONS, Entry, Variant};
use super::{Problem, Problems};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use wesl::syntax::{GlobalDirective, PathOrigin, TranslationUnit};
use wesl::{CompileOptions, Feature, Features, Mangler, ModulePath, ResolveError, Resolver};

/// All shader files, read once and shared by every variant.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Module path components (`lib/quant/q4` is `["lib", "quant", "q4"]`) to text.
    modules: HashMap<Vec<String>, String>,
    /// Names of the `.wgsl` files directly in the folder, sorted.
    pub roots: Vec<String>,
    /// Every file and folder read.
    pub watched: Vec<PathBuf>,
}

impl Sources {
    /// Reads the folder: `*.wgsl` directly inside it, and `lib/**/*.wgsl`.
    pub(crate) fn read(shaders: &Path) -> Result<Self, Problems> {
        let mut sources = Self::default();
        sources
            .read_folder(shaders, &mut Vec::new())
            .map_err(|e| vec![Problem(format!("cannot read the shader folder: {e}"))])?;
        sources.roots.sort();
        Ok(sources)
    }

    /// Adds a module from memory; `path` as in [`Sources::modules`].
    #[cfg_attr(not(test), expect(dead_code, reason = "fixtures of the unit tests"))]
    pub(crate) fn insert(&mut self, path: &[&str], text: &str) {
        let path = path.iter().map(|&c| c.to_owned()).collect();
        self.modules.insert(path, text.to_owned());
    }

    fn read_folder(&mut self, folder: &Path, prefix: &mut Vec<String>) -> std::io::Result<()> {
        self.watched.push(folder.to_owned());
        for item in std::fs::read_dir(folder)? {
            let path = item?.path();
            let Some(stem) = path.file_stem().and_then(|s| s.to_str()) else {
                continue;
            };
            if path.is_dir() {
                if !prefix.is_empty() || stem == "lib" {
                    prefix.push(stem.to_owned());
                    self.read_folder(&path, prefix)?;
                    prefix.pop();
                }
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                if prefix.is_empty() {
                    self.roots.push(format!("{stem}.wgsl"));
                }
                let mut module = prefix.clone();
                module.push(stem.to_owned());
                self.modules.insert(module, std::fs::read_to_string(&path)?);
                self.watched.push(path);
            } else if path.ends_with("kernels.toml") {
                self.watched.push(path);
            }
        }
        Ok(())
    }
}

impl Resolver for Sources {
    fn resolve_source<'a>(&'a self, path: &ModulePath) -> Result<Cow<'a, str>, ResolveError> {
        self.modules
            .get(&path.components)
            .filter(|_| path.origin.is_absolute())
            .map(|text| Cow::Borrowed(text.as_str()))
            .ok_or_else(|| {
                let hint = "modules are files of shaders/lib/, imported as package::lib::…";
                ResolveError::ModuleNotFound(path.clone(), hint.to_owned())
            })
    }

    fn display_name(&self, path: &ModulePath) -> Option<String> {
        Some(display(path))
    }
}

fn display(path: &ModulePath) -> String {
    format!("shaders/{}.wgsl", path.components.join("/"))
}

/// Keeps names as they are, and records which module each came from: two modules with one name would clash.
#[derive(Default)]
struct NameRecorder(RefCell<BTreeMap<String, BTreeSet<String>>>);

impl Mangler for NameRecorder {
    fn mangle(&self, path: &ModulePath, item: &str) -> String {
        self.0.borrow_mut().entry(item.to_owned()).or_default().insert(display(path));
        item.to_owned()
    }
}

/// A linked variant.
#[derive(Debug)]
pub(crate) struct Linked {
    /// WGSL without `enable` lines.
    pub wgsl: String,
    /// Extensions to enable, sorted: those of the text and those of the manifest.
    pub enables: Vec<String>,
}

/// Links one variant. Flags of `known_flags` that the variant did not choose are false; any other is an error.
pub(crate) fn link(
    sources: &Sources,
    entry: &Entry,
    variant: &Variant,
    known_flags: &[String],
) -> Result<Linked, String> {
    let flags = known_flags.iter().map(|flag| (flag.clone(), variant.flags.contains(flag).into())).collect();
    let options = CompileOptions {
        features: Features { default: Feature::Error, flags },
        mangle_root: true,
        ..CompileOptions::default()
    };
    let root = ModulePath::new(PathOrigin::Absolute, vec![entry.name().to_owned()]);
    let names = NameRecorder::default();
    let linked = wesl::compile_sourcemap(&root, sources, &names, &options);
    // Before the linker's own error, which would name the clash less clearly.
    if let Some(clash) = first_clash(&names.0.borrow()) {
        return Err(clash);
    }
    let mut syntax = linked.map_err(|e| e.to_string())?.syntax;
    let mut enables = take_directives(&mut syntax)?;
    let chosen = variant.flags.iter().filter_map(|flag| entry.enable.get(flag));
    enables.extend(chosen.flatten().cloned());
    if let Some(unknown) = enables.iter().find(|e| !EXTENSIONS.contains(&e.as_str())) {
        return Err(format!("`enable {unknown};` is not supported, expected one of {EXTENSIONS:?}"));
    }
    Ok(Linked { wgsl: syntax.to_string(), enables: enables.into_iter().collect() })
}

/// Takes the `enable` directives out, refuses `requires`, and keeps each `diagnostic` once, as every linked module
/// brings its own. Returns the extensions enabled.
fn take_directives(syntax: &mut TranslationUnit) -> Result<BTreeSet<String>, String> {
    let mut enables = BTreeSet::new();
    let mut kept = Vec::new();
    for directive in std::mem::take(&mut syntax.global_directives) {
        match directive {
            GlobalDirective::Enable(enable) => enables.extend(enable.extensions),
            GlobalDirective::Requires(requires) => {
                return Err(format!(
                    "`requires {};` is not allowed: the text must compile where the directive is unknown",
                    requires.extensions.join(", ")
                ));
            }
            GlobalDirective::Diagnostic(_) => {
                if !kept.contains(&directive) {
                    kept.push(directive);
                }
            }
        }
    }
    syntax.global_directives = kept;
    Ok(enables)
}

fn first_clash(names: &BTreeMap<String, BTreeSet<String>>) -> Option<String> {
    let (name, files) = names.iter().find(|(_, files)| files.len() > 1)?;
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    Some(format!(
        "the top-level name `{name}` is declared in {}; names are not mangled, so rename one",
        files.join(" and ")
    ))
}
