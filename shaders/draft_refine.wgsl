import package::lib::draft::{ALIVE, NONE, Node, REFINED, TOP, WIDTH, block_of};
import package::lib::edge::{edge_at, params};

// The candidates of second passes enter the pool: a token that is a child already keeps the larger of its two scores,
// another one becomes a child more, flagged refined. Nothing is removed or lowered.
//
// In the top-k control the candidates are the first pass's own next ones, so that breadth can be told from a second
// thought.
// Geometry: an invocation owns a second-pass row; one workgroup. Behind draft_grow, which reads scores that this raises.
// Numerics: f32 additions only.
@group(0) @binding(2) var<storage, read> row_nodes: array<u32>; // [row ids] node, NONE for a dead row
@group(0) @binding(3) var<storage, read> tops: array<vec2<u32>>; // [row ids][TOP] token, bits of its log-probability
@group(0) @binding(4) var<storage, read_write> nodes: array<Node>; // [pool]
@group(0) @binding(5) var<storage, read_write> counts: array<atomic<u32>>; // reconsidered, refined, duplicates, looked up

@compute @workgroup_size(WIDTH)
fn main(@builtin(local_invocation_index) local: u32) {
    if (local >= params.reconsider) {
        return;
    }
    let row = params.step * WIDTH + params.width + local;
    let block = block_of(params.step, params.width, params.children, params.reconsider, params.refined)
        + params.width * params.children + local * params.refined;
    let parent = row_nodes[row];
    if (parent == NONE) {
        for (var e = 0u; e < params.refined; e++) {
            nodes[block + e].flags = 0u;
        }
        return;
    }
    atomicAdd(&counts[0], 1u);
    let depth = nodes[parent].depth + 1u;
    let score = nodes[parent].score;
    let first = nodes[parent].first_child;
    let control = params.control == 1u;
    let source = select(row, nodes[parent].row, control);
    for (var e = 0u; e < params.refined; e++) {
        let rank = select(e, params.children + e, control);
        let top = tops[source * TOP + rank];
        let value = score + edge_at(bitcast<f32>(top.y), rank, depth, select(1u, 0u, control));
        var flags = select(ALIVE | REFINED, 0u, top.x == NONE);
        for (var j = 0u; j < params.children; j++) {
            let child = first + j;
            if (flags != 0u && (nodes[child].flags & ALIVE) != 0u && nodes[child].token == top.x) {
                nodes[child].score = max(nodes[child].score, value);
                atomicAdd(&counts[2], 1u);
                flags = 0u;
            }
        }
        if (flags != 0u) {
            atomicAdd(&counts[1], 1u);
        }
        nodes[block + e] = Node(top.x, parent, depth, value, flags, source, NONE, 0u, 0u);
    }
    nodes[parent].refined_child = block;
}
