import package::lib::attend::{last_of, params, slot_of};
import package::lib::step::step;

// scores[m][head][t] = scale * (q[m][head] . k[t]) for t = 0 … last of row m.
//
// One invocation a (row, head, t); dimensions ascending. In broadcast the lanes of a subgroup share the loads of q.
@group(0) @binding(4) var<storage, read> q: array<f32>; // [batch][heads * head size]
@group(0) @binding(5) var<storage, read> keys: array<u32>; // [slots][kv_pairs] two f16, or [slots][2 kv_pairs] f32
@group(0) @binding(6) var<storage, read_write> scores: array<f32>; // [batch][heads][stride]

@if(kv16) fn key_pair(at: u32) -> vec2<f32> {
    return unpack2x16float(keys[at]);
}
@if(kv32) fn key_pair(at: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(keys[at * 2u]), bitcast<f32>(keys[at * 2u + 1u]));
}

@if(broadcast) fn q_octet(at: u32, lane: u32) -> array<f32, 8> {
    let v = q[at + lane];
    return array<f32, 8>(
        subgroupBroadcast(v, 0u), subgroupBroadcast(v, 1u), subgroupBroadcast(v, 2u), subgroupBroadcast(v, 3u),
        subgroupBroadcast(v, 4u), subgroupBroadcast(v, 5u), subgroupBroadcast(v, 6u), subgroupBroadcast(v, 7u),
    );
}
@if(plain) fn q_octet(at: u32, lane: u32) -> array<f32, 8> {
    return array<f32, 8>(
        q[at], q[at + 1u], q[at + 2u], q[at + 3u], q[at + 4u], q[at + 5u], q[at + 6u], q[at + 7u],
    );
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let row = group.z;
    let last = last_of(row);
    if (group.x * 8u > last) {
        return;
    }
    let t = group.x * 8u + local;
    // Lanes past the last key take part in the broadcasts and write nothing.
    let key = slot_of(row, min(t, last)) * params.kv_pairs + head / params.group * params.half;
    let query = (row * params.heads + head) * params.half * 2u;
    var sum = 0.0;
    for (var pair = 0u; pair < params.half; pair += 4u) {
        let a = q_octet(query + pair * 2u, local);
        for (var i = 0u; i < 4u; i++) {
            let k = key_pair(key + pair + i);
            sum = fma(a[i * 2u], k.x, sum);
            sum = fma(a[i * 2u + 1u], k.y, sum);
        }
    }
    if (t <= last) {
        scores[(row * params.heads + head) * params.stride + t] = sum * params.scale;
    }
}
