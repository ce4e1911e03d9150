//! From flags to a loaded engine, with bars for the weights and the kernels.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pollster::block_on;
use redraft::{AdapterReport, Engine, FileSource, Measured, Phase, Progress};
use serde::Serialize;

use crate::args::{EngineArgs, FloatWidth};
use crate::error::CliError;
use crate::model::{self, cache, hash};
use crate::speculate::{CostKey, DrafterInput};
use crate::{files, output, progress};

/// An engine and what loading it took.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// Seconds from opening the file to the last kernel, without download and verification.
    pub(crate) seconds: f64,
    pub(crate) warm_up: WarmUp,
    /// The costs of steps, if an automatic choice needed them and none were kept.
    pub(crate) measured: Option<Measured>,
    /// The model's file.
    path: PathBuf,
    /// SHA-256 of the drafter's file.
    drafter: Option<String>,
}

impl Loaded {
    /// What measured costs depend on, loaded with `args`.
    pub(crate) fn cost_key(&self, args: &EngineArgs) -> Result<CostKey, CliError> {
        let model = hash::identity(&self.path).map_err(|source| CliError::File {
            action: "read",
            path: self.path.display().to_string(),
            source,
        })?;
        let (kv, precision, strict) = (args.kv, args.precision, args.strict);
        let setup =
            format!("kv {kv:?}, precision {precision:?}, strict {strict}, context {}", self.engine.context());
        Ok(CostKey::new(&self.engine, model, self.drafter.clone(), setup))
    }
}

/// What compiling the kernels took.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct WarmUp {
    /// Seconds, first runs included: some drivers compile then.
    pub(crate) seconds: f64,
    /// Whether kernels of an earlier run were there: "warm" or "cold"; "none" where the backend keeps none. The driver
    /// may have a cache of its own that nobody can ask about.
    pub(crate) cache: &'static str,
}

/// The adapter as JSON names it.
#[derive(Debug, Serialize)]
pub(crate) struct AdapterName {
    pub(crate) name: String,
    pub(crate) backend: &'static str,
}

impl From<&AdapterReport> for AdapterName {
    fn from(report: &AdapterReport) -> Self {
        Self { name: report.name.clone(), backend: report.backend }
    }
}

/// What is timed on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Nothing.
    Off,
    /// The phases of speculative rounds.
    Phases,
    /// Every kernel, which slows everything down; phases with it.
    Kernels,
}

/// The error of loading; one about the drafter names its file.
fn named(error: redraft::Error, drafter: Option<&str>) -> CliError {
    use redraft::{Error, ModelError};
    let Some(path) = drafter.map(str::to_owned) else { return error.into() };
    match error {
        Error::Drafter(source) | Error::Model(ModelError::Drafter(source)) => {
            CliError::Drafter { path, source: Box::new(source) }
        }
        Error::Model(
            source @ (ModelError::DrafterShape { .. }
            | ModelError::DrafterCaptures { .. }
            | ModelError::Tables(_)),
        ) => CliError::DrafterFits { path, source: Box::new(source) },
        other => other.into(),
    }
}

