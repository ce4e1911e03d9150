//! What scores are worth: tables fitted on rounds over held-out text.
//!
//! Of every node on the true way the children are known to be right or wrong. [`Samples`] counts them by depth, rank
//! and log-probability, [`fit`] turns the counts into the tables of a drafter file.

pub mod args;
mod fit;
mod samples;

pub use fit::{FitOptions, fit, fit_lookup};
pub use samples::{LookupSamples, Samples};

use redraft_decode::draft::{Gate, Plan, Tables, WIDTH};
use redraft_drafter::{DrafterFile, ReconsiderSettings, Tensor};
use redraft_gguf::GgmlType;

use crate::error::TrainError;
use crate::replay::{Evaluator, Job, Replayer, TextSet, Variant};

/// Least width of the plan that samples are taken with.
const LEAST_WIDTH: u32 = 8;
/// Texts that are sampled at a time.
const TEXTS: usize = 64;

/// The plan that samples for `plan` are taken with: wide, and with as many second passes as fit. What `plan` keeps of a
/// pass decides what a refined candidate can add, so tables are for its `children` and `refined`.
fn wide(plan: Plan) -> Plan {
    let width = plan.width.clamp(LEAST_WIDTH.min(WIDTH - 1), WIDTH - 1);
    let mut wide = Plan {
        width,
        refined: plan.refined.max(1),
        reconsider: WIDTH - width,
        gate: Gate::Top1,
        lookup: false,
        control: false,
        ..plan
    };
    while wide.validate().is_err() && wide.width > 1 {
        wide.width -= 1;
    }
    wide
}

/// Counts of rounds over the texts of `replayer` for each of `plans`, one for each of `groups` groups of texts; `group` is
/// that of each text.
///
/// # Errors
/// As [`crate::replay::replay`].
pub(crate) fn sample(
    replayer: &mut Replayer<'_>,
    plans: &[Plan],
    group: &[usize],
    groups: usize,
) -> Result<Vec<Vec<Samples>>, TrainError> {
    let tables = Tables { gate_threshold: 0.0, ..Tables::default() };
    let variants: Vec<Variant> = plans.iter().map(|plan| Variant::new(wide(*plan), tables.clone())).collect();
    let texts = 0..group.len();
    let jobs: Vec<Job<'_>> =
        variants.iter().flat_map(|variant| texts.clone().map(move |text| Job { text, variant })).collect();
    let mut samples = vec![vec![Samples::default(); groups]; plans.len()];
    replayer.run(&jobs, &mut |job, pool, outputs, truth| {
        samples[job / group.len()][group[job % group.len()]].round(pool, outputs, truth);
    })?;
    Ok(samples)
}

/// Samples, fits, and returns the tables for `plan`.
///
/// # Errors
/// As [`crate::replay::replay`]; [`TrainError::Setting`] when the texts have no round.
pub fn calibrate(
    evaluator: &Evaluator,
    texts: &TextSet<'_>,
    plan: Plan,
    options: &FitOptions,
) -> Result<Tables, TrainError> {
    options.check()?;
    let (mut samples, mut lookup) = (Samples::default(), LookupSamples::default());
    for start in (0..texts.len()).step_by(TEXTS) {
        let part = texts.part(start, TEXTS);
        let mut replayer = Replayer::new(evaluator, &part)?;
        let found = sample(&mut replayer, &[plan], &vec![0; part.len()], 1)?;
        found.iter().flatten().for_each(|found| samples.add(found));
    }
    for place in 0..texts.len() {
        let text = texts.read(place)?;
        lookup.add(&text.tokens, text.prompt);
    }
    tables(&samples, &lookup, options)
}

/// The tables of samples.
///
/// # Errors
/// [`TrainError::Setting`] when there is none.
pub(crate) fn tables(
    samples: &Samples,
    lookup: &LookupSamples,
    options: &FitOptions,
) -> Result<Tables, TrainError> {
    if samples.is_empty() {
        return Err(TrainError::setting("texts", "held-out answers of at least two tokens", "none"));
    }
    let mut tables = fit(samples, options);
    tables.lookup_edge = fit_lookup(lookup, options);
    Ok(tables)
}

/// The drafter with `tables` in the place of its own.
///
/// # Errors
/// [`TrainError::Drafter`] when the tables are none of a drafter file.
pub fn with_tables(file: DrafterFile, tables: &Tables) -> Result<DrafterFile, TrainError> {
    let mut parts = file.into_parts();
    let edges = tables.edges.as_flattened().as_flattened().as_flattened();
    let all: [(&str, &[u64], &[f32]); 3] = [
        ("reconsider.edges", &[2, 8, 4, 32], edges),
        ("reconsider.log_gain", &[8, 64], tables.log_gain.as_flattened()),
        ("reconsider.lookup_edge", &[17], &tables.lookup_edge),
    ];
    for (name, dims, values) in all {
        let tensor = Tensor::from_f32(GgmlType::F32, dims, values)
            .map_err(|source| redraft_drafter::DrafterError::Quantize { tensor: name.to_owned(), source })?;
        parts.tensors.insert(name.to_owned(), tensor);
    }
    parts.reconsider = ReconsiderSettings {
        gate_threshold: Some(tables.gate_threshold),
        refined_offset: Some(tables.refined_offset),
        calibrated: tables.calibrated,
    };
    Ok(DrafterFile::new(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tables_of;
    use redraft_testing::TinyDrafter;

    #[test]
    fn tables_go_into_a_file_and_come_back() {
        let file = TinyDrafter::default().to_file().unwrap();
        assert_eq!(tables_of(&file), Tables::default(), "a file without tables");
        let mut tables = Tables { calibrated: true, gate_threshold: 0.375, ..Tables::default() };
        tables.refined_offset = -0.25;
        tables.edges[1][7][3][31] = -3.0;
        tables.log_gain[7][63] = -1.5;
        tables.lookup_edge[16] = -0.125;
        let written = with_tables(file, &tables).unwrap().write();
        let read = DrafterFile::read(&written).unwrap();
        assert_eq!(tables_of(&read), tables, "as written");
        let other = TinyDrafter { tables: true, ..TinyDrafter::default() }.to_file().unwrap();
        assert_eq!(tables_of(&with_tables(other, &tables).unwrap()), tables, "in the place of others");
        tables.edges[0][0][0][0] = 0.5;
        assert!(with_tables(read, &tables).is_err(), "a chance above one");
    }
}
