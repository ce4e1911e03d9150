//! Your own sampler on the host: the likeliest token that does not repeat a pair of tokens.
//!
//! `cargo run --release -p redraft-examples --bin custom_sampler -- MODEL.gguf "Once upon a time"`

use redraft::{Engine, EngineOptions, FileSource, Rows, TokenId, Want};
use std::collections::HashSet;

/// Most tokens of an answer.
const LENGTH: usize = 32;

/// The token with the largest logit among those that `allowed` accepts.
fn choose(logits: &[f32], allowed: impl Fn(TokenId) -> bool) -> Option<TokenId> {
    let tokens = (0..).map(TokenId).zip(logits).filter(|(token, _)| allowed(*token));
    tokens.max_by(|a, b| a.1.total_cmp(b.1)).map(|(token, _)| token)
}

async fn write(model: &str, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let file = FileSource::open(model)?;
    let mut engine = Engine::load(&file, EngineOptions::default(), |_| {}).await?;
    eprintln!("adapter: {}", engine.adapter().name);

    let want = Want { logits: Rows::Last, captures: false };
    let mut history = engine.encode(text)?;
    let start = history.len();
    let mut pairs: HashSet<_> = history.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut output = engine.forward(&history, want).await?;
    while history.len() < start + LENGTH {
        let last = history.last().copied().unwrap_or_default();
        let Some(next) = choose(&output.logits, |token| !pairs.contains(&(last, token))) else { break };
        if engine.tokenizer().eos_ids().contains(&next.0) {
            break;
        }
        pairs.insert((last, next));
        history.push(next);
        // The sequence is in the engine: only the new token is computed.
        output = engine.forward(&[next], want).await?;
    }
    let ids: Vec<u32> = history.iter().skip(start).map(|token| token.0).collect();
    eprintln!("ids: {ids:?}");
    println!("{}", engine.tokenizer().decode(&ids)?);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [model, text] => pollster::block_on(write(model, text)),
        _ => Err("usage: custom_sampler MODEL.gguf TEXT".into()),
    }
}
