//! The sweep on held-out text that settles every choice.
//!
//! All arms of a size verify the same number of nodes to the same depth. The baseline has its own sweep of width and
//! children. Reconsideration is settled one choice after the other, the best so far being kept; then the baseline with
//! as many rows and the top-k control get theirs.

use redraft_decode::draft::{Gate, Plan};

use super::cache::Runner;
use super::spec::{Spec, Threshold};
use crate::error::TrainError;
use crate::replay::TextSet;

/// (nodes, depth) of the sizes that are reported; the first of them is the headline's.
pub(super) const SIZES: [(u32, u32); 4] = [(15, 5), (3, 3), (7, 4), (31, 6)];
const WIDTHS: [u32; 4] = [2, 4, 6, 8];
const CHILDREN: [u32; 3] = [2, 4, 6];

/// What was settled for a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) baseline: Spec,
    pub(super) reconsider: Spec,
    /// The top-k control at the parents that reconsideration's gate picks.
    pub(super) control: Spec,
    /// The baseline with as many rows in a step as reconsideration has.
    pub(super) equal_rows: Spec,
}

/// A step of the sweep: what was tried, with its τ.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) what: String,
    pub(super) results: Vec<(Spec, f64)>,
}

/// What was settled for each size, nodes and depth; the headline's first.
pub(super) type Choices = Vec<((u32, u32), Chosen)>;

/// Settles all sizes.
pub(super) fn select(runner: &Runner<'_>, texts: &TextSet<'_>) -> Result<(Choices, Vec<Tried>), TrainError> {
    let mut log = Vec::new();
    let mut chosen: Choices = Vec::new();
    for size in SIZES {
        let like = chosen.first().map(|(_, chosen)| chosen.reconsider);
        let mut sweep = Sweep { runner, texts, size, log: &mut log };
        chosen.push((size, sweep.settle(like)?));
    }
    Ok((chosen, log))
}

struct Sweep<'a, 'b> {
    runner: &'a Runner<'b>,
    texts: &'a TextSet<'b>,
    size: (u32, u32),
    log: &'a mut Vec<Tried>,
}

impl Sweep<'_, '_> {
    fn best(&mut self, what: &str, specs: Vec<Spec>) -> Result<Spec, TrainError> {
        let mut kept: Vec<Spec> = Vec::new();
        for spec in specs {
            if spec.plan.validate().is_ok() && !kept.contains(&spec) {
                kept.push(spec);
            }
        }
        let runs = self.runner.runs(self.texts, &kept)?;
        let results: Vec<(Spec, f64)> =
            kept.into_iter().zip(runs.iter().map(|run| run.total().tau().unwrap_or(0.0))).collect();
        // The first of equals: lists go from what costs least.
        let best = results.iter().fold(None, |best: Option<(Spec, f64)>, &(spec, tau)| match best {
            Some((_, most)) if most >= tau => best,
            _ => Some((spec, tau)),
        });
        let what = format!("N = {}, D = {}: {what}", self.size.0, self.size.1);
        self.log.push(Tried { what: what.clone(), results });
        best.map(|(spec, _)| spec)
            .ok_or_else(|| TrainError::setting("the sweep", format!("a valid plan for {what}"), "none"))
    }

    /// `like`: what was settled for a larger effort; its gate and candidates are taken over.
    fn settle(&mut self, like: Option<Spec>) -> Result<Chosen, TrainError> {
        let (nodes, depth) = self.size;
        let tree = |width, children| Spec::new(Plan::tree(nodes, depth, width, children));
        let trees: Vec<Spec> =
            [1].iter().chain(&WIDTHS).flat_map(|&k| CHILDREN.map(|c| tree(k, c))).collect();
        let baseline = self.best("the baseline's width and children", trees)?;

        let start = Plan { expand_refined: true, ..Plan::reconsider(nodes, depth, 4, 4, 2, 2) };
        let first = match like {
            Some(like) => Spec { plan: Plan { nodes, depth, ..like.plan }, ..like },
            None => Spec { plan: Plan { gate: Gate::Top1, ..start }, ..Spec::new(start) },
        };
        let plan = first.plan;
        let widths = WIDTHS.iter().flat_map(|&width| {
            CHILDREN.map(|children| Spec { plan: Plan { width, children, ..plan }, ..first })
        });
        let mut best = self.best("width and children with reconsideration", widths.collect())?;
        let plan = best.plan;
        let rows = [1, 2, 3, 4, 6].map(|reconsider| Spec { plan: Plan { reconsider, ..plan }, ..best });
        best = self.best("rows of second passes", rows.to_vec())?;
        if like.is_none() {
            let plan = best.plan;
            let taken = [1, 2, 3].map(|refined| Spec { plan: Plan { refined, ..plan }, ..best });
            best = self.best("candidates of a second pass", taken.to_vec())?;
            let plan = best.plan;
            let gates = [Gate::Top1, Gate::Entropy, Gate::Calibrated].into_iter().flat_map(|gate| {
                let spec = Spec { plan: Plan { gate, ..plan }, ..best };
                // The fitted threshold is one of 1 − q(top-1).
                let fitted = (gate != Gate::Entropy).then_some(Spec { threshold: Threshold::Fitted, ..spec });
                [Some(spec), fitted].into_iter().flatten()
            });
            best = self.best("the gate", gates.collect())?;
            let plan = best.plan;
            let late =
                [false, true].map(|expand_refined| Spec { plan: Plan { expand_refined, ..plan }, ..best });
            best = self.best("late expansion", late.to_vec())?;
        }
        let reconsider = best;
        let plan = Plan { control: true, ..reconsider.plan };
        let controls = [1, 2, 3, 4].iter().flat_map(|&refined| {
            [false, true]
                .map(|expand_refined| Spec { plan: Plan { refined, expand_refined, ..plan }, ..reconsider })
        });
        let control = self.best("the top-k control's candidates", controls.collect())?;
        let width = reconsider.plan.step_rows();
        let wider = CHILDREN.map(|children| tree(width, children));
        let equal_rows = self.best("the baseline with as many rows", wider.to_vec())?;
        Ok(Chosen { baseline, reconsider, control, equal_rows })
    }
}
