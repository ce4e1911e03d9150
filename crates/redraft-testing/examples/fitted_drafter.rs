//! Writes a tiny model, prompts for it, and a drafter that is right about every fifth time: random but for its head,
//! which is fitted by least squares to the model's own answers. Engines can so be compared before anything is trained:
//! what is accepted depends on every part of the drafter, the order of RoPE and the layers that are captured included.
//!
//! `cargo run --release -p redraft-testing --example fitted_drafter -- FOLDER` writes `target.gguf`,
//! `drafter.safetensors` (matrices in Q8_0) and `prompts.jsonl`.

use std::error::Error;
use std::path::PathBuf;

use redraft_drafter::{DrafterFile, Quantization, Tensor};
use redraft_gguf::GgmlType;
use redraft_testing::reference::{DraftRow, Drafter, Forward, argmax};
use redraft_testing::{Prng, RoleTypes, TinyDrafter, TinyModel};
use serde_json::json;

/// Width of model and drafter.
const WIDTH: usize = 128;
const PROMPTS: usize = 30;
/// Tokens of a prompt, and of prompt and answer.
const PROMPT: usize = 6;
const LENGTH: usize = 70;
/// Depth to which drafts are fitted.
const DEPTH: usize = 3;
/// Tokens of the model that are text, after the control tokens.
const TEXT: std::ops::Range<u32> = 3..303;
/// Weight of the squares of the head's elements.
const RIDGE: f64 = 1.0;
/// Logits of a certain token; least squares aims at one.
const SCALE: f64 = 10.0;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("give the folder to write to")?);
    std::fs::create_dir_all(&folder)?;
    let target = TinyModel {
        layers: 4,
        hidden: WIDTH,
        head_dim: 32,
        ffn: 256,
        tied: false,
        types: RoleTypes::all(GgmlType::F32),
        ..TinyModel::default()
    };
    let model = target.to_gguf()?;
    let drafter = TinyDrafter {
        target,
        captures: [1, 2, 3],
        hidden: WIDTH,
        head_dim: 32,
        ffn: 256,
        draft_vocab: 300,
        pass_embedding: false,
        ..TinyDrafter::default()
    };
    let mut file = drafter.to_file()?.quantized(Quantization::Q8_0)?;
    let mut prng = Prng::named(5, "prompts");
    let prompts: Vec<Vec<u32>> = (0..PROMPTS).map(|_| prompt(&mut prng)).collect();
    let samples = collect(&file, &model, &prompts)?;
    let head = fit(&samples, file.draft_ids().len());
    println!("right {} of {} times", right(&samples, &head), samples.len());
    let mut parts = file.into_parts();
    let dims = [(head.len() / WIDTH) as u64, WIDTH as u64];
    parts.tensors.insert("lm_head.weight".to_owned(), Tensor::from_f32(GgmlType::Q8_0, &dims, &head)?);
    file = DrafterFile::new(parts)?;
    std::fs::write(folder.join("target.gguf"), model)?;
    std::fs::write(folder.join("drafter.safetensors"), file.write())?;
    let lines: Vec<String> = prompts.iter().map(|ids| json!({ "ids": ids }).to_string() + "\n").collect();
    std::fs::write(folder.join("prompts.jsonl"), lines.concat())?;
    Ok(())
}

fn prompt(prng: &mut Prng) -> Vec<u32> {
    (0..PROMPT).map(|_| TEXT.start + u32::try_from(prng.below(TEXT.len())).unwrap_or(0)).collect()
}

/// An input of the head, `[WIDTH]`, and the row that should win.
type Sample = (Vec<f64>, usize);

