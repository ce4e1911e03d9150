//! The flags of speculation, and what they ask for together with the model.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use redraft::{Engine, Extent, Plan, Speculation};

use super::{ShapeArgs, costs, default_drafter, drafter};
use crate::args::EngineArgs;
use crate::error::CliError;
use crate::loading::{self, Loaded, Timing};
use crate::model::ModelRef;
use crate::output;

/// Who drafts, and what: the same for every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct DraftArgs {
    /// The drafter: a safetensors file, a folder with one and its config.json, or a GGUF file of architecture eagle3
    /// [default: the model's own, from beside its file, $REDRAFT_MODELS, the cache or what came with redraft]
    #[arg(long, value_name = "FILE")]
    pub(crate) drafter: Option<PathBuf>,
    /// Do not look for the model's drafter
    #[arg(long, conflicts_with = "drafter")]
    pub(crate) no_drafter: bool,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// At a temperature, let the drafter propose without the noise that the model draws with, for comparison
    #[arg(long)]
    pub(crate) uncoupled: bool,
}

impl DraftArgs {
    /// The drafter that was named, else, if one would be `used`, the model's own.
    pub(crate) fn file(&self, model: &ModelRef, used: bool) -> Result<Option<PathBuf>, CliError> {
        match &self.drafter {
            None if used && !self.no_drafter => default_drafter(model),
            named => Ok(named.clone()),
        }
    }

    /// Refuses to uncouple where nothing is drawn.
    pub(crate) fn check_coupling(&self, temperature: f32) -> Result<(), CliError> {
        if self.uncoupled && temperature == 0.0 {
            return Err(CliError::Usage(
                "--uncoupled: at temperature 0 there is no noise that a drafter could share; give a --temperature".into(),
            ));
        }
        Ok(())
    }

    /// Tells the engine what an automatic choice makes its trees after.
    pub(crate) fn prepare(&self, engine: &mut Engine) -> Result<(), CliError> {
        if let Some(plan) = self.shape.template(&engine.plan_template()).map_err(CliError::Usage)? {
            engine.set_plan_template(&plan)?;
        }
        Ok(())
    }
}

/// Flags of speculation.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationArgs {
    /// Draft tokens ahead and verify several at once; the answer is the same [default: auto with a drafter, else off; tree: reconsider, else lookup]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) speculate: Option<Mode>,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    /// Measure again what steps cost here, which auto otherwise remembers
    #[arg(long)]
    pub(crate) remeasure: bool,
    /// Tell on standard error what speculation did
    #[arg(long)]
    pub(crate) stats: bool,
}

/// Who drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Nobody: one token at a time
    Off,
    /// Whatever is fastest, by measured costs and observed acceptance; without a drafter: lookup or off
    Auto,
    /// The drafter's best guess behind its best guess
    Chain,
    /// A tree of the drafter's best guesses
    Tree,
    /// A tree with second passes over hesitant guesses
    Reconsider,
    /// Text found in the context so far; needs no drafter
    Lookup,
}

impl Mode {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::Chain => "chain",
            Self::Tree => "tree",
            Self::Reconsider => "reconsider",
            Self::Lookup => "lookup",
        }
    }

    /// Whether it cannot do without a drafter.
    pub(crate) fn needs_drafter(self) -> bool {
        matches!(self, Self::Chain | Self::Tree | Self::Reconsider)
    }

    /// Whether a drafter takes part if there is one.
    pub(crate) fn uses_drafter(self) -> bool {
        self.needs_drafter() || self == Self::Auto
    }

    /// What the library calls it, with the plan of [`ShapeArgs::plan`].
    pub(crate) fn speculation(self, plan: Option<Plan>) -> Speculation {
        match (self, plan) {
            (Self::Auto, _) => Speculation::Auto,
            (_, Some(plan)) => Speculation::Plan(plan),
            (_, None) => Speculation::Off,
        }
    }

    /// The kind of a plan, whoever made it.
    pub(crate) fn of(plan: &Plan) -> Self {
        if !plan.drafter {
            Self::Lookup
        } else if plan.reconsider > 0 {
            Self::Reconsider
        } else if plan.width == 1 && plan.children == 1 {
            Self::Chain
        } else {
            Self::Tree
        }
    }
}

