// The weight matrix of a product: u32 words, panel after panel.
//
// A panel is eight rows. It holds the quants of its blocks (32 weights along k), block by block and within a block row
// by row, then its scales. lib/quant/<format>.wgsl knows the sizes; crates/redraft-gguf/src/pack.rs writes them.
@group(0) @binding(3) var<storage, read> weights: array<u32>; // [panels][panel_words(blocks)]
