//! Why the verdict is what it is, from what the ablations measured.

use std::fmt::Write as _;

use super::plans::{BASELINE, CEILING, Experiment, LOOKUP_ALONE, LOOKUP_TOO, NO_RECURRENCE, RECONSIDERATION};
use super::spec::Spec;
use super::tables::{Part, signed};
use crate::error::TrainError;
use crate::replay::Rejections;

/// The spec of an entry of an experiment of `part`.
fn entry<'a>(part: &'a Part, matches: impl Fn(&Experiment) -> bool, name: &str) -> Option<&'a Spec> {
    let experiment = part.experiments.iter().find(|experiment| matches(experiment))?;
    experiment.entries.iter().find(|(found, _)| found == name).map(|(_, spec)| spec)
}

/// The reasons, as a list; each only where its experiment was run. `nodes`: of the headline.
pub(super) fn reasons(
    main: &Part,
    ablations: &Part,
    nodes: u32,
    text: &mut String,
) -> Result<(), TrainError> {
    text.push_str("## Why\n\n");
    let of = |id: &'static str, name: &str| entry(ablations, move |experiment| experiment.id == id, name);
    if let Some(baseline) = of("M1", BASELINE) {
        let mut sum = Rejections::default();
        ablations.total(baseline).rejections.iter().for_each(|at| sum.add(at));
        let share = |part: u64| 100.0 * part as f64 / sum.all.max(1) as f64;
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "- Who could be rescued (M1): at {:.1} % of the baseline's first rejections the drafter was unsure and the target \
             decisive. {:.1} % are of tokens outside the draft vocabulary, which no pass can propose.",
            share(sum.both),
            share(sum.outside)
        );
    }
    if let (Some(baseline), Some(ceiling), Some(ours)) =
        (of("M2", BASELINE), of("M2", CEILING), of("M2", RECONSIDERATION))
    {
        let rescues = |spec: &Spec| {
            let total = ablations.total(spec);
            100.0 * total.rescues as f64 / total.rounds.max(1) as f64
        };
        _ = writeln!(
            text,
            "- The ceiling (M2): were the target to answer the same second passes, the gain would be {} % with {:.1} rescues \
             in 100 rounds; the drafter's own second thoughts bring {} % and {:.1}.",
            signed(&ablations.gain(ceiling, baseline)?),
            rescues(ceiling),
            signed(&ablations.gain(ours, baseline)?),
            rescues(ours)
        );
    }
    if let (Some(baseline), Some(without)) = (of("M5", BASELINE), of("M5", NO_RECURRENCE)) {
        _ = writeln!(
            text,
            "- What it lives on (M5): a second pass that reads what the first one read instead of what it returned gains {} %.",
            signed(&ablations.gain(without, baseline)?)
        );
    }
    let size = |experiment: &Experiment| {
        experiment.entries.first().is_some_and(|(_, spec)| spec.plan.nodes == nodes)
    };
    let arm = |name: &str| entry(main, size, name);
    if let (Some(baseline), Some(alone), Some(both)) = (arm(BASELINE), arm(LOOKUP_ALONE), arm(LOOKUP_TOO)) {
        _ = writeln!(
            text,
            "- What is cheaper (M3): lookup, which needs no forward at all, brings the baseline {} %. On top of it \
             reconsideration gains {} %.",
            signed(&main.gain(alone, baseline)?),
            signed(&main.gain(both, alone)?)
        );
    }
    text.push('\n');
    Ok(())
}
