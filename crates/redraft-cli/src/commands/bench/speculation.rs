//! Plain decoding and each proposer side by side, on the same prompts.
//!
//! Every prompt is answered by plain decoding and by each proposer before the next prompt comes, in an order that
//! turns with each repetition, so that a machine that grows warm or busy slows all of them alike.

use std::path::PathBuf;

use clap::Args;
use pollster::block_on;
use redraft::{Engine, Extent, GenerateOptions, SamplingParams, Speculation, TokenId};

use super::comparison::{Proposer, Record, Report, Tally, report};
use super::prompts::{self, Prompt};
use crate::args::{self, EngineArgs};
use crate::error::CliError;
use crate::loading::Loaded;
use crate::speculate::{self, DraftArgs, DrafterInput, Mode};
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
    /// Temperature of the answers; 0 always takes the likeliest token [default: 0]
    #[arg(long, value_name = "T", requires = "speculate", value_parser = args::temperature, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Seed of the sampler [default: 0]
    #[arg(long, requires = "speculate")]
    seed: Option<u64>,
    /// Submit each round before the one before it is read, so that the GPU need not wait; plain decoding is as ever
    #[arg(long, requires = "speculate")]
    late: bool,
    #[command(flatten)]
    draft: DraftArgs,
}

/// What to measure, checked.
#[derive(Debug, Default)]
pub(super) struct Task {
    proposers: Vec<Proposer>,
    prompts: Vec<Prompt>,
    drafter: Option<PathBuf>,
    draft: DraftArgs,
    sampling: SamplingParams,
    late: bool,
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
        if self.late {
            speculate::check_late(&modes)?;
        }
        let looked_at: &[Mode] = if modes.is_empty() { &[Mode::Off] } else { &modes };
        self.draft.shape.check(looked_at).map_err(CliError::Usage)?;
        let used = modes.iter().any(|mode| mode.uses_drafter());
        let drafter = self.draft.file(&engine.model, used)?;
        let mut proposers = Vec::new();
        for &mode in &modes {
            let plan = self.draft.shape.plan(mode, modes.len() == 1).map_err(CliError::Usage)?;
            speculate::check_drafter(mode, drafter.as_deref()).map_err(CliError::Usage)?;
            proposers.push(Proposer { mode, speculation: mode.speculation(plan) });
        }
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let prompts = match &self.prompts {
            _ if proposers.is_empty() => Vec::new(),
            Some(file) => prompts::read(file, limit)?,
            None => prompts::built_in(),
        };
        if self.draft.uncoupled && !used {
            return Err(CliError::Usage(
                "--uncoupled: nothing in the list of --speculate has a drafter".into(),
            ));
        }
        if self.draft.drafter.is_some() && !used {
            return Err(CliError::Usage(
                "--drafter: nothing in the list of --speculate uses a drafter".into(),
            ));
        }
        let greedy = SamplingParams::default();
        let sampling = SamplingParams {
            temperature: self.temperature.unwrap_or(greedy.temperature),
            seed: self.seed.unwrap_or(greedy.seed),
            ..greedy
        };
        self.draft.check_coupling(sampling.temperature)?;
        let drafter = drafter.filter(|_| used);
        let draft = self.draft.clone();
        Ok(Task { proposers, prompts, drafter, draft, sampling, late: self.late })
    }
}

impl Task {
    /// The drafter to load.
    pub(super) fn drafter(&self) -> Result<Option<DrafterInput>, CliError> {
        let drafter = self.drafter.as_deref().map(speculate::read_drafter).transpose()?;
        let again = self.proposers.iter().any(|proposer| proposer.mode == Mode::Reconsider);
        if let Some(drafter) = drafter.as_ref().filter(|_| again && !self.draft.shape.control) {
            drafter.note_second_passes();
        }
        Ok(drafter)
    }

    /// Measures; none without proposers.
    pub(super) fn measure(
        &self,
        loaded: &mut Loaded,
        args: &super::BenchArgs,
    ) -> Result<Option<Report>, CliError> {
        if self.proposers.is_empty() {
            return Ok(None);
        }
        let context = loaded.engine.context();
        if context < speculate::LEAST_CONTEXT {
            return Err(CliError::Usage(format!(
                "--context {context}: measuring speculation needs a context of at least {}",
                speculate::LEAST_CONTEXT
            )));
        }
        let prompts = self
            .prompts
            .iter()
            .map(|prompt| prompt.encode(&loaded.engine, args.tokens))
            .collect::<Result<Vec<_>, _>>()?;
        if self.proposers.iter().any(|proposer| proposer.mode == Mode::Auto) && self.drafter.is_some() {
            self.draft.prepare(&mut loaded.engine)?;
        }
        let key = loaded.cost_key(&args.engine)?;
        // A benchmark does not believe what was measured another day.
        let costs = speculate::measure(&mut loaded.engine, &key, Extent::Whole)?.costs;
        let (plain, records) = self.run(&mut loaded.engine, &prompts, args)?;
        let proposers: Vec<_> = self
            .proposers
            .iter()
            .zip(&records)
            .map(|(p, record)| report(p, record, &plain, &costs))
            .collect();
        let report = Report {
            prompts: prompts.len(),
            tokens: args.tokens,
            temperature: self.sampling.temperature,
            seed: self.sampling.seed,
            late: self.late,
            costs: (&costs).into(),
            proposers,
        };
        Ok(Some(report))
    }

    /// How an answer of at most `max_tokens` is asked for.
    fn options(&self, max_tokens: u32, speculation: Speculation) -> GenerateOptions {
        GenerateOptions {
            max_tokens,
            speculation,
            coupled: !self.draft.uncoupled,
            read_late: self.late,
            sampling: self.sampling.clone(),
            ..GenerateOptions::default()
        }
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
                    let mut stream = engine.generate(prompt, self.options(args.tokens, speculation))?;
                    while block_on(stream.next())?.is_some() {}
                    let generation = stream.finish();
                    if let Some(warning) = &generation.warning {
                        output::warning(format_args!("speculation was given up: {warning}"));
                        record.warning.get_or_insert_with(|| warning.clone());
                    }
                    match answers.get(number) {
                        None => answers.push(generation.ids),
                        Some(answer) if *answer != generation.ids => {
                            record.differs.get_or_insert(number);
                        }
                        Some(_) => {}
                    }
                    if counts {
                        record.recording_ms.push(engine.last_recording().as_secs_f64() * 1e3);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_reach_the_library() {
        let sampling = SamplingParams { temperature: 0.5, seed: 7, ..SamplingParams::default() };
        for (late, uncoupled) in [(false, false), (true, false), (false, true)] {
            let draft = DraftArgs { uncoupled, ..DraftArgs::default() };
            let task = Task { draft, late, sampling: sampling.clone(), ..Task::default() };
            let options = task.options(9, Speculation::Auto);
            assert_eq!((options.read_late, options.coupled), (late, !uncoupled));
            assert_eq!(
                (options.max_tokens, options.speculation, options.sampling),
                (9, Speculation::Auto, sampling.clone())
            );
        }
    }
}
