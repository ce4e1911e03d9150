//! Writes what the browser tests load: a small random model, a drafter for it, and what the plain f32 forward answers to a
//! few prompts; the same for `SmolLM2`, if it is in the folder of models.
//!
//! `cargo run --release -p redraft-testing --example web_fixtures -- FOLDER [MODELS]`

use std::path::{Path, PathBuf};

use redraft_gguf::Gguf;
use redraft_testing::reference::{Forward, argmax};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_text::{ChatTemplate, Message, RenderOptions, Special, Tokenizer};
use serde_json::{Value, json};

const PROMPTS: [&str; 3] = ["Hello there", "Größe: 5 €, naïve façade 🦙", "one two one two one two one"];
const TOKENS: usize = 48;

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// The second is answered with words of its own, for guesses from the text so far.
const SMOLLM2_PROMPTS: [&str; 2] = [
    "Name three things that float on water.",
    "Repeat this sentence word for word: The green boat passed the old stone bridge at noon.",
];
const SMOLLM2_TOKENS: usize = 12;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("give the folder to write to")?);
    std::fs::create_dir_all(&folder)?;
    let model = TinyModel::default();
    let file = model.to_gguf()?;
    std::fs::write(folder.join("tiny.gguf"), &file)?;
    let drafter = TinyDrafter { target: model, ..TinyDrafter::default() };
    std::fs::write(folder.join("tiny.drafter.safetensors"), drafter.to_file()?.write())?;
    std::fs::write(folder.join("tiny.json"), serde_json::to_string(&answers(&file, &PROMPTS, TOKENS)?)?)?;
    let models = std::env::args_os().nth(2).map(PathBuf::from);
    models.map_or(Ok(()), |models| smollm2(&models.join(SMOLLM2), &folder.join("smollm2.json")))
}

/// What `SmolLM2` answers.
fn smollm2(model: &Path, answered: &Path) -> Result<(), Failure> {
    if !model.is_file() {
        return Ok(());
    }
    let answers = answers(&std::fs::read(model)?, &SMOLLM2_PROMPTS, SMOLLM2_TOKENS)?;
    Ok(std::fs::write(answered, serde_json::to_string(&answers)?)?)
}

/// The greedy answers, and how far the likeliest token was ahead of the next at each step.
fn answers(file: &[u8], prompts: &[&str], tokens: usize) -> Result<Vec<Value>, Failure> {
    let gguf = pollster::block_on(Gguf::read(&file))?;
    let tokenizer = Tokenizer::from_gguf(&gguf.metadata)?;
    let template = ChatTemplate::from_gguf(&gguf.metadata)?.ok_or("the model has no template")?;
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let mut answers = Vec::new();
    for prompt in prompts {
        let text = template.render(&[Message::user(*prompt)], options.clone())?;
        let ids = tokenizer.encode(&text, Special::Parse)?;
        let mut forward = Forward::load(file)?;
        let mut logits = forward.prefill(&ids)?;
        let (mut greedy, mut margins) = (Vec::new(), Vec::new());
        for _ in 0..tokens {
            let best = argmax(&logits);
            let first = logits.get(best as usize).copied().unwrap_or(f32::NAN);
            let rest = logits.iter().zip(0u32..).filter(|(_, id)| *id != best).map(|(logit, _)| *logit);
            margins.push(first - rest.fold(f32::NEG_INFINITY, f32::max));
            greedy.push(best);
            logits = forward.step(best)?;
        }
        answers
            .push(json!({ "prompt": prompt, "prompt_ids": ids, "greedy_ids": greedy, "margins": margins }));
    }
    Ok(answers)
}
