//! Plain decoding and each proposer side by side, on the same prompts.
//!
//! Every prompt is answered by plain decoding and by each proposer before the next prompt comes, in an order that
//! turns with each repetition, so that a machine that grows warm or busy slows all of them alike.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use pollster::block_on;
use redraft::{Costs, Engine, GenerateOptions, Plan, PlanRun, Speculation, SpeculationStats, TokenId};
use serde::Serialize;

use super::prompts::{self, Prompt};
use super::{Spread, spread};
use crate::args::EngineArgs;
use crate::commands::generate::rate;
use crate::error::CliError;
use crate::loading::Loaded;
use crate::speculate::{self, CostsReport, DrafterInput, Mode, PlanReport, ShapeArgs};
use crate::{output, progress};

/// Flags of `bench` about speculation.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationArgs {
    /// Measure these beside plain decoding, as in chain,tree,lookup
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    speculate: Vec<Mode>,
    /// Prompts: JSON objects, one a line, with "prompt", "turns" (of which the first) or "messages"; - is standard input
    /// [default: four built-in ones]
    #[arg(long, value_name = "FILE", requires = "speculate")]
    prompts: Option<String>,
    /// Take the first N prompts
    #[arg(long, value_name = "N", requires = "prompts", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// The drafter: a safetensors file, or a folder with one and its config.json
    /// [default: NAME.drafter.safetensors beside the model NAME.gguf, if there]
    #[arg(long, value_name = "FILE", requires = "speculate")]
    drafter: Option<PathBuf>,
    #[command(flatten)]
    shape: ShapeArgs,
}

/// A proposer to measure.
#[derive(Debug, Clone, Copy)]
struct Proposer {
    mode: Mode,
    speculation: Speculation,
}

/// What to measure, checked.
#[derive(Debug, Default)]
pub(super) struct Task {
    proposers: Vec<Proposer>,
    prompts: Vec<Prompt>,
    drafter: Option<PathBuf>,
}

/// What `bench --json` says of speculation. Its shape is a contract with other tools.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    prompts: usize,
    /// Most tokens of an answer.
    tokens: u32,
    costs: CostsReport,
    proposers: Vec<ProposerReport>,
}

#[derive(Debug, Serialize)]
struct ProposerReport {
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
    /// Whether all answers were those of plain decoding.
    identical: bool,
}

impl SpeculationArgs {
    /// What to measure; no proposers if none were asked for.
    pub(super) fn task(&self, engine: &EngineArgs) -> Result<Task, CliError> {
        let mut modes: Vec<Mode> = Vec::new();
        for mode in &self.speculate {
            // Plain decoding is measured anyway.
            if *mode != Mode::Off && !modes.contains(mode) {
                modes.push(*mode);
            }
        }
        let looked_at: &[Mode] = if modes.is_empty() { &[Mode::Off] } else { &modes };
        self.shape.check(looked_at).map_err(CliError::Usage)?;
        let drafter = self.drafter.clone().or_else(|| speculate::default_drafter(&engine.model));
        let mut proposers = Vec::new();
        for &mode in &modes {
            let plan = self.shape.plan(mode, modes.len() == 1).map_err(CliError::Usage)?;
            speculate::check_drafter(mode, drafter.as_deref()).map_err(CliError::Usage)?;
            proposers.push(Proposer { mode, speculation: mode.speculation(plan) });
        }
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let prompts = match &self.prompts {
            _ if proposers.is_empty() => Vec::new(),
            Some(file) => prompts::read(file, limit)?,
            None => prompts::built_in(),
        };
        let drafter = drafter.filter(|_| modes.iter().any(|mode| mode.uses_drafter()));
        Ok(Task { proposers, prompts, drafter })
    }
}

/// Answers of one way to decode in one repetition.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    tokens: u32,
    seconds: f64,
}

/// What one proposer did in all repetitions that count.
#[derive(Debug, Default)]
struct Record {
    /// One tally a repetition.
    tallies: Vec<Tally>,
    stats: SpeculationStats,
    /// Rounds and tokens by plan; the history of the statistics forgets.
    runs: Vec<PlanRun>,
    /// The first answer that differs from the plain one.
    differs: Option<usize>,
}

impl Task {
    /// The drafter to load.
    pub(super) fn drafter(&self) -> Result<Option<DrafterInput>, CliError> {
        self.drafter.as_deref().map(speculate::read_drafter).transpose()
    }

