//! `redraft generate`: one prompt, one answer.

use std::io::IsTerminal;

use clap::Args;
use pollster::block_on;
use redraft::{
    CancelToken, Engine, GenerateOptions, Generation, SamplingParams, Speculation, Step, StopReason, TokenId,
};
use serde::Serialize;

use crate::args::{EngineArgs, SamplingArgs};
use crate::commands::question::PromptArgs;
use crate::error::CliError;
use crate::loading::{self, AdapterName, Timing};
use crate::speculate::{self, Mode, PhaseMs, SpeculationArgs};
use crate::{interrupt, output};

/// Longest answer unless --max-tokens says otherwise.
const MAX_TOKENS: u32 = 256;

/// Flags of `generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Print one JSON object instead of the text
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: log-probabilities of each token and of the N likeliest
    #[arg(long, value_name = "N", requires = "json", value_parser = clap::value_parser!(u8).range(0..=20))]
    pub(crate) logprobs: Option<u8>,
    /// Report the time of each kernel on standard error (slows the rest down)
    #[arg(long)]
    pub(crate) profile: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
    /// Submit each round before the one before it is read, so that the GPU need not wait; tokens come a round late
    #[arg(long, help_heading = "Speculation", conflicts_with = "logprobs")]
    pub(crate) late: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// The object that --json prints. Its shape is a contract with other tools.
#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    prompt_ids: Vec<u32>,
    ids: Vec<u32>,
    stop_reason: &'static str,
    timings: TimingsReport,
    adapter: AdapterName,
    /// Null if it was off.
    speculation: Option<speculate::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenReport>>,
}

#[derive(Serialize)]
struct TimingsReport {
    load_s: f64,
    /// Seconds from loading to the first token, measuring what steps cost included.
    prefill_s: f64,
    decode_s: f64,
    prefill_tokens_per_s: f64,
    decode_tokens_per_s: f64,
}

#[derive(Serialize)]
struct TokenReport {
    id: u32,
    text: String,
    logprob: f64,
    top: Vec<TopReport>,
}

#[derive(Serialize)]
struct TopReport {
    id: u32,
    logprob: f64,
}

pub(crate) fn run(args: &GenerateArgs) -> Result<(), CliError> {
    args.sampling.check()?;
    if args.late {
        // Without a mode it is auto or off.
        speculate::check_late(&[args.speculation.speculate.unwrap_or(Mode::Auto)])?;
    }
    let choice = args.speculation.choose(&args.engine.model)?;
    args.speculation.draft.check_coupling(args.sampling.params(SamplingParams::default()).temperature)?;
    // The prompt comes first: a bad file should not cost the loading of a model.
    let prompt = args.prompt.read()?;
    let told = (args.json || args.speculation.stats) && choice.mode != Mode::Off;
    let timing = match (args.profile, told) {
        (true, _) => Timing::Kernels,
        (false, true) => Timing::Phases,
        (false, false) => Timing::Off,
    };
    let mut loaded = choice.load(&args.engine, &args.speculation, timing)?;
    let ids = prompt.encode(&loaded.engine)?;
    let cancel = CancelToken::default();
    let before = loaded.engine.phase_report();
    let (generation, steps) = {
        let _guard = interrupt::Guard::new(cancel.clone());
        generate(&mut loaded.engine, &ids, options(args, choice.speculation, cancel), args)?
    };
    let phases =
        before.zip(loaded.engine.phase_report()).map(|(before, after)| PhaseMs::between(&before, &after));
    if args.json {
        let mut report = report(&generation, steps, &loaded, args.logprobs.is_some());
        let warning = generation.warning.as_deref();
        report.speculation = generation.speculation.as_ref().and_then(|stats| {
            speculate::Report::new(choice.speculation, stats, phases, measuring(&loaded), warning)
        });
        output::emit_json(&report)?;
    } else if !generation.text.ends_with('\n') {
        output::emit("\n")?;
    }
    if let Some(warning) = &generation.warning {
        output::warning(format_args!("speculation was given up: {warning}"));
    }
    if !args.json && std::io::stderr().is_terminal() {
        output::note(summary(&generation));
    }
    if args.speculation.stats {
        let stats = generation.speculation.as_ref();
        output::note(speculate::summary(choice.speculation, stats, phases.as_ref()));
    }
    if args.profile {
        loading::report_profile(&loaded.engine);
    }
    match generation.stop_reason {
        StopReason::Cancelled => Err(CliError::Interrupted),
        _ => Ok(()),
    }
}