/// Drafts along the model's answers, as deep as they are fitted.
fn collect(file: &DrafterFile, model: &[u8], prompts: &[Vec<u32>]) -> Result<Vec<Sample>, Box<dyn Error>> {
    let layers = file.config().captures(4)?.map(|layer| layer as usize);
    let mut forward = Forward::load(model)?.with_captures(&layers);
    let mut drafter = Drafter::load(file, &forward)?;
    let norm = file.tensor("norm.weight").ok_or("a drafter has a norm")?.to_f32()?;
    let mut samples = Vec::new();
    let mut sample = |hidden: &[f32], token: u32| {
        if let Ok(row) = file.draft_ids().binary_search(&token) {
            samples.push((normed(hidden, &norm), row));
        }
    };
    for prompt in prompts {
        let (tokens, features) = answer(&mut forward, prompt)?;
        drafter.truncate(0);
        for (at, feature) in features.iter().enumerate().take(LENGTH - DEPTH - 1) {
            let mut output = drafter.extend(feature, &tokens[at + 1..at + 2])?.remove(0);
            if at + 2 < PROMPT {
                continue;
            }
            sample(&output.hidden, tokens[at + 2]);
            let mut chain = Vec::new();
            for depth in 1..DEPTH {
                let (token, position, feature) = (tokens[at + 1 + depth], at + depth, &output.hidden);
                let row = DraftRow { token, position, chain: &chain, second_pass: false, feature };
                output = drafter.step(&[row])?.remove(0);
                chain.push(output.slot);
                sample(&output.hidden, tokens[at + 2 + depth]);
            }
        }
    }
    Ok(samples)
}

/// Tokens of prompt and greedy answer, and the features of all but the last, `[3 WIDTH]` each.
type Answer = (Vec<u32>, Vec<Vec<f32>>);

fn answer(forward: &mut Forward, prompt: &[u32]) -> Result<Answer, Box<dyn Error>> {
    forward.truncate(0);
    let (mut tokens, mut features) = (prompt.to_vec(), Vec::new());
    while tokens.len() < LENGTH || features.len() + 1 < LENGTH {
        let logits = forward.step(tokens[features.len()])?;
        features.push(forward.captures().concat());
        if features.len() == tokens.len() {
            tokens.push(argmax(&logits));
        }
    }
    Ok((tokens, features))
}

/// RMSNorm, before the head.
fn normed(hidden: &[f32], weight: &[f32]) -> Vec<f64> {
    let squares: f64 = hidden.iter().map(|x| f64::from(*x).powi(2)).sum();
    let rms = (squares / hidden.len() as f64 + 1e-5).sqrt();
    hidden.iter().zip(weight).map(|(x, w)| f64::from(*x) / rms * f64::from(*w)).collect()
}

/// Ridge regression of "this row, not the others" on the inputs: the head, `[rows, WIDTH]`.
fn fit(samples: &[Sample], rows: usize) -> Vec<f32> {
    // The normal equations with all right-hand sides beside them, reduced in place; the ridge keeps pivots positive.
    let columns = WIDTH + rows;
    let mut system = vec![0.0; WIDTH * columns];
    for (x, row) in samples {
        for (i, equation) in system.chunks_exact_mut(columns).enumerate() {
            equation.iter_mut().zip(x).for_each(|(sum, xj)| *sum += x[i] * xj);
            equation[WIDTH + row] += x[i];
        }
    }
    for i in 0..WIDTH {
        system[i * columns + i] += RIDGE;
    }
    for pivot in 0..WIDTH {
        let mut equation = system[pivot * columns..][..columns].to_vec();
        let scale = equation[pivot];
        equation.iter_mut().for_each(|value| *value /= scale);
        for (i, other) in system.chunks_exact_mut(columns).enumerate() {
            if i == pivot {
                other.copy_from_slice(&equation);
            } else {
                let factor = other[pivot];
                other.iter_mut().zip(&equation).for_each(|(value, e)| *value -= factor * e);
            }
        }
    }
    let element = |row: usize, i: usize| SCALE * system[i * columns + WIDTH + row];
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the type of weights")]
    (0..rows)
        .flat_map(|row| (0..WIDTH).map(move |i| (row, i)))
        .map(|(row, i)| element(row, i) as f32)
        .collect()
}

/// How often the head's best row is the one that should win.
fn right(samples: &[Sample], head: &[f32]) -> usize {
    let score = |x: &[f64], row: &[f32]| x.iter().zip(row).map(|(x, w)| x * f64::from(*w)).sum::<f64>();
    let best = |x: &[f64]| {
        let scores = head.chunks_exact(WIDTH).map(|row| score(x, row));
        scores.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(row, _)| row)
    };
    samples.iter().filter(|(x, row)| best(x) == Some(*row)).count()
}
