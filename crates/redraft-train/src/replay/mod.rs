//! τ by replay: the target's text is known, so rounds need the drafter alone.
//!
//! One pass over the true features of a text gives the stable rows of all positions. Rounds then run from position to
//! position: the tree behind the root is drafted by the very code that serving checks its kernels against
//! ([`redraft_decode::draft::Draft`]), what equals the text is accepted, and the next round starts behind it. Rounds of
//! many texts run in lockstep, and rows that another plan evaluated before on the same way are not evaluated again.
//!
//! What differs from the engine: keys and values are f32, and sums have another order, so near-ties may fall otherwise.

pub mod args;
mod attention;
mod bootstrap;
mod counts;
mod evaluate;
mod paths;
mod rounds;
#[cfg(test)]
mod tests;
mod text;

pub use bootstrap::{Interval, gain, tau};
pub use counts::{Counts, Rejections, Run};
pub use evaluate::Evaluator;
pub(crate) use rounds::Observer;
pub use rounds::baseline;
pub use text::{Text, TextId, TextSet};

use redraft_decode::draft::{Plan, Tables};
use redraft_drafter::DrafterFile;

use crate::error::TrainError;
use paths::Paths;

/// Probability of the target's likeliest token from which on it counts as decisive.
pub const DECISIVE: f32 = 0.5;
/// Texts whose rounds run side by side.
const WAVE: usize = 64;
/// Evaluated rows that are kept for other plans, over all texts of a wave: about 4 KB each at a width of 576.
const KEPT: usize = 400_000;

/// What answers hesitant nodes on the right way, where the target is decisive: the ceiling of what it may gain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Oracle {
    /// The drafter alone.
    #[default]
    None,
    /// First passes: the target's choice comes first.
    First,
    /// Second passes.
    Second,
}

/// A plan with its tables, and what no plan can say.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The shape of a round.
    pub plan: Plan,
    /// Edges and gains.
    pub tables: Tables,
    /// The ceiling of M2.
    pub oracle: Oracle,
    /// Ablation: the second pass does not see the row of the first.
    pub blind: bool,
    /// Deepest node that may be reconsidered, the root being 0.
    pub deepest: u32,
}

impl Variant {
    /// The plan as it is served.
    #[must_use]
    pub fn new(plan: Plan, tables: Tables) -> Self {
        Self { plan, tables, oracle: Oracle::None, blind: false, deepest: u32::MAX }
    }
}

/// The tables of a drafter file; the defaults where it has none.
#[must_use]
pub fn tables_of(file: &DrafterFile) -> Tables {
    let reconsider = file.reconsider();
    let settings = reconsider.settings;
    let mut tables = Tables { calibrated: settings.calibrated, ..Tables::default() };
    tables.gate_threshold = settings.gate_threshold.unwrap_or(tables.gate_threshold);
    tables.refined_offset = settings.refined_offset.unwrap_or(tables.refined_offset);
    let fill = |to: &mut [f32], from: Option<Vec<f32>>| {
        to.iter_mut().zip(from.unwrap_or_default()).for_each(|(to, from)| *to = from);
    };
    fill(tables.edges.as_flattened_mut().as_flattened_mut().as_flattened_mut(), reconsider.edges);
    fill(tables.log_gain.as_flattened_mut(), reconsider.log_gain);
    fill(&mut tables.lookup_edge, reconsider.lookup_edge);
    tables
}

/// Replays all `variants` on all `texts`; one run a variant. `progress` is told of every text that is done.
///
/// # Errors
/// [`TrainError`] for a plan or tables that do not validate, or a text that does not fit.
pub fn replay(
    evaluator: &Evaluator,
    texts: &TextSet<'_>,
    variants: &[Variant],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Run>, TrainError> {
    let mut runs = vec![Run::default(); variants.len()];
    waves(evaluator, texts, |prepared, proposes| {
        for (run, variant) in runs.iter_mut().zip(variants) {
            let counts = rounds::replay(evaluator, prepared, variant, proposes, &mut rounds::NoObserver)?;
            run.texts.extend(prepared.iter().map(|(text, _)| text.id.clone()).zip(counts));
            if prepared.iter().map(|(_, paths)| paths.len()).sum::<usize>() > KEPT {
                prepared.iter_mut().for_each(|(_, paths)| paths.clear());
            }
        }
        progress(prepared.len());
        Ok(())
    })?;
    Ok(runs)
}

/// Replays one variant and shows every round.
pub(crate) fn observe(
    evaluator: &Evaluator,
    texts: &TextSet<'_>,
    variant: &Variant,
    observer: &mut dyn Observer,
) -> Result<(), TrainError> {
    waves(evaluator, texts, |prepared, proposes| {
        rounds::replay(evaluator, prepared, variant, proposes, observer).map(|_| ())
    })
}

/// τ of a drafter's plan over texts: tokens emitted a target forward.
///
/// # Errors
/// As [`replay`]; [`TrainError::Setting`] when no text has a round.
pub fn tau_of_texts(
    evaluator: &Evaluator,
    texts: &TextSet<'_>,
    variant: &Variant,
) -> Result<Counts, TrainError> {
    let runs = replay(evaluator, texts, std::slice::from_ref(variant), |_| {})?;
    let counts = Counts::sum(runs.iter().flat_map(|run| &run.texts).map(|(_, counts)| counts));
    if counts.rounds == 0 {
        return Err(TrainError::setting("texts", "answers of at least two tokens", "none"));
    }
    Ok(counts)
}

fn waves(
    evaluator: &Evaluator,
    texts: &TextSet<'_>,
    mut each: impl FnMut(&mut [(text::Prepared, Paths)], &[bool]) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let mut proposes = Vec::new();
    for id in evaluator.ids() {
        proposes.resize(proposes.len().max(id.0 as usize + 1), false);
        proposes[id.0 as usize] = true;
    }
    let places: Vec<usize> = (0..texts.len()).collect();
    for wave in places.chunks(WAVE) {
        let mut prepared = Vec::with_capacity(wave.len());
        for &place in wave {
            let text = evaluator.extend(texts.read(place)?)?;
            let paths = Paths::new(text.extended.rows);
            prepared.push((text, paths));
        }
        each(&mut prepared, &proposes)?;
    }
    Ok(())
}