/// What the flags ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) mode: Mode,
    pub(crate) speculation: Speculation,
    /// The drafter to load.
    pub(crate) drafter: Option<PathBuf>,
}

impl SpeculationArgs {
    /// What to do, from the flags and from whether the model has a drafter. Nothing is loaded for it.
    pub(crate) fn choose(&self, model: &ModelRef) -> Result<Choice, CliError> {
        self.choose_or(model, Mode::Auto, Mode::Off)
    }

    /// The same with other defaults: of a model with a drafter, and of one without.
    pub(crate) fn choose_or(&self, model: &ModelRef, with: Mode, without: Mode) -> Result<Choice, CliError> {
        // What is wrong with a drafter too is told before one is looked for, which may fetch the model.
        if self.speculate.is_some() {
            self.choose_with(Some(PathBuf::new()), with, without).map_err(CliError::Usage)?;
        }
        let drafter = self.draft.file(model, self.speculate.is_none_or(Mode::uses_drafter))?;
        self.choose_with(drafter, with, without).map_err(CliError::Usage)
    }

    fn choose_with(&self, drafter: Option<PathBuf>, with: Mode, without: Mode) -> Result<Choice, String> {
        let mode = self.speculate.unwrap_or(if drafter.is_some() { with } else { without });
        self.draft.shape.check(&[mode])?;
        let plan = self.draft.shape.plan(mode, true)?;
        check_drafter(mode, drafter.as_deref())?;
        if self.remeasure && mode != Mode::Auto {
            return Err("--remeasure: only --speculate auto looks at measured costs".into());
        }
        if mode == Mode::Lookup && self.draft.drafter.is_some() {
            return Err(
                "--drafter: --speculate lookup does without one; --speculate tree --lookup takes both".into(),
            );
        }
        if self.draft.uncoupled && !mode.uses_drafter() {
            return Err("--uncoupled: only a drafter can be coupled; choose a kind that has one".into());
        }
        if mode == Mode::Auto && drafter.is_none() {
            self.draft.shape.template(&Plan::lookup(1))?;
        }
        let drafter = drafter.filter(|_| mode.uses_drafter());
        Ok(Choice { mode, speculation: mode.speculation(plan), drafter })
    }
}

impl Choice {
    /// Loads the model and what the choice needs.
    pub(crate) fn load(
        &self,
        engine: &EngineArgs,
        args: &SpeculationArgs,
        timing: Timing,
    ) -> Result<Loaded, CliError> {
        let drafter = self.drafter.as_deref().map(drafter::read).transpose()?;
        if let Some(path) = self.drafter.as_deref().filter(|_| args.stats) {
            output::note(format_args!("drafter {}", path.display()));
        }
        // The control takes its candidates from the first pass.
        if let Some(drafter) =
            drafter.as_ref().filter(|_| self.mode == Mode::Reconsider && !args.draft.shape.control)
        {
            drafter.note_second_passes();
        }
        let mut loaded = loading::load(engine, drafter, timing)?;
        if self.mode == Mode::Auto && loaded.engine.context() >= redraft::LEAST_CONTEXT {
            args.draft.prepare(&mut loaded.engine)?;
            let key = loaded.cost_key(engine)?;
            loaded.measured = match args.remeasure {
                true => Some(costs::measure(&mut loaded.engine, &key, Extent::Bounded)?),
                false => costs::prepare(&mut loaded.engine, &key)?,
            };
            if let Some(measured) = loaded.measured.as_ref().filter(|_| args.stats) {
                output::note(format_args!(
                    "measuring took {:.2} s, as long as {:.1} plain steps",
                    measured.seconds, measured.steps
                ));
            }
        }
        Ok(loaded)
    }
}

