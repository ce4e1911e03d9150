import package::lib::gumbel::gumbel;
import package::lib::step::step;
import package::lib::top::{LEAST, NONE, PARTS, TOP, Top, empty_top, params};

// partials = the top entries of each invocation's part of a row of draft logits, and their share of the log-sum-exp.
//
// Geometry: an invocation owns every 64th logit of a row; grid (1, rows of the head).
// Numerics: f32; the sum is rescaled when the maximum rises. Proposals never decide what is emitted, so nothing here needs
// to agree between devices.
@group(0) @binding(2) var<storage, read> logits: array<f32>; // [rows][vocab]
@group(0) @binding(3) var<storage, read> ids: array<u32>; // [vocab] token of the target
@group(0) @binding(4) var<storage, read> rows: array<vec4<u32>>; // [batch] token, position, slot, keys beyond the position
@group(0) @binding(5) var<storage, read_write> best: array<vec2<f32>>; // [rows][PARTS][TOP] value, bits of the index
@group(0) @binding(6) var<storage, read_write> sums: array<vec2<f32>>; // [rows][PARTS] maximum, sum of exp(l - maximum)

fn value_at(row: u32, index: u32) -> f32 {
    let logit = logits[row * params.vocab + index];
    if (params.coupled == 0u) {
        return logit;
    }
    // The row reads the feature one before its token; its candidates stand one behind the token.
    let position = rows[step.source + row].y + 2u;
    return fma(logit, params.inv_temperature, gumbel(params.seed_lo, params.seed_hi, position, ids[index]));
}

@compute @workgroup_size(PARTS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    var top = empty_top();
    var greatest = LEAST;
    var sum = 0.0;
    for (var i = local; i < params.vocab; i += PARTS) {
        let value = value_at(row, i);
        let raised = max(greatest, value);
        sum = fma(sum, exp(greatest - raised), exp(value - raised));
        greatest = raised;
        if (value > top.value[TOP - 1u]) {
            var moving = value;
            var index = i;
            for (var j = 0u; j < TOP; j++) {
                let held = top.value[j];
                let held_index = top.index[j];
                let goes_in = moving > held;
                top.value[j] = select(held, moving, goes_in);
                top.index[j] = select(held_index, index, goes_in);
                moving = select(moving, held, goes_in);
                index = select(index, held_index, goes_in);
            }
        }
    }
    let part = row * PARTS + local;
    for (var j = 0u; j < TOP; j++) {
        best[part * TOP + j] = vec2<f32>(top.value[j], bitcast<f32>(top.index[j]));
    }
    sums[part] = vec2<f32>(greatest, sum);
}
