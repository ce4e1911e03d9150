//! Writes a drafter of random weights in the shape that SmolLM2-135M takes: what drafting costs can then be measured
//! before anything is trained. What it proposes is right by chance.
//!
//! `cargo run --release -p redraft-testing --example random_drafter -- FILE`

use redraft_gguf::GgmlType;
use redraft_testing::{TinyDrafter, TinyModel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give the file to write")?;
    let drafter = TinyDrafter {
        target: TinyModel { hidden: 576, vocab: 49152, ..TinyModel::default() },
        captures: [2, 15, 27],
        hidden: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        ffn: 1536,
        draft_vocab: 8192,
        rope_theta: 100_000.0,
        fingerprint: false,
        kind: GgmlType::Q8_0,
        ..TinyDrafter::default()
    };
    std::fs::write(path, drafter.to_file()?.write())?;
    Ok(())
}
