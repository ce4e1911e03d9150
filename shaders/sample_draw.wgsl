import package::lib::sampling::{
    LANES, NO_CANDIDATE, better, block_size, cut_keeps, float_key, key_float, params, parts
};
import package::lib::gumbel::gumbel;
import package::lib::step::step;

// partials = the best (key of l + G(seed, position, id), id) of each invocation's ids, over the tokens that top-k, top-p
// and min-p left.
//
// Geometry: as sample_prepare; grid (parts / 64, rows).
// Numerics: f32; min-p keeps l >= max + ln(min_p). The noise is computed for kept tokens only.
// Lineage: 1. noise under an `if` in the walk; 2. this.

@group(0) @binding(2) var<storage, read> scaled: array<f32>;               // [rows][vocab]
@group(0) @binding(3) var<storage, read> maxima: array<vec2<u32>>;         // [rows] (largest key, bound of the k-th largest)
@group(0) @binding(4) var<storage, read> cuts: array<vec2<u32>>;           // [rows] (key, id)
@group(0) @binding(5) var<storage, read> rows: array<vec4<u32>>;           // [batch] token, position, slot, …
@group(0) @binding(6) var<storage, read_write> partials: array<vec2<u32>>; // [rows][parts] (key, id)

fn stays(row: u32, id: u32, cut: vec2<u32>, floor_key: u32) -> bool {
    let key = float_key(scaled[row * params.vocab + id]);
    return key >= floor_key && cut_keeps(cut, key, id);
}

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) invocation: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    let cut = cuts[row];
    // The drawn token stands behind the row's own.
    let position = rows[step.source + row].y + 1u;
    var floor_key = 0u;
    if (params.min_p == 1u) {
        floor_key = float_key(key_float(maxima[row].x) + params.min_p_ln);
    }
    let block = group.x * block_size();
    let end = min(block + block_size(), params.vocab);
    var best = NO_CANDIDATE;
    var id = block + lane;
    loop {
        // Walk on to the next kept token in a tight loop of its own: rasterisers run both sides of a branch.
        while (id < end && !stays(row, id, cut, floor_key)) {
            id += LANES;
        }
        if (id >= end) {
            break;
        }
        let score = scaled[row * params.vocab + id] + gumbel(params.seed_lo, params.seed_hi, position, id);
        best = better(best, vec2<u32>(float_key(score), id));
        id += LANES;
    }
    partials[row * parts() + invocation.x] = best;
}
