//! The shader pipeline that runs at build time: manifest, link, validate, lint, reflect, emit.
//!
//! It is compiled twice: into the build script, and into this crate's tests, which run it on small fixtures.

pub(crate) mod emit;
pub(crate) mod link;
pub(crate) mod lint;
pub(crate) mod manifest;
pub(crate) mod reflect;

use manifest::{Entry, Manifest, Variant};
use reflect::Reflection;
use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// One thing wrong with the shaders, as shown to whoever runs the build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(pub String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All problems found, so that one build shows every broken variant.
pub(crate) type Problems = Vec<Problem>;

/// A kernel variant: linked, validated and reflected.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The kernel's file stem.
    pub name: String,
    /// `name` and the chosen axis values, joined by dots.
    pub label: String,
    /// The chosen axis values, in axis order.
    pub flags: Vec<String>,
    /// Linked WGSL without any `enable` line.
    pub wgsl: String,
    /// Extensions a browser has to enable, sorted.
    pub enables: Vec<String>,
    /// What naga says about it.
    pub reflection: Reflection,
}

/// Every variant of every kernel, and the paths whose change asks for a new build.
#[derive(Debug)]
pub(crate) struct Output {
    /// Variants, sorted by kernel name, then in manifest order.
    pub kernels: Vec<Compiled>,
    /// Files and folders read.
    pub watched: Vec<PathBuf>,
}

/// Compiles all kernels that `kernels.toml` in the folder `shaders` lists.
pub(crate) fn compile(shaders: &Path) -> Result<Output, Problems> {
    let sources = link::Sources::read(shaders)?;
    let manifest = Manifest::read(shaders)?;
    manifest.check(&sources.roots)?;
    let known_flags = manifest.all_flags();
    let mut jobs = Vec::new();
    for entry in &manifest.kernels {
        jobs.extend(entry.variants()?.into_iter().map(|variant| (entry, variant)));
    }
    let results = in_parallel(&jobs, |(entry, variant)| {
        contained(|| compile_variant(&sources, entry, variant, &known_flags))
    })?;
    let mut kernels = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for ((entry, variant), result) in jobs.iter().zip(results) {
        match result {
            Ok(kernel) => kernels.push(kernel),
            Err(messages) => failures.extend(messages.into_iter().map(|m| (*entry, variant, m))),
        }
    }
    let mut problems = grouped(&failures);
    if problems.is_empty() {
        for entry in &manifest.kernels {
            problems.extend(unused_names(entry, &kernels));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Output { kernels, watched: sources.watched })
}

/// One problem for each message of a kernel, as a mistake in a module mostly shows in many variants.
fn grouped(failures: &[(&Entry, &Variant, String)]) -> Problems {
    let mut groups: Vec<(&Entry, &Variant, &str, usize)> = Vec::new();
    for (entry, variant, message) in failures {
        let same = |g: &&mut (&Entry, &Variant, &str, usize)| g.0.file == entry.file && g.2 == message;
        match groups.iter_mut().find(same) {
            Some(group) => group.3 += 1,
            None => groups.push((entry, variant, message, 0)),
        }
    }
    groups
        .into_iter()
        .map(|(entry, variant, message, others)| {
            let (file, label) = (&entry.file, &variant.label);
            let others = if others == 0 { String::new() } else { format!(" and {others} more") };
            Problem(format!("{file}, variant `{label}`{others}: {message}"))
        })
        .collect()
}

/// Turns a panic of the linker or of naga into a message; the panic itself is printed before.
fn contained<T>(work: impl FnOnce() -> Result<T, Vec<String>>) -> Result<T, Vec<String>> {
    // Nothing that the closure borrows is used after a panic, as the build fails.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(vec!["the compiler panicked, see above".to_owned()]))
}

fn compile_variant(
    sources: &link::Sources,
    entry: &Entry,
    variant: &Variant,
    known_flags: &[String],
) -> Result<Compiled, Vec<String>> {
    let alone = |message: String| vec![message];
    let linked = link::link(sources, entry, variant, known_flags).map_err(alone)?;
    let (module, info) = reflect::validate(&linked.wgsl, &linked.enables).map_err(alone)?;
    let rules = lint::Rules { params: entry.params.is_some(), barriers: entry.barriers };
    let complaints = lint::check(&module, &rules);
    if !complaints.is_empty() {
        return Err(complaints);
    }
    let reflection = reflect::reflect(&module, &info, entry).map_err(alone)?;
    Ok(Compiled {
        name: entry.name().to_owned(),
        label: variant.label.clone(),
        flags: variant.flags.clone(),
        wgsl: linked.wgsl,
        enables: linked.enables,
        reflection,
    })
}

/// Names in a manifest entry that no variant of the kernel has: they would silently do nothing.
fn unused_names(entry: &Entry, kernels: &[Compiled]) -> Problems {
    let own = || kernels.iter().filter(|k| k.name == entry.name());
    let mut problems = Problems::new();
    for name in &entry.dynamic {
        if !own().any(|k| k.reflection.bindings.iter().any(|b| b.name == *name)) {
            problems.push(Problem(format!(
                "{}: `dynamic` names `{name}`, which is no binding in any variant",
                entry.file
            )));
        }
    }
    for (wgsl, host) in &entry.structs {
        let found = |k: &Compiled| k.reflection.structs.iter().any(|s| s.wgsl_name == *wgsl);
        if !own().any(found) {
            problems.push(Problem(format!(
                "{}: `structs` pairs `{wgsl}` with `{host}`, but no variant has a WGSL struct of that name",
                entry.file
            )));
        }
    }
    problems
}

/// Stack of a compiling thread: linker and naga recurse over the syntax tree, unoptimised in a build script.
const STACK_BYTES: usize = 64 << 20;

/// Maps `work` over `jobs` on all cores, keeping the order.
fn in_parallel<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Result<Vec<R>, Problems> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let share = jobs.len().div_ceil(threads).max(1);
    let failed = |what: &str| vec![Problem(format!("a compiling thread {what}"))];
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for chunk in jobs.chunks(share) {
            let handle = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || chunk.iter().map(&work).collect::<Vec<R>>())
                .map_err(|e| failed(&format!("did not start: {e}")))?;
            handles.push(handle);
        }
        let mut results = Vec::with_capacity(jobs.len());
        for handle in handles {
            results.extend(handle.join().map_err(|_| failed("panicked"))?);
        }
        Ok(results)
    })
}
