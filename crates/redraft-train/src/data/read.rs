//! Lines of JSON: token ids, or chats that the target's template and tokenizer turn into ids.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use redraft_text::{ChatTemplate, Message, RenderOptions, Special, Tokenizer};
use serde::Deserialize;

use super::Sample;
use crate::error::TrainError;

/// Longest line, in bytes: a text of a million tokens stays below it.
const MAX_LINE: u64 = 16 << 20;

/// A line as it is in the file. Keys that are not listed are left alone.
#[derive(Deserialize)]
struct Line {
    prompt_ids: Option<Vec<u32>>,
    #[serde(alias = "greedy_ids")]
    response_ids: Option<Vec<u32>>,
    messages: Option<Vec<Turn>>,
}

#[derive(Deserialize)]
struct Turn {
    role: String,
    content: String,
}

/// Opens a text file, `.zst` ones through the decoder of Zstandard.
///
/// # Errors
/// [`TrainError::Io`]; [`TrainError::Data`] for a file that ends in `.zst` and is no such file.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, TrainError> {
    let file = File::open(path).map_err(TrainError::io(path))?;
    if path.extension().is_none_or(|extension| extension != "zst") {
        return Ok(Box::new(BufReader::new(file)));
    }
    let decoder = ruzstd::decoding::StreamingDecoder::new(BufReader::new(file));
    let decoder = decoder.map_err(|error| TrainError::Data {
        file: path.to_owned(),
        line: 1,
        problem: format!("not a Zstandard file: {error}"),
    })?;
    Ok(Box::new(BufReader::new(decoder)))
}

/// Turns lines into samples.
pub struct Reader<'a> {
    /// Tokens of the target: ids must be below.
    pub vocab: u32,
    /// Of the target, for chats.
    pub tokenizer: &'a Tokenizer,
    /// Of the target, for chats.
    pub template: Option<&'a ChatTemplate>,
    /// Longest sample in tokens; what is longer loses the end of its answer.
    pub max_tokens: usize,
}

impl Reader<'_> {
    /// Reads one file, `.jsonl` or `.jsonl.zst`. Every line is `{"prompt_ids": […], "response_ids": […]}` or
    /// `{"messages": [{"role": …, "content": …}, …]}` whose last message is the assistant's.
    ///
    /// # Errors
    /// [`TrainError::Data`] with file and line for the first line that is neither, [`TrainError::Io`] otherwise.
    pub fn read(&self, path: &Path) -> Result<Vec<Sample>, TrainError> {
        let mut lines = open(path)?;
        let mut samples = Vec::new();
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let failed = |problem: String| TrainError::Data { file: path.to_owned(), line, problem };
            let read = (&mut lines).take(MAX_LINE + 1).read_until(b'\n', &mut text);
            let read = read.map_err(|error| failed(format!("cannot be read: {error}")))?;
            if read == 0 {
                break;
            }
            if read as u64 > MAX_LINE {
                return Err(failed(format!("longer than {MAX_LINE} bytes")));
            }
            if !text.iter().all(u8::is_ascii_whitespace) {
                samples.push(self.sample(&text).map_err(failed)?);
            }
        }
        Ok(samples)
    }

    fn sample(&self, text: &[u8]) -> Result<Sample, String> {
        let line: Line = serde_json::from_slice(text).map_err(|error| format!("not a sample: {error}"))?;
        let mut sample = match line {
            Line { prompt_ids: Some(prompt), response_ids: Some(response), messages: None } => {
                Sample { prompt, response }
            }
            Line { prompt_ids: None, response_ids: None, messages: Some(turns) } => self.chat(&turns)?,
            _ => {
                return Err("expected either prompt_ids and response_ids, or messages".to_owned());
            }
        };
        if sample.prompt.is_empty() || sample.response.is_empty() {
            return Err("the prompt or the answer has no tokens".to_owned());
        }
        if let Some(id) = sample.prompt.iter().chain(&sample.response).find(|id| **id >= self.vocab) {
            return Err(format!("token {id} is not below the vocabulary size {} of the target", self.vocab));
        }
        if sample.prompt.len() >= self.max_tokens {
            return Err(format!(
                "the prompt has {} tokens, which leaves nothing of --max-tokens {} for the answer",
                sample.prompt.len(),
                self.max_tokens
            ));
        }
        sample.response.truncate(self.max_tokens - sample.prompt.len());
        Ok(sample)
    }

    fn chat(&self, turns: &[Turn]) -> Result<Sample, String> {
        let Some((answer, before)) = turns.split_last().filter(|(last, _)| last.role == "assistant") else {
            return Err("the last message must be the assistant's: it is what is learned".to_owned());
        };
        let template = self.template.ok_or("the target has no chat template; give token ids instead")?;
        let messages: Vec<Message> =
            before.iter().map(|turn| Message::new(turn.role.as_str(), turn.content.as_str())).collect();
        let prompt = template
            .render(&messages, RenderOptions::default())
            .map_err(|error| format!("the target's template refuses the chat: {error}"))?;
        let encode =
            |text: &str, special| self.tokenizer.encode(text, special).map_err(|error| error.to_string());
        let mut response = encode(&answer.content, Special::Plain)?;
        response.extend(self.tokenizer.eos_ids().first());
        Ok(Sample { prompt: encode(&prompt, Special::Parse)?, response })
    }
}

/// Reads all files, in order.
///
/// # Errors
/// As [`Reader::read`]; [`TrainError::Setting`] when no file has a sample.
pub fn read_files(reader: &Reader<'_>, files: &[PathBuf]) -> Result<Vec<Sample>, TrainError> {
    let mut samples = Vec::new();
    for file in files {
        samples.extend(reader.read(file)?);
    }
    if samples.is_empty() {
        return Err(TrainError::setting("--data", "at least one sample", "none"));
    }
    Ok(samples)
}
