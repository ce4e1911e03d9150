//! What a model expects next, and what its layers say on the way: logits and captures of the residual stream.
//!
//! `cargo run --release -p redraft-examples --bin logits -- MODEL.gguf "The capital of France is"`

use redraft::{CaptureLayers, Engine, EngineOptions, FileSource, Gguf, ModelConfig, Rows, Want};

async fn look(model: &str, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let file = FileSource::open(model)?;
    // The header says how many layers there are. Layer n means the stream before it, so the last is after all.
    let layers = ModelConfig::from_gguf(&Gguf::read(&file).await?)?.layers;
    let captures = CaptureLayers::At(vec![0, layers / 2, layers]);
    let options = EngineOptions { captures, ..EngineOptions::default() };
    let mut engine = Engine::load(&file, options, |_| {}).await?;
    eprintln!("adapter: {}", engine.adapter().name);

    let tokens = engine.encode(text)?;
    let output = engine.forward(&tokens, Want { logits: Rows::Last, captures: true }).await?;

    let mut likeliest: Vec<(u32, f32)> = (0..).zip(output.logits).collect();
    likeliest.sort_by(|a, b| b.1.total_cmp(&a.1));
    let max = likeliest.first().map_or(0.0, |entry| entry.1);
    let sum: f32 = likeliest.iter().map(|entry| (entry.1 - max).exp()).sum();
    for (id, logit) in likeliest.into_iter().take(5) {
        let text = engine.tokenizer().decode_with_specials(&[id])?;
        println!("{:6.2} %  {id:6}  {text:?}", 100.0 * (logit - max).exp() / sum);
    }
    // Captures are [layers][rows][hidden].
    let hidden = engine.config().hidden as usize;
    let of_layers = output.captures.chunks(tokens.len() * hidden);
    for (layer, rows) in engine.model().capture_layers().iter().zip(of_layers) {
        let last = rows.chunks(hidden).next_back().unwrap_or_default();
        let square: f32 = last.iter().map(|value| value * value).sum();
        println!("layer {layer:3}: the last row has length {:.3}", square.sqrt());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [model, text] => pollster::block_on(look(model, text)),
        _ => Err("usage: logits MODEL.gguf TEXT".into()),
    }
}
