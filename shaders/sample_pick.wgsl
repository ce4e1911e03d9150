import package::lib::sampling::{NO_CANDIDATE, better, params, parts};
import package::lib::step::step;

// keys[r], tokens[r] = the best (key, id) of the row's partial results: the maximum behind sample_prepare (greedy ends
// here), the drawn token behind sample_draw.
//
// keys[r].y is a bound: with the partial results dealt into top_k groups, the least of the groups' best. At least top_k
// tokens reach it, so the top-k search passes over what lies below. 0 where there are fewer partial results.
// Geometry: an invocation owns a row; grid (1, rows).
// Numerics: integers, so the order of the walk does not matter.
// Lineage: 1. without the bound; 2. least of all partial results: 10 % of the vocabulary was above it; 3. this: 0.3 %.

@group(0) @binding(2) var<storage, read> partials: array<vec2<u32>>;   // [rows][parts] (key, id)
@group(0) @binding(3) var<storage, read_write> keys: array<vec2<u32>>; // [rows] (key of the winner, bound)
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;     // [rows] id of the winner

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    let group_size = parts() / max(params.top_k, 1u);
    var best = NO_CANDIDATE;
    var group_best = 0u;
    var in_group = 0u;
    var groups = 0u;
    var bound = 0xffffffffu;
    for (var i = 0u; i < parts(); i++) {
        let candidate = partials[row * parts() + i];
        best = better(best, candidate);
        group_best = max(group_best, candidate.x);
        in_group += 1u;
        if (in_group == group_size && groups < params.top_k) {
            bound = min(bound, group_best);
            group_best = 0u;
            in_group = 0u;
            groups += 1u;
        }
    }
    keys[row] = vec2<u32>(best.x, select(0u, bound, group_size > 0u && params.top_k > 0u));
    tokens[row] = best.y;
}
