//! τ by replay: the target's text is known, so rounds need the drafter alone.
//!
//! One pass over the true features of a text gives the stable rows of all positions. Rounds then run from position to
//! position: the tree behind the root is drafted by the very code that serving checks its kernels against
//! ([`redraft_decode::draft::Draft`]), what equals the text is accepted, and the next round starts behind it. Rounds of
//! many texts and plans run side by side, and rows that another plan evaluated on the same way are not evaluated again.
//!
//! A sampled answer is as fixed as a greedy one: the target drew it with noise that is a function of seed, position and
//! token ([`Noise`]), and a coupled drafter proposes with the same noise.
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
pub(crate) use rounds::{Job, Observer};
pub use text::{Noise, Text, TextId, TextSet};

use redraft_decode::TokenId;
use redraft_decode::draft::{Outputs, Plan, Pool, Tables};
use redraft_drafter::DrafterFile;

use crate::error::TrainError;
use paths::Paths;

/// Probability of the target's likeliest token from which on it counts as decisive.
pub const DECISIVE: f32 = 0.5;
/// Variants of texts whose rounds run side by side.
const SESSIONS: usize = 384;
/// Fewest and most texts that are extended at a time where none is kept.
const WAVE: (usize, usize) = (8, 64);
/// Evaluated rows that are kept for other plans, over all texts: 2 to 7 KB each at a width of 576.
const KEPT: usize = 600_000;

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
    /// The control where a row of the kernels has too few candidates for it: second passes are answered by what the first
    /// pass of the node says behind its children.
    pub beyond: bool,
    /// Deepest node that may be reconsidered, the root being 0.
    pub deepest: u32,
    /// Proposals are drawn with the noise of the target, where the text was.
    pub coupled: bool,
}

impl Variant {
    /// The plan as it is served.
    #[must_use]
    pub fn new(plan: Plan, tables: Tables) -> Self {
        Self {
            plan,
            tables,
            oracle: Oracle::None,
            blind: false,
            beyond: false,
            deepest: u32::MAX,
            coupled: true,
        }
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

/// Texts that keep the rows evaluated on them from one replay to the next.
pub struct Replayer<'a> {
    evaluator: &'a Evaluator,
    texts: Vec<(text::Prepared, Paths)>,
    /// Whether each token of the target is one that the drafter can propose.
    proposes: Vec<bool>,
}

impl<'a> Replayer<'a> {
    /// Extends all `texts`.
    ///
    /// # Errors
    /// [`TrainError`] for a text that cannot be read or does not fit.
    pub fn new(evaluator: &'a Evaluator, texts: &TextSet<'_>) -> Result<Self, TrainError> {
        let mut proposes = Vec::new();
        for id in evaluator.ids() {
            proposes.resize(proposes.len().max(id.0 as usize + 1), false);
            proposes[id.0 as usize] = true;
        }
        let mut prepared = Vec::with_capacity(texts.len());
        for place in 0..texts.len() {
            let text = evaluator.extend(texts.read(place)?)?;
            let paths = Paths::new(text.extended.rows);
            prepared.push((text, paths));
        }
        Ok(Self { evaluator, texts: prepared, proposes })
    }

    /// Replays all `variants` on all texts; one run a variant.
    ///
    /// # Errors
    /// [`TrainError`] for a plan or tables that do not validate.
    pub fn replay(&mut self, variants: &[Variant]) -> Result<Vec<Run>, TrainError> {
        let all = 0..self.texts.len();
        let jobs: Vec<Job<'_>> =
            variants.iter().flat_map(|variant| all.clone().map(move |text| Job { text, variant })).collect();
        let mut counts = self.run(&jobs, &mut |_, _, _, _| {})?.into_iter();
        let ids = self.ids();
        Ok(variants
            .iter()
            .map(|_| Run { texts: ids.iter().cloned().zip(counts.by_ref()).collect() })
            .collect())
    }

    /// The texts, in order.
    #[must_use]
    pub fn ids(&self) -> Vec<TextId> {
        self.texts.iter().map(|(text, _)| text.id.clone()).collect()
    }

    /// Replays `jobs` and shows every round; one count a job.
    pub(crate) fn run(
        &mut self,
        jobs: &[Job<'_>],
        observer: &mut Observer<'_>,
    ) -> Result<Vec<Counts>, TrainError> {
        let mut counts = Vec::with_capacity(jobs.len());
        for (number, jobs) in jobs.chunks(SESSIONS).enumerate() {
            let mut told = |job, pool: &Pool, outputs: &Outputs, truth: &[TokenId]| {
                observer(number * SESSIONS + job, pool, outputs, truth);
            };
            let proposes = &self.proposes;
            counts.extend(rounds::replay(self.evaluator, &mut self.texts, jobs, proposes, &mut told)?);
            if self.texts.iter().map(|(_, paths)| paths.len()).sum::<usize>() > KEPT {
                self.texts.iter_mut().for_each(|(_, paths)| paths.clear());
            }
        }
        Ok(counts)
    }
}

/// Replays all `variants` on all `texts`, some texts at a time; one run a variant. `progress` is told how many texts are
/// done each time.
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
    // All variants of a text at once: what one has evaluated is not kept for long.
    let wave = (SESSIONS / variants.len().max(1)).clamp(WAVE.0, WAVE.1);
    for start in (0..texts.len()).step_by(wave) {
        let part = texts.part(start, wave);
        let parts = Replayer::new(evaluator, &part)?.replay(variants)?;
        runs.iter_mut().zip(parts).for_each(|(run, part)| run.texts.extend(part.texts));
        progress(part.len());
    }
    Ok(runs)
}
