//! What is told of speculation: JSON for other tools, a few lines for people.

use std::fmt::Write as _;

use redraft::{Costs, Curve, KernelTime, PlanRun, Speculation, SpeculationStats, phase};
use serde::Serialize;

use super::PlanReport;

/// A run of rounds under one plan.
#[derive(Debug, Serialize)]
struct RunReport {
    /// Null for plain decoding.
    plan: Option<PlanReport>,
    rounds: u64,
    emitted: u64,
}

impl From<&PlanRun> for RunReport {
    fn from(run: &PlanRun) -> Self {
        Self { plan: run.plan.as_ref().map(PlanReport::from), rounds: run.rounds, emitted: run.emitted }
    }
}

/// Milliseconds on the device by the phases of rounds. The prompt is in it as far as the drafter extends over it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct PhaseMs {
    /// The drafter computes what was accepted.
    extend: f64,
    /// Steps of the drafter, growing the tree, lookup.
    draft: f64,
    /// Pruning the tree and laying it out.
    tree: f64,
    /// Forward passes of the target over trees.
    verify: f64,
    /// The target's own tokens.
    sample: f64,
    /// Walking the tree, moving keys and values, gathering features, the next root.
    accept: f64,
}

impl PhaseMs {
    /// What lies between two reports of the phases' times.
    pub(crate) fn between(before: &[KernelTime], after: &[KernelTime]) -> Self {
        let spent = |phase: &str| -> f64 {
            let total = |report: &[KernelTime]| -> f64 {
                report.iter().filter(|time| time.label == phase).map(|time| time.total_us).sum()
            };
            (total(after) - total(before)).max(0.0) / 1e3
        };
        Self {
            extend: spent(phase::EXTEND),
            draft: spent(phase::DRAFT),
            tree: spent(phase::TREE),
            verify: spent(phase::VERIFY),
            sample: spent(phase::SAMPLE),
            accept: spent(phase::ACCEPT),
        }
    }
}

/// The object that `generate --json` gives speculation. Its shape is a contract with other tools.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    plan: PlanReport,
    rounds: u64,
    drafted: u64,
    accepted: u64,
    /// Tokens a round, the target's own included; null before the first round.
    tau: Option<f64>,
    reconsidered: u64,
    refined: u64,
    rescues: u64,
    duplicates: u64,
    lookup_hits: u64,
    /// Share of the rounds that got as far and accepted there, depth 1 first; ends with the last depth that was tried.
    acceptance_by_depth: Vec<f64>,
    /// Null where the adapter has no timestamps.
    phase_ms: Option<PhaseMs>,
    /// Seconds before the first token in which it was measured what steps cost; 0 where that was known.
    measuring_s: f64,
    /// Why speculation was given up in the middle; null where it was not.
    warning: Option<String>,
    history: Vec<RunReport>,
}

impl Report {
    /// The report of an answer; none if nothing was asked for.
    pub(crate) fn new(
        speculation: Speculation,
        stats: &SpeculationStats,
        phase_ms: Option<PhaseMs>,
        measuring_s: f64,
        warning: Option<&str>,
    ) -> Option<Self> {
        Some(Self {
            plan: PlanReport::of(speculation)?,
            rounds: stats.rounds,
            drafted: stats.drafted,
            accepted: stats.accepted,
            tau: stats.tau(),
            reconsidered: stats.reconsidered,
            refined: stats.refined,
            rescues: stats.rescues,
            duplicates: stats.duplicates,
            lookup_hits: stats.lookup_hits,
            acceptance_by_depth: acceptance_by_depth(stats),
            phase_ms,
            measuring_s,
            warning: warning.map(str::to_owned),
            history: stats.history.iter().map(RunReport::from).collect(),
        })
    }
}

fn acceptance_by_depth(stats: &SpeculationStats) -> Vec<f64> {
    stats.by_depth.iter().map_while(redraft::DepthStats::rate).collect()
}

/// Measured costs, in plain steps.
#[derive(Debug, Serialize)]
pub(crate) struct CostsReport {
    verify: Vec<PointReport>,
    draft: Vec<PointReport>,
    extend: f64,
    overhead: f64,
}

/// A point of a cost curve, as in the cost curve of `bench`.
#[derive(Debug, Serialize)]
struct PointReport {
    m: u32,
    relative: f64,
}

impl From<&Costs> for CostsReport {
    fn from(costs: &Costs) -> Self {
        let points =
            |curve: &Curve| curve.points().iter().map(|&(m, relative)| PointReport { m, relative }).collect();
        Self {
            verify: points(&costs.verify),
            draft: points(&costs.draft),
            extend: costs.extend,
            overhead: costs.overhead,
        }
    }
}

impl CostsReport {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let points = |points: &[PointReport]| {
            points.iter().map(|p| format!("{}: {:.2}", p.m, p.relative)).collect::<Vec<_>>().join("   ")
        };
        let mut text = format!("verify V(M)   {}\n", points(&self.verify));
        if self.draft.iter().any(|point| point.relative > 0.0) {
            let _ = writeln!(text, "draft C(M)    {}\nextend        {:.2}", points(&self.draft), self.extend);
        }
        text
    }
}

