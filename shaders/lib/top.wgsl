// The largest entries of a row: `TOP` of (value, index), largest first, ties by lower index.
struct TopParams {
    vocab: u32,           // entries of a row: the draft vocabulary
    first: u32,           // row id of row 0
    coupled: u32,         // 1: values are l / T + G(seed, position, token), as the target will draw
    inv_temperature: f32,
    seed_lo: u32,
    seed_hi: u32,
    entropy: u32,         // 1: uncertainty is the entropy of the top, 0: one less the probability of the first
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: TopParams;

// Invocations that share a row.
const PARTS = 64u;
const TOP = 8u;
const NONE = 0xffffffffu;
const LEAST = -3.0e38;

struct Top {
    value: array<f32, TOP>,
    index: array<u32, TOP>,
}

fn empty_top() -> Top {
    var top: Top;
    for (var i = 0u; i < TOP; i++) {
        top.value[i] = LEAST;
        top.index[i] = NONE;
    }
    return top;
}
