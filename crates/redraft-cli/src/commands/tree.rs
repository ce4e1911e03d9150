//! `redraft tree`: the draft tree of each round of an answer.

use std::fs;
use std::io::{self, IsTerminal};

use clap::Args;
use pollster::block_on;
use redraft::{
    CancelToken, GenerateOptions, Generation, RoundTrace, SamplingParams, Speculation, StopReason, TokenId,
    Tokenizer,
};
use serde::Serialize;

use crate::args::{EngineArgs, SamplingArgs};
use crate::commands::question::PromptArgs;
use crate::error::CliError;
use crate::loading::{Loaded, Timing};
use crate::model::ModelRef;
use crate::speculate::{self, Choice, Mode, SpeculationArgs};
use crate::tree::{self, RoundReport};
use crate::{interrupt, output};

/// Longest answer unless --max-tokens says otherwise: trees are long.
const MAX_TOKENS: u32 = 64;

/// Flags of `tree`.
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Show the tokens that were drafted and not verified too
    #[arg(long)]
    pub(crate) all: bool,
    /// Write the trees as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<String>,
    /// Write the trees as a picture; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// The object that --json writes. Its shape is a contract with other tools.
#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    prompt_ids: Vec<u32>,
    ids: Vec<u32>,
    stop_reason: &'static str,
    rounds: Vec<RoundReport>,
}

pub(crate) fn run(args: &TreeArgs) -> Result<(), CliError> {
    args.sampling.check()?;
    let to_stdout = [&args.json, &args.svg].map(|file| file.as_deref() == Some("-"));
    if to_stdout == [true, true] {
        return Err(CliError::Usage(
            "--json - --svg -: only one of them can have standard output; name a file for the other".into(),
        ));
    }
    check_outputs(args)?;
    let choice = args.speculation.choose_or(&args.engine.model, Mode::Reconsider, Mode::Lookup)?;
    args.speculation.draft.check_coupling(args.sampling.params(SamplingParams::default()).temperature)?;
    if choice.mode == Mode::Off {
        return Err(CliError::Usage(
            "--speculate off: without speculation there are no trees to show".into(),
        ));
    }
    let prompt = args.prompt.read()?;
    let mut loaded = choice.load(&args.engine, &args.speculation, Timing::Off)?;
    let ids = prompt.encode(&loaded.engine)?;
    let text = Text { open: to_stdout == [false, false], files: args.json.is_some() || args.svg.is_some() };
    let (generation, traces) = answer(&mut loaded, &ids, &choice, args, text)?;
    let tokenizer = loaded.engine.tokenizer();
    let mut outputs = Vec::new();
    if let Some(file) = &args.json {
        let report = Report {
            text: &generation.text,
            prompt_ids: numbers(&generation.prompt_ids),
            ids: numbers(&generation.ids),
            stop_reason: generation.stop_reason.as_str(),
            rounds: tree::to_json(&traces, &|token| word(tokenizer, token)),
        };
        let text = serde_json::to_string_pretty(&report).map_err(|error| CliError::Output(error.into()))?;
        outputs.push((file, text + "\n"));
    }
    if let Some(file) = &args.svg {
        outputs.push((file, tree::to_svg(&traces, &|token| word(tokenizer, token))));
    }
    // Standard output comes last: nobody may be reading it any more.
    outputs.sort_by_key(|(file, _)| *file == "-");
    for (file, text) in outputs {
        write(file, &text)?;
    }
    if let Some(warning) = &generation.warning {
        output::warning(format_args!("speculation was given up: {warning}"));
    }
    if args.speculation.stats {
        output::note(speculate::summary(choice.speculation, generation.speculation.as_ref(), None));
    }
    match generation.stop_reason {
        StopReason::Cancelled => Err(CliError::Interrupted),
        _ => Ok(()),
    }
}

/// The trees as text on standard output.
struct Text {
    /// Whether they are wanted there, and somebody reads them.
    open: bool,
    /// Whether there are files to write, too.
    files: bool,
}

