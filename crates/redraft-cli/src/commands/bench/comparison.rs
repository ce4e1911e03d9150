//! What plain decoding and a proposer did on the same prompts, and what that says.

use std::fmt::Write as _;

use redraft::{Costs, Plan, PlanRun, Speculation, SpeculationStats};
use serde::Serialize;

use super::{Spread, spread};
use crate::commands::generate::rate;
use crate::error::CliError;
use crate::speculate::{CostsReport, Mode, PlanReport};

/// A proposer to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proposer {
    pub(super) mode: Mode,
    pub(super) speculation: Speculation,
}

/// What `bench --json` says of speculation. Its shape is a contract with other tools.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) prompts: usize,
    /// Most tokens of an answer.
    pub(super) tokens: u32,
    pub(super) temperature: f32,
    pub(super) seed: u64,
    /// Rounds were submitted ahead; told where they were.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) late: bool,
    pub(super) costs: CostsReport,
    pub(super) proposers: Vec<ProposerReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProposerReport {
    proposer: &'static str,
    plan: Option<PlanReport>,
    plain_tokens_per_s: Spread,
    speculative_tokens_per_s: Spread,
    ratio: Spread,
    /// Tokens a round; null without a round.
    tau: Option<f64>,
    /// What the measured costs promise for the rounds that were run; null without a token behind the first.
    predicted_ratio: Option<f64>,
    /// Median of `ratio` over `predicted_ratio`.
    measured_over_predicted: Option<f64>,
    /// Milliseconds that the host took to record the last round of each answer.
    recording_ms: Spread,
    /// Whether all answers were those of plain decoding.
    identical: bool,
    /// Why speculation was given up in an answer, the first time; null where it never was.
    warning: Option<String>,
    /// The first prompt whose answer was not.
    #[serde(skip)]
    differs: Option<usize>,
}

/// Answers of one way to decode in one repetition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) tokens: u32,
    pub(super) seconds: f64,
}

/// What one proposer did in all repetitions that count.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// One tally a repetition.
    pub(super) tallies: Vec<Tally>,
    pub(super) stats: SpeculationStats,
    /// Rounds and tokens by plan; the history of the statistics forgets.
    pub(super) runs: Vec<PlanRun>,
    /// The first answer that differs from the plain one.
    pub(super) differs: Option<usize>,
    /// Why speculation was given up, the first time.
    pub(super) warning: Option<String>,
    /// Milliseconds that the host took to record the last round, or step, of each answer.
    pub(super) recording_ms: Vec<f64>,
}

impl Record {
    pub(super) fn count(&mut self, stats: &SpeculationStats) {
        self.stats.merge(stats);
        for run in &stats.history {
            match self.runs.iter_mut().find(|known| known.plan == run.plan) {
                Some(known) => {
                    known.rounds += run.rounds;
                    known.emitted += run.emitted;
                }
                None => self.runs.push(*run),
            }
        }
    }

    fn rates(&self) -> Vec<f64> {
        self.tallies.iter().map(|tally| rate(tally.tokens, tally.seconds)).collect()
    }

    /// Tokens over what their rounds cost, in plain steps.
    fn predicted(&self, costs: &Costs) -> Option<f64> {
        let cost = |plan: Option<Plan>| plan.map_or(1.0, |plan| costs.round(&plan));
        let spent: f64 = self.runs.iter().map(|run| run.rounds as f64 * cost(run.plan)).sum();
        let emitted: u64 = self.runs.iter().map(|run| run.emitted).sum();
        (emitted > 0 && spent > 0.0).then(|| emitted as f64 / spent)
    }
}

pub(super) fn report(proposer: &Proposer, record: &Record, plain: &Record, costs: &Costs) -> ProposerReport {
    let (plain, speculative) = (plain.rates(), record.rates());
    let ratios: Vec<f64> =
        plain.iter().zip(&speculative).map(|(p, s)| if *p > 0.0 { s / p } else { 0.0 }).collect();
    let ratio = spread(&ratios);
    let predicted = record.predicted(costs);
    ProposerReport {
        proposer: proposer.mode.name(),
        plan: PlanReport::of(proposer.speculation),
        plain_tokens_per_s: spread(&plain),
        speculative_tokens_per_s: spread(&speculative),
        tau: record.stats.tau(),
        predicted_ratio: predicted,
        measured_over_predicted: predicted.map(|predicted| ratio.median / predicted),
        ratio,
        recording_ms: spread(&record.recording_ms),
        identical: record.differs.is_none(),
        warning: record.warning.clone(),
        differs: record.differs,
    }
}

impl Report {
    /// Whether speculation kept its promise; to be asked after the report was printed.
    pub(super) fn verdict(&self) -> Result<(), CliError> {
        let different = self.proposers.iter().find_map(|p| p.differs.map(|prompt| (p.proposer, prompt + 1)));
        match different {
            Some((proposer, prompt)) => {
                Err(CliError::Differs(format!("--speculate {proposer}, prompt {prompt}")))
            }
            None => Ok(()),
        }
    }
}

