import package::lib::attend::{last_of, params, slot_of};
import package::lib::step::step;

// y[m][head] = sum over t of softmax(scale * q . k)[t] v[t], t = 0 … position of row m. For GPUs.
//
// One workgroup a (row, head). Positions are taken in fixed windows of 64, one an invocation, ascending; the running
// sums are rescaled when a window raises the maximum (the online softmax of FlashAttention). Within a window the
// denominator is a binary tree, the numerators are added with t ascending. Nothing depends on the batch or on where a
// position is stored. Each invocation owns up to two pairs of the head (head size 256 at most).
// y16: y is scaled and rounded to f16, for products of the f16 families.
@group(0) @binding(4) var<storage, read> q: array<vec2<f32>>; // [batch][heads * half]
@group(0) @binding(5) var<storage, read> keys: array<u32>; // [slots][kv_pairs] two f16, or [slots][2 kv_pairs] f32
@group(0) @binding(6) var<storage, read> values: array<u32>; // the same
@if(y32) @group(0) @binding(7) var<storage, read_write> y: array<vec2<f32>>; // [batch][heads * half]
@if(y16) @group(0) @binding(7) var<storage, read_write> y: array<vec2<f16>>; // the same, scaled

@if(y32) fn stored(value: vec2<f32>) -> vec2<f32> {
    return value;
}
@if(y16) fn stored(value: vec2<f32>) -> vec2<f16> {
    return vec2<f16>(value * params.y_scale);
}

@if(kv16) fn key_pair(at: u32) -> vec2<f32> {
    return unpack2x16float(keys[at]);
}
@if(kv32) fn key_pair(at: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(keys[at * 2u]), bitcast<f32>(keys[at * 2u + 1u]));
}
@if(kv16) fn value_pair(at: u32) -> vec2<f32> {
    return unpack2x16float(values[at]);
}
@if(kv32) fn value_pair(at: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(values[at * 2u]), bitcast<f32>(values[at * 2u + 1u]));
}

const LEAST = -3.0e38;

var<workgroup> scratch: array<f32, 64>;
var<workgroup> weights: array<f32, 64>;
var<workgroup> places: array<u32, 64>;

fn greatest_of(value: f32, local: u32) -> f32 {
    scratch[local] = value;
    for (var width = 32u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if (local < width) {
            scratch[local] = max(scratch[local], scratch[local + width]);
        }
    }
    workgroupBarrier();
    let all = scratch[0];
    workgroupBarrier();
    return all;
}

fn sum_of(value: f32, local: u32) -> f32 {
    scratch[local] = value;
    for (var width = 32u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if (local < width) {
            scratch[local] += scratch[local + width];
        }
    }
    workgroupBarrier();
    let all = scratch[0];
    workgroupBarrier();
    return all;
}

var<workgroup> last: u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.x;
    let row = group.y;
    if (local == 0u) {
        last = last_of(row);
    }
    // Uniform by construction; loading it so tells the compiler, for the barriers in the loop.
    let position = workgroupUniformLoad(&last);
    let own = head / params.group * params.half;
    let query = (row * params.heads + head) * params.half;
    var greatest = LEAST;
    var sum = 0.0;
    var acc: array<vec2<f32>, 2>;
    for (var start = 0u; start <= position; start += 64u) {
        let t = start + local;
        var score = LEAST;
        let place = slot_of(row, min(t, position)) * params.kv_pairs + own;
        if (t <= position) {
            var dot = 0.0;
            for (var pair = 0u; pair < params.half; pair++) {
                let a = q[query + pair];
                let k = key_pair(place + pair);
                dot = fma(a.x, k.x, dot);
                dot = fma(a.y, k.y, dot);
            }
            score = dot * params.scale;
        }
        let raised = max(greatest, greatest_of(score, local));
        let rescale = exp(greatest - raised);
        let weight = select(0.0, exp(score - raised), t <= position);
        weights[local] = weight;
        places[local] = place;
        sum = fma(sum, rescale, sum_of(weight, local));
        for (var j = 0u; j < 2u; j++) {
            let pair = local + j * 64u;
            if (pair < params.half) {
                var partial = acc[j] * rescale;
                for (var i = 0u; i < 64u; i++) {
                    partial = fma(vec2<f32>(weights[i]), value_pair(places[i] + pair), partial);
                }
                acc[j] = partial;
            }
        }
        greatest = raised;
        workgroupBarrier();
    }
    for (var j = 0u; j < 2u; j++) {
        let pair = local + j * 64u;
        if (pair < params.half) {
            y[query + pair] = stored(acc[j] / sum);
        }
    }
}
