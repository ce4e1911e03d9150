//! Answers of the target to prompts: the text that drafters learn from.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use indicatif::{ProgressBar, ProgressStyle};
use redraft_decode::{Position, Sampler, SamplingParams, TokenId};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::prepare::floats;
use crate::target::Target;

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Longest answer.
    pub max_new: usize,
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Least number of the likeliest tokens whose chances sum up to this are drawn from.
    pub top_p: f32,
    /// Of the draws: the answer to prompt p is drawn with seed + p, as `redraft generate` with this `--seed` draws it.
    pub seed: u64,
    /// Texts that are written at a time.
    pub batch: usize,
    /// Whether to print progress.
    pub progress: bool,
}

/// A line of the output; `data::Reader` reads it.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    prompt: usize, // the prompt's place among the prompts
    temperature: f32,
    prompt_ids: Vec<u32>,
    response_ids: Vec<u32>,
    stop: String,
}

impl GenerateOptions {
    fn check(&self) -> Result<(), TrainError> {
        if self.max_new == 0 || self.batch == 0 {
            return Err(TrainError::setting("--max-new, --batch", "at least 1", 0));
        }
        Ok(())
    }

    /// What draws the answer to prompt `place`.
    fn sampler(&self, place: usize, vocab: u32) -> Result<Sampler, TrainError> {
        let params = SamplingParams {
            temperature: self.temperature,
            top_p: self.top_p,
            seed: self.seed.wrapping_add(place as u64),
            ..SamplingParams::default()
        };
        Sampler::new(params, vocab)
            .map_err(|error| TrainError::setting("--temperature, --top-p", "what the sampler takes", error))
    }
}

/// Writes the answers of `prompts` (token ids) behind those that the file has; `eos` ends an answer and belongs to it.
///
/// # Errors
/// [`TrainError`] for options, and for a file of something else.
pub fn generate(
    target: &Target,
    prompts: &[Vec<u32>],
    eos: &[u32],
    path: &Path,
    options: &GenerateOptions,
    device: &Device,
) -> Result<(), TrainError> {
    options.check()?;
    options.sampler(0, target.config().vocab)?;
    let done = answered(path, prompts)?;
    let mut open: Vec<usize> = (0..prompts.len()).filter(|&index| !done[index]).collect();
    // Prompts of like length share a batch, which is run from its first token on.
    open.sort_by_key(|&index| (prompts[index].len(), index));
    let bar = if options.progress { ProgressBar::new(prompts.len() as u64) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("answers {bar:30} {pos}/{len}, ETA {eta}, {msg}") {
        bar.set_style(style);
    }
    bar.set_position((prompts.len() - open.len()) as u64);
    bar.reset_eta();
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(TrainError::io(path))?;
    for batch in open.chunks(options.batch) {
        let begun = std::time::Instant::now();
        let lines = write_batch(target, prompts, batch, eos, options, device)?;
        let tokens: usize = lines.iter().map(|line| line.response_ids.len()).sum();
        let mut text = Vec::new();
        for line in &lines {
            serde_json::to_writer(&mut text, line).map_err(|error| TrainError::Framework {
                what: "writing an answer",
                message: error.to_string(),
            })?;
            text.push(b'\n');
        }
        file.write_all(&text).map_err(TrainError::io(path))?;
        file.sync_data().map_err(TrainError::io(path))?;
        bar.inc(batch.len() as u64);
        bar.set_message(format!("{:.0} tokens/s", tokens as f64 / begun.elapsed().as_secs_f64()));
    }
    bar.finish();
    Ok(())
}

/// Which prompts the file answers. A last line that was cut off is removed.
fn answered(path: &Path, prompts: &[Vec<u32>]) -> Result<Vec<bool>, TrainError> {
    let mut done = vec![false; prompts.len()];
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(done),
        Err(error) => return Err(TrainError::io(path)(error)),
    };
    let (mut reader, mut text, mut whole) = (BufReader::new(&file), Vec::new(), 0_u64);
    for number in 1.. {
        text.clear();
        let read = reader.read_until(b'\n', &mut text).map_err(TrainError::io(path))?;
        if read == 0 {
            break;
        }
        if text.last() != Some(&b'\n') {
            file.set_len(whole).map_err(TrainError::io(path))?;
            break;
        }
        whole += read as u64;
        let line: Option<Line> = serde_json::from_slice(&text).ok();
        match line.filter(|line| prompts.get(line.prompt) == Some(&line.prompt_ids)) {
            Some(line) => done[line.prompt] = true,
            None => {
                return Err(TrainError::Data {
                    file: path.to_owned(),
                    line: number,
                    problem: "not an answer to one of these prompts; give another --out".to_owned(),
                });
            }
        }
    }
    Ok(done)
}

