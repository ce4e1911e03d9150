//! `redraft bench`: prefill and decode speed with their spread, the cost curve V(M), and what speculation makes of it.
//!
//! V(M) is the time of one whole step of M rows over the time of the fastest step of one row. The repetitions are
//! interleaved (every M once, then every M again) so that a machine that grows warm or busy bends all points alike.

mod comparison;
mod prompts;
mod speculation;

use std::fmt::Write as _;
use std::time::Instant;

use clap::Args;
use pollster::block_on;
use redraft::{Engine, GenerateOptions, TokenId};
use serde::Serialize;

use crate::args::EngineArgs;
use crate::commands::generate::rate;
use crate::error::CliError;
use crate::loading::{self, AdapterName, Timing, WarmUp};
use crate::{output, progress};

/// Least number of steps whose recording is timed: it is short beside the step.
const HOST_STEPS: u32 = 10;

/// Flags of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Tokens of the prompt; also the context at which the cost curve is measured
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) prompt_tokens: u32,
    /// Tokens to decode; also the longest answer where speculation is measured
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) tokens: u32,
    /// Repetitions of each measurement, after one that does not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Largest step of the cost curve; 0 leaves the curve out
    #[arg(long, value_name = "M", default_value_t = 32, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub(crate) max_rows: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Report the time of each kernel on standard error (slows the rest down)
    #[arg(long)]
    pub(crate) profile: bool,
    #[command(flatten)]
    pub(crate) speculation: speculation::SpeculationArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// The object that --json prints. Its shape is a contract with other tools.
#[derive(Debug, Serialize)]
struct Report {
    decode_tokens_per_s: Spread,
    prefill_tokens_per_s: Spread,
    cost_curve: Vec<Cost>,
    adapter: AdapterName,
    host: Host,
    shader_warm_up: WarmUp,
    #[serde(skip_serializing_if = "Option::is_none")]
    speculation: Option<comparison::Report>,
}

/// What a step of plain decoding costs the host.
#[derive(Debug, Serialize)]
struct Host {
    /// Milliseconds to write the inputs, to record and to encode it.
    recording_ms: Spread,
    dispatches: u32,
}

#[derive(Debug, Serialize, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Cost {
    /// Rows of the step.
    m: u32,
    /// Median milliseconds.
    ms: f64,
    /// `ms` over the fastest step of one row.
    relative: f64,
    #[serde(skip)]
    fastest_ms: f64,
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), CliError> {
    let task = args.speculation.task(&args.engine)?;
    let timing = if args.profile { Timing::Kernels } else { Timing::Off };
    let mut loaded = loading::load(&args.engine, task.drafter()?, timing)?;
    check_room(&loaded.engine, args)?;
    let (prefill, decode) = measure_speed(&mut loaded.engine, args)?;
    let host = measure_host(&mut loaded.engine, args)?;
    let cost_curve = cost_curve(&measure_steps(&mut loaded.engine, args)?);
    let speculation = task.measure(&mut loaded, args)?;
    let report = Report {
        decode_tokens_per_s: spread(&decode),
        prefill_tokens_per_s: spread(&prefill),
        cost_curve,
        adapter: loaded.engine.adapter().into(),
        host,
        shader_warm_up: loaded.warm_up,
        speculation,
    };
    if args.json {
        output::emit_json(&report)?;
    } else {
        output::emit(&table(&report, args))?;
    }
    if args.profile {
        loading::report_profile(&loaded.engine);
    }
    report.speculation.as_ref().map_or(Ok(()), comparison::Report::verdict)
}

fn check_room(engine: &Engine, args: &BenchArgs) -> Result<(), CliError> {
    let needed = u64::from(args.prompt_tokens) + u64::from(args.tokens.max(args.max_rows));
    if needed > u64::from(engine.context()) {
        return Err(CliError::Usage(format!(
            "--prompt-tokens {} with --tokens {} and --max-rows {} needs a context of {needed}, there are {}; \
             lower them or raise --context",
            args.prompt_tokens,
            args.tokens,
            args.max_rows,
            engine.context()
        )));
    }
    Ok(())
}

