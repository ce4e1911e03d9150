//! The experiments, as data.

use redraft_decode::draft::{Gate, Plan};

use super::select::{CHILDREN, Choices, Chosen};
use super::spec::{Spec, Threshold};
use crate::replay::Oracle;

/// An experiment: what is replayed, and what its table compares with.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    /// M1 to M9, or a name of our own.
    pub(super) id: &'static str,
    pub(super) title: String,
    /// What it is for.
    pub(super) why: &'static str,
    /// What is replayed, by name; gains are against the first.
    pub(super) entries: Vec<(String, Spec)>,
    /// Whether the table tells what was rejected instead of what was gained.
    pub(super) rejections: bool,
    /// Whether the gains of the arm [`RECONSIDERATION`] against all others are told.
    pub(super) arms: bool,
}

/// The name of the arm that is compared with all others.
pub(super) const RECONSIDERATION: &str = "reconsideration";
/// The name of the arm without second passes.
pub(super) const BASELINE: &str = "baseline";
/// The name of [`RECONSIDERATION`] with lookup.
pub(super) const LOOKUP_TOO: &str = "reconsideration and lookup";
/// The name of [`BASELINE`] with lookup.
pub(super) const LOOKUP_ALONE: &str = "baseline and lookup";
/// The name of the ceiling of second passes.
pub(super) const CEILING: &str = "second passes answered by the target";
/// The name of second passes that do not read what the first returned.
pub(super) const NO_RECURRENCE: &str = "no recurrence";

fn named(entries: &[(&str, Spec)]) -> Vec<(String, Spec)> {
    entries.iter().map(|(name, spec)| ((*name).to_owned(), *spec)).collect()
}

/// The arms of a size, each as `change` has it.
fn arms_of(chosen: &Chosen, change: impl Fn(Spec) -> Spec) -> Vec<(String, Spec)> {
    let same = chosen.reconsider.controlled();
    let mut arms = named(&[
        (BASELINE, change(chosen.baseline)),
        ("baseline with k + R rows", change(chosen.equal_rows)),
        ("top-k control", change(chosen.control)),
        (RECONSIDERATION, change(chosen.reconsider)),
    ]);
    if same != chosen.control {
        arms.insert(3, ("top-k control, the plan of reconsideration".to_owned(), change(same)));
    }
    arms
}

/// The arms of all sizes.
pub(super) fn arms(chosen: &Choices) -> Vec<Experiment> {
    let mut arms: Vec<Experiment> = (chosen.iter())
        .map(|((nodes, depth), chosen)| {
            let mut entries = arms_of(chosen, |spec| spec);
            entries.extend(named(&[
                (LOOKUP_TOO, looking_up(chosen.reconsider)),
                (LOOKUP_ALONE, looking_up(chosen.baseline)),
            ]));
            Experiment {
                id: "M3",
                title: format!("Against mere breadth and more rows, N = {nodes}, D = {depth}"),
                why: "Reconsideration must beat candidates of the first pass at gated parents, and a baseline that may \
                      evaluate as many rows. Each arm has its own sweep.",
                entries,
                rejections: false,
                arms: true,
            }
        })
        .collect();
    arms.sort_by_key(|arm| arm.entries.first().map_or(0, |(_, spec)| spec.plan.nodes));
    arms.extend(
        chosen.first().into_iter().flat_map(|((nodes, depth), chosen)| pairs(*nodes, *depth, chosen)),
    );
    arms
}

/// Reconsideration and its control with the same plan, for each number of children.
fn pairs(nodes: u32, depth: u32, chosen: &Chosen) -> impl Iterator<Item = Experiment> {
    let Chosen { baseline, reconsider, .. } = *chosen;
    CHILDREN.into_iter().filter(move |children| *children != reconsider.plan.children).map(move |children| {
        let with = |spec: Spec| Spec { plan: Plan { children, ..spec.plan }, ..spec };
        Experiment {
            id: "M3",
            title: format!("The same plan with c = {children}, N = {nodes}, D = {depth}"),
            why: "What reconsideration is worth depends on how many candidates first passes already have.",
            entries: named(&[
                (BASELINE, with(baseline)),
                ("top-k control", with(reconsider).controlled()),
                (RECONSIDERATION, with(reconsider)),
            ]),
            rejections: false,
            arms: true,
        }
    })
}

