import package::lib::draft::{DraftParams, NONE, Node, TOP, WIDTH};

// tops and unsure of a step from a table by position, in place of a drafter: for tests of everything else.
//
// table[position][pass] holds what a first and what a second pass propose for that position, whatever came before.
// Geometry: an invocation owns a row of the step.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> row_nodes: array<u32>; // [row ids] node
@group(0) @binding(2) var<storage, read> nodes: array<Node>; // [pool]
@group(0) @binding(3) var<storage, read> lengths: array<u32>; // round.length, first of the round's words
@group(0) @binding(4) var<storage, read> table: array<vec2<u32>>; // [positions][2][TOP] token, bits of its log-probability
@group(0) @binding(5) var<storage, read> doubts: array<f32>; // [positions]
@group(0) @binding(6) var<storage, read_write> tops: array<vec2<u32>>; // [row ids][TOP] token, bits of its log-probability
@group(0) @binding(7) var<storage, read_write> unsure: array<f32>; // [row ids]

@compute @workgroup_size(WIDTH)
fn main(@builtin(local_invocation_index) local: u32) {
    let row = params.step * WIDTH + local;
    let node = row_nodes[row];
    if (node == NONE || local >= select(params.width + params.reconsider, 1u, params.step == 0u)) {
        return;
    }
    let position = lengths[0] + nodes[node].depth + 1u;
    let second = select(0u, 1u, params.step > 0u && local >= params.width);
    for (var j = 0u; j < TOP; j++) {
        tops[row * TOP + j] = table[(position * 2u + second) * TOP + j];
    }
    unsure[row] = doubts[position];
}