/// For people.
pub(super) fn table(report: &Report) -> String {
    let Report { prompts, tokens, temperature, seed, late, costs, proposers } = report;
    let mut text = format!("\nCosts in plain steps\n{}", costs.text());
    let drawn = if *temperature > 0.0 {
        format!(" at temperature {temperature}, seed {seed}")
    } else {
        String::new()
    };
    let ahead = if *late { ", each round submitted before the last one is read" } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nSpeculation, {prompts} prompts, at most {tokens} tokens each{drawn}{ahead}; decoding without the prompt's part: \
         medians, min … max in brackets\n\
         {:<12} {:>10} {:>12} {:>26} {:>8} {:>10} {:>8}",
        "proposer", "plain/s", "with it/s", "ratio", "tau", "predicted", "host ms"
    );
    for p in proposers {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
        let Spread { median, min, max } = &p.ratio;
        let ratio = format!("{median:.3} ({min:.3} … {max:.3})");
        let _ = writeln!(
            text,
            "{:<12} {:>10.2} {:>12.2} {ratio:>26} {:>8} {:>10} {:>8.3}{}{}",
            p.proposer,
            p.plain_tokens_per_s.median,
            p.speculative_tokens_per_s.median,
            number(p.tau),
            number(p.predicted_ratio),
            p.recording_ms.median,
            if p.identical { "" } else { "  ANSWERS DIFFER" },
            if p.warning.is_some() { "  GIVEN UP" } else { "" }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use redraft::Curve;

    use super::*;

    fn costs() -> Costs {
        let curve = |points: &[(u32, f64)]| Curve::new(points.to_vec()).unwrap();
        Costs {
            verify: curve(&[(1, 1.0), (4, 1.5)]),
            draft: curve(&[(1, 0.25)]),
            extend: 0.25,
            overhead: 0.0,
            catch_up: 0.0,
            catch_up_most: 0,
        }
    }

    fn record(tallies: &[(u32, f64)]) -> Record {
        let tally = |&(tokens, seconds): &(u32, f64)| Tally { tokens, seconds };
        Record { tallies: tallies.iter().map(tally).collect(), ..Record::default() }
    }

    #[test]
    fn predictions_weigh_plans_by_their_rounds() {
        let mut it = record(&[(30, 1.0)]);
        assert_eq!(it.predicted(&costs()), None, "nothing was run");
        // A chain of three costs 1.5 + 0.25 + 2 · 0.25 = 2.25 plain steps.
        let chain = PlanRun { plan: Some(Plan::chain(3)), rounds: 4, emitted: 9 };
        for history in [vec![chain], vec![PlanRun { plan: None, rounds: 3, emitted: 3 }, chain]] {
            it.count(&SpeculationStats { history, rounds: 4, emitted: 9, ..SpeculationStats::default() });
        }
        assert_eq!(it.predicted(&costs()), Some(21.0 / (8.0 * 2.25 + 3.0)));
        assert_eq!(it.stats.tau(), Some(2.25));
    }

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let proposer = Proposer { mode: Mode::Chain, speculation: Speculation::Plan(Plan::chain(3)) };
        let plain = record(&[(10, 1.0), (10, 2.0)]);
        let speculative = record(&[(10, 0.5), (10, 1.0)]);
        let value = serde_json::to_value(report(&proposer, &speculative, &plain, &costs())).unwrap();
        assert_eq!(value["ratio"], serde_json::json!({ "median": 2.0, "min": 2.0, "max": 2.0 }));
        assert_eq!(value["speculative_tokens_per_s"]["max"], 20.0);
        assert_eq!((&value["proposer"], &value["identical"]), (&"chain".into(), &true.into()));
        assert_eq!(value["predicted_ratio"], serde_json::Value::Null);
        let other = Record { differs: Some(1), warning: Some("why".to_owned()), ..record(&[(10, 1.0)]) };
        for (speculative, identical) in [(&speculative, true), (&other, false)] {
            let proposers = vec![report(&proposer, speculative, &plain, &costs())];
            let mut report = Report {
                prompts: 2,
                tokens: 9,
                temperature: 0.0,
                seed: 3,
                late: false,
                costs: (&costs()).into(),
                proposers,
            };
            assert_eq!(report.verdict().is_ok(), identical);
            assert_eq!(table(&report).contains("DIFFER"), !identical);
            assert_eq!(table(&report).contains("GIVEN UP"), !identical, "the other was given up, too");
            assert!(!table(&report).contains("seed"), "nothing is drawn");
            assert!(!table(&report).contains("submitted before"), "nor submitted ahead");
            let told = |report: &Report| serde_json::to_value(report).unwrap().get("late").is_some();
            assert!(!told(&report), "what was not asked for is not told");
            report.late = true;
            assert!(told(&report) && table(&report).contains("each round submitted before"));
            report.temperature = 0.7;
            report.late = false;
            assert!(
                table(&report).contains("tokens each at temperature 0.7, seed 3; "),
                "{}",
                table(&report)
            );
        }
        let nothing = record(&[(0, 0.0)]);
        assert_eq!(report(&proposer, &nothing, &nothing, &costs()).ratio.median, 0.0, "no division by zero");
    }
}