fn options(args: &GenerateArgs, speculation: Speculation, cancel: CancelToken) -> GenerateOptions {
    GenerateOptions {
        speculation,
        max_tokens: args.sampling.max_tokens.unwrap_or(MAX_TOKENS),
        sampling: args.sampling.params(SamplingParams::default()),
        stop: args.sampling.stop.clone(),
        log_probs: args.logprobs,
        cancel,
        ignore_eos: args.sampling.ignore_eos,
        coupled: !args.speculation.draft.uncoupled,
        read_late: args.late,
        ..GenerateOptions::default()
    }
}

/// Runs to the end; without --json the text is printed as it comes.
fn generate(
    engine: &mut Engine,
    ids: &[TokenId],
    options: GenerateOptions,
    args: &GenerateArgs,
) -> Result<(Generation, Vec<Step>), CliError> {
    let terminal = std::io::stdout().is_terminal();
    let mut stream = engine.generate(ids, options)?;
    let mut steps = Vec::new();
    let mut shown = 0;
    while let Some(step) = block_on(stream.next())? {
        if !args.json && !step.text.is_empty() {
            output::emit(&output::printable(&step.text, terminal))?;
            shown += step.text.len();
        }
        if args.logprobs.is_some() {
            steps.push(step);
        }
    }
    let generation = stream.finish();
    // An answer that was stopped ends with what had been held back.
    if !args.json
        && let Some(rest) = generation.text.get(shown..)
    {
        output::emit(&output::printable(rest, terminal))?;
    }
    Ok((generation, steps))
}

fn report<'a>(
    generation: &'a Generation,
    steps: Vec<Step>,
    loaded: &loading::Loaded,
    logprobs: bool,
) -> Report<'a> {
    let timings = &generation.timings;
    // Whoever waits for the first token waits for that too.
    let prefill_s = timings.prefill_s + measuring(loaded);
    Report {
        text: &generation.text,
        prompt_ids: generation.prompt_ids.iter().map(|id| id.0).collect(),
        ids: generation.ids.iter().map(|id| id.0).collect(),
        stop_reason: generation.stop_reason.as_str(),
        timings: TimingsReport {
            load_s: loaded.seconds,
            prefill_s,
            decode_s: timings.decode_s,
            prefill_tokens_per_s: rate(timings.prefill_tokens, timings.prompt_s()),
            decode_tokens_per_s: rate(timings.decode_tokens, timings.decode_s),
        },
        adapter: loaded.engine.adapter().into(),
        speculation: None,
        logprobs: logprobs.then(|| steps.into_iter().filter_map(token_report).collect()),
    }
}

fn token_report(step: Step) -> Option<TokenReport> {
    let log_probs = step.log_probs?;
    let top = log_probs.top.iter().map(|l| TopReport { id: l.token.0, logprob: l.log_prob }).collect();
    Some(TokenReport { id: step.id.0, text: step.text, logprob: log_probs.chosen.log_prob, top })
}

/// Seconds that measuring what steps cost took before the answer.
fn measuring(loaded: &loading::Loaded) -> f64 {
    loaded.measured.as_ref().map_or(0.0, |measured| measured.seconds)
}

/// Tokens per second; 0 when nothing was measured, so that JSON has a number.
pub(crate) fn rate(tokens: u32, seconds: f64) -> f64 {
    if tokens > 0 && seconds > 0.0 { f64::from(tokens) / seconds } else { 0.0 }
}

/// One line about an answer.
pub(crate) fn summary(generation: &Generation) -> String {
    let timings = &generation.timings;
    format!(
        "[{} tokens at {:.1}/s; prompt {} tokens at {:.1}/s, {} reused; stopped: {}]",
        generation.ids.len(),
        rate(timings.decode_tokens, timings.decode_s),
        timings.prefill_tokens,
        rate(timings.prefill_tokens, timings.prompt_s()),
        generation.reused_tokens,
        generation.stop_reason.as_str()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: GenerateArgs,
    }

    #[test]
    fn flags_reach_the_library() {
        for (flags, late, coupled) in
            [(&[][..], false, true), (&["--late"], true, true), (&["--uncoupled"], false, false)]
        {
            let line = [&["generate", "x", "--speculate", "chain"], flags].concat();
            let args = Command::try_parse_from(line).expect("good flags").args;
            let options = options(&args, Speculation::Off, CancelToken::default());
            assert_eq!((options.read_late, options.coupled), (late, coupled), "{flags:?}");
        }
    }
}