fn write_batch(
    target: &Target,
    prompts: &[Vec<u32>],
    batch: &[usize],
    eos: &[u32],
    options: &GenerateOptions,
    device: &Device,
) -> Result<Vec<Line>, TrainError> {
    let longest = batch.iter().map(|&index| prompts[index].len()).max().unwrap_or(0);
    let mut lines: Vec<Line> = batch
        .iter()
        .map(|&index| Line {
            prompt: index,
            temperature: options.temperature,
            prompt_ids: prompts[index].clone(),
            response_ids: Vec::new(),
            stop: "length".to_owned(),
        })
        .collect();
    let mut samplers = Vec::with_capacity(batch.len());
    for &index in batch {
        samplers.push(options.sampler(index, target.config().vocab)?);
    }
    let positions = longest + options.max_new;
    let mut cache = target.cache(batch.len(), positions);
    let mut open: Vec<usize> = (0..batch.len()).collect(); // lines that are written, in the order of the cache
    let ints = |values: Vec<i64>| {
        let count = values.len();
        Tensor::<1, Int>::from_data(TensorData::new(values, [count]), device)
    };
    for position in 0..positions {
        let token = |line: &Line| {
            let written = line.response_ids.get(position.wrapping_sub(line.prompt_ids.len()));
            i64::from(line.prompt_ids.get(position).or(written).copied().unwrap_or(0))
        };
        let tokens = ints(open.iter().map(|&line| token(&lines[line])).collect());
        let hidden = target.step(&mut cache, tokens);
        // The head is the dearest product: only where a token is drawn.
        let drawing: Vec<usize> =
            (0..open.len()).filter(|&row| position + 1 >= lines[open[row]].prompt_ids.len()).collect();
        if drawing.is_empty() {
            continue;
        }
        let rows = ints(drawing.iter().map(|&row| row as i64).collect());
        let logits = floats(target.logits(hidden.select(0, rows)))?;
        let vocab = logits.len() / drawing.len();
        for (&row, logits) in drawing.iter().zip(logits.chunks_exact(vocab)) {
            let line = &mut lines[open[row]];
            // Without penalties no token before is looked at.
            let behind = Position(u32::try_from(position + 1).unwrap_or(u32::MAX));
            let drawn = samplers[open[row]].sample(logits, &[], behind);
            let TokenId(id) = drawn.map_err(|error| TrainError::Framework {
                what: "drawing a token",
                message: error.to_string(),
            })?;
            line.response_ids.push(id);
            if eos.contains(&id) {
                line.stop = "eos".to_owned();
            }
        }
        let ended = |line: &Line| line.stop == "eos" || line.response_ids.len() >= options.max_new;
        let left: Vec<usize> = (0..open.len()).filter(|&row| !ended(&lines[open[row]])).collect();
        if left.is_empty() {
            break;
        }
        if left.len() < open.len() {
            cache.select(&ints(left.iter().map(|&row| row as i64).collect()));
            open = left.iter().map(|&row| open[row]).collect();
        }
    }
    Ok(lines)
}
