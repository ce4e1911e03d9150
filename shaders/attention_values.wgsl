import package::lib::attend::{last_of, params, slot_of};
import package::lib::step::step;

// y[m][head] = sum over t of softmax(scores[m][head])[t] v[t], t = 0 … last of row m.
//
// Eight invocations a (row, head, chunk of 32 value pairs), each with up to four pairs. The numerators are added with t
// ascending; the denominator as eight interleaved sums (t mod 8), then ((0+1)+(2+3))+((4+5)+(6+7)). Neither depends
// on the batch or on where a key is stored. In broadcast each lane computes one exponential of eight and hands
// it to the others.
@group(0) @binding(4) var<storage, read> scores: array<f32>; // [batch][heads][stride]
@group(0) @binding(5) var<storage, read> values: array<u32>; // [slots][kv_pairs] two f16, or [slots][2 kv_pairs] f32
@group(0) @binding(6) var<storage, read_write> y: array<vec2<f32>>; // [batch][heads * half]

@if(kv16) fn value_pair(at: u32) -> vec2<f32> {
    return unpack2x16float(values[at]);
}
@if(kv32) fn value_pair(at: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(values[at * 2u]), bitcast<f32>(values[at * 2u + 1u]));
}

struct Weights {
    weight: array<f32, 8>, // exp(score - greatest), 0 past the last
    slot: array<u32, 8>,
}

fn weight_of(scored: u32, t: u32, last: u32, greatest: f32) -> f32 {
    if (t <= last) {
        return exp(scores[scored + t] - greatest);
    }
    return 0.0;
}

@if(broadcast) fn greatest_of(scored: u32, last: u32, local: u32) -> f32 {
    var greatest = scores[scored];
    for (var t = local; t <= last; t += 8u) {
        greatest = max(greatest, scores[scored + t]);
    }
    greatest = max(greatest, subgroupShuffleXor(greatest, 1u));
    greatest = max(greatest, subgroupShuffleXor(greatest, 2u));
    return max(greatest, subgroupShuffleXor(greatest, 4u));
}
@if(plain) fn greatest_of(scored: u32, last: u32, local: u32) -> f32 {
    var greatest = scores[scored];
    for (var t = 1u; t <= last; t++) {
        greatest = max(greatest, scores[scored + t]);
    }
    return greatest;
}

@if(broadcast) fn weights_at(scored: u32, row: u32, t: u32, last: u32, greatest: f32, local: u32) -> Weights {
    let w = weight_of(scored, t + local, last, greatest);
    let s = slot_of(row, min(t + local, last));
    return Weights(
        array<f32, 8>(
            subgroupBroadcast(w, 0u), subgroupBroadcast(w, 1u), subgroupBroadcast(w, 2u), subgroupBroadcast(w, 3u),
            subgroupBroadcast(w, 4u), subgroupBroadcast(w, 5u), subgroupBroadcast(w, 6u), subgroupBroadcast(w, 7u),
        ),
        array<u32, 8>(
            subgroupBroadcast(s, 0u), subgroupBroadcast(s, 1u), subgroupBroadcast(s, 2u), subgroupBroadcast(s, 3u),
            subgroupBroadcast(s, 4u), subgroupBroadcast(s, 5u), subgroupBroadcast(s, 6u), subgroupBroadcast(s, 7u),
        ),
    );
}
@if(plain) fn weights_at(scored: u32, row: u32, t: u32, last: u32, greatest: f32, local: u32) -> Weights {
    var all: Weights;
    for (var i = 0u; i < 8u; i++) {
        all.weight[i] = weight_of(scored, t + i, last, greatest);
        all.slot[i] = slot_of(row, min(t + i, last));
    }
    return all;
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.x;
    let row = group.y;
    let first = group.z * 32u + local;
    let last = last_of(row);
    let scored = (row * params.heads + head) * params.stride;
    let greatest = greatest_of(scored, last, local);
    let own = head / params.group * params.half;
    var sums: array<f32, 8>;
    var acc: array<vec2<f32>, 4>;
    for (var t = 0u; t <= last; t += 8u) {
        let now = weights_at(scored, row, t, last, greatest, local);
        for (var i = 0u; i < 8u; i++) {
            let w = now.weight[i];
            sums[i] += w;
            let at = now.slot[i] * params.kv_pairs + own;
            for (var j = 0u; j < 4u; j++) {
                // Heads of fewer than 32 pairs leave invocations idle: they read a pair that exists and drop it.
                let pair = min(first + j * 8u, params.half - 1u);
                acc[j] = fma(vec2<f32>(w), value_pair(at + pair), acc[j]);
            }
        }
    }
    let sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (var j = 0u; j < 4u; j++) {
        let pair = first + j * 8u;
        if (pair < params.half) {
            y[(row * params.heads + head) * params.half + pair] = acc[j] / sum;
        }
    }
}
