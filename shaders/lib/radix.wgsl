import package::lib::sampling::{BINS, SUMS, float_key, key_float, params};
import package::lib::sample_math::{WEIGHT_ONE, exp_weight};

// The search for the top-k and top-p threshold: four levels of 8 bits over a row's keys, in 64-bit integers (lo, hi).

@group(0) @binding(2) var<storage, read> scaled: array<f32>;         // [rows][vocab]
@group(0) @binding(3) var<storage, read> maxima: array<vec2<u32>>;   // [rows] (largest key, bound of the k-th largest)
@group(0) @binding(5) var<storage, read> previous: array<vec2<u32>>; // [rows][4][SUMS] sums of the level before

// Passes 0 to 3 search by count, 4 to 7 by mass. Even passes sum into one buffer, odd ones into another, because a
// buffer cannot be read-only and writable in one dispatch.
fn pass_number() -> u32 {
    return params.measure * 4u + params.level;
}

// First entry of a pass's sums within its buffer.
fn first_sum(row: u32, pass_index: u32) -> u32 {
    return (row * 4u + (pass_index >> 1u)) * SUMS;
}

// Keys of finite floats are LEAST_FINITE to GREATEST_FINITE.
const LEAST_FINITE = 0x00800000u;
const GREATEST_FINITE = 0xff7fffffu;

// What a token of this key adds to a sum.
fn weight_of(key: u32, max_key: u32) -> u32 {
    let finite = key >= LEAST_FINITE && max_key <= GREATEST_FINITE;
    let below = select(-100.0f, key_float(key) - key_float(max_key), finite);
    let mass = select(exp_weight(below), WEIGHT_ONE, key == max_key);
    return select(mass, 1u, params.measure == 0u);
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn at_most64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x <= b.x);
}

fn mul64(a: u32, b: u32) -> vec2<u32> {
    let a_lo = a & 0xffffu;
    let a_hi = a >> 16u;
    let b_lo = b & 0xffffu;
    let b_hi = b >> 16u;
    let middle = a_hi * b_lo + ((a_lo * b_lo) >> 16u);
    let carried = a_lo * b_hi + (middle & 0xffffu);
    return vec2<u32>(a * b, a_hi * b_hi + (middle >> 16u) + (carried >> 16u));
}

// The least sum that the kept prefix must reach: top_k, or top_p of the total, rounded up, and at least 1.
fn target_sum(total: vec2<u32>) -> vec2<u32> {
    if (params.measure == 0u) {
        return vec2<u32>(params.top_k, 0u);
    }
    let low = mul64(total.x, params.top_p);
    let product = add64(mul64(total.y, params.top_p), vec2<u32>(low.y, 0u));
    let rounded = add64(product, vec2<u32>(select(0u, 1u, low.x > 0u), 0u));
    return select(rounded, vec2<u32>(1u, 0u), all(rounded == vec2<u32>(0u)));
}

struct Search {
    prefix: u32,     // leading bits of the threshold key
    rest: vec2<u32>, // what tokens with this prefix must still reach
    sum: vec2<u32>,  // what all of them add up to
}

// Goes into the bin in which the sum from above reaches the target. `entered` is the state with which `pass_index` was
// entered, `previous` holds the sums of that pass.
fn descend(row: u32, pass_index: u32, entered: vec4<u32>) -> Search {
    let first = first_sum(row, pass_index);
    let level = pass_index & 3u;
    var rest = entered.yz;
    if (level == 0u) {
        var total = vec2<u32>(0u);
        for (var i = 0u; i < 16u; i++) {
            total = add64(total, previous[first + BINS + i]);
        }
        rest = target_sum(total);
    }
    var bin = 15u;
    var sum = previous[first + BINS + bin];
    while (bin > 0u && !at_most64(rest, sum)) {
        rest = sub64(rest, sum);
        bin -= 1u;
        sum = previous[first + BINS + bin];
    }
    bin = bin * 16u + 15u;
    sum = previous[first + bin];
    while ((bin & 15u) > 0u && !at_most64(rest, sum)) {
        rest = sub64(rest, sum);
        bin -= 1u;
        sum = previous[first + bin];
    }
    return Search(entered.x | (bin << (24u - 8u * level)), rest, sum);
}

fn key_at(row: u32, id: u32) -> u32 {
    return float_key(scaled[row * params.vocab + id]);
}
