import package::lib::draft::{NONE, Round};

// Follows the target's own tokens from the root down the verified tree, as far as they were drafted, and emits them.
//
// The target's token at a row is what plain decoding would emit there, so the output does not depend on the tree. Ends at
// an end-of-sequence token, at the limit, and at a row whose logits are not finite. A token that was drafted is reported as
// drafted also where the answer ends with it.
// Geometry: one invocation; at most depth + 1 rows are visited, each looks for its child among the rows behind it.
struct AcceptParams {
    rows: u32,  // verified rows
    ends: u32,  // number of end-of-sequence tokens
    pad0: u32,
    pad1: u32,
    end_tokens: array<vec4<u32>, 4>,
}

@group(0) @binding(0) var<uniform> params: AcceptParams;
@group(0) @binding(1) var<storage, read> verified: array<vec4<u32>>; // [batch] token, parent row, origin, node
@group(0) @binding(2) var<storage, read> drawn: array<u32>; // [batch] the target's own token
@group(0) @binding(3) var<storage, read> maxima: array<vec2<u32>>; // [batch] (key of the greatest logit, bound)
@group(0) @binding(4) var<storage, read> counts: array<u32>; // reconsidered, refined, duplicates, looked up, faults
@group(0) @binding(5) var<storage, read_write> round: Round;
@group(0) @binding(6) var<storage, read_write> ids: array<u32>; // [context] tokens by position

// Keys of finite floats, see lib/radix.wgsl.
const LEAST_FINITE = 0x00800000u;
const GREATEST_FINITE = 0xff7fffffu;

fn is_end(token: u32) -> bool {
    for (var i = 0u; i < params.ends; i++) {
        if (params.end_tokens[i / 4u][i % 4u] == token) {
            return true;
        }
    }
    return false;
}

fn child_of(row: u32, token: u32) -> u32 {
    for (var i = row + 1u; i < params.rows; i++) {
        if (verified[i].y == row && verified[i].x == token) {
            return i;
        }
    }
    return NONE;
}

@compute @workgroup_size(1)
fn main() {
    let start = round.length;
    var row = 0u;
    var emitted = 0u;
    var stop = 0u;
    var greatest = 0u;
    var drafted = 0u;
    for (var i = 1u; i < params.rows; i++) {
        drafted += select(0u, 1u, verified[i].y != NONE);
    }
    loop {
        let key = maxima[row].x;
        if (key < LEAST_FINITE || key > GREATEST_FINITE) {
            stop = 3u;
            greatest = key;
            break;
        }
        let token = drawn[row];
        let child = child_of(row, token);
        var origin = 0u;
        if (child != NONE) {
            origin = verified[child].z;
        }
        round.path[emitted] = row;
        round.tokens[emitted] = token;
        round.origins[emitted] = origin;
        emitted += 1u;
        ids[start + emitted] = token;
        if (is_end(token)) {
            stop = 1u;
            break;
        }
        if (emitted >= round.limit) {
            stop = 2u;
            break;
        }
        if (child == NONE || emitted == 17u) {
            break;
        }
        row = child;
    }
    round.start = start;
    round.length = start + emitted;
    round.root = ids[start + emitted];
    round.limit -= min(emitted, round.limit);
    round.stop = stop;
    round.emitted = emitted;
    round.greatest = greatest;
    round.drafted = drafted;
    round.reconsidered = counts[0];
    round.refined = counts[1];
    round.duplicates = counts[2];
    round.looked_up = counts[3];
    round.faults = counts[4];
}
