//! What an experiment replays, as a name.

use std::fmt;

use redraft_decode::draft::{Gate, Plan, Tables};

use crate::replay::{Oracle, Variant};

/// Least unsure value of a row that is reconsidered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Threshold {
    /// Whatever is most worthwhile, however sure.
    None,
    /// The fitted one.
    Fitted,
}

/// A variant without its tables. Its text names it, in caches and in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spec {
    pub(super) plan: Plan,
    /// Scores are fitted; otherwise they are the drafter's own probabilities.
    pub(super) calibrated: bool,
    pub(super) threshold: Threshold,
    pub(super) oracle: Oracle,
    pub(super) blind: bool,
    pub(super) deepest: u32,
    /// Where texts were drawn at a temperature, proposals are too, with the same noise.
    pub(super) coupled: bool,
}

impl Spec {
    /// A plan with calibrated scores.
    pub(super) const fn new(plan: Plan) -> Self {
        let (oracle, threshold) = (Oracle::None, Threshold::None);
        Self { plan, calibrated: true, threshold, oracle, blind: false, deepest: u32::MAX, coupled: true }
    }

    /// The variant, with `fitted` tables for its children and refined candidates.
    pub(super) fn variant(&self, fitted: &Tables) -> Variant {
        let mut tables = fitted.clone();
        if !self.calibrated {
            // Gains stay: the gate is told by the plan.
            tables = Tables { calibrated: false, log_gain: fitted.log_gain, ..Tables::default() };
            tables.refined_offset = fitted.refined_offset;
        }
        tables.gate_threshold = match self.threshold {
            Threshold::None => 0.0,
            Threshold::Fitted => fitted.gate_threshold,
        };
        Variant {
            oracle: self.oracle,
            blind: self.blind,
            deepest: self.deepest,
            coupled: self.coupled,
            ..Variant::new(self.plan, tables)
        }
    }
}

/// A gate as tables and caches call it.
pub(super) fn gate_name(gate: Gate) -> &'static str {
    match gate {
        Gate::Off => "off",
        Gate::Top1 => "top1",
        Gate::Entropy => "entropy",
        Gate::Calibrated => "calibrated",
        Gate::Random => "random",
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { nodes, depth, width, children, reconsider, refined, gate, .. } = self.plan;
        write!(f, "N{nodes} D{depth} k{width} c{children}")?;
        if reconsider > 0 {
            write!(f, " R{reconsider} E{refined} {}", gate_name(gate))?;
            if self.threshold == Threshold::Fitted {
                f.write_str(" thresholded")?;
            }
        }
        let flags = [
            ("late expansion", self.plan.expand_refined && reconsider > 0),
            ("control", self.plan.control),
            ("no recurrence", self.plan.no_recurrence),
            ("lookup", self.plan.lookup),
            ("no drafter", !self.plan.drafter),
            ("blind", self.blind),
            ("oracle in first passes", self.oracle == Oracle::First),
            ("oracle in second passes", self.oracle == Oracle::Second),
            ("raw scores", !self.calibrated),
            ("not coupled", !self.coupled),
        ];
        for (name, _) in flags.iter().filter(|(_, set)| *set) {
            write!(f, ", {name}")?;
        }
        if self.deepest != u32::MAX {
            write!(f, ", reconsidered down to depth {}", self.deepest)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_specs_have_different_names() {
        let spec = Spec::new(Plan::reconsider(15, 5, 4, 4, 2, 2));
        let plan = spec.plan;
        let with = |plan: Plan| Spec { plan, ..spec };
        let all = [
            spec,
            with(Plan { nodes: 7, ..plan }),
            with(Plan { depth: 4, ..plan }),
            with(Plan { width: 3, ..plan }),
            with(Plan { children: 3, ..plan }),
            with(Plan { reconsider: 1, ..plan }),
            with(Plan { refined: 1, ..plan }),
            with(Plan { gate: Gate::Random, ..plan }),
            with(Plan { expand_refined: true, ..plan }),
            with(Plan { control: true, ..plan }),
            with(Plan { no_recurrence: true, ..plan }),
            with(Plan { lookup: true, ..plan }),
            Spec { calibrated: false, ..spec },
            Spec { threshold: Threshold::Fitted, ..spec },
            Spec { oracle: Oracle::First, ..spec },
            Spec { oracle: Oracle::Second, ..spec },
            Spec { blind: true, ..spec },
            Spec { deepest: 1, ..spec },
            Spec { coupled: false, ..spec },
        ];
        let names: std::collections::HashSet<String> = all.iter().map(Spec::to_string).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
    }

    #[test]
    fn raw_scores_keep_the_gate() {
        let mut fitted = Tables { calibrated: true, gate_threshold: 0.25, ..Tables::default() };
        fitted.log_gain[1][2] = -7.0;
        fitted.edges[0][0][0][0] = -5.0;
        let raw = Spec { calibrated: false, ..Spec::new(Plan::default()) }.variant(&fitted).tables;
        assert_eq!((raw.calibrated, raw.log_gain[1][2], raw.gate_threshold), (false, -7.0, 0.0), "raw");
        let cut = Spec { threshold: Threshold::Fitted, ..Spec::new(Plan::default()) }.variant(&fitted).tables;
        assert_eq!((cut.calibrated, cut.edges[0][0][0][0], cut.gate_threshold), (true, -5.0, 0.25), "fitted");
    }
}
