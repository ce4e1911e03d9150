//! The sweep on held-out text that settles every choice.
//!
//! All arms of a size verify the same number of nodes to the same depth, the one that suits the baseline, and each has a
//! sweep of its own. The baselines have a grid of width and children. Reconsideration and the top-k control are settled by
//! the same steps, one choice after the other, the best so far being kept. Whether scores are calibrated is every arm's
//! own choice, too.

use redraft_decode::draft::{Costs, Gate, Plan, standard_plans};

use super::cache::Runner;
use super::spec::{Spec, Threshold};
use crate::error::TrainError;

/// Nodes of the sizes that are reported, and depths that they may have; the first of them is the headline's.
pub(super) const SIZES: [(u32, &[u32]); 4] = [(15, &[5]), (3, &[2, 3]), (7, &[3, 4, 5]), (31, &[5, 6, 7])];
const WIDTHS: [u32; 4] = [2, 4, 6, 8];
pub(super) const CHILDREN: [u32; 4] = [2, 4, 6, 8];
const ROWS: [u32; 5] = [1, 2, 3, 4, 6];

/// What was settled for a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) baseline: Spec,
    pub(super) reconsider: Spec,
    /// Candidates of first passes in the place of those of second ones, with a sweep of its own.
    pub(super) control: Spec,
    /// The baseline with up to as many rows in a step as reconsideration has.
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

/// The plan that the budget policy expects the most of, by the measured costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) spec: Spec,
    /// Expected tokens a plain step: τ on held-out text over the round's cost.
    pub(super) speedup: f64,
}

/// Settles all sizes, and with `costs` the one that the budget policy picks.
pub(super) fn select(
    runner: &Runner<'_>,
    costs: Option<&Costs>,
) -> Result<(Choices, Option<Budget>, Vec<Tried>), TrainError> {
    let mut log = Vec::new();
    let mut chosen: Choices = Vec::new();
    for (nodes, depths) in SIZES {
        settle(runner, nodes, depths, &mut chosen, &mut log)?;
    }
    let Some((costs, (_, main))) = costs.zip(chosen.first()) else { return Ok((chosen, None, log)) };
    let budget = budget(runner, costs, main, &mut log)?;
    let Plan { nodes, depth, .. } = budget.spec.plan;
    if !chosen.iter().any(|(size, _)| *size == (nodes, depth)) {
        settle(runner, nodes, &[depth], &mut chosen, &mut log)?;
    }
    Ok((chosen, Some(budget), log))
}