/// The arms on answers that were drawn at a temperature, proposals with the noise of the target and without.
pub(super) fn drawn(chosen: &Choices) -> Vec<Experiment> {
    let experiment = |title: String, why, entries| Experiment {
        id: "M9",
        title,
        why,
        entries,
        rejections: false,
        arms: true,
    };
    let mut all = Vec::new();
    for ((nodes, depth), of) in chosen {
        let title = format!("Coupled drafting, N = {nodes}, D = {depth}");
        let why = "The drafter proposes with the noise that the target draws with.";
        all.push(experiment(title, why, arms_of(of, |spec| spec)));
    }
    if let Some(((nodes, depth), main)) = chosen.first() {
        let title = format!("Not coupled, N = {nodes}, D = {depth}");
        let why = "The drafter proposes what it thinks likeliest.";
        all.insert(1, experiment(title, why, arms_of(main, |spec| Spec { coupled: false, ..spec })));
    }
    all
}

/// What explains the arms, at the headline's size; and the tree's own worth by size.
pub(super) fn ablations(chosen: &Choices) -> Vec<Experiment> {
    let Some(&((nodes, depth), main)) = chosen.first() else { return Vec::new() };
    let Chosen { baseline, reconsider, .. } = main;
    let size = format!("N = {nodes}, D = {depth}");
    let experiment = |id, title: &str, why, entries| {
        let title = format!("{title}, {size}");
        Experiment { id, title, why, entries, rejections: false, arms: false }
    };
    let plan = reconsider.plan;
    let with = |plan: Plan| Spec { plan, ..reconsider };
    let oracle = |oracle| Spec { oracle, ..reconsider };
    let gate = |gate, threshold| Spec { plan: Plan { gate, ..plan }, threshold, ..reconsider };
    let mut all = vec![
        Experiment {
            rejections: true,
            ..experiment(
                "M1",
                "First rejections",
                "Whether what the target rejects is what the drafter was unsure of while the target is decisive.",
                named(&[(BASELINE, hesitant(baseline)), (RECONSIDERATION, hesitant(reconsider))]),
            )
        },
        experiment(
            "M2",
            "The ceiling",
            "What could be had at most if hesitant nodes on the right way were answered by the target's own likeliest \
             token wherever it is decisive.",
            named(&[
                (BASELINE, baseline),
                (RECONSIDERATION, reconsider),
                (CEILING, oracle(Oracle::Second)),
                (
                    "all hesitant nodes answered by the target",
                    Spec { oracle: Oracle::First, ..hesitant(baseline) },
                ),
            ]),
        ),
        experiment(
            "M4",
            "Gates at equal R",
            "Whether it matters which nodes get a second pass.",
            named(&[
                (BASELINE, baseline),
                ("random", gate(Gate::Random, Threshold::None)),
                ("entropy", gate(Gate::Entropy, Threshold::None)),
                ("top1", gate(Gate::Top1, Threshold::None)),
                ("top1 above the fitted threshold", gate(Gate::Top1, Threshold::Fitted)),
                ("calibrated", gate(Gate::Calibrated, Threshold::None)),
            ]),
        ),
        experiment(
            "M5",
            "What the second pass uses",
            "Ablations of its inputs, on weights that were trained with all of them.",
            named(&[
                (BASELINE, baseline),
                (RECONSIDERATION, reconsider),
                (NO_RECURRENCE, with(Plan { no_recurrence: true, ..plan })),
                ("own first pass hidden", Spec { blind: true, ..reconsider }),
            ]),
        ),
        experiment(
            "M6",
            "Where second passes go, and whether their candidates are expanded",
            "Where to spend R.",
            named(&[
                (BASELINE, baseline),
                ("root only", Spec { deepest: 0, ..without_random(reconsider) }),
                ("depth 1 at most", Spec { deepest: 1, ..without_random(reconsider) }),
                ("all depths", reconsider),
                ("leaves only", with(Plan { expand_refined: false, ..plan })),
                ("expanded late", with(Plan { expand_refined: true, ..plan })),
            ]),
        ),
    ];
    let wide = baseline.plan;
    let tree = |nodes, depth, calibrated| Spec {
        calibrated,
        ..Spec::new(Plan { nodes, depth, ..Plan::tree(nodes, depth, wide.width, wide.children) })
    };
    for (nodes, depth) in [(3, 3), (7, 4), (15, 5), (31, 6), (59, 7)] {
        let chain = nodes.min(15);
        let mut entries = vec![("calibrated tree".to_owned(), tree(nodes, depth, true))];
        entries.push(("raw tree".to_owned(), tree(nodes, depth, false)));
        entries.push((format!("chain of {chain}"), Spec::new(Plan::chain(chain))));
        all.push(Experiment {
            id: "M7",
            title: format!("The tree's own worth, N = {nodes}"),
            why: "Raw and calibrated scores, and a chain that verifies as many nodes (fifteen at most).",
            entries,
            rejections: false,
            arms: false,
        });
    }
    all
}

