//! Answers of the target to prompts: the text that drafters learn from.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use indicatif::{ProgressBar, ProgressStyle};
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
    /// Of the draws; a prompt's answer depends on it and on the prompt's place alone.
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
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(TrainError::setting("--temperature", "a number of at least 0", self.temperature));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(TrainError::setting("--top-p", "above 0, at most 1", self.top_p));
        }
        Ok(())
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
            let key = options.seed ^ ((line.prompt as u64) << 24) ^ line.response_ids.len() as u64;
            let id = draw(logits, options, key);
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

/// The likeliest token, or one drawn by the Gumbel trick from the least set of tokens that sums up to top-p.
fn draw(logits: &[f32], options: &GenerateOptions, key: u64) -> u32 {
    let best = |scores: &mut dyn Iterator<Item = (u32, f64)>| {
        scores.fold((0, f64::NEG_INFINITY), |best, next| if next.1 > best.1 { next } else { best }).0
    };
    if options.temperature == 0.0 {
        return best(&mut (0..).zip(logits.iter().map(|&logit| f64::from(logit))));
    }
    let scale = 1.0 / f64::from(options.temperature);
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut tokens: Vec<(u32, f64)> =
        (0..).zip(logits.iter().map(|&logit| f64::from(logit - highest) * scale)).collect();
    tokens.retain(|token| token.1 > -40.0);
    tokens.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let total: f64 = tokens.iter().map(|token| token.1.exp()).sum();
    let mut sum = 0.0;
    let kept = tokens.iter().take_while(|token| {
        let before = sum;
        sum += token.1.exp() / total;
        before < f64::from(options.top_p)
    });
    best(&mut kept.map(|&(id, score)| {
        let mut z = key ^ (u64::from(id) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let uniform = (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (id, score - (-uniform.ln()).ln())
    }))
}
