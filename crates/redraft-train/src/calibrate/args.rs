//! The command line of calibration.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use redraft_decode::draft::Plan;

use super::{FitOptions, calibrate, with_tables};
use crate::corpus::write_atomically;
use crate::data::Split;
use crate::error::TrainError;
use crate::replay::args::{InputArgs, PlanArgs};

/// Fits the tables of a drafter on held-out text.
#[derive(Clone, Debug, Args)]
pub struct CalibrateArgs {
    /// What is read
    #[command(flatten)]
    pub input: InputArgs,
    /// The plan that the tables are for: its children and refined candidates count
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Where the drafter with its tables goes
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Samples that what is known of the wider class counts for
    #[arg(long, value_name = "SAMPLES", default_value_t = FitOptions::default().strength)]
    pub strength: f64,
    /// Share of the positions that the gate takes for hesitant
    #[arg(long, value_name = "SHARE", default_value_t = FitOptions::default().hesitant)]
    pub hesitant: f64,
}

impl CalibrateArgs {
    /// Fits and writes. The matrices are written in the blocks that the tables were fitted with, ready to be served.
    ///
    /// # Errors
    /// [`TrainError`] names the file or flag.
    pub fn run(&self, device: &Device) -> Result<String, TrainError> {
        let options = FitOptions { strength: self.strength, hesitant: self.hesitant };
        options.check()?;
        let plan = self.plan.plan(Plan::default().reconsider)?;
        let corpus = self.input.corpus()?;
        let texts = self.input.texts(&corpus, Split::HeldOut)?;
        let loaded = self.input.load(texts.longest(), device)?;
        loaded.check(&corpus)?;
        let tables = calibrate(&loaded.evaluator, &texts, plan, &options)?;
        let file = with_tables(loaded.file, &tables)?;
        write_atomically(&self.out, &file.write())?;
        Ok(format!(
            "{}: tables of {} texts, gate at {:.3}, refined offset {:.3}\n",
            self.out.display(),
            texts.len(),
            tables.gate_threshold,
            tables.refined_offset
        ))
    }
}
