//! Runs, kept: a study that is stopped goes on where it was.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use redraft_decode::draft::{Plan, Tables};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::spec::Spec;
use crate::calibrate::{self, FitOptions, LookupSamples, Samples};
use crate::corpus::write_atomically;
use crate::error::TrainError;
use crate::replay::args::Loaded;
use crate::replay::{Evaluator, Job, Replayer, Run, TextSet, Variant, replay};

/// Changes when the same key may mean other figures.
const VERSION: u32 = 2;
/// Texts whose runs are written together.
const GROUP: usize = 64;

/// The texts that everything is chosen on, in two halves.
pub(super) struct HeldOut<'a> {
    texts: TextSet<'a>,
    /// Of each text, 0 or 1.
    half: Vec<usize>,
    fingerprint: String,
}

impl<'a> HeldOut<'a> {
    /// Halves the texts.
    pub(super) fn new(texts: TextSet<'a>) -> Result<Self, TrainError> {
        let (half, fingerprint) = (texts.halves(), texts.fingerprint());
        if !half.contains(&1) {
            let wanted = "greedily answered held-out texts of at least two prompts";
            return Err(TrainError::setting("--corpus", wanted, texts.len()));
        }
        Ok(Self { texts, half, fingerprint })
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

/// Tables for the children and refined candidates of a spec.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fitted {
    /// Fitted on the other half, for each half of the held-out texts.
    pub(super) other: [Tables; 2],
    /// Fitted on all held-out texts.
    pub(super) all: Tables,
}

/// Runs what is not kept.
pub(super) struct Runner<'a> {
    evaluator: &'a Evaluator,
    /// Of the drafter's file.
    fingerprint: &'a str,
    directory: PathBuf,
    held_out: &'a HeldOut<'a>,
    fit: FitOptions,
    /// Told of what is done.
    progress: &'a dyn Fn(&str),
    /// The held-out texts with the rows that were evaluated on them.
    replayer: RefCell<Option<Replayer<'a>>>,
}

/// What a file says.
#[derive(Serialize, Deserialize)]
struct Kept<T> {
    key: String,
    value: T,
}

/// Tables as JSON has them.
#[derive(Serialize, Deserialize)]
struct Words {
    words: Vec<f32>,
    refined_offset: f32,
    gate_threshold: f32,
}

impl From<&Tables> for Words {
    fn from(tables: &Tables) -> Self {
        Self {
            words: tables.to_words(),
            refined_offset: tables.refined_offset,
            gate_threshold: tables.gate_threshold,
        }
    }
}

impl From<&Words> for Tables {
    fn from(Words { words, refined_offset, gate_threshold }: &Words) -> Self {
        let (refined_offset, gate_threshold) = (*refined_offset, *gate_threshold);
        let mut tables = Self { calibrated: true, refined_offset, gate_threshold, ..Self::default() };
        let edges = tables.edges.as_flattened_mut().as_flattened_mut().as_flattened_mut();
        let all = edges.iter_mut().chain(tables.log_gain.as_flattened_mut()).chain(&mut tables.lookup_edge);
        all.zip(words).for_each(|(to, from)| *to = *from);
        tables
    }
}

