//! Runs, kept: a study that is stopped goes on where it was.

use std::path::{Path, PathBuf};

use redraft_decode::draft::Tables;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::spec::Spec;
use crate::calibrate::{FitOptions, calibrate};
use crate::corpus::write_atomically;
use crate::error::TrainError;
use crate::replay::{Evaluator, Run, TextSet, replay};

/// Changes when the same key may mean other figures.
const VERSION: u32 = 1;
/// Texts whose runs are written together.
const GROUP: usize = 64;

/// Runs what is not kept.
pub(super) struct Runner<'a> {
    pub(super) evaluator: &'a Evaluator,
    /// Of the drafter's file.
    pub(super) fingerprint: &'a str,
    pub(super) directory: &'a Path,
    /// The texts that tables are fitted on.
    pub(super) held_out: &'a TextSet<'a>,
    pub(super) fit: FitOptions,
    /// Told of what is done.
    pub(super) progress: &'a dyn Fn(&str),
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

impl Runner<'_> {
    /// One run a spec, over all `texts`.
    pub(super) fn runs(&self, texts: &TextSet<'_>, specs: &[Spec]) -> Result<Vec<Run>, TrainError> {
        let mut variants = Vec::new();
        for spec in specs {
            variants.push(spec.variant(&self.tables(spec)?));
        }
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

    /// Tables fitted for the children and refined candidates of a spec.
    pub(super) fn tables(&self, spec: &Spec) -> Result<Tables, TrainError> {
        let plan = spec.plan;
        // A fit does not depend on what is verified or how nodes are picked.
        let shape = redraft_decode::draft::Plan {
            refined: plan.refined.max(1),
            ..redraft_decode::draft::Plan::reconsider(15, 5, 8, plan.children, 8, plan.refined.max(1))
        };
        let FitOptions { strength, hesitant } = self.fit;
        let key = format!(
            "{VERSION}|{}|{}|tables c{} E{} strength {strength} hesitant {hesitant}",
            self.fingerprint,
            self.held_out.fingerprint(),
            shape.children,
            shape.refined
        );
        if let Some(Words { words, refined_offset, gate_threshold }) = self.load::<Words>(&key)? {
            let mut tables = Tables { calibrated: true, refined_offset, gate_threshold, ..Tables::default() };
            let mut words = words.into_iter();
            let edges = tables.edges.as_flattened_mut().as_flattened_mut().as_flattened_mut();
            let rest =
                edges.iter_mut().chain(tables.log_gain.as_flattened_mut()).chain(&mut tables.lookup_edge);
            rest.zip(&mut words).for_each(|(to, from)| *to = from);
            return Ok(tables);
        }
        let tables = calibrate(self.evaluator, self.held_out, shape, &self.fit)?;
        (self.progress)(&format!(
            "tables for {} children and {} refined candidates",
            shape.children, shape.refined
        ));
        let words = Words {
            words: tables.to_words(),
            refined_offset: tables.refined_offset,
            gate_threshold: tables.gate_threshold,
        };
        self.store(&key, &words)?;
        Ok(tables)
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
        std::fs::create_dir_all(self.directory).map_err(TrainError::io(self.directory))?;
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
