//! Read a message or command, obey or answer, repeat.

use redraft::StopReason;

use super::command::{HELP, Typed, parse};
use super::conversation::{Answerer, Conversation};
use super::lines::{Line, Lines, read_message};
use super::settings::Settings;
use crate::error::CliError;
use crate::output;

/// The loop and what it needs.
pub(crate) struct Repl<'a> {
    pub(crate) lines: &'a mut dyn Lines,
    pub(crate) answerer: &'a mut dyn Answerer,
    pub(crate) conversation: Conversation,
    pub(crate) settings: Settings,
    /// Where answers go.
    pub(crate) show: &'a mut dyn FnMut(&str) -> Result<(), CliError>,
    /// Whether a person is there: errors are then told and survived.
    pub(crate) interactive: bool,
    /// What there is to tell of the last answer's speed.
    pub(crate) summary: Option<String>,
    /// Whether that is told after each answer.
    pub(crate) stats: bool,
}

impl Repl<'_> {
    /// Runs until the user leaves or the input ends.
    pub(crate) fn run(&mut self) -> Result<(), CliError> {
        let mut interrupted = false;
        loop {
            match read_message(self.lines)? {
                Line::End => return Ok(()),
                Line::Interrupted if interrupted => return Ok(()),
                Line::Interrupted => {
                    interrupted = true;
                    output::note("(Ctrl-C again or Ctrl-D to leave)");
                    continue;
                }
                Line::Text(text) => match self.obey(&text) {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) if self.interactive && !matches!(error, CliError::Output(_)) => {
                        output::error(error);
                    }
                    Err(error) => return Err(error),
                },
            }
            interrupted = false;
        }
    }

    /// Does what `line` says; false means leave.
    fn obey(&mut self, line: &str) -> Result<bool, CliError> {
        match parse(line) {
            Typed::Message(text) => self.ask(text)?,
            Typed::Empty => {}
            Typed::Help => output::note(HELP),
            Typed::Exit => return Ok(false),
            Typed::Reset => {
                self.conversation.reset();
                output::note("the conversation is forgotten");
            }
            Typed::System(None) => {
                output::note(self.conversation.system().unwrap_or("there is no system message"));
            }
            Typed::System(Some(text)) => {
                self.conversation.set_system(text);
                output::note("system message set; it holds for the whole conversation");
            }
            Typed::Set(None) => output::note(self.settings.list()),
            Typed::Set(Some((key, value))) => self.settings.set(key, value).map_err(CliError::Chat)?,
            Typed::Stats => {
                self.stats = !self.stats;
                if self.stats {
                    self.tell()?;
                } else {
                    output::note("(answers come without statistics again)");
                }
            }
            Typed::Retry => self.retry()?,
            Typed::Save(file) => {
                self.conversation.save(file)?;
                output::note(format_args!(
                    "{} messages written to {file}",
                    self.conversation.messages().len()
                ));
            }
            Typed::Load(file) => {
                self.conversation.load(file)?;
                output::note(format_args!(
                    "{} messages read from {file}",
                    self.conversation.messages().len()
                ));
            }
            Typed::Wrong(hint) => return Err(CliError::Chat(hint)),
        }
        Ok(true)
    }

    fn ask(&mut self, text: &str) -> Result<(), CliError> {
        let asked = self.conversation.ask(text, self.answerer, &self.settings, self.show)?;
        if !asked.answer.text.ends_with('\n') {
            (self.show)("\n")?;
        }
        if asked.dropped > 0 {
            output::note(format_args!(
                "(the context is full: dropped the oldest {}; /reset starts afresh)",
                turns(asked.dropped)
            ));
        }
        match asked.answer.stop {
            StopReason::ContextFull => output::note(
                "(the context is full: the answer ends here; /reset starts afresh, a larger --context holds more)",
            ),
            StopReason::MaxTokens => output::note(format_args!(
                "(the answer was cut at {} tokens; /set max-tokens N allows more)",
                self.settings.max_tokens
            )),
            StopReason::Cancelled => output::note("(stopped)"),
            _ => {}
        }
        if self.stats {
            output::note(&asked.answer.summary);
        }
        self.summary = Some(asked.answer.summary);
        Ok(())
    }

    fn retry(&mut self) -> Result<(), CliError> {
        let Some(question) = self.conversation.take_back() else {
            return Err(CliError::Chat("there is nothing to answer again".into()));
        };
        let sampling = &mut self.settings.sampling;
        if sampling.temperature > 0.0 {
            sampling.seed = sampling.seed.wrapping_add(1);
        } else {
            output::note("(temperature is 0: the answer will be the same)");
        }
        self.ask(&question)
    }

    fn tell(&self) -> Result<(), CliError> {
        let messages = self.conversation.messages();
        let used = if messages.is_empty() { 0 } else { self.answerer.tokens(messages)? };
        output::note(format_args!(
            "{} messages, {used} of {} tokens of context",
            messages.len(),
            self.answerer.context()
        ));
        if let Some(summary) = &self.summary {
            output::note(summary);
        }
        Ok(())
    }
}

