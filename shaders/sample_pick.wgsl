import package::lib::sampling::{NO_CANDIDATE, better, params, parts};
import package::lib::step::step;

// keys[r], tokens[r] = the best (key, id) of the row's partial results: the maximum behind sample_prepare (greedy ends
// here), the drawn token behind sample_draw.
//
// Geometry: an invocation owns a row; grid (1, rows).
// Numerics: integers, so the order of the walk does not matter.

@group(0) @binding(2) var<storage, read> partials: array<vec2<u32>>; // [rows][parts] (key, id)
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;     // [rows] key of the winner
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;   // [rows] id of the winner

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    var best = NO_CANDIDATE;
    for (var i = 0u; i < parts(); i++) {
        best = better(best, partials[row * parts() + i]);
    }
    keys[row] = best.x;
    tokens[row] = best.y;
}
