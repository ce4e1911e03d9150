//! What an experiment replays, as a name.

use std::fmt;

use redraft_decode::draft::{Gate, Plan, TOP, Tables};

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
    /// A control that takes candidates from behind the eighth; see [`Spec::controlled`].
    pub(super) beyond: bool,
    pub(super) deepest: u32,
    /// Where texts were drawn at a temperature, proposals are too, with the same noise.
    pub(super) coupled: bool,
}

impl Spec {
    /// A plan with calibrated scores.
    pub(super) const fn new(plan: Plan) -> Self {
        let (oracle, threshold) = (Oracle::None, Threshold::None);
        Self {
            plan,
            calibrated: true,
            threshold,
            oracle,
            blind: false,
            beyond: false,
            deepest: u32::MAX,
            coupled: true,
        }
    }

    /// The top-k control of the same shape: a gated node gets the next candidates of its first pass. The kernels have eight
    /// of them; a replay has more, so no control is narrower than what it is compared with.
    pub(super) const fn controlled(self) -> Self {
        let Plan { children, refined, .. } = self.plan;
        let beyond = children + refined > TOP;
        Self { plan: Plan { control: !beyond, ..self.plan }, beyond, ..self }
    }

    /// Whether this is a top-k control.
    pub(super) const fn is_control(&self) -> bool {
        self.plan.control || self.beyond
    }

    /// The variant, with `fitted` tables for its children and refined candidates.
    pub(super) fn variant(&self, fitted: &Tables) -> Variant {
        let mut tables = fitted.clone();
        if !self.calibrated {
            // Gains stay: the gate is told by the plan.
            tables = Tables { calibrated: false, log_gain: fitted.log_gain, ..Tables::default() };
            tables.refined_offset = fitted.refined_offset;
        }
        if self.beyond {
            // Candidates behind the children are of a first pass, and of the last class of ranks.
            let [first, second] = &mut tables.edges;
            for (first, second) in first.iter().zip(second) {
                *second = [first[3]; 4];
            }
            tables.refined_offset = 0.0;
        }
        tables.gate_threshold = match self.threshold {
            Threshold::None => 0.0,
            Threshold::Fitted => fitted.gate_threshold,
        };
        Variant {
            oracle: self.oracle,
            blind: self.blind,
            beyond: self.beyond,
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
            ("control", self.is_control()),
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
    fn controls_are_as_wide_as_what_they_control() {
        let with =
            |children, refined| Spec::new(Plan::reconsider(15, 5, 4, children, 2, refined)).controlled();
        let kinds = [with(4, 4), with(8, 4)].map(|spec| (spec.plan.control, spec.beyond, spec.is_control()));
        assert_eq!(kinds, [(true, false, true), (false, true, true)], "by the kernels, by the replay");
        assert_eq!(with(4, 4).to_string().replace("c4", "c8"), with(8, 4).to_string(), "one name");
        let mut fitted = Tables { calibrated: true, refined_offset: -1.0, ..Tables::default() };
        fitted.edges[0][2][3][5] = -4.0;
        fitted.edges[1][2][0][5] = -9.0;
        let tables = with(8, 4).variant(&fitted).tables;
        assert_eq!(tables.edge(-1.3, 0, 3, true), -4.0, "candidates are scored as those of a first pass");
        assert_eq!(tables.edge(-1.3, 0, 3, false), fitted.edge(-1.3, 0, 3, false), "children as they are");
        let raw = Spec { calibrated: false, ..with(8, 4) }.variant(&fitted).tables;
        assert_eq!(raw.edge(-1.3, 2, 3, true), -1.3, "by their own probabilities");
        assert!(with(8, 4).plan.validate().is_ok(), "a plan that can be replayed");
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
