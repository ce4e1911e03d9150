//! Plans as they are told: as JSON, and on one line.

use std::fmt;

use redraft::{Plan, Speculation};
use serde::Serialize;

use super::Mode;
use super::shape::gate_name;

/// A plan as JSON has it. What a kind does not have is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct PlanReport {
    mode: &'static str,
    nodes: Option<u32>,
    depth: Option<u32>,
    width: Option<u32>,
    children: Option<u32>,
    reconsider: Option<u32>,
    refined: Option<u32>,
    gate: Option<&'static str>,
    lookup: Option<bool>,
    /// Variants of second passes, where they are asked for.
    #[serde(skip_serializing_if = "is_off")]
    expand_refined: bool,
    #[serde(skip_serializing_if = "is_off")]
    control: bool,
    #[serde(skip_serializing_if = "is_off")]
    no_recurrence: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_off(flag: &bool) -> bool {
    !flag
}

impl PlanReport {
    /// A choice that is made anew for every round.
    const AUTO: Self = Self {
        mode: "auto",
        nodes: None,
        depth: None,
        width: None,
        children: None,
        reconsider: None,
        refined: None,
        gate: None,
        lookup: None,
        expand_refined: false,
        control: false,
        no_recurrence: false,
    };

    /// What was asked for; none if nothing was.
    pub(crate) fn of(speculation: Speculation) -> Option<Self> {
        match speculation {
            Speculation::Off => None,
            Speculation::Auto => Some(Self::AUTO),
            Speculation::Plan(plan) => Some((&plan).into()),
        }
    }
}

impl From<&Plan> for PlanReport {
    fn from(plan: &Plan) -> Self {
        let again = plan.reconsider > 0;
        Self {
            mode: Mode::of(plan).name(),
            nodes: Some(plan.nodes),
            depth: Some(plan.depth),
            width: plan.drafter.then_some(plan.width),
            children: plan.drafter.then_some(plan.children),
            reconsider: plan.drafter.then_some(plan.reconsider),
            refined: again.then_some(plan.refined),
            gate: again.then(|| gate_name(plan.gate)),
            lookup: Some(plan.lookup),
            expand_refined: again && plan.expand_refined,
            control: again && plan.control,
            no_recurrence: again && plan.no_recurrence,
        }
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode)?;
        for (name, value) in [("nodes", self.nodes), ("depth", self.depth), ("width", self.width)] {
            if let Some(value) = value {
                write!(f, ", {name} {value}")?;
            }
        }
        if let (Some(reconsider), Some(refined), Some(gate)) = (self.reconsider, self.refined, self.gate) {
            write!(f, ", reconsider {reconsider} for {refined} each by {gate}")?;
        }
        for (name, given) in [
            ("expanded", self.expand_refined),
            ("control", self.control),
            ("no recurrence", self.no_recurrence),
        ] {
            if given {
                write!(f, ", {name}")?;
            }
        }
        if self.lookup == Some(true) && self.mode != "lookup" {
            f.write_str(", with lookup")?;
        }
        Ok(())
    }
}
