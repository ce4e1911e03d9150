import package::lib::draft::{ALIVE, CHAIN, NONE, Node, TOP, WIDTH, block_of};
import package::lib::edge::{edge_at, params};

// The children of the nodes that a step evaluated enter the pool: the first `children` of each row's top tokens.
//
// Geometry: an invocation owns a first-pass row; one workgroup.
// Numerics: f32 additions only, so that the CPU twin agrees bit for bit.
@group(0) @binding(2) var<storage, read> row_nodes: array<u32>; // [row ids] node, NONE for a dead row
@group(0) @binding(3) var<storage, read> tops: array<vec2<u32>>; // [row ids][TOP] token, bits of its log-probability
@group(0) @binding(4) var<storage, read_write> nodes: array<Node>; // [pool]

@compute @workgroup_size(WIDTH)
fn main(@builtin(local_invocation_index) local: u32) {
    let rows = select(params.width, 1u, params.step == 0u);
    if (local >= rows) {
        return;
    }
    let row = params.step * WIDTH + local;
    let block =
        block_of(params.step, params.width, params.children, params.reconsider, params.refined) + local * params.children;
    let parent = row_nodes[row];
    if (parent == NONE) {
        for (var j = 0u; j < params.children; j++) {
            nodes[block + j].flags = 0u;
        }
        return;
    }
    let depth = nodes[parent].depth + 1u;
    let score = nodes[parent].score;
    let on_chain = nodes[parent].flags & CHAIN;
    for (var j = 0u; j < params.children; j++) {
        let top = tops[row * TOP + j];
        let edge = edge_at(bitcast<f32>(top.y), j, depth, 0u);
        let flags = select(ALIVE | select(0u, on_chain, j == 0u), 0u, top.x == NONE);
        nodes[block + j] = Node(top.x, parent, depth, score + edge, flags, row, NONE, 0u, 0u);
    }
    nodes[parent].first_child = block;
}
