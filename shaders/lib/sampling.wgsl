// What the sampling kernels share: their parameters, the order of floats, and which ids an invocation owns.

struct SampleParams {
    vocab: u32,
    chunk: u32,           // ids that one invocation owns
    window: u32,          // slots of a penalty window; 0: penalties are off
    levels: u32,          // row length of the ancestor table
    biases: u32,          // entries of the bias list
    draws: u32,           // 1: temperature above 0, so scaled logits are written and sums cleared
    measure: u32,         // 0: count of tokens (top-k), 1: mass (top-p)
    level: u32,           // 0 to 3: which 8 bits of the key a histogram sorts by
    top_k: u32,
    top_p: u32,           // fraction of 2^32
    min_p: u32,           // 1: min-p applies
    min_p_ln: f32,
    inv_temperature: f32, // 1 for greedy
    repetition: f32,
    inv_repetition: f32,
    presence: f32,
    frequency: f32,
    seed_lo: u32,
    seed_hi: u32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: SampleParams;

// Invocations of a workgroup in the kernels that walk the vocabulary.
const LANES = 64u;

// Ids of a workgroup: invocation i owns every LANES-th of them, from the i-th on, so that neighbours read neighbours.
fn block_size() -> u32 {
    return LANES * params.chunk;
}

// Partial results of a row: one an invocation.
fn parts() -> u32 {
    return (params.vocab + block_size() - 1u) / block_size() * LANES;
}

// The rank of a float among floats: -0 as 0, NaN below minus infinity. In integers, so every device agrees.
fn float_key(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0u;
    }
    if (magnitude == 0u) {
        return 0x80000000u;
    }
    return select(~bits, bits | 0x80000000u, bits == magnitude);
}

fn key_float(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

// A candidate is (key, id): larger key first, then lower id. This one loses against every token.
const NO_CANDIDATE = vec2<u32>(0u, 0xffffffffu);

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

// Whether a cut (key, id) keeps a token: above the key, or at it and not behind the id.
fn cut_keeps(cut: vec2<u32>, key: u32, id: u32) -> bool {
    return key > cut.x || (key == cut.x && id <= cut.y);
}

// Everything stays.
const CUT_NOTHING = vec2<u32>(0u, 0xffffffffu);

// Sums of one level of the radix search: 256 bins, then their 16 groups of 16, so that finding a bin reads 32 entries.
const BINS = 256u;
const SUMS = 272u;
