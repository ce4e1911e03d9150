//! The shape of a draft: flags, and the plan that they make of a kind of proposer.

use clap::{Args, ValueEnum};
use redraft::{Gate, Plan, PlanError};

use super::Mode;

/// Flags that shape a draft. What is absent takes the default of the kind.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct ShapeArgs {
    /// Drafted tokens that are verified at once [default: chain 3, tree 15, lookup 3]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// Levels of drafted tokens below the last verified one [default: as many as nodes, tree 5]
    #[arg(long, value_name = "D")]
    pub(crate) depth: Option<u32>,
    /// Tokens that one step of the drafter goes on from [default: 4]
    #[arg(long, value_name = "K")]
    pub(crate) width: Option<u32>,
    /// Continuations kept of each of them [default: 4]
    #[arg(long, value_name = "C")]
    pub(crate) children: Option<u32>,
    /// Hesitant tokens that a step considers a second time [default: 2]
    #[arg(long, value_name = "R")]
    pub(crate) reconsider: Option<u32>,
    /// Candidates taken of each second pass [default: 2]
    #[arg(long, value_name = "E")]
    pub(crate) refined: Option<u32>,
    /// How hesitant tokens are told [default: top1]
    #[arg(long, value_enum, value_name = "GATE")]
    pub(crate) gate: Option<GateArg>,
    /// Candidates of second passes may be continued by the next step
    #[arg(long)]
    pub(crate) expand_refined: bool,
    /// Take the candidates of second passes from the first ones instead, for comparison
    #[arg(long)]
    pub(crate) control: bool,
    /// Let second passes read what the first ones read, not what they made of it, for comparison
    #[arg(long)]
    pub(crate) no_recurrence: bool,
    /// Continuations found in the text so far join the drafter's tree
    #[arg(long)]
    pub(crate) lookup: bool,
}

/// How the tokens that get a second pass are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GateArg {
    /// By the probability of the best candidate
    Top1,
    /// By the entropy of the candidates
    Entropy,
    /// By the table of gains in the drafter's file
    Calibrated,
    /// At random, for comparison
    Random,
    /// None gets one
    Off,
}

impl From<GateArg> for Gate {
    fn from(gate: GateArg) -> Self {
        match gate {
            GateArg::Top1 => Self::Top1,
            GateArg::Entropy => Self::Entropy,
            GateArg::Calibrated => Self::Calibrated,
            GateArg::Random => Self::Random,
            GateArg::Off => Self::Off,
        }
    }
}

/// What a gate is called in JSON: as on the command line.
pub(super) fn gate_name(gate: Gate) -> &'static str {
    match gate {
        Gate::Off => "off",
        Gate::Top1 => "top1",
        Gate::Entropy => "entropy",
        Gate::Calibrated => "calibrated",
        Gate::Random => "random",
    }
}

impl Mode {
    /// Flags of the shape that mean something to the kind.
    fn accepts(self) -> &'static [&'static str] {
        match self {
            Self::Off => &[],
            Self::Auto => &[
                "--reconsider",
                "--refined",
                "--gate",
                "--expand-refined",
                "--control",
                "--no-recurrence",
                "--lookup",
            ],
            Self::Chain => &["--nodes", "--depth", "--lookup"],
            Self::Tree => &["--nodes", "--depth", "--width", "--children", "--lookup"],
            Self::Reconsider => &[
                "--nodes",
                "--depth",
                "--width",
                "--children",
                "--reconsider",
                "--refined",
                "--gate",
                "--expand-refined",
                "--control",
                "--no-recurrence",
                "--lookup",
            ],
            Self::Lookup => &["--nodes", "--depth", "--lookup"],
        }
    }
}