    /// Measures; none without proposers. Answers that differ are an error, to be told after the report.
    pub(super) fn measure(
        &self,
        loaded: &mut Loaded,
        args: &super::BenchArgs,
    ) -> Result<Option<(Report, Result<(), CliError>)>, CliError> {
        if self.proposers.is_empty() {
            return Ok(None);
        }
        let prompts = self
            .prompts
            .iter()
            .map(|prompt| prompt.encode(&loaded.engine, args.tokens))
            .collect::<Result<Vec<_>, _>>()?;
        let key = loaded.cost_key(&args.engine)?;
        // A benchmark does not believe what was measured another day.
        let costs = speculate::prepare(&mut loaded.engine, &key, true)?;
        let (plain, records) = self.run(&mut loaded.engine, &prompts, args)?;
        let proposers: Vec<_> = self
            .proposers
            .iter()
            .zip(&records)
            .map(|(p, record)| report(p, record, &plain, &costs))
            .collect();
        let different = self.proposers.iter().zip(&records).find_map(|(p, record)| {
            record.differs.map(|prompt| {
                CliError::Differs(format!("--speculate {}, prompt {}", p.mode.name(), prompt + 1))
            })
        });
        let report =
            Report { prompts: prompts.len(), tokens: args.tokens, costs: (&costs).into(), proposers };
        Ok(Some((report, different.map_or(Ok(()), Err))))
    }

    fn run(
        &self,
        engine: &mut Engine,
        prompts: &[Vec<TokenId>],
        args: &super::BenchArgs,
    ) -> Result<(Record, Vec<Record>), CliError> {
        let ways: Vec<Speculation> =
            std::iter::once(Speculation::Off).chain(self.proposers.iter().map(|p| p.speculation)).collect();
        let mut records: Vec<Record> = ways.iter().map(|_| Record::default()).collect();
        // Of every prompt the answer of plain decoding, which comes first in the first repetition.
        let mut answers: Vec<Vec<TokenId>> = Vec::new();
        let repetitions = args.repeat as usize + 1;
        let bar = progress::items("speculation", (repetitions * prompts.len()) as u64);
        for repetition in 0..repetitions {
            let counts = repetition > 0;
            let mut tallies = vec![Tally::default(); ways.len()];
            for (number, prompt) in prompts.iter().enumerate() {
                let mut order: Vec<_> = ways.iter().zip(&mut records).zip(&mut tallies).collect();
                order.rotate_left(repetition % ways.len());
                for ((&speculation, record), tally) in order {
                    engine.reset();
                    let options = GenerateOptions {
                        max_tokens: args.tokens,
                        speculation,
                        ..GenerateOptions::default()
                    };
                    let mut stream = engine.generate(prompt, options)?;
                    while block_on(stream.next())?.is_some() {}
                    let generation = stream.finish();
                    if let Some(warning) = &generation.warning {
                        output::warning(format_args!("speculation was given up: {warning}"));
                    }
                    match answers.get(number) {
                        None => answers.push(generation.ids),
                        Some(answer) if *answer != generation.ids => {
                            record.differs.get_or_insert(number);
                        }
                        Some(_) => {}
                    }
                    tally.tokens += generation.timings.decode_tokens;
                    tally.seconds += generation.timings.decode_s;
                    if let Some(stats) = generation.speculation.filter(|_| counts) {
                        record.count(&stats);
                    }
                }
                bar.inc(1);
            }
            if counts {
                records.iter_mut().zip(tallies).for_each(|(record, tally)| record.tallies.push(tally));
            }
        }
        bar.finish_and_clear();
        engine.reset();
        let proposers = records.split_off(1);
        Ok((records.pop().unwrap_or_default(), proposers))
    }
}

impl Record {
    fn count(&mut self, stats: &SpeculationStats) {
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

fn report(proposer: &Proposer, record: &Record, plain: &Record, costs: &Costs) -> ProposerReport {
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
        identical: record.differs.is_none(),
    }
}

/// For people.
pub(super) fn table(report: &Report) -> String {
    let Report { prompts, tokens, costs, proposers } = report;
    let mut text = format!("\nCosts in plain steps\n{}", costs.text());
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nSpeculation, {prompts} prompts, at most {tokens} tokens each: medians, min … max in brackets\n\
         {:<12} {:>10} {:>12} {:>26} {:>8} {:>10}",
        "proposer", "plain/s", "with it/s", "ratio", "tokens", "predicted"
    );
    for p in proposers {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
        let Spread { median, min, max } = &p.ratio;
        let ratio = format!("{median:.3} ({min:.3} … {max:.3})");
        let _ = writeln!(
            text,
            "{:<12} {:>10.2} {:>12.2} {ratio:>26} {:>8} {:>10}{}",
            p.proposer,
            p.plain_tokens_per_s.median,
            p.speculative_tokens_per_s.median,
            number(p.tau),
            number(p.predicted_ratio),
            if p.identical { "" } else { "  ANSWERS DIFFER" }
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
        let nothing = record(&[(0, 0.0)]);
        assert_eq!(report(&proposer, &nothing, &nothing, &costs()).ratio.median, 0.0, "no division by zero");
    }
}