fn turns(count: u32) -> String {
    if count == 1 { "turn".into() } else { format!("{count} turns") }
}

#[cfg(test)]
mod tests {
    use redraft::Message;

    use super::super::{Answer, PlainLines};
    use super::*;
    use crate::args::SamplingArgs;

    /// Answers with the number of messages it saw; one token a character.
    struct Script {
        context: u32,
        stop: StopReason,
        seen: Vec<Vec<String>>,
        seeds: Vec<u64>,
    }

    impl Answerer for Script {
        fn tokens(&self, messages: &[Message]) -> Result<u32, CliError> {
            Ok(messages.iter().map(|m| u32::try_from(m.content.len()).unwrap()).sum())
        }

        fn context(&self) -> u32 {
            self.context
        }

        fn answer(
            &mut self,
            messages: &[Message],
            settings: &Settings,
            show: &mut dyn FnMut(&str) -> Result<(), CliError>,
        ) -> Result<Answer, CliError> {
            self.seen.push(messages.iter().map(|m| m.content.clone()).collect());
            self.seeds.push(settings.sampling.seed);
            let text =
                if self.stop == StopReason::Cancelled { String::new() } else { messages.len().to_string() };
            show(&text)?;
            Ok(Answer { text, stop: self.stop, summary: String::new() })
        }
    }

    fn script(context: u32) -> Script {
        Script { context, stop: StopReason::EndOfSequence, seen: Vec::new(), seeds: Vec::new() }
    }

    fn talk(script: &mut Script, input: &str, interactive: bool) -> (Result<(), CliError>, String) {
        let mut shown = String::new();
        let mut settings = Settings::new(&SamplingArgs::default(), 7);
        settings.max_tokens = 4;
        let outcome = Repl {
            lines: &mut PlainLines(input.as_bytes()),
            answerer: script,
            conversation: Conversation::new(Some("S")),
            settings,
            show: &mut |text| {
                shown.push_str(text);
                Ok(())
            },
            interactive,
            summary: None,
            stats: false,
        }
        .run();
        (outcome, shown)
    }

    #[test]
    fn turns_accumulate_and_reset_keeps_the_system_message() {
        let mut script = script(100);
        let (outcome, shown) = talk(&mut script, "a\n\nb\n/reset\nc\n/exit\nd\n", false);
        outcome.unwrap();
        assert_eq!(shown, "2\n4\n2\n");
        assert_eq!(script.seen, [vec!["S", "a"], vec!["S", "a", "2", "b"], vec!["S", "c"]]);
    }

    #[test]
    fn a_full_context_drops_the_oldest_turns_whole_and_keeps_the_system_message() {
        let mut script = script(20);
        let (outcome, _) = talk(&mut script, "aaaaaaaa\nbbbb\ncccccc\n", false);
        outcome.unwrap();
        assert_eq!(script.seen[1], ["S", "aaaaaaaa", "2", "bbbb"]);
        assert_eq!(script.seen[2], ["S", "bbbb", "4", "cccccc"]);
    }

    #[test]
    fn a_message_that_can_never_fit_is_refused_and_forgotten() {
        let mut script = script(20);
        let input = format!("{}\nb\n", "x".repeat(30));
        let (outcome, shown) = talk(&mut script, &input, true);
        outcome.unwrap();
        assert_eq!(shown, "2\n");
        assert_eq!(script.seen, [["S", "b"]]);
        assert!(talk(&mut script, &input, false).0.is_err(), "without a person an error ends the chat");
    }

    #[test]
    fn retry_asks_the_same_with_another_seed() {
        let mut script = script(100);
        talk(&mut script, "a\nb\n/retry\n/set temperature 0\n/retry\n", false).0.unwrap();
        assert_eq!(script.seen[1], script.seen[2]);
        assert_eq!(script.seeds, [7, 7, 8, 8]);
    }

    #[test]
    fn an_answer_stopped_before_its_first_word_leaves_no_trace() {
        let mut script = script(100);
        script.stop = StopReason::Cancelled;
        talk(&mut script, "a\nb\n", false).0.unwrap();
        assert_eq!(script.seen, [["S", "a"], ["S", "b"]]);
    }

    #[test]
    fn nothing_to_retry_and_unknown_commands_are_errors() {
        assert!(talk(&mut script(9), "/retry\n", false).0.is_err());
        assert!(talk(&mut script(9), "/frob\n", false).0.is_err());
        assert!(talk(&mut script(9), "/load /nonexistent/file\n", false).0.is_err());
        talk(&mut script(9), "/retry\n/frob\n/set x\n/stats\n/help\n", true).0.unwrap();
    }
}
