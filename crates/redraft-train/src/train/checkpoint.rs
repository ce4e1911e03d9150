//! Checkpoints that are whole or not there.
//!
//! A run's directory holds `options.json`, and directories `step-NNNNNN` with the drafter, the optimizer and the state
//! of the loop, each written under another name and then renamed. `best` holds the drafter of the best evaluation.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module as _;
use burn::optim::ModuleOptimizer;
use serde::{Deserialize, Serialize};

use super::TrainOptions;
use super::curves::Point;
use super::metrics::Metrics;
use crate::corpus::write_atomically;
use crate::drafter::Drafter;
use crate::error::TrainError;

/// Where the loop is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) step: u64,
    pub(super) seconds: f64,
    pub(super) best: Option<Metrics>,
    pub(super) since_best: u32,
    pub(super) ended: bool,
    pub(super) curve: Vec<Point>,
}

/// The checkpoints of one run.
pub(super) struct Checkpoints {
    directory: PathBuf,
}

fn framework(what: &'static str) -> impl Fn(String) -> TrainError {
    move |message| TrainError::Framework { what, message }
}

impl Checkpoints {
    /// Opens the directory of a run with these options.
    pub(super) fn open(directory: &Path, options: &TrainOptions) -> Result<Self, TrainError> {
        fs::create_dir_all(directory).map_err(TrainError::io(directory))?;
        let path = directory.join("options.json");
        let text = serde_json::to_vec_pretty(options)
            .map_err(|error| framework("writing options.json")(error.to_string()))?;
        match fs::read(&path) {
            Ok(there) if there == text => {}
            Ok(_) => {
                return Err(TrainError::State {
                    path,
                    problem: "a run with other options is in this directory".to_owned(),
                    hint: "give another --out, or remove the directory to start over",
                });
            }
            Err(_) => write_atomically(&path, &text)?,
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// Steps of the whole checkpoints, ascending.
    fn steps(&self) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let mut steps: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok())
            .collect();
        steps.sort_unstable();
        steps
    }

    fn path(&self, step: u64) -> PathBuf {
        self.directory.join(format!("step-{step:06}"))
    }

    /// Loads the newest checkpoint, if there is one.
    pub(super) fn load(
        &self,
        drafter: Drafter,
        optimizer: ModuleOptimizer,
    ) -> Result<Option<(Drafter, ModuleOptimizer, State)>, TrainError> {
        let Some(step) = self.steps().pop() else { return Ok(None) };
        let path = self.path(step);
        let broken = |problem: String| TrainError::State {
            path: path.clone(),
            problem,
            hint: "remove it to go on from the checkpoint before",
        };
        let state = fs::read(path.join("state.json")).map_err(|error| broken(error.to_string()))?;
        let state = serde_json::from_slice(&state).map_err(|error| broken(error.to_string()))?;
        let drafter =
            drafter.try_load_file(path.join("drafter.bpk")).map_err(|error| broken(error.to_string()))?;
        let optimizer =
            optimizer.load(path.join("optimizer.bpk")).map_err(|error| broken(error.to_string()))?;
        Ok(Some((drafter, optimizer, state)))
    }

    /// Writes a checkpoint, and removes all but the two newest.
    pub(super) fn save(
        &self,
        drafter: &Drafter,
        optimizer: &ModuleOptimizer,
        state: &State,
        best: bool,
    ) -> Result<(), TrainError> {
        let text =
            serde_json::to_vec(state).map_err(|error| framework("writing state.json")(error.to_string()))?;
        if best {
            let fresh = self.directory.join("best.part");
            drafter
                .clone()
                .save_file(&fresh)
                .map_err(|error| framework("writing the drafter")(error.to_string()))?;
            let path = self.directory.join("best.bpk");
            fs::rename(&fresh, &path).map_err(TrainError::io(&path))?;
        }
        let part = self.directory.join("part");
        if part.exists() {
            fs::remove_dir_all(&part).map_err(TrainError::io(&part))?;
        }
        fs::create_dir(&part).map_err(TrainError::io(&part))?;
        drafter
            .clone()
            .save_file(part.join("drafter.bpk"))
            .map_err(|error| framework("writing the drafter")(error.to_string()))?;
        optimizer
            .save(part.join("optimizer.bpk"))
            .map_err(|error| framework("writing the optimizer")(error.to_string()))?;
        write_atomically(&part.join("state.json"), &text)?;
        let path = self.path(state.step);
        fs::rename(&part, &path).map_err(TrainError::io(&path))?;
        let steps = self.steps();
        for step in &steps[..steps.len().saturating_sub(2)] {
            let old = self.path(*step);
            fs::remove_dir_all(&old).map_err(TrainError::io(&old))?;
        }
        Ok(())
    }

    /// The drafter of the best evaluation; `current` if there was none.
    pub(super) fn best(&self, current: Drafter) -> Result<Drafter, TrainError> {
        let path = self.directory.join("best.bpk");
        if !path.exists() {
            return Ok(current);
        }
        current.try_load_file(&path).map_err(|error| TrainError::State {
            path,
            problem: error.to_string(),
            hint: "train again",
        })
    }
}
