//! The command line. Flag groups that several commands share are here; a command's own flags are in its module.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use redraft::{AdapterChoice, EngineOptions, KvType, MAX_VOCAB, Precision, SamplingParams, TokenId};

use crate::commands::{bench, chat, devices, drafter, generate, inspect, pull, train, tree};
use crate::error::CliError;
use crate::loading::Timing;
use crate::model::{ModelRef, registry};

const EXIT_STATUS: &str = "Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted by Ctrl-C.\n\
    Results go to standard output; progress, questions and logs go to standard error.\n\
    Environment: XDG_CACHE_HOME (where models are kept), REDRAFT_MODELS (folders with drafters), HF_ENDPOINT, HF_TOKEN, HF_HUB_DOWNLOAD_TIMEOUT (hub), \
    NO_COLOR, RUST_LOG.";

/// Exact, fast language model inference on any WebGPU adapter
#[derive(Debug, Parser)]
#[command(name = "redraft", version, propagate_version = true, after_help = EXIT_STATUS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Say more on standard error; twice for debugging
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk with a model
    Chat(Box<chat::ChatArgs>),
    /// Answer one prompt
    Generate(Box<generate::GenerateArgs>),
    /// Measure speed: prefill, decode, the cost of steps of 1 to 32 rows, and speculation
    Bench(Box<bench::BenchArgs>),
    /// Show the draft tree of each round of an answer
    Tree(Box<tree::TreeArgs>),
    /// List adapters with their limits and features, or check that they compute correctly
    Devices(devices::DevicesArgs),
    /// Show, export and import drafters
    #[command(subcommand)]
    Drafter(drafter::DrafterCommand),
    /// Show what is in a GGUF file and the memory it needs
    Inspect(inspect::InspectArgs),
    /// Fetch and verify a model; prints where it is
    Pull(pull::PullArgs),
    /// Train a drafter for a model (the program redraft-train)
    Train(train::TrainArgs),
}

/// Which model, where to run it, and how much of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model and adapter")]
pub(crate) struct EngineArgs {
    /// Name (smollm2-135m), path of a GGUF file, or hf:owner/repo[@revision]/file.gguf
    #[arg(short, long, default_value = registry::DEFAULT)]
    pub(crate) model: ModelRef,
    /// A tokenizer.json to use in place of the tokenizer in the model file
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Adapter: auto, a number of `redraft devices`, or part of a name
    #[arg(long, default_value = "auto", value_name = "ADAPTER", value_parser = parse_adapter)]
    pub(crate) adapter: AdapterChoice,
    /// Tokens of context to allocate [default: what the model was trained for, at most 4096]
    #[arg(short, long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context: Option<u32>,
    /// Type of the key-value cache
    #[arg(long, value_enum, default_value_t = Kv::F16)]
    pub(crate) kv: Kv,
    /// What the model multiplies in: f16 where the adapter has it, f32 everywhere
    #[arg(long, value_enum, default_value_t = FloatWidth::F32)]
    pub(crate) precision: FloatWidth,
    /// Use only what every browser offers (no subgroups)
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Type of the key-value cache.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kv {
    /// Half precision
    F16,
    /// Full precision
    F32,
}

impl From<Kv> for KvType {
    fn from(kv: Kv) -> Self {
        match kv {
            Kv::F16 => Self::F16,
            Kv::F32 => Self::F32,
        }
    }
}

/// What the model multiplies in.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FloatWidth {
    /// Half precision, for adapters with shader-f16
    F16,
    /// Full precision
    F32,
}

impl From<FloatWidth> for Precision {
    fn from(width: FloatWidth) -> Self {
        match width {
            FloatWidth::F16 => Self::F16,
            FloatWidth::F32 => Self::F32,
        }
    }
}

impl EngineArgs {
    /// The library's options.
    pub(crate) fn options(&self, timing: Timing) -> EngineOptions {
        EngineOptions {
            adapter: self.adapter.clone(),
            context: self.context,
            kv: self.kv.into(),
            precision: self.precision.into(),
            strict: self.strict,
            profile: timing == Timing::Kernels,
            phases: timing == Timing::Phases,
            ..EngineOptions::default()
        }
    }
}

pub(crate) fn parse_adapter(text: &str) -> Result<AdapterChoice, String> {
    text.parse::<AdapterChoice>().map_err(|error| error.to_string())
}

/// Sampling flags. What is absent takes the default of the command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token [default: generate 0, chat 0.7]
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Keep the K likeliest tokens; 0 = off [default: 0]
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<u32>,
    /// Keep the likeliest tokens that make up mass P; 1 = off [default: generate 1, chat 0.95]
    #[arg(long, value_name = "P", value_parser = top_p, allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// Keep tokens at least P times as likely as the likeliest; 0 = off [default: generate 0, chat 0.05]
    #[arg(long, value_name = "P", value_parser = min_p, allow_negative_numbers = true)]
    pub(crate) min_p: Option<f32>,
    /// Divide the score of recent tokens; 1 = off [default: 1]
    #[arg(long, value_name = "F", value_parser = repetition_penalty, allow_negative_numbers = true)]
    pub(crate) repetition_penalty: Option<f32>,
    /// Subtract from the score of tokens that occurred; 0 = off [default: 0]
    #[arg(long, value_name = "F", value_parser = presence_penalty, allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f32>,
    /// Subtract from the score for each occurrence; 0 = off [default: 0]
    #[arg(long, value_name = "F", value_parser = frequency_penalty, allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f32>,
    /// How many recent tokens of prompt and answer the penalties look at [default: 64]
    #[arg(long, value_name = "TOKENS", value_parser = penalty_window)]
    pub(crate) penalty_window: Option<u32>,
    /// Add VALUE to the score of token ID, -inf to ban it; may be repeated
    #[arg(long, value_name = "ID=VALUE", value_parser = logit_bias)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Seed of the sampler [default: generate 0, chat a new one each time]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Stop before this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = non_empty)]
    pub(crate) stop: Vec<String>,
    /// Longest answer in tokens [default: generate 256, chat 1024, tree 64]
    #[arg(short = 'n', long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tokens: Option<u32>,
    /// Go on after the model has ended its answer
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