/// Refuses a kind that cannot do without the drafter that is not there.
pub(crate) fn check_drafter(mode: Mode, drafter: Option<&Path>) -> Result<(), String> {
    if mode.needs_drafter() && drafter.is_none() {
        return Err(format!(
            "--speculate {}: it needs a drafter and this model has none; give one with --drafter FILE, or choose \
             lookup, which needs none",
            mode.name()
        ));
    }
    Ok(())
}

/// Refuses to read late what follows no fixed plan.
pub(crate) fn check_late(modes: &[Mode]) -> Result<(), CliError> {
    let reason = match modes {
        modes if modes.contains(&Mode::Auto) => {
            "auto decides by what each round brought, so that none can be submitted before the last one was read"
        }
        modes if modes.iter().all(|mode| *mode == Mode::Off) => "without speculation there are no rounds",
        _ => return Ok(()),
    };
    Err(CliError::Usage(format!(
        "--late: {reason}; choose a kind of plan, as in --speculate chain, tree, reconsider or lookup"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(args: &SpeculationArgs, drafter: Option<&str>) -> Result<Choice, String> {
        args.choose_with(drafter.map(PathBuf::from), Mode::Auto, Mode::Off)
    }

    #[test]
    fn without_a_mode_a_drafter_decides() {
        let args = SpeculationArgs::default();
        assert_eq!(choose(&args, None).unwrap().speculation, Speculation::Off);
        let auto = choose(&args, Some("d")).unwrap();
        assert_eq!((auto.mode, auto.speculation), (Mode::Auto, Speculation::Auto));
        assert_eq!(auto.drafter, Some("d".into()));
    }

    #[test]
    fn a_drafter_is_loaded_only_where_it_is_used() {
        for mode in Mode::value_variants() {
            let args = SpeculationArgs { speculate: Some(*mode), ..SpeculationArgs::default() };
            let found = choose(&args, Some("d")).unwrap();
            assert_eq!(found.drafter.is_some(), mode.uses_drafter(), "{mode:?}");
            let without = choose(&args, None);
            assert_eq!(without.is_err(), mode.needs_drafter(), "{mode:?}");
            if let Err(reason) = without {
                assert!(reason.contains("--drafter") && reason.contains("lookup"), "{reason}");
            }
        }
    }

    #[test]
    fn what_has_no_use_is_refused() {
        let args = SpeculationArgs { remeasure: true, ..SpeculationArgs::default() };
        assert!(choose(&args, None).is_err() && choose(&args, Some("d")).is_ok());
        let args = SpeculationArgs {
            speculate: Some(Mode::Lookup),
            draft: DraftArgs { drafter: Some("d".into()), ..DraftArgs::default() },
            ..SpeculationArgs::default()
        };
        assert!(choose(&args, Some("d")).expect_err("a drafter that is not used").contains("--drafter"));
    }

    #[test]
    fn only_fixed_plans_are_read_late() {
        use Mode::{Auto, Chain, Lookup, Off, Reconsider, Tree};
        for modes in [&[Chain][..], &[Tree], &[Reconsider], &[Lookup], &[Chain, Lookup], &[Off, Tree]] {
            assert!(check_late(modes).is_ok(), "{modes:?}");
        }
        for (modes, word) in
            [(&[Auto][..], "auto"), (&[Chain, Auto], "auto"), (&[Off], "rounds"), (&[], "rounds")]
        {
            let reason = check_late(modes).expect_err("no fixed plan").to_string();
            assert!(reason.starts_with("--late: ") && reason.contains(word), "{modes:?}: {reason}");
        }
    }

    #[test]
    fn plans_have_the_kind_that_made_them() {
        let shape = ShapeArgs::default();
        for mode in [Mode::Chain, Mode::Tree, Mode::Reconsider, Mode::Lookup] {
            assert_eq!(shape.plan(mode, true).unwrap().map(|plan| Mode::of(&plan)), Some(mode));
        }
    }
}
