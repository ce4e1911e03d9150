import package::lib::step::step;
import package::lib::top::{LEAST, NONE, PARTS, TOP, empty_top, params};

// tops[row id] = the row's top tokens with their log-probabilities; unsure[row id] = how little the first one is trusted.
//
// Geometry: an invocation owns a row; grid (1, rows of the head).
// Numerics: f32; parts in ascending order.
@group(0) @binding(2) var<storage, read> best: array<vec2<f32>>; // [rows][PARTS][TOP] value, bits of the index
@group(0) @binding(3) var<storage, read> sums: array<vec2<f32>>; // [rows][PARTS] maximum, sum of exp(l - maximum)
@group(0) @binding(4) var<storage, read> ids: array<u32>; // [vocab] token of the target
@group(0) @binding(5) var<storage, read_write> tops: array<vec2<u32>>; // [row ids][TOP] token, bits of its log-probability
@group(0) @binding(6) var<storage, read_write> unsure: array<f32>; // [row ids]
@group(0) @binding(7) var<storage, read_write> counts: array<atomic<u32>>; // …, [4] rows whose logits are not finite

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    var greatest = LEAST;
    for (var part = 0u; part < PARTS; part++) {
        greatest = max(greatest, sums[row * PARTS + part].x);
    }
    var sum = 0.0;
    var top = empty_top();
    for (var part = 0u; part < PARTS; part++) {
        let at = row * PARTS + part;
        sum = fma(sums[at].y, exp(sums[at].x - greatest), sum);
        for (var i = 0u; i < TOP; i++) {
            let candidate = best[at * TOP + i];
            var moving = candidate.x;
            var index = bitcast<u32>(candidate.y);
            if (index == NONE || moving < top.value[TOP - 1u]) {
                break;
            }
            for (var j = 0u; j < TOP; j++) {
                let held = top.value[j];
                let held_index = top.index[j];
                let goes_in = moving > held || (moving == held && index < held_index);
                top.value[j] = select(held, moving, goes_in);
                top.index[j] = select(held_index, index, goes_in);
                moving = select(moving, held, goes_in);
                index = select(index, held_index, goes_in);
            }
        }
    }
    let total = greatest + log(sum);
    // A row that is no number proposes nothing: scores are compared, and comparing must be an order.
    let sane = total > -1.0e30 && total < 1.0e30;
    if (!sane) {
        atomicAdd(&counts[4], 1u);
    }
    var rest = 1.0;
    var entropy = 0.0;
    for (var j = 0u; j < TOP; j++) {
        let index = top.index[j];
        let logq = top.value[j] - total;
        let q = exp(logq);
        var entry = vec2<u32>(NONE, 0u);
        if (index != NONE && sane) {
            entry = vec2<u32>(ids[index], bitcast<u32>(logq));
            rest -= q;
            entropy -= q * logq;
        }
        tops[(params.first + row) * TOP + j] = entry;
    }
    if (rest > 1.0e-6) {
        entropy -= rest * log(rest);
    }
    // ln 9: nine equal shares, the top eight and the rest.
    let first = 1.0 - exp(top.value[0] - total);
    let doubt = clamp(select(first, entropy / 2.1972246, params.entropy == 1u), 0.0, 1.0);
    unsure[params.first + row] = select(0.0, doubt, sane);
}