impl SamplingArgs {
    /// The library's parameters, with `defaults` for what was not given.
    pub(crate) fn params(&self, defaults: SamplingParams) -> SamplingParams {
        let mut params = defaults;
        let set = |to: &mut f32, value: Option<f32>| *to = value.unwrap_or(*to);
        set(&mut params.temperature, self.temperature);
        set(&mut params.top_p, self.top_p);
        set(&mut params.min_p, self.min_p);
        set(&mut params.repetition_penalty, self.repetition_penalty);
        set(&mut params.presence_penalty, self.presence_penalty);
        set(&mut params.frequency_penalty, self.frequency_penalty);
        params.top_k = self.top_k.unwrap_or(params.top_k);
        params.penalty_window = self.penalty_window.unwrap_or(params.penalty_window);
        params.seed = self.seed.unwrap_or(params.seed);
        params.logit_bias = self.logit_bias.iter().map(|&(id, value)| (TokenId(id), value)).collect();
        params
    }

    /// What the flags get wrong together; each by itself was checked when it was parsed.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        match self.params(SamplingParams::default()).validate(MAX_VOCAB) {
            Ok(()) => Ok(()),
            Err(error) => Err(CliError::Usage(format!("--logit-bias: {error}"))),
        }
    }
}

/// A comma-separated list of token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids(pub(crate) Vec<u32>);

impl std::str::FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = |item: &str| {
            let item = item.trim();
            item.parse().map_err(|_| format!("'{item}' is not a token id; expected numbers as in 1,2,3"))
        };
        text.split(',').map(id).collect::<Result<_, _>>().map(Self)
    }
}

/// A finite number.
fn finite(text: &str) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if value.is_finite() { Ok(value) } else { Err("expected a finite number".into()) }
}

/// A finite number that the library's own check of the parameters accepts where `set` puts it.
fn checked(text: &str, set: impl FnOnce(&mut SamplingParams, f32)) -> Result<f32, String> {
    let value = finite(text)?;
    valid(|params| set(params, value))?;
    Ok(value)
}

/// Whether the library accepts the default with a change, for the largest vocabulary while there is no model yet.
fn valid(change: impl FnOnce(&mut SamplingParams)) -> Result<(), String> {
    let mut params = SamplingParams::default();
    change(&mut params);
    params.validate(MAX_VOCAB).map_err(|error| error.to_string())
}

/// A temperature.
pub(crate) fn temperature(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.temperature = value)
}

/// A mass for top-p.
pub(crate) fn top_p(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.top_p = value)
}

/// A relative probability for min-p.
pub(crate) fn min_p(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.min_p = value)
}

/// A repetition penalty.
pub(crate) fn repetition_penalty(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.repetition_penalty = value)
}

/// A presence penalty.
pub(crate) fn presence_penalty(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.presence_penalty = value)
}

/// A frequency penalty.
pub(crate) fn frequency_penalty(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.frequency_penalty = value)
}

/// The length of a penalty window.
pub(crate) fn penalty_window(text: &str) -> Result<u32, String> {
    let value = text.parse().map_err(|_| "expected a whole number".to_owned())?;
    valid(|params| params.penalty_window = value)?;
    Ok(value)
}

fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected some text".into()) } else { Ok(text.into()) }
}

fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let (id, value) = text.split_once('=').ok_or("expected ID=VALUE, as in 42=-1.5")?;
    let id = id.trim().parse().map_err(|_| format!("'{id}' is not a token id"))?;
    if id >= MAX_VOCAB {
        return Err(format!("no vocabulary has a token {id}; the largest have {MAX_VOCAB}, counted from 0"));
    }
    // The only number that is not finite and means something: the token never comes.
    let value = match value.trim().parse::<f32>() {
        Ok(ban) if ban == f32::NEG_INFINITY => ban,
        _ => finite(value.trim())?,
    };
    valid(|params| params.logit_bias = vec![(TokenId(id), value)])?;
    Ok((id, value))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn ids_are_numbers_between_commas() {
        assert_eq!("1,2, 3".parse(), Ok(Ids(vec![1, 2, 3])));
        for bad in ["", ",", "1,", "1,,2", "-1", "1.5", "x", "4294967296"] {
            assert!(bad.parse::<Ids>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for bad in ["", "NaN", "inf", "1e999", "x"] {
            assert!(finite(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(top_p("1.01").is_err());
        assert!(min_p("-0.1").is_err());
        assert!(temperature("-0.1").is_err());
        assert!(temperature("101").is_err());
        assert!(repetition_penalty("0").is_err());
        assert!(presence_penalty("-101").is_err());
        assert!(frequency_penalty("101").is_err());
        assert!(penalty_window("4097").is_err());
        assert!(logit_bias("5").is_err());
        assert!(logit_bias("x=1").is_err());
        assert!(logit_bias("1=inf").is_err());
        assert!(logit_bias("1=2e6").is_err());
        assert!(
            logit_bias("99999999=1").is_err_and(|reason| reason.starts_with("no vocabulary has a token"))
        );
        assert_eq!(logit_bias("5=-2"), Ok((5, -2.0)));
        assert_eq!(logit_bias("5=-inf"), Ok((5, f32::NEG_INFINITY)));
    }
}
