//! `redraft chat`: a conversation in the terminal.

use std::io::{IsTerminal, stdin, stdout};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use pollster::block_on;
use redraft::{CancelToken, Engine, GenerateOptions, Message, Speculation};

use super::generate::summary;
use crate::args::{EngineArgs, SamplingArgs};
use crate::chat::{Answer, Answerer, Conversation, Lines, PlainLines, Repl, Settings, TerminalLines};
use crate::error::CliError;
use crate::loading::Timing;
use crate::model::cache;
use crate::speculate::{self, SpeculationArgs};
use crate::{interrupt, output};

/// Flags of `chat`.
#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// System message
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

pub(crate) fn run(args: &ChatArgs) -> Result<(), CliError> {
    args.sampling.check()?;
    let choice = args.speculation.choose(&args.engine.model)?;
    let mut loaded = choice.load(&args.engine, &args.speculation, Timing::Off)?;
    if loaded.engine.template().is_none() {
        return Err(CliError::Chat(
            "this model has no chat template, so it cannot chat; `redraft generate --raw` continues text"
                .into(),
        ));
    }
    let interactive = stdin().is_terminal() && stdout().is_terminal();
    let mut lines: Box<dyn Lines> = if interactive {
        output::note(format_args!(
            "{} ({}), {} tokens of context. /help lists the commands, Ctrl-D leaves.",
            loaded.engine.adapter().name,
            loaded.engine.adapter().backend,
            loaded.engine.context()
        ));
        let history = cache::root().map(|root| root.join("chat_history"));
        Box::new(TerminalLines::new(history, output::colour(&stdout()))?)
    } else {
        Box::new(PlainLines(stdin().lock()))
    };
    let terminal = stdout().is_terminal();
    Repl {
        lines: lines.as_mut(),
        answerer: &mut EngineAnswerer {
            engine: &mut loaded.engine,
            speculation: choice.speculation,
            coupled: !args.speculation.draft.uncoupled,
        },
        conversation: Conversation::new(args.system.as_deref()),
        settings: Settings::new(&args.sampling, fresh_seed()),
        show: &mut |text| output::emit(&output::printable(text, terminal)),
        interactive,
        summary: None,
        stats: args.speculation.stats,
    }
    .run()
}

/// A seed that differs from run to run. Nothing secret hangs on it.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().wrapping_mul(1_000_000_007).wrapping_add(now.subsec_nanos().into())
}

struct EngineAnswerer<'a> {
    engine: &'a mut Engine,
    speculation: Speculation,
    coupled: bool,
}

impl Answerer for EngineAnswerer<'_> {
    fn tokens(&self, messages: &[Message]) -> Result<u32, CliError> {
        Ok(u32::try_from(self.engine.encode_chat(messages)?.len()).unwrap_or(u32::MAX))
    }

    fn context(&self) -> u32 {
        self.engine.context()
    }

    fn answer(
        &mut self,
        messages: &[Message],
        settings: &Settings,
        show: &mut dyn FnMut(&str) -> Result<(), CliError>,
    ) -> Result<Answer, CliError> {
        let ids = self.engine.encode_chat(messages)?;
        let options = GenerateOptions {
            max_tokens: settings.max_tokens,
            sampling: settings.sampling.clone(),
            stop: settings.stop.clone(),
            cancel: CancelToken::default(),
            ignore_eos: settings.ignore_eos,
            speculation: self.speculation,
            coupled: self.coupled,
            ..GenerateOptions::default()
        };
        let _guard = interrupt::Guard::new(options.cancel.clone());
        let mut stream = self.engine.generate(&ids, options)?;
        let mut shown = 0;
        while let Some(step) = block_on(stream.next())? {
            if !step.text.is_empty() {
                show(&step.text)?;
                shown += step.text.len();
            }
        }
        let generation = stream.finish();
        // An answer that was stopped ends with what had been held back.
        show(generation.text.get(shown..).unwrap_or_default())?;
        if let Some(warning) = &generation.warning {
            output::warning(format_args!("speculation was given up: {warning}"));
        }
        let stats = speculate::summary(self.speculation, generation.speculation.as_ref(), None);
        let summary = format!("{}\n{stats}", summary(&generation));
        Ok(Answer { text: generation.text, stop: generation.stop_reason, summary })
    }
}
