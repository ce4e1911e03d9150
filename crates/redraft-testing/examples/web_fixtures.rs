//! Writes what the browser tests load: a small random model, a drafter for it, and what the plain f32 forward answers to a
//! few prompts.
//!
//! `cargo run --release -p redraft-testing --example web_fixtures -- FOLDER`

use std::path::PathBuf;

use redraft_gguf::Gguf;
use redraft_testing::reference::{Forward, argmax};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_text::{ChatTemplate, Message, RenderOptions, Special, Tokenizer};
use serde_json::json;

const PROMPTS: [&str; 3] = ["Hello there", "Größe: 5 €, naïve façade 🦙", "one two one two one two one"];
const TOKENS: usize = 48;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("give the folder to write to")?);
    std::fs::create_dir_all(&folder)?;
    let model = TinyModel::default();
    let file = model.to_gguf()?;
    std::fs::write(folder.join("tiny.gguf"), &file)?;
    let drafter = TinyDrafter { target: model, ..TinyDrafter::default() };
    std::fs::write(folder.join("tiny.drafter.safetensors"), drafter.to_file()?.write())?;

    let gguf = pollster::block_on(Gguf::read(&file))?;
    let tokenizer = Tokenizer::from_gguf(&gguf.metadata)?;
    let template = ChatTemplate::from_gguf(&gguf.metadata)?.ok_or("tiny models have a template")?;
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let mut answers = Vec::new();
    for prompt in PROMPTS {
        let text = template.render(&[Message::user(prompt)], options.clone())?;
        let ids = tokenizer.encode(&text, Special::Parse)?;
        let mut forward = Forward::load(&file)?;
        let mut logits = forward.prefill(&ids)?;
        let (mut greedy, mut margins) = (Vec::new(), Vec::new());
        for _ in 0..TOKENS {
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
    std::fs::write(folder.join("tiny.json"), serde_json::to_string(&answers)?)?;
    Ok(())
}
