import package::lib::sampling::{BINS, LANES, block_size, cut_keeps, params};
import package::lib::step::step;
import package::lib::radix::{add64, descend, first_sum, key_at, maxima, pass_number, weight_of};

// sums[bin] = sum of the weights of the row's kept tokens whose key continues the prefix so far with the 8 bits `bin`.
//
// weight = 1 (top-k) or exp(l - max) 2^30 (top-p). The prefix is extended from the sums of the level before by every
// invocation for itself (32 reads), the first one records it for the next pass.
// Geometry: as sample_prepare; grid (parts / 64, rows). Four passes (params.level) for each measure.
// Numerics: 64-bit integers in two words; the carry is seen in what atomicAdd returns, so the order of additions does
// not matter. Runs of one bin are summed in registers first, because most logits share few bins at level 0.
// Lineage: 1. a select dispatch between the levels; 2. all tokens counted at level 0: atomics cost several times the
// walk; 3. passing over tokens below the bound of sample_pick; 4. this: weights and sums outside the loop that walks.
// Next: gather the few tokens above the bound once and finish on them.

@group(0) @binding(4) var<storage, read> cuts: array<vec2<u32>>;           // [rows] (key, id) that top-k left
@group(0) @binding(6) var<storage, read_write> sums: array<atomic<u32>>;   // [rows][4][SUMS][2] (lo, hi) of this level
@group(0) @binding(7) var<storage, read_write> searches: array<vec4<u32>>; // [rows][8] (prefix, rest, 0) entering each pass

fn add_entry(entry: u32, sum: vec2<u32>) {
    let old = atomicAdd(&sums[2u * entry], sum.x);
    let high = sum.y + select(0u, 1u, old + sum.x < old);
    if (high > 0u) {
        atomicAdd(&sums[2u * entry + 1u], high);
    }
}

fn flush(first: u32, bin: u32, sum: vec2<u32>) {
    if (bin < BINS) {
        add_entry(first + bin, sum);
        add_entry(first + BINS + bin / 16u, sum);
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    let pass_index = pass_number();
    var prefix = 0u;
    var known = 0u;
    var state = vec4<u32>(0u);
    if (params.level > 0u) {
        let search = descend(row, pass_index - 1u, searches[row * 8u + pass_index - 1u]);
        prefix = search.prefix;
        known = 0xffffffffu << (32u - 8u * params.level);
        state = vec4<u32>(prefix, search.rest, 0u);
    }
    if (group.x == 0u && lane == 0u) {
        searches[row * 8u + pass_index] = state;
    }
    let cut = cuts[row];
    let max_key = maxima[row].x;
    let least = select(0u, maxima[row].y, params.measure == 0u);
    let first = first_sum(row, pass_index);
    let shift = 24u - 8u * params.level;
    let block = group.x * block_size();
    let end = min(block + block_size(), params.vocab);
    var run = BINS;
    var run_sum = vec2<u32>(0u);
    var id = block + lane;
    loop {
        // Walk on to the next token that counts in a tight loop of its own: rasterisers run both sides of a branch.
        var key = 0u;
        while (id < end) {
            key = key_at(row, id);
            if (key >= least && (key & known) == prefix && cut_keeps(cut, key, id)) {
                break;
            }
            id += LANES;
        }
        if (id >= end) {
            break;
        }
        id += LANES;
        let weight = weight_of(key, max_key);
        let bin = (key >> shift) & 255u;
        if (weight > 0u && bin != run) {
            flush(first, run, run_sum);
            run = bin;
            run_sum = vec2<u32>(0u);
        }
        run_sum = add64(run_sum, vec2<u32>(weight, 0u));
    }
    flush(first, run, run_sum);
}