/// The best of the plans that the policy chooses among, with and without reconsideration.
fn budget(
    runner: &Runner<'_>,
    costs: &Costs,
    main: &Chosen,
    log: &mut Vec<Tried>,
) -> Result<Budget, TrainError> {
    let of = |template: Spec| {
        standard_plans(&template.plan).into_iter().map(move |plan| match plan.reconsider {
            0 => Spec::new(plan),
            _ => Spec { plan, ..template },
        })
    };
    let mut specs: Vec<Spec> = Vec::new();
    for spec in of(main.baseline).chain(of(main.reconsider)) {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    let results = taus(runner, &specs)?;
    let speedups = results.iter().map(|&(spec, tau)| Budget { spec, speedup: tau / costs.round(&spec.plan) });
    let best = speedups.fold(None, |best: Option<Budget>, next| match best {
        Some(best) if best.speedup >= next.speedup => Some(best),
        _ => Some(next),
    });
    log.push(Tried { what: "Plans of the budget policy".to_owned(), results });
    best.ok_or_else(|| TrainError::setting("--bench", "costs that a plan validates with", "none"))
}

fn taus(runner: &Runner<'_>, specs: &[Spec]) -> Result<Vec<(Spec, f64)>, TrainError> {
    let runs = runner.held_out(specs)?;
    Ok(specs.iter().copied().zip(runs.iter().map(|run| run.total().tau().unwrap_or(0.0))).collect())
}

fn settle(
    runner: &Runner<'_>,
    nodes: u32,
    depths: &[u32],
    chosen: &mut Choices,
    log: &mut Vec<Tried>,
) -> Result<(), TrainError> {
    let mut sweep = Sweep { runner, nodes, log };
    let like = chosen.first().map(|(_, chosen)| *chosen);
    let baseline = sweep.trees("the baseline", depths, &[1, 2, 4, 6, 8])?;
    let depth = baseline.plan.depth;
    let reconsider = sweep.passes("reconsideration", depth, false, like.map(|like| like.reconsider))?;
    let control = sweep.passes("the top-k control", depth, true, like.map(|like| like.control))?;
    // The very plan of reconsideration is one that its control may have.
    let same = reconsider.controlled();
    let control =
        sweep.best("the top-k control, or with the plan of reconsideration", vec![control, same])?;
    let rows = reconsider.plan.step_rows();
    let widths: Vec<u32> = WIDTHS.into_iter().chain([rows]).filter(|width| *width <= rows).collect();
    let equal_rows = sweep.trees("the baseline with as many rows as reconsideration", &[depth], &widths)?;
    chosen.push(((nodes, depth), Chosen { baseline, reconsider, control, equal_rows }));
    Ok(())
}

struct Sweep<'a, 'b> {
    runner: &'a Runner<'b>,
    nodes: u32,
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
        let results = taus(self.runner, &kept)?;
        // The first of equals: lists go from what costs least.
        let best = results.iter().fold(None, |best: Option<(Spec, f64)>, &(spec, tau)| match best {
            Some((_, most)) if most >= tau => best,
            _ => Some((spec, tau)),
        });
        let what = format!("N = {}: {what}", self.nodes);
        self.log.push(Tried { what: what.clone(), results });
        best.map(|(spec, _)| spec)
            .ok_or_else(|| TrainError::setting("the sweep", format!("a valid plan for {what}"), "none"))
    }

    fn trees(&mut self, what: &str, depths: &[u32], widths: &[u32]) -> Result<Spec, TrainError> {
        let nodes = self.nodes;
        let tree = |depth, width, children| Spec::new(Plan::tree(nodes, depth, width, children));
        let trees = depths.iter().flat_map(|&depth| {
            widths.iter().flat_map(move |&width| CHILDREN.map(|children| tree(depth, width, children)))
        });
        let best = self.best(&format!("{what}: depth, width and children"), trees.collect())?;
        self.scores(what, best)
    }

    fn scores(&mut self, what: &str, best: Spec) -> Result<Spec, TrainError> {
        let either = [true, false].map(|calibrated| Spec { calibrated, ..best });
        self.best(&format!("{what}: calibrated or raw scores"), either.to_vec())
    }

    /// `like`: what was settled for the first size; its gate and candidates are taken over.
    fn passes(
        &mut self,
        what: &str,
        depth: u32,
        control: bool,
        like: Option<Spec>,
    ) -> Result<Spec, TrainError> {
        let nodes = self.nodes;
        let start = Plan { expand_refined: true, ..Plan::reconsider(nodes, depth, 4, 4, 2, 2) };
        let first = match like {
            Some(like) => Spec { plan: Plan { nodes, depth, ..like.plan }, ..like },
            None => Spec::new(start),
        };
        let with = |spec: Spec, change: &dyn Fn(Plan) -> Plan| {
            let changed = Spec { plan: change(spec.plan), ..spec };
            if control { changed.controlled() } else { changed }
        };
        let widths = WIDTHS.iter().flat_map(|&width| {
            CHILDREN.map(|children| with(first, &|plan| Plan { width, children, ..plan }))
        });
        let mut best = self.best(&format!("{what}: width and children"), widths.collect())?;
        let rows = ROWS.map(|reconsider| with(best, &|plan| Plan { reconsider, ..plan }));
        best = self.best(&format!("{what}: rows of second passes"), rows.to_vec())?;
        if like.is_none() {
            let taken = [1, 2, 3, 4].map(|refined| with(best, &|plan| Plan { refined, ..plan }));
            best = self.best(&format!("{what}: candidates of a second pass"), taken.to_vec())?;
            let gates = [Gate::Top1, Gate::Entropy, Gate::Calibrated].into_iter().flat_map(|gate| {
                let spec = with(best, &|plan| Plan { gate, ..plan });
                // The fitted threshold is one of 1 − q(top-1).
                let fitted = (gate != Gate::Entropy).then_some(Spec { threshold: Threshold::Fitted, ..spec });
                [Some(spec), fitted].into_iter().flatten()
            });
            best = self.best(&format!("{what}: the gate"), gates.collect())?;
            let late =
                [false, true].map(|expand_refined| with(best, &|plan| Plan { expand_refined, ..plan }));
            best = self.best(&format!("{what}: late expansion"), late.to_vec())?;
            // What was settled first, once more with the rest as it is now.
            let plan = best.plan;
            let near = [plan.width.saturating_sub(2).max(1), plan.width, plan.width + 2].map(|width| {
                [1, 2, 4, 6].map(|reconsider| with(best, &|plan| Plan { width, reconsider, ..plan }))
            });
            let what = format!("{what}: width and rows again");
            best = self.best(&what, near.into_iter().flatten().collect())?;
        }
        self.scores(what, best)
    }
}
