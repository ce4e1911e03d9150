import package::lib::place::{PANELS, Scales, WORKGROUP, place_of};
import package::lib::product::product;
import package::lib::tile::{TILE, tile_first_row, tile_value};
import package::lib::step::step;

// Queries, keys and values of a layer: product, bias, rotary embedding, and the write into the KV cache.
//
// The rows of Q, K and V are stored as pairs that RoPE rotates together: even panels hold the first, odd panels the
// second of each pair, so that one invocation holds both. (a, b) becomes (a cos - b sin, a sin + b cos), with the
// table computed by the host in f64. Values are not rotated.
struct QkvRopeParams {
    pairs: u32,        // pairs of this matrix
    blocks: u32,       // k / 32
    first_pair: u32,   // number of its first pair, counted over Q, K, V
    q_pairs: u32,      // pairs of Q
    kv_pairs: u32,     // pairs of K, and of V
    half: u32,         // pairs of a head
    bias: u32,         // 1: add the bias
    kv32: u32,         // 1: the cache holds f32, 0: f16
    scale: f32,        // of the sums, as weight_scale
    weight_scale: f32, // for f16 families: Scales of lib/place.wgsl
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> params: QkvRopeParams;
@group(0) @binding(4) var<storage, read> bias: array<vec2<f32>>; // [q_pairs + 2 kv_pairs]
@group(0) @binding(5) var<storage, read> rope: array<vec2<f32>>; // [positions][half] cos, sin
@group(0) @binding(6) var<storage, read> rows: array<vec4<u32>>; // [batch] token, position, slot, 0
@group(0) @binding(7) var<storage, read_write> q: array<vec2<f32>>; // [batch][q_pairs]
@group(0) @binding(8) var<storage, read_write> keys: array<u32>; // [slots][kv_pairs] two f16, or [slots][2 kv_pairs] f32
@group(0) @binding(9) var<storage, read_write> values: array<u32>; // the same

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = place_of(group.x, local);
    let first_row = tile_first_row(group.y, step.rows);
    let sums = product(place, params.blocks, first_row, Scales(params.weight_scale, params.scale));
    if (place.slice == 0u) {
        for (var p = 0u; p < PANELS; p += 2u) {
            let own = (place.panel + p) * 4u + place.row;
            if (own < params.pairs) {
                var pairs: array<vec2<f32>, TILE>;
                for (var m = 0u; m < TILE; m++) {
                    pairs[m] = vec2<f32>(tile_value(sums[p], m), tile_value(sums[p + 1u], m));
                }
                write_pairs(pairs, params.first_pair + own, first_row);
            }
        }
    }
}

fn rotate(v: vec2<f32>, angle: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(fma(v.x, angle.x, -(v.y * angle.y)), fma(v.x, angle.y, v.y * angle.x));
}

// Writes one pair of each row of a tile.
//
// The loop must stay a loop: a CPU rasteriser turns each of its eight stores into a branch a lane, and unrolled over the
// rows they take several times as long to compile as the product. So its bound is hidden from the compiler (kv32 / 2 is 0),
// and the sums move up by one instead of being indexed.
fn write_pairs(products: array<vec2<f32>, TILE>, pair: u32, first_row: u32) {
    var sums = products;
    let shift = select(vec2<f32>(), bias[select(0u, pair, params.bias == 1u)], params.bias == 1u);
    let rotated = pair < params.q_pairs + params.kv_pairs;
    let count = min(step.rows - first_row, TILE + (params.kv32 >> 1u));
    for (var m = 0u; m < count; m++) {
        let row = first_row + m;
        var v = sums[0] + shift;
        for (var i = 1u; i < TILE; i++) {
            sums[i - 1u] = sums[i];
        }
        let at = rows[row];
        if (rotated) {
            v = rotate(v, rope[at.y * params.half + pair % params.half]);
        }
        if (pair < params.q_pairs) {
            q[row * params.q_pairs + pair] = v;
        } else if (rotated) {
            let place = at.z * params.kv_pairs + pair - params.q_pairs;
            if (params.kv32 == 1u) {
                keys[place * 2u] = bitcast<u32>(v.x);
                keys[place * 2u + 1u] = bitcast<u32>(v.y);
            } else {
                keys[place] = pack2x16float(v);
            }
        } else {
            let place = at.z * params.kv_pairs + pair - params.q_pairs - params.kv_pairs;
            if (params.kv32 == 1u) {
                values[place * 2u] = bitcast<u32>(v.x);
                values[place * 2u + 1u] = bitcast<u32>(v.y);
            } else {
                values[place] = pack2x16float(v);
            }
        }
    }
}