/// What speculation did, for people: a few lines without a line end.
pub(crate) fn summary(
    speculation: Speculation,
    stats: Option<&SpeculationStats>,
    phases: Option<&PhaseMs>,
) -> String {
    let (Some(plan), Some(stats)) = (PlanReport::of(speculation), stats) else {
        return "speculation: off".to_owned();
    };
    let mut text = format!("speculation: {plan}");
    let _ = write!(
        text,
        "\n  {} rounds of {} tokens; {} of {} drafted tokens accepted{}; {} tokens without a draft",
        stats.rounds,
        stats.tau().map_or("-".to_owned(), |tau| format!("{tau:.2}")),
        stats.accepted,
        stats.drafted,
        stats.acceptance().map_or_else(String::new, |share| format!(" ({:.1} %)", 100.0 * share)),
        stats.plain
    );
    let rates: Vec<_> = acceptance_by_depth(stats).iter().map(|rate| format!("{rate:.2}")).collect();
    if !rates.is_empty() {
        let _ = write!(text, "\n  acceptance by depth: {}", rates.join(" "));
    }
    if stats.reconsidered > 0 {
        let _ = write!(
            text,
            "\n  {} reconsidered, {} candidates added, {} rescued, {} duplicates",
            stats.reconsidered, stats.refined, stats.rescues, stats.duplicates
        );
    }
    if stats.lookup_hits > 0 {
        let _ = write!(text, "\n  {} tokens found in the text so far", stats.lookup_hits);
    }
    if stats.history.len() > 1 {
        text.push_str("\n  plans:");
        for run in &stats.history {
            let name = run.plan.as_ref().map_or("off".into(), |plan| PlanReport::from(plan).to_string());
            let _ = write!(text, "\n    {} tokens in {} rounds: {name}", run.emitted, run.rounds);
        }
    }
    if let Some(PhaseMs { extend, draft, tree, verify, sample, accept }) = phases {
        let _ = write!(
            text,
            "\n  milliseconds: extend {extend:.2}, draft {draft:.2}, tree {tree:.2}, verify {verify:.2}, sample {sample:.2}, \
             accept {accept:.2}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use redraft::{DepthStats, Gate, Plan};

    use super::*;

    fn stats() -> SpeculationStats {
        let mut stats = SpeculationStats {
            rounds: 4,
            plain: 2,
            drafted: 60,
            accepted: 6,
            emitted: 10,
            reconsidered: 8,
            refined: 5,
            duplicates: 3,
            rescues: 1,
            lookup_hits: 2,
            ..SpeculationStats::default()
        };
        stats.by_depth[0] = DepthStats { tried: 4, accepted: 3 };
        stats.by_depth[1] = DepthStats { tried: 2, accepted: 1 };
        stats.history = vec![
            PlanRun { plan: Some(Plan::default()), rounds: 4, emitted: 10 },
            PlanRun { plan: None, rounds: 2, emitted: 2 },
        ];
        stats
    }

    #[test]
    fn json_has_the_promised_shape() {
        let plan = Plan { gate: Gate::Entropy, lookup: true, ..Plan::default() };
        let report = Report::new(Speculation::Plan(plan), &stats(), None, 0.25, Some("why")).unwrap();
        let expected = serde_json::json!({
            "plan": {
                "mode": "reconsider", "nodes": 15, "depth": 5, "width": 4, "children": 4, "reconsider": 2,
                "refined": 2, "gate": "entropy", "lookup": true,
            },
            "rounds": 4, "drafted": 60, "accepted": 6, "tau": 2.5, "reconsidered": 8, "refined": 5, "rescues": 1,
            "duplicates": 3, "lookup_hits": 2, "acceptance_by_depth": [0.75, 0.5], "phase_ms": null,
            "measuring_s": 0.25, "warning": "why",
            "history": [
                {
                    "plan": {
                        "mode": "reconsider", "nodes": 15, "depth": 5, "width": 4, "children": 4, "reconsider": 2,
                        "refined": 2, "gate": "top1", "lookup": false,
                    },
                    "rounds": 4, "emitted": 10,
                },
                { "plan": null, "rounds": 2, "emitted": 2 },
            ],
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
        assert!(Report::new(Speculation::Off, &stats(), None, 0.0, None).is_none());
        let auto = Report::new(Speculation::Auto, &SpeculationStats::default(), None, 0.0, None).unwrap();
        let auto = serde_json::to_value(&auto).unwrap();
        assert_eq!((&auto["plan"]["mode"], &auto["tau"]), (&"auto".into(), &serde_json::Value::Null));
    }

    #[test]
    fn phases_are_what_was_spent_in_between() {
        let time = |label, total_us| KernelTime { label, calls: 1, total_us };
        let before = [time("tree", 1000.0), time("step", 5.0)];
        let after = [
            time("tree", 3500.0),
            time("accept", 250.0),
            time("draft", 125.0),
            time("verify", 8000.0),
            time("step", 99.0),
        ];
        let phases = PhaseMs::between(&before, &after);
        let expected =
            PhaseMs { extend: 0.0, draft: 0.125, tree: 2.5, verify: 8.0, sample: 0.0, accept: 0.25 };
        assert_eq!(phases, expected);
        assert!(
            summary(Speculation::Auto, Some(&stats()), Some(&phases)).contains("verify 8.00, sample 0.00")
        );
    }

    #[test]
    fn the_summary_says_what_happened() {
        let text = summary(Speculation::Auto, Some(&stats()), None);
        for words in
            ["auto", "4 rounds of 2.50", "6 of 60", "0.75 0.50", "1 rescued", "2 tokens found", "off"]
        {
            assert!(text.contains(words), "{words:?} is not in: {text}");
        }
        assert_eq!(summary(Speculation::Off, None, None), "speculation: off");
    }
}
