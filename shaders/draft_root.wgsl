import package::lib::draft::{ALIVE, CHAIN, DraftParams, NONE, Node, ROOT_INPUT, Round, WIDTH};

// The rows of the extend pass, and the root of a new tree.
//
// Row j has the feature of the j-th accepted row and the token behind it (EAGLE's shift by one); its key and value stay.
// Rows past the last accepted one write to the spare slot behind the steps' rows.
// Geometry: an invocation owns a row of the batch.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> round: Round;
@group(0) @binding(2) var<storage, read_write> rows: array<vec4<u32>>; // [batch] token, position, slot, keys beyond the position
@group(0) @binding(3) var<storage, read_write> nodes: array<Node>; // [pool]
@group(0) @binding(4) var<storage, read_write> row_nodes: array<u32>; // [row ids] node
@group(0) @binding(5) var<storage, read_write> counts: array<u32>; // reconsidered, refined, duplicates, looked up, faults

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) local: u32) {
    if (local < 24u) {
        if (local < round.emitted) {
            let position = round.start + local;
            rows[local] = vec4<u32>(round.tokens[min(local, 16u)], position, position, 0u);
        } else {
            rows[local] = vec4<u32>(0u, 0u, params.scratch + 240u, 0u);
        }
    }
    if (local < 5u) {
        counts[local] = 0u;
    }
    if (local == 0u) {
        nodes[0] = Node(round.root, NONE, 0u, 0.0, ALIVE | CHAIN, ROOT_INPUT, 0u, 0u, 0u);
    }
    // The extend pass speaks of the root alone: its other row ids are nobody's.
    if (local < WIDTH) {
        row_nodes[local] = select(NONE, 0u, local == 0u);
    }
}
