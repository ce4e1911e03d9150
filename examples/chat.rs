//! Load a model, ask, stream the answer.
//!
//! `cargo run --release -p redraft-examples --bin chat -- MODEL.gguf "What is the capital of France?"`

use redraft::{Chat, Engine, EngineOptions, FileSource, GenerateOptions};
use std::io::Write;

async fn ask(model: &str, question: &str) -> Result<(), Box<dyn std::error::Error>> {
    let file = FileSource::open(model)?;
    let mut engine = Engine::load(&file, EngineOptions::default(), |_| {}).await?;
    eprintln!("adapter: {}", engine.adapter().name);

    let mut chat = Chat::new(None);
    chat.push_user(question);
    let mut answer = chat.stream(&mut engine, GenerateOptions::default())?;
    while let Some(step) = answer.next().await? {
        print!("{}", step.text);
        std::io::stdout().flush()?;
    }
    println!();
    // To go on: `chat.record(&answer.finish())`, then the next `push_user`.
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [model, question] => pollster::block_on(ask(model, question)),
        _ => Err("usage: chat MODEL.gguf QUESTION".into()),
    }
}
