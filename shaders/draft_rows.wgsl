import package::lib::draft::{
    ALIVE, CHAIN, DraftParams, EDGES, NONE, Node, REFINED, ROWS, Round, WIDTH, block_of
};
import package::lib::gumbel::pcg4d;

// What a step evaluates: the `width` best new nodes, and second passes of the most worthwhile hesitant nodes that the
// step before evaluated.
//
// Geometry: grid (candidates / 64, 2); plane 0 ranks the frontier's candidates, plane 1 the gate's. An invocation finds
// its candidate's rank by counting the better ones, and writes the row of that rank; those past the last candidate
// leave dead rows behind.
// Numerics: comparisons and f32 additions only. u * 64 is exact.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> tables: array<f32>; // edges, gains, lookup
@group(0) @binding(2) var<storage, read> round: Round;
@group(0) @binding(3) var<storage, read> unsure: array<f32>; // [row ids]
@group(0) @binding(4) var<storage, read_write> row_nodes: array<u32>; // [row ids] node, NONE for a dead row
@group(0) @binding(5) var<storage, read_write> nodes: array<Node>; // [pool]
@group(0) @binding(6) var<storage, read_write> rows: array<vec4<u32>>; // [batch] token, position, slot, keys beyond the position
@group(0) @binding(7) var<storage, read_write> slots: array<u32>; // [batch][ROWS] slot of each key from round.length on
@group(0) @binding(8) var<storage, read_write> sources: array<u32>; // [batch] row id whose output is the row's feature

fn slot_at(row_id: u32) -> u32 {
    return params.scratch + row_id - WIDTH;
}

fn write_dead(row: u32) {
    row_nodes[params.step * WIDTH + row] = NONE;
    rows[row] = vec4<u32>(0u, 0u, slot_at(params.step * WIDTH + row), 0u);
    sources[row] = 0u;
}

fn write_row(row: u32, node: u32, second: bool) {
    let own = params.step * WIDTH + row;
    row_nodes[own] = node;
    let depth = nodes[node].depth;
    // Position of the token whose feature the row reads: one before the node's own.
    let position = round.length - 1u + depth;
    rows[row] = vec4<u32>(nodes[node].token, position, slot_at(own), select(0u, 1u, second));
    var at = node;
    var left = depth;
    if (second) {
        slots[row * ROWS + depth] = slot_at(own);
        let first = select(nodes[node].row, nodes[node].source, params.no_recurrence == 1u);
        sources[row] = first;
    } else {
        slots[row * ROWS + depth - 1u] = slot_at(own);
        sources[row] = nodes[node].source;
        at = nodes[node].parent;
        left = depth - 1u;
    }
    while (left > 0u) {
        slots[row * ROWS + left - 1u] = slot_at(nodes[at].row);
        at = nodes[at].parent;
        left -= 1u;
    }
}

fn is_candidate(node: u32) -> bool {
    let flags = nodes[node].flags;
    return (flags & ALIVE) != 0u && ((flags & REFINED) == 0u || params.expand_refined == 1u);
}

// Whether candidate a goes before candidate b.
fn before(a: u32, b: u32) -> bool {
    let chain_a = nodes[a].flags & CHAIN;
    let chain_b = nodes[b].flags & CHAIN;
    if (chain_a != chain_b) {
        return chain_a > chain_b;
    }
    let score_a = nodes[a].score;
    let score_b = nodes[b].score;
    return score_a > score_b || (score_a == score_b && a < b);
}

fn frontier(index: u32) {
    let first = block_of(params.step - 1u, params.width, params.children, params.reconsider, params.refined);
    let count = block_of(params.step, params.width, params.children, params.reconsider, params.refined) - first;
    let own = first + index;
    let exists = index < count && is_candidate(min(own, first + count - 1u));
    var rank = 0u;
    var alive = 0u;
    for (var i = first; i < first + count; i++) {
        if (is_candidate(i)) {
            alive += 1u;
            if (exists && i != own && before(i, own)) {
                rank += 1u;
            }
        }
    }
    if (exists && rank < params.width) {
        write_row(rank, own, false);
        nodes[own].row = params.step * WIDTH + rank;
    }
    if (index < params.width && index >= alive) {
        write_dead(index);
    }
}

// Larger is more worthwhile; -1e30 for a row that is no candidate. The gate never asks for the last step's rows.
fn priority(index: u32) -> f32 {
    let row = (params.step - 1u) * WIDTH + index;
    let node = row_nodes[row];
    if (node == NONE || params.gate == 0u) {
        return -1.0e30;
    }
    if (params.gate == 2u) {
        return f32(pcg4d(vec4<u32>(round.length, params.step, index, 0x5eedu)).x >> 8u) * 5.9604645e-8;
    }
    let u = unsure[row];
    if (!(u >= params.gate_threshold)) {
        return -1.0e30;
    }
    let bin = min(u32(clamp(u * 64.0, 0.0, 63.0)), 63u);
    return nodes[node].score + tables[EDGES + min(nodes[node].depth, 7u) * 64u + bin];
}

fn gate(index: u32) {
    let count = select(params.width, 1u, params.step == 1u);
    var own = -1.0e30;
    if (index < count) {
        own = priority(index);
    }
    let exists = own > -1.0e30;
    var rank = 0u;
    var alive = 0u;
    for (var i = 0u; i < count; i++) {
        let other = priority(i);
        if (other > -1.0e30) {
            alive += 1u;
            if (exists && i != index && (other > own || (other == own && i < index))) {
                rank += 1u;
            }
        }
    }
    if (exists && rank < params.reconsider) {
        write_row(params.width + rank, row_nodes[(params.step - 1u) * WIDTH + index], true);
    }
    if (index < params.reconsider && index >= alive) {
        write_dead(params.width + index);
    }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.y == 0u) {
        frontier(id.x);
    } else if (id.x < WIDTH) {
        gate(id.x);
    }
}