/// Finds the model and loads it, with a drafter if there is one.
pub(crate) fn load(
    args: &EngineArgs,
    drafter: Option<DrafterInput>,
    timing: Timing,
) -> Result<Loaded, CliError> {
    let tokenizer = args.tokenizer.as_deref().map(|file| files::read(file, TOKENIZER_LIMIT)).transpose()?;
    let path = model::resolve(&args.model)?;
    let started = Instant::now();
    let source = FileSource::open(&path)?;
    let cache = pipeline_cache_file(args);
    let mut options = args.options(timing);
    options.pipeline_cache = cache.as_ref().and_then(|file| fs::read(file).ok());
    options.tokenizer = tokenizer;
    let (mut drafter_hash, mut drafter_path) = (None, None);
    if let Some(DrafterInput { file, sha256, path }) = drafter {
        options.drafter = Some(file);
        (drafter_hash, drafter_path) = (Some(sha256), Some(path));
    }
    let warm = options.pipeline_cache.is_some();
    let mut bars = Bars::default();
    let engine = block_on(Engine::load(&source, options, |progress| bars.update(&progress)));
    bars.clear();
    let engine = engine.map_err(|error| named(error, drafter_path.as_deref()))?;
    let seconds = started.elapsed().as_secs_f64();
    let compiled = engine.pipeline_cache();
    let state = match (&compiled, warm) {
        (None, _) => "none",
        (Some(_), false) => "cold",
        (Some(_), true) => "warm",
    };
    let warm_up = WarmUp { seconds: bars.kernels().as_secs_f64(), cache: state };
    if let (Some(file), Some(bytes)) = (cache, compiled) {
        // Only speed is lost if this fails.
        if let Err(error) = store(&file, &bytes) {
            log::warn!("cannot keep compiled kernels in {}: {error}", file.display());
        }
    }
    log::info!("loaded {} on {} in {seconds:.1} s", path.display(), engine.adapter().name);
    for warning in engine.warnings() {
        match &drafter_path {
            Some(path) => output::warning(format_args!("drafter {path}: {warning}")),
            None => output::warning(warning),
        }
    }
    Ok(Loaded { engine, seconds, warm_up, measured: None, path, drafter: drafter_hash })
}

/// Largest tokenizer.json in bytes: ten times those of today's largest vocabularies.
const TOKENIZER_LIMIT: u64 = 256 << 20;

/// Where compiled kernels are kept between runs: one file for each choice of adapter.
fn pipeline_cache_file(args: &EngineArgs) -> Option<PathBuf> {
    let choice: String = format!("{:?}", args.adapter).chars().filter(char::is_ascii_alphanumeric).collect();
    let tier = if args.strict { "-strict" } else { "" };
    let precision = match args.precision {
        FloatWidth::F16 => "-f16",
        FloatWidth::F32 => "",
    };
    Some(cache::root()?.join("kernels").join(format!("{choice}{tier}{precision}.bin")))
}

/// Writes a file so that a reader sees the old or the new content, never half.
pub(crate) fn store(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = cache::beside(file, &format!(".{}", std::process::id()));
    fs::write(&new, bytes)?;
    fs::rename(&new, file)
}

/// The bar of the phase that loading is in.
#[derive(Default)]
struct Bars {
    current: Option<(Phase, ProgressBar)>,
    /// When the last report came.
    last: Option<Instant>,
    /// What the reports of kernels were waited for.
    kernels: Duration,
}

impl Bars {
    fn update(&mut self, progress: &Progress) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now).filter(|_| progress.phase == Phase::Kernels) {
            self.kernels += now - last;
        }
        if self.current.as_ref().is_none_or(|(phase, _)| *phase != progress.phase) {
            self.clear();
            let bar = match progress.phase {
                Phase::Weights => progress::bytes("loading weights", progress.total),
                Phase::Kernels => progress::items("compiling kernels", progress.total),
            };
            self.current = Some((progress.phase, bar));
        }
        if let Some((_, bar)) = &self.current {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    }

    /// Time spent on kernels; what came after the last report were those of the sampler.
    fn kernels(&self) -> Duration {
        self.kernels + self.last.map_or(Duration::ZERO, |last| last.elapsed())
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.current.take() {
            bar.finish_and_clear();
        }
    }
}

/// Prints the time of each kernel, longest first, to standard error.
pub(crate) fn report_profile(engine: &Engine) {
    let Some(mut kernels) = engine.profile_report() else {
        output::warning("this adapter has no timestamps; there is no profile");
        return;
    };
    kernels.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    let total: f64 = kernels.iter().map(|k| k.total_us).sum();
    output::note(format_args!("{:<40} {:>8} {:>12} {:>6}", "kernel", "calls", "total ms", "%"));
    for kernel in &kernels {
        let share = if total > 0.0 { 100.0 * kernel.total_us / total } else { 0.0 };
        output::note(format_args!(
            "{:<40} {:>8} {:>12.3} {:>6.1}",
            kernel.label,
            kernel.calls,
            kernel.total_us / 1e3,
            share
        ));
    }
}
