import package::lib::sampling::{CUT_NOTHING, LANES, NO_CANDIDATE, SUMS, better, block_size, float_key, params, parts};
import package::lib::step::step;

// scaled[r][id] = (penalised logit + bias) / temperature, and the best (key, id) of each invocation's ids.
//
// penalised = l / repetition if l > 0 else l * repetition, less count * frequency + presence, for ids in the window.
// Geometry: a workgroup owns 64 * chunk ids, an invocation every 64th of them; grid (parts / 64, rows).
// Numerics: f32; products by host-made reciprocals; fma where a product feeds a sum. Greedy rows without penalties and
// bias are only read; otherwise each invocation edits its own ids in `scaled`. Clears what the later stages add to.
// Lineage: 1. penalise, bias, scale and argmax as four dispatches; 2. this one, each invocation passing over the window
// and over its block's stretch of the sorted bias list.

@group(0) @binding(2) var<storage, read> logits: array<f32>;               // [rows][vocab]
@group(0) @binding(3) var<storage, read> windows: array<vec2<u32>>;        // [rows][window] (id, count)
@group(0) @binding(4) var<storage, read> bias_list: array<vec2<u32>>;      // [biases] (id, bits of f32), ascending ids
@group(0) @binding(5) var<storage, read_write> scaled: array<f32>;         // [rows][vocab]
@group(0) @binding(6) var<storage, read_write> partials: array<vec2<u32>>; // [rows][parts] (key, id)
@group(0) @binding(7) var<storage, read_write> even_sums: array<vec2<u32>>; // [rows][4][SUMS]
@group(0) @binding(8) var<storage, read_write> odd_sums: array<vec2<u32>>; // [rows][4][SUMS]
@group(0) @binding(9) var<storage, read_write> cuts: array<vec2<u32>>;     // [rows] (key, id)

fn penalise(at: u32, count: u32) {
    let logit = scaled[at];
    let factor = select(params.repetition, params.inv_repetition, logit > 0.0f);
    scaled[at] = fma(logit, factor, -fma(f32(count), params.frequency, params.presence));
}

// First entry of the bias list whose id is at least `id`.
fn first_bias(id: u32) -> u32 {
    var low = 0u;
    var high = params.biases;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (bias_list[middle].x < id) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

// Copies an invocation's ids from `start` up to `end` and applies what the window and the bias list hold for them.
fn edit(row: u32, start: u32, block: u32, end: u32) {
    let first = row * params.vocab;
    for (var id = start; id < end; id += LANES) {
        scaled[first + id] = logits[first + id];
    }
    for (var slot = 0u; slot < params.window; slot++) {
        let entry = windows[row * params.window + slot];
        if (entry.y > 0u && entry.x >= start && entry.x < end && (entry.x - start) % LANES == 0u) {
            penalise(first + entry.x, entry.y);
        }
    }
    for (var i = first_bias(block); i < params.biases; i++) {
        let entry = bias_list[i];
        if (entry.x >= end) {
            break;
        }
        if (entry.x >= start && (entry.x - start) % LANES == 0u) {
            scaled[first + entry.x] += bitcast<f32>(entry.y);
        }
    }
}

fn clear(row: u32, invocation: u32) {
    let first = row * 4u * SUMS;
    for (var i = invocation; i < 4u * SUMS; i += parts()) {
        even_sums[first + i] = vec2<u32>(0u);
        odd_sums[first + i] = vec2<u32>(0u);
    }
    if (invocation == 0u) {
        cuts[row] = CUT_NOTHING;
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    let block = group.x * block_size();
    let start = block + lane;
    let end = min(block + block_size(), params.vocab);
    let edited = params.window > 0u || params.biases > 0u;
    if (edited) {
        edit(row, start, block, end);
    }
    var best = NO_CANDIDATE;
    for (var token = start; token < end; token += LANES) {
        let at = row * params.vocab + token;
        var value = 0.0f;
        if (edited) {
            value = scaled[at] * params.inv_temperature;
        } else {
            value = logits[at] * params.inv_temperature;
        }
        if (params.draws == 1u) {
            scaled[at] = value;
        }
        best = better(best, vec2<u32>(float_key(value), token));
    }
    partials[row * parts() + id.x] = best;
    if (params.draws == 1u) {
        clear(row, id.x);
    }
}