/// Tokens per second of prefill and of decode, one of each a repetition.
fn measure_speed(engine: &mut Engine, args: &BenchArgs) -> Result<(Vec<f64>, Vec<f64>), CliError> {
    let prompt = prompt(engine, args.prompt_tokens);
    let bar = progress::items("prefill and decode", u64::from(args.repeat) + 1);
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for round in 0..=args.repeat {
        engine.reset();
        let options =
            GenerateOptions { max_tokens: args.tokens, ignore_eos: true, ..GenerateOptions::default() };
        let mut stream = engine.generate(&prompt, options)?;
        while block_on(stream.next())?.is_some() {}
        let timings = stream.finish().timings;
        if round > 0 {
            prefill.push(rate(timings.prefill_tokens, timings.prompt_s()));
            decode.push(rate(timings.decode_tokens, timings.decode_s));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    engine.reset();
    Ok((prefill, decode))
}

/// What recording a step of plain decoding takes, after one that does not count.
fn measure_host(engine: &mut Engine, args: &BenchArgs) -> Result<Host, CliError> {
    let (mut times, mut dispatches) = (Vec::new(), 0);
    for round in 0..=args.repeat.max(HOST_STEPS) {
        let step = block_on(engine.time_host(args.prompt_tokens))?;
        dispatches = step.dispatches;
        if round > 0 {
            times.push(step.seconds * 1e3);
        }
    }
    Ok(Host { recording_ms: spread(&times), dispatches })
}

/// A fixed prompt of ordinary tokens. What they say does not matter for speed, that they differ might.
fn prompt(engine: &Engine, length: u32) -> Vec<TokenId> {
    let vocab = engine.config().vocab.max(1);
    let mut state = 0x2545_f491_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        TokenId((state >> 8) % vocab)
    };
    (0..length).map(next).collect()
}

/// Milliseconds of steps of 1, 2, … rows: one list for each number of rows.
fn measure_steps(engine: &mut Engine, args: &BenchArgs) -> Result<Vec<Vec<f64>>, CliError> {
    let mut samples = vec![Vec::new(); args.max_rows as usize];
    if samples.is_empty() {
        return Ok(samples);
    }
    let bar = progress::items("cost curve", u64::from(args.repeat) + 1);
    for round in 0..=args.repeat {
        for (rows, times) in (1..).zip(&mut samples) {
            let started = Instant::now();
            block_on(engine.time_rows(rows, args.prompt_tokens))?;
            if round > 0 {
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(samples)
}

fn cost_curve(samples: &[Vec<f64>]) -> Vec<Cost> {
    let spreads: Vec<Spread> = samples.iter().map(|times| spread(times)).collect();
    let unit = spreads.first().map_or(1.0, |s| s.min).max(f64::MIN_POSITIVE);
    let cost =
        |(m, s): (u32, &Spread)| Cost { m, ms: s.median, relative: s.median / unit, fastest_ms: s.min };
    (1..).zip(&spreads).map(cost).collect()
}

fn spread(samples: &[f64]) -> Spread {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
    let last = sorted.len().saturating_sub(1);
    Spread { median: f64::midpoint(at(last / 2), at(last.div_ceil(2))), min: at(0), max: at(last) }
}

fn table(report: &Report, args: &BenchArgs) -> String {
    let mut text = format!("{} ({})\n\n", report.adapter.name, report.adapter.backend);
    let speeds = [
        (format!("prefill, {} tokens", args.prompt_tokens), &report.prefill_tokens_per_s),
        (format!("decode, {} tokens", args.tokens), &report.decode_tokens_per_s),
    ];
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:<24} {:>10} {:>10} {:>10}", "tokens per second", "median", "min", "max");
    for (label, s) in speeds {
        let _ = writeln!(text, "{label:<24} {:>10.2} {:>10.2} {:>10.2}", s.median, s.min, s.max);
    }
    let Host { recording_ms, dispatches } = &report.host;
    let _ = writeln!(
        text,
        "\n{:<24} {:>10} {:>10} {:>10}\n{:<24} {:>10.3} {:>10.3} {:>10.3}",
        "host milliseconds",
        "median",
        "min",
        "max",
        "recording a decode step",
        recording_ms.median,
        recording_ms.min,
        recording_ms.max
    );
    let _ = writeln!(text, "dispatches of the step   {dispatches:>10}");
    let WarmUp { seconds, cache } = report.shader_warm_up;
    let cache = match cache {
        "warm" => "with kernels of an earlier run",
        "cold" => "without kernels of an earlier run, but for what the driver keeps by itself",
        _ => "this backend keeps no kernels",
    };
    let _ = writeln!(text, "shader warm-up           {seconds:>10.2} s, {cache}");
    text.push_str(&curve_table(&report.cost_curve, args));
    if let Some(speculation) = &report.speculation {
        text.push_str(&comparison::table(speculation));
    }
    text
}

fn curve_table(curve: &[Cost], args: &BenchArgs) -> String {
    let mut text = String::new();
    let Some(first) = curve.first() else { return text };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nCost of a step of M rows at {} tokens of context, relative to the fastest step of one row\n\
         {:>4} {:>12} {:>12} {:>10} {:>12}",
        args.prompt_tokens, "M", "median ms", "min ms", "V(M)", "V(M) of min"
    );
    let unit = first.fastest_ms.max(f64::MIN_POSITIVE);
    for cost in curve {
        let Cost { m, ms, relative, fastest_ms } = cost;
        let _ = writeln!(
            text,
            "{m:>4} {ms:>12.3} {fastest_ms:>12.3} {relative:>10.3} {:>12.3}",
            fastest_ms / unit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_of_the_sorted_samples() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(spread(&[]), Spread { median: 0.0, min: 0.0, max: 0.0 });
    }

    #[test]
    fn costs_are_relative_to_the_fastest_step_of_one_row() {
        let curve = cost_curve(&[vec![10.0, 12.0, 14.0], vec![15.0, 15.0, 15.0]]);
        assert_eq!((curve[0].m, curve[0].ms, curve[0].relative), (1, 12.0, 1.2));
        assert_eq!((curve[1].m, curve[1].ms, curve[1].relative), (2, 15.0, 1.5));
        let text = serde_json::to_value(&curve[1]).unwrap();
        assert_eq!(text, serde_json::json!({ "m": 2, "ms": 15.0, "relative": 1.5 }));
    }
}