/// The plan that stands for all with the same tables: a fit does not depend on what is verified or how nodes are picked.
fn shape(spec: &Spec) -> Plan {
    Plan::reconsider(15, 5, 8, spec.plan.children, 8, spec.plan.refined.max(1))
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        loaded: &'a Loaded,
        work: &Path,
        held_out: &'a HeldOut<'a>,
        progress: &'a dyn Fn(&str),
    ) -> Self {
        let Loaded { evaluator, fingerprint, .. } = loaded;
        let (directory, fit) = (work.join("runs"), FitOptions::default());
        Self { evaluator, fingerprint, directory, held_out, fit, progress, replayer: RefCell::new(None) }
    }

    /// One run a spec over the held-out texts. Each half is replayed with the tables that were fitted on the other: what
    /// is chosen by these runs is not what suits the texts that the tables know.
    pub(super) fn held_out(&self, specs: &[Spec]) -> Result<Vec<Run>, TrainError> {
        let fitted = self.fitted(specs)?;
        let variants: Vec<[Variant; 2]> = specs
            .iter()
            .zip(&fitted)
            .map(|(spec, fitted)| [0, 1].map(|half| spec.variant(&fitted.other[half])))
            .collect();
        let key = |(spec, [first, second]): (&Spec, &[Variant; 2])| {
            let (of, tables) = (&self.held_out.fingerprint, [first, second].map(|v| digest(&v.tables)));
            format!("{VERSION}|{}|{of}|{}|{}|{spec}", self.fingerprint, tables[0], tables[1])
        };
        let keys: Vec<String> = specs.iter().zip(&variants).map(key).collect();
        let mut found: Vec<Option<Run>> = Vec::new();
        for key in &keys {
            found.push(self.load(key)?);
        }
        let missing: Vec<usize> = (0..specs.len()).filter(|&at| found[at].is_none()).collect();
        if missing.is_empty() {
            return Ok(found.into_iter().flatten().collect());
        }
        let half = &self.held_out.half;
        let jobs: Vec<Job<'_>> = (missing.iter())
            .flat_map(|&at| half.iter().enumerate().map(move |(text, half)| (at, text, *half)))
            .map(|(at, text, half)| Job { text, variant: &variants[at][half] })
            .collect();
        let (counts, ids) =
            self.with_replayer(|replayer| Ok((replayer.run(&jobs, &mut |_, _, _, _| {})?, replayer.ids())))?;
        for (&at, counts) in missing.iter().zip(counts.chunks_exact(half.len())) {
            let run = Run { texts: ids.iter().cloned().zip(counts.iter().cloned()).collect() };
            self.store(&keys[at], &run)?;
            found[at] = Some(run);
        }
        (self.progress)(&format!("held-out texts, {} plans", missing.len()));
        Ok(found.into_iter().flatten().collect())
    }

    /// One run a spec over all `texts`, with the tables that were fitted on all held-out texts.
    pub(super) fn runs(&self, texts: &TextSet<'_>, specs: &[Spec]) -> Result<Vec<Run>, TrainError> {
        // Rows on the held-out texts serve nothing any more.
        self.replayer.replace(None);
        let fitted = self.fitted(specs)?;
        let variants: Vec<Variant> =
            specs.iter().zip(&fitted).map(|(spec, fitted)| spec.variant(&fitted.all)).collect();
        let mut runs = vec![Run::default(); specs.len()];
        for start in (0..texts.len()).step_by(GROUP) {
            let group = texts.part(start, GROUP);
            let of = group.fingerprint();
            let key = |spec: &Spec, tables: &Tables| {
                format!("{VERSION}|{}|{of}|{}|{spec}", self.fingerprint, digest(tables))
            };
            let keys: Vec<String> = specs.iter().zip(&variants).map(|(s, v)| key(s, &v.tables)).collect();
            let mut found: Vec<Option<Run>> = Vec::new();
            for key in &keys {
                found.push(self.load(key)?);
            }
            let missing: Vec<usize> = (0..specs.len()).filter(|&at| found[at].is_none()).collect();
            if !missing.is_empty() {
                let wanted: Vec<_> = missing.iter().map(|&at| variants[at].clone()).collect();
                let fresh = replay(self.evaluator, &group, &wanted, |_| {})?;
                for (at, run) in missing.iter().zip(fresh) {
                    self.store(&keys[*at], &run)?;
                    found[*at] = Some(run);
                }
                let done = (start + GROUP).min(texts.len());
                (self.progress)(&format!("{done} of {} texts, {} plans", texts.len(), missing.len()));
            }
            for (run, part) in runs.iter_mut().zip(found) {
                run.texts.extend(part.into_iter().flat_map(|run| run.texts));
            }
        }
        Ok(runs)
    }

    /// Tables for each spec.
    fn fitted(&self, specs: &[Spec]) -> Result<Vec<Fitted>, TrainError> {
        let mut shapes: Vec<Plan> = Vec::new();
        for shape in specs.iter().map(shape) {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        let FitOptions { strength, hesitant } = self.fit;
        let key = |shape: &Plan| {
            let (of, c, e) = (&self.held_out.fingerprint, shape.children, shape.refined);
            let fit = format!("strength {strength} hesitant {hesitant}");
            format!("{VERSION}|{}|{of}|tables c{c} E{e} {fit}", self.fingerprint)
        };
        let mut found: Vec<Option<Fitted>> = Vec::new();
        for shape in &shapes {
            let kept: Option<[Words; 3]> = self.load(&key(shape))?;
            found.push(kept.map(|[first, second, all]| Fitted {
                other: [(&first).into(), (&second).into()],
                all: (&all).into(),
            }));
        }
        let missing: Vec<usize> = (0..shapes.len()).filter(|&at| found[at].is_none()).collect();
        if !missing.is_empty() {
            let plans: Vec<Plan> = missing.iter().map(|&at| shapes[at]).collect();
            for (&at, fitted) in missing.iter().zip(self.fit(&plans)?) {
                let [first, second] = &fitted.other;
                self.store(&key(&shapes[at]), &[first, second, &fitted.all].map(Words::from))?;
                found[at] = Some(fitted);
            }
            (self.progress)(&format!("tables for {} shapes", missing.len()));
        }
        let of = |spec: &Spec| {
            let place = shapes.iter().position(|found| *found == shape(spec));
            place.and_then(|place| found[place].clone())
        };
        Ok(specs.iter().filter_map(of).collect())
    }

    fn fit(&self, plans: &[Plan]) -> Result<Vec<Fitted>, TrainError> {
        let HeldOut { texts, half, .. } = self.held_out;
        let mut lookup = [LookupSamples::default(), LookupSamples::default()];
        let mut lookup_all = LookupSamples::default();
        for (place, &half) in half.iter().enumerate() {
            let text = texts.read(place)?;
            lookup[half].add(&text.tokens, text.prompt);
            lookup_all.add(&text.tokens, text.prompt);
        }
        let sampled = self.with_replayer(|replayer| calibrate::sample(replayer, plans, half, 2))?;
        let mut fitted = Vec::new();
        for halves in &sampled {
            let mut all = Samples::default();
            halves.iter().for_each(|samples| all.add(samples));
            let of = |half: usize| calibrate::tables(&halves[half], &lookup[half], &self.fit);
            let all = calibrate::tables(&all, &lookup_all, &self.fit)?;
            fitted.push(Fitted { other: [of(1)?, of(0)?], all });
        }
        Ok(fitted)
    }

    fn with_replayer<T>(
        &self,
        work: impl FnOnce(&mut Replayer<'a>) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let mut held = self.replayer.borrow_mut();
        match &mut *held {
            Some(replayer) => work(replayer),
            none => work(none.insert(Replayer::new(self.evaluator, &self.held_out.texts)?)),
        }
    }

    fn file(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{}.json", hex(key.as_bytes())))
    }

    fn load<T: for<'de> Deserialize<'de>>(&self, key: &str) -> Result<Option<T>, TrainError> {
        let path = self.file(key);
        match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice::<Kept<T>>(&bytes) {
                Ok(kept) if kept.key == key => Ok(Some(kept.value)),
                // What cannot be read is made again.
                _ => Ok(None),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TrainError::io(&path)(error)),
        }
    }

    fn store<T: Serialize>(&self, key: &str, value: &T) -> Result<(), TrainError> {
        std::fs::create_dir_all(&self.directory).map_err(TrainError::io(&self.directory))?;
        let kept = Kept { key: key.to_owned(), value };
        let bytes = serde_json::to_vec(&kept)
            .map_err(|error| TrainError::Framework { what: "writing a run", message: error.to_string() })?;
        write_atomically(&self.file(key), &bytes)
    }
}

fn digest(tables: &Tables) -> String {
    let mut bytes: Vec<u8> = tables.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(tables.refined_offset.to_le_bytes());
    bytes.extend(tables.gate_threshold.to_le_bytes());
    bytes.push(u8::from(tables.calibrated));
    hex(&bytes)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}
