import package::lib::draft::{ALIVE, CHAIN, DraftParams, NONE, Node, ROWS};

// order[0 … ROWS) = the node of each verified row, best first behind the greedy chain; order[ROWS + node] = its row.
//
// Edges are at most 0 and children come later in the pool than their parents, so the best nodes are closed under parents and
// parents come first.
// Geometry: an invocation owns a node and counts the better ones; those below `nodes` mark rows that stay empty.
// Numerics: comparisons only.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> nodes: array<Node>; // [pool]
@group(0) @binding(2) var<storage, read_write> order: array<u32>; // [ROWS] nodes, then [pool] rows

fn before(a: Node, a_index: u32, b: Node, b_index: u32) -> bool {
    let chain_a = a.flags & CHAIN;
    let chain_b = b.flags & CHAIN;
    if (chain_a != chain_b) {
        return chain_a > chain_b;
    }
    if (chain_a != 0u) {
        return a.depth < b.depth;
    }
    return a.score > b.score || (a.score == b.score && a_index < b_index);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let index = id.x + 1u;
    let own = nodes[min(index, params.pool - 1u)];
    let exists = index < params.pool && (own.flags & ALIVE) != 0u;
    var rank = 0u;
    var alive = 0u;
    for (var i = 1u; i < params.pool; i++) {
        let other = nodes[i];
        if ((other.flags & ALIVE) != 0u) {
            alive += 1u;
            if (exists && i != index && before(other, i, own, index)) {
                rank += 1u;
            }
        }
    }
    let kept = exists && rank < params.nodes;
    if (index < params.pool) {
        order[ROWS + index] = select(NONE, rank + 1u, kept);
    }
    if (kept) {
        order[rank + 1u] = index;
    }
    if (id.x < params.nodes && id.x >= alive) {
        order[id.x + 1u] = NONE;
    }
    if (id.x == 0u) {
        order[0] = 0u;
        order[ROWS] = 0u;
    }
}
