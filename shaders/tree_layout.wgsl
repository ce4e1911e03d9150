import package::lib::draft::{DraftParams, LOOKUP, NONE, Node, REFINED, ROWS, Round};

// The verified rows as the target's batch: tokens, positions, slots, ancestors.
//
// Row r goes to slot length + r. A row without a node is computed like a child of the root, and never accepted.
// Geometry: an invocation owns a row, padding included; one workgroup.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> round: Round;
@group(0) @binding(2) var<storage, read> nodes: array<Node>; // [pool]
@group(0) @binding(3) var<storage, read> order: array<u32>; // [ROWS] nodes, then [pool] rows
@group(0) @binding(4) var<storage, read_write> rows: array<vec4<u32>>; // [batch] token, position, slot, keys beyond the position
@group(0) @binding(5) var<storage, read_write> slots: array<u32>; // [batch][ROWS] slot of the ancestor at each depth
@group(0) @binding(6) var<storage, read_write> verified: array<vec4<u32>>; // [batch] token, parent row, origin, node
@group(0) @binding(7) var<storage, read_write> steps: vec4<u32>; // Step of the target's kernels
@group(0) @binding(8) var<storage, read_write> head_step: vec4<u32>; // Step of its head and of sampling

fn origin_of(flags: u32) -> u32 {
    return select(select(1u, 2u, (flags & REFINED) != 0u), 3u, (flags & LOOKUP) != 0u);
}

@compute @workgroup_size(ROWS)
fn main(@builtin(local_invocation_index) row: u32) {
    let length = round.length;
    let own = length + row;
    if (row == 0u) {
        let step = vec4<u32>(params.nodes + 1u, 0u, length, 0u);
        steps = step;
        head_step = step;
        rows[0] = vec4<u32>(round.root, length, length, 0u);
        slots[0] = length;
        verified[0] = vec4<u32>(round.root, NONE, 0u, 0u);
    } else if (row > params.nodes) {
        rows[row] = vec4<u32>(0u, 0u, params.spare_slot, 0u);
        verified[row] = vec4<u32>(0u, NONE, 0u, NONE);
    } else if (order[row] == NONE) {
        rows[row] = vec4<u32>(0u, length, own, 0u);
        slots[row * ROWS] = own;
        verified[row] = vec4<u32>(0u, NONE, 0u, NONE);
    } else {
        let node = order[row];
        let depth = nodes[node].depth;
        rows[row] = vec4<u32>(nodes[node].token, length + depth, own, 0u);
        verified[row] = vec4<u32>(
            nodes[node].token, order[ROWS + nodes[node].parent], origin_of(nodes[node].flags), node,
        );
        var at = node;
        for (var d = depth; d > 0u; d--) {
            slots[row * ROWS + d] = length + order[ROWS + at];
            at = nodes[at].parent;
        }
        slots[row * ROWS] = length;
    }
}