impl Text {
    /// A reader that went away (`| head`) wants no more text; files are wanted all the same.
    fn emit(&mut self, text: &str) -> Result<(), CliError> {
        match output::emit(text) {
            Err(error) if self.files && error.is_broken_pipe() => self.open = false,
            other => other?,
        }
        Ok(())
    }
}

/// The answer and its trees, which are printed as they come.
fn answer(
    loaded: &mut Loaded,
    ids: &[TokenId],
    choice: &Choice,
    args: &TreeArgs,
    mut text: Text,
) -> Result<(Generation, Vec<RoundTrace>), CliError> {
    let options = options(args, choice.speculation);
    let _guard = interrupt::Guard::new(options.cancel.clone());
    let tokenizer = loaded.engine.tokenizer().clone();
    let colour = output::colour(&io::stdout());
    let mut traces = Vec::new();
    let mut stream = loaded.engine.generate(ids, options)?;
    while let Some(step) = block_on(stream.next())? {
        let Some(trace) = step.trace else { continue };
        traces.push(trace);
        if let Some(trace) = traces.last().filter(|_| text.open) {
            let words = |token| word(&tokenizer, token);
            let shown = tree::to_text(traces.len(), trace, &words, args.all, colour);
            text.emit(&(shown + "\n"))?;
        }
    }
    let generation = stream.finish();
    if text.open {
        let answer = output::printable(&generation.text, io::stdout().is_terminal());
        text.emit(&format!("answer: {answer}\n"))?;
    }
    Ok((generation, traces))
}

fn options(args: &TreeArgs, speculation: Speculation) -> GenerateOptions {
    GenerateOptions {
        speculation,
        trace: true,
        coupled: !args.speculation.draft.uncoupled,
        max_tokens: args.sampling.max_tokens.unwrap_or(MAX_TOKENS),
        sampling: args.sampling.params(SamplingParams::default()),
        stop: args.sampling.stop.clone(),
        cancel: CancelToken::default(),
        ignore_eos: args.sampling.ignore_eos,
        ..GenerateOptions::default()
    }
}

/// The text of one token by itself.
fn word(tokenizer: &Tokenizer, token: TokenId) -> String {
    let bytes = tokenizer.token_bytes(token.0).filter(|bytes| !bytes.is_empty());
    match bytes {
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        None => tokenizer.token_text(token.0).unwrap_or_default().to_owned(),
    }
}

fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

/// Refuses files that cannot be written, or that the command reads, before anything long begins.
fn check_outputs(args: &TreeArgs) -> Result<(), CliError> {
    if args.json.is_some() && args.json == args.svg {
        return Err(CliError::Usage("--json and --svg name the same file; give each its own".into()));
    }
    let same = |a: &str, b: &str| {
        a == b || fs::canonicalize(a).ok().is_some_and(|a| fs::canonicalize(b).ok() == Some(a))
    };
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let drafter = args.speculation.draft.drafter.as_deref().map(text);
    let model = match &args.engine.model {
        ModelRef::Path(path) => Some(text(path)),
        _ => None,
    };
    for (flag, file) in [("--json", &args.json), ("--svg", &args.svg)] {
        let Some(file) = file.as_deref().filter(|file| *file != "-") else { continue };
        if drafter.iter().chain(&model).any(|input| same(file, input)) {
            return Err(CliError::Usage(format!(
                "{flag} {file}: the command reads this file; write to another one"
            )));
        }
        let new = !std::path::Path::new(file).exists();
        fs::OpenOptions::new().append(true).create(true).open(file).map_err(|source| CliError::File {
            action: "write",
            path: file.to_owned(),
            source,
        })?;
        if new {
            // Nothing is left behind by a run that fails before it has something to write.
            let _ = fs::remove_file(file);
        }
    }
    Ok(())
}

/// Writes `text` to `file`, or to standard output for `-`.
fn write(file: &str, text: &str) -> Result<(), CliError> {
    if file == "-" {
        return output::emit(text);
    }
    fs::write(file, text).map_err(|source| CliError::File { action: "write", path: file.to_owned(), source })
}
