import package::lib::draft::{ALIVE, DraftParams, EDGES, GAINS, LOOKUP, NONE, Node, Round};

// What followed the longest earlier occurrence of the sequence's end enters the pool as a chain from the root. Tokens that
// are children already keep the larger of their two scores.
//
// Geometry: one invocation; `depth` levels, at most `children + refined + 1` comparisons each.
// Numerics: f32 additions only.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> tables: array<f32>; // edges, gains, lookup [length]
@group(0) @binding(2) var<storage, read> round: Round;
@group(0) @binding(3) var<storage, read> ids: array<u32>; // [context] tokens by position, the root included
@group(0) @binding(4) var<storage, read> matches: array<vec2<u32>>; // [64] length, last position of the match
@group(0) @binding(5) var<storage, read_write> nodes: array<Node>; // [pool]
@group(0) @binding(6) var<storage, read_write> counts: array<u32>; // reconsidered, refined, duplicates, looked up

fn child_in(block: u32, count: u32, token: u32) -> u32 {
    if (block != 0u) {
        for (var i = block; i < block + count; i++) {
            if ((nodes[i].flags & ALIVE) != 0u && nodes[i].token == token) {
                return i;
            }
        }
    }
    return NONE;
}

fn child_of(parent: u32, token: u32) -> u32 {
    // A node of the lookup block has no other child than the one that is being added.
    if ((nodes[parent].flags & LOOKUP) != 0u) {
        return NONE;
    }
    let first = child_in(nodes[parent].first_child, params.children, token);
    let refined = child_in(nodes[parent].refined_child, params.refined, token);
    return select(first, refined, first == NONE);
}

@compute @workgroup_size(1)
fn main() {
    var best = vec2<u32>(0u, 0u);
    for (var i = 0u; i < 64u; i++) {
        let other = matches[i];
        if (other.x > best.x || (other.x == best.x && other.y > best.y)) {
            best = other;
        }
    }
    let found = best.x >= params.min_match;
    let period = max(round.length - best.y, 1u);
    let edge = tables[EDGES + GAINS + min(best.x, 16u)];
    var parent = 0u;
    for (var d = 0u; d < params.depth; d++) {
        let own = params.lookup_block + d;
        if (!found) {
            nodes[own].flags = 0u;
            continue;
        }
        let token = ids[best.y + 1u + d % period];
        let score = nodes[parent].score + edge;
        let child = child_of(parent, token);
        if (child != NONE) {
            nodes[child].score = max(nodes[child].score, score);
            nodes[own].flags = 0u;
            parent = child;
        } else {
            nodes[own] = Node(token, parent, d + 1u, score, ALIVE | LOOKUP, NONE, NONE, 0u, 0u);
            counts[3] += 1u;
            parent = own;
        }
    }
}