/// With the fitted threshold, which says what counts as unsure.
fn hesitant(spec: Spec) -> Spec {
    Spec { threshold: Threshold::Fitted, ..spec }
}

fn looking_up(spec: Spec) -> Spec {
    Spec { plan: Plan { lookup: true, ..spec.plan }, ..spec }
}

/// A gate at random does not ask how unsure a row is.
fn without_random(spec: Spec) -> Spec {
    let gate = if spec.plan.gate == Gate::Random { Gate::Top1 } else { spec.plan.gate };
    Spec { plan: Plan { gate, ..spec.plan }, ..spec }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_plans_that_validate() {
        let chosen = |nodes, depth| {
            let reconsider = Plan { expand_refined: true, ..Plan::reconsider(nodes, depth, 4, 4, 2, 2) };
            Chosen {
                baseline: Spec::new(Plan::tree(nodes, depth, 4, 4)),
                reconsider: Spec::new(reconsider),
                control: Spec::new(reconsider).controlled(),
                equal_rows: Spec::new(Plan::tree(nodes, depth, 6, 4)),
            }
        };
        let sizes = super::super::select::SIZES;
        let chosen: Choices =
            sizes.map(|(nodes, depths)| ((nodes, depths[0]), chosen(nodes, depths[0]))).to_vec();
        let all: Vec<Experiment> =
            [arms(&chosen), ablations(&chosen), drawn(&chosen)].into_iter().flatten().collect();
        for id in ["M1", "M2", "M3", "M4", "M5", "M6", "M7", "M9"] {
            assert!(all.iter().any(|experiment| experiment.id == id), "{id}");
        }
        for experiment in &all {
            assert!(experiment.entries.len() > 1, "{} compares", experiment.title);
            for (name, spec) in &experiment.entries {
                spec.plan.validate().unwrap_or_else(|error| panic!("{}: {name}: {error}", experiment.title));
            }
            let compared = experiment.entries.iter().any(|(name, _)| name == RECONSIDERATION);
            assert!(compared || !experiment.arms, "{} has the arm that it compares", experiment.title);
        }
        let count = |id| all.iter().filter(|experiment| experiment.id == id).count();
        assert_eq!((count("M3"), count("M9")), (7, 5), "all sizes, other children, once without coupling");
        for (name, spec) in all.iter().flat_map(|experiment| &experiment.entries) {
            assert_eq!(name.contains("control"), spec.is_control(), "{name}: {spec}");
        }
        let none = Choices::new();
        assert!(arms(&none).is_empty() && ablations(&none).is_empty() && drawn(&none).is_empty(), "nothing");
    }
}