impl ShapeArgs {
    /// Names of the flags that were given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("--nodes", self.nodes.is_some()),
            ("--depth", self.depth.is_some()),
            ("--width", self.width.is_some()),
            ("--children", self.children.is_some()),
            ("--reconsider", self.reconsider.is_some()),
            ("--refined", self.refined.is_some()),
            ("--gate", self.gate.is_some()),
            ("--expand-refined", self.expand_refined),
            ("--control", self.control),
            ("--no-recurrence", self.no_recurrence),
            ("--lookup", self.lookup),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
    }

    /// Refuses a flag that none of the kinds has a use for.
    pub(crate) fn check(&self, modes: &[Mode]) -> Result<(), String> {
        let Some(flag) = self.given().find(|flag| modes.iter().all(|mode| !mode.accepts().contains(flag)))
        else {
            return Ok(());
        };
        Err(match (modes, flag) {
            ([Mode::Off], _) => {
                format!("{flag}: speculation is off; choose a kind with --speculate, as in --speculate tree")
            }
            ([Mode::Auto], _) => format!(
                "{flag}: auto chooses the size of its plans itself; --speculate chain, tree, reconsider or lookup takes a shape"
            ),
            ([Mode::Chain], "--width" | "--children") => {
                format!("{flag}: a chain is one token wide; use --speculate tree")
            }
            (
                _,
                "--reconsider" | "--refined" | "--gate" | "--expand-refined" | "--control"
                | "--no-recurrence",
            ) => {
                format!("{flag}: only --speculate reconsider considers tokens a second time")
            }
            _ => {
                let names: Vec<_> = modes.iter().map(|mode| mode.name()).collect();
                format!("{flag}: --speculate {} has no use for it", names.join(","))
            }
        })
    }

    /// The plan of a kind, `None` for `off` and `auto`. Flags that the kind has no use for are not looked at.
    ///
    /// `alone`: no other kind takes its shape from the same flags, so that they must not contradict each other.
    pub(crate) fn plan(&self, mode: Mode, alone: bool) -> Result<Option<Plan>, String> {
        let tree = Plan::default();
        let or = |flag: Option<u32>, default: u32| flag.unwrap_or(default);
        let wide = |plan: Plan| Plan {
            nodes: or(self.nodes, plan.nodes),
            depth: or(self.depth, plan.depth),
            width: or(self.width, plan.width),
            children: or(self.children, plan.children),
            ..plan
        };
        let plan = match mode {
            Mode::Off | Mode::Auto => return Ok(None),
            Mode::Chain => Plan::chain(self.length(3, alone)?),
            Mode::Tree => wide(Plan::tree(tree.nodes, tree.depth, tree.width, tree.children)),
            Mode::Reconsider => self.again(wide(tree)),
            Mode::Lookup => Plan::lookup(self.length(3, alone)?),
        };
        let plan = Plan { lookup: plan.lookup || self.lookup, ..plan };
        plan.validate().map_err(|error| self.explain(&error, mode))?;
        Ok(Some(plan))
    }

    /// The plan with what the flags say of second passes.
    fn again(&self, plan: Plan) -> Plan {
        Plan {
            reconsider: self.reconsider.unwrap_or(plan.reconsider),
            refined: self.refined.unwrap_or(plan.refined),
            gate: self.gate.map_or(plan.gate, Gate::from),
            expand_refined: self.expand_refined || plan.expand_refined,
            control: self.control || plan.control,
            no_recurrence: self.no_recurrence || plan.no_recurrence,
            ..plan
        }
    }

    /// What the trees of an automatic choice are made after, if the flags say anything of it. `own`: what suits the drafter.
    pub(crate) fn template(&self, own: &Plan) -> Result<Option<Plan>, String> {
        let meant: Vec<_> = self.given().filter(|flag| Mode::Auto.accepts().contains(flag)).collect();
        let Some(first) = meant.first() else { return Ok(None) };
        if !own.drafter {
            return Err(format!(
                "{first}: without a drafter --speculate auto has no trees that it could change"
            ));
        }
        let asks = meant.iter().any(|flag| *flag != "--lookup");
        // Whoever says how to reconsider wants it, whatever the drafter was trained for.
        let base = if asks && own.reconsider == 0 { Plan::default() } else { *own };
        let plan = Plan { lookup: base.lookup || self.lookup, ..self.again(base) };
        plan.validate().map_err(|error| self.explain(&error, Mode::Auto))?;
        Ok(Some(plan))
    }

    /// Tokens of a kind whose draft is one behind the other.
    fn length(&self, default: u32, alone: bool) -> Result<u32, String> {
        match (self.nodes, self.depth) {
            (Some(nodes), Some(depth)) if nodes != depth && alone => Err(format!(
                "--nodes {nodes} --depth {depth}: one token stands behind the other here, so that both are the same; \
                 give one of them"
            )),
            (nodes, depth) => Ok(depth.or(nodes).unwrap_or(default)),
        }
    }

    /// The error of a plan in words of the command line.
    fn explain(&self, error: &PlanError, mode: Mode) -> String {
        match *error {
            PlanError::OutOfRange { field, found, least, most } => {
                let one = matches!(mode, Mode::Chain | Mode::Lookup);
                // Both fields of a chain come from one flag.
                let field = if one && self.depth.is_none() { "nodes" } else { field };
                format!("--{field} is {found}; expected {least} to {most} with --speculate {}", mode.name())
            }
            PlanError::TooMany { fields, found, most } if fields.contains("control") => {
                format!("--control with --children and --refined: together {found}; expected at most {most}")
            }
            PlanError::TooMany { found, most, .. } => {
                format!("--width and --reconsider together are {found}; expected at most {most}")
            }
            PlanError::PoolTooLarge { .. } => format!("--width, --children and --depth: {error}"),
            ref other => format!("--speculate {}: {other}", mode.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(mode: Mode, shape: &ShapeArgs) -> Result<Plan, String> {
        shape.check(&[mode])?;
        shape.plan(mode, true).map(|plan| plan.expect("a kind with a plan"))
    }

    #[test]
    fn every_kind_has_its_defaults() {
        let none = ShapeArgs::default();
        assert_eq!(plan(Mode::Chain, &none), Ok(Plan::chain(3)));
        assert_eq!(plan(Mode::Tree, &none), Ok(Plan::tree(15, 5, 4, 4)));
        assert_eq!(plan(Mode::Reconsider, &none), Ok(Plan::reconsider(15, 5, 4, 4, 2, 2)));
        assert_eq!(plan(Mode::Lookup, &none), Ok(Plan::lookup(3)));
        assert_eq!(none.plan(Mode::Off, true), Ok(None));
        assert_eq!(none.plan(Mode::Auto, true), Ok(None));
    }

    #[test]
    fn flags_change_the_plan() {
        let shape = ShapeArgs {
            nodes: Some(31),
            depth: Some(6),
            width: Some(8),
            children: Some(5),
            lookup: true,
            ..ShapeArgs::default()
        };
        assert_eq!(plan(Mode::Tree, &shape), Ok(Plan { lookup: true, ..Plan::tree(31, 6, 8, 5) }));
        let shape = ShapeArgs {
            reconsider: Some(4),
            refined: Some(3),
            gate: Some(GateArg::Entropy),
            ..ShapeArgs::default()
        };
        let expected = Plan { gate: Gate::Entropy, ..Plan::reconsider(15, 5, 4, 4, 4, 3) };
        assert_eq!(plan(Mode::Reconsider, &shape), Ok(expected));
        for shape in [
            ShapeArgs { nodes: Some(7), ..ShapeArgs::default() },
            ShapeArgs { depth: Some(7), ..ShapeArgs::default() },
            ShapeArgs { nodes: Some(7), depth: Some(7), ..ShapeArgs::default() },
        ] {
            assert_eq!(plan(Mode::Chain, &shape), Ok(Plan::chain(7)));
            assert_eq!(plan(Mode::Lookup, &shape), Ok(Plan::lookup(7)));
        }
    }

    #[test]
    fn second_passes_have_their_variants_and_an_automatic_choice_takes_them() {
        let shape =
            ShapeArgs { control: true, expand_refined: true, no_recurrence: true, ..ShapeArgs::default() };
        let expected = Plan { control: true, expand_refined: true, no_recurrence: true, ..Plan::default() };
        assert_eq!(plan(Mode::Reconsider, &shape), Ok(expected));
        assert!(shape.check(&[Mode::Tree]).expect_err("no second passes").starts_with("--expand-refined: "));
        assert_eq!(
            (shape.check(&[Mode::Auto]), shape.template(&Plan::default())),
            (Ok(()), Ok(Some(expected)))
        );
        assert_eq!(ShapeArgs::default().template(&Plan::default()), Ok(None), "nothing is asked for");
        let gate = ShapeArgs { gate: Some(GateArg::Calibrated), ..ShapeArgs::default() };
        let plain = Plan::tree(15, 5, 4, 4);
        let wanted = Plan { gate: Gate::Calibrated, ..Plan::default() };
        assert_eq!(gate.template(&plain), Ok(Some(wanted)), "a drafter that was not trained for it");
        let lookup = ShapeArgs { lookup: true, ..ShapeArgs::default() };
        assert_eq!(lookup.template(&plain), Ok(Some(Plan { lookup: true, ..plain })));
        assert!(lookup.template(&Plan::lookup(3)).expect_err("no drafter").contains("drafter"));
        let wide = ShapeArgs { refined: Some(9), ..ShapeArgs::default() };
        assert!(wide.template(&plain).expect_err("too many").contains("--refined is 9"));
        let control = ShapeArgs { control: true, children: Some(8), ..ShapeArgs::default() };
        let reason = plan(Mode::Reconsider, &control).expect_err("more than a pass tells");
        assert!(reason.contains("--control") && reason.contains("10"), "{reason}");
    }

    #[test]
    fn flags_without_a_use_are_refused_unless_another_kind_has_one() {
        let shape = ShapeArgs { width: Some(2), ..ShapeArgs::default() };
        for mode in [Mode::Off, Mode::Auto, Mode::Chain, Mode::Lookup] {
            let reason = shape.check(&[mode]).expect_err(mode.name());
            assert!(reason.starts_with("--width: "), "{reason}");
        }
        assert_eq!(shape.check(&[Mode::Chain, Mode::Tree]), Ok(()));
        let gate = ShapeArgs { gate: Some(GateArg::Off), ..ShapeArgs::default() };
        assert!(gate.check(&[Mode::Tree]).expect_err("a tree has no gate").contains("reconsider"));
    }

    #[test]
    fn impossible_plans_name_the_flag() {
        let none = ShapeArgs::default();
        for (mode, shape, words) in [
            (Mode::Chain, ShapeArgs { nodes: Some(17), ..none.clone() }, ["--nodes is 17", "1 to 16"]),
            (Mode::Chain, ShapeArgs { depth: Some(0), ..none.clone() }, ["--depth is 0", "1 to 16"]),
            (
                Mode::Chain,
                ShapeArgs { nodes: Some(3), depth: Some(4), ..none.clone() },
                ["--nodes 3", "--depth 4"],
            ),
            (Mode::Tree, ShapeArgs { nodes: Some(64), ..none.clone() }, ["--nodes is 64", "1 to 63"]),
            (Mode::Tree, ShapeArgs { width: Some(0), ..none.clone() }, ["--width is 0", "1 to 16"]),
            (Mode::Tree, ShapeArgs { children: Some(9), ..none.clone() }, ["--children is 9", "1 to 8"]),
            (Mode::Reconsider, ShapeArgs { refined: Some(0), ..none.clone() }, ["--refined is 0", "1 to 4"]),
            (Mode::Reconsider, ShapeArgs { width: Some(15), ..none.clone() }, ["--reconsider", "17"]),
            (
                Mode::Tree,
                ShapeArgs { width: Some(16), children: Some(8), depth: Some(16), ..none.clone() },
                ["--children", "pool"],
            ),
            (Mode::Lookup, ShapeArgs { nodes: Some(99), ..none.clone() }, ["--nodes is 99", "1 to 16"]),
        ] {
            let reason = plan(mode, &shape).expect_err("an impossible plan");
            for word in words {
                assert!(reason.contains(word), "{word:?} is not in: {reason}");
            }
        }
    }
}
