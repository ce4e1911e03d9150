import package::lib::sampling::params;
import package::lib::step::step;

// windows[r][s] = (id, count): the token s places before the end of row r's own sequence, and how often it occurs in
// the window; the count stands at the token's newest slot and is 0 elsewhere. Slots before the start are (2^32 - 1, 0).
//
// The sequence of row r: the committed tokens below the position of row 0, then the rows from row 0 down to r.
// Geometry: an invocation owns one slot; grid (window / 64, rows).
// Numerics: integers.
// Lineage: 1. counting in sample_prepare cost O(window^2) an invocation; 2. this, once a row.

@group(0) @binding(2) var<storage, read> committed: array<u32>;           // [context] ids by position
@group(0) @binding(3) var<storage, read> rows: array<vec4<u32>>;          // [batch] token, position, slot, …
@group(0) @binding(4) var<storage, read> slots: array<u32>;               // [batch][levels] slot of each ancestor in a tree
@group(0) @binding(5) var<storage, read_write> windows: array<vec2<u32>>; // [rows][window] (id, count)

const NO_TOKEN = 0xffffffffu;

fn token_before(row: u32, back: u32) -> u32 {
    let own = step.source + row;
    let position = rows[own].y;
    if (back > position) {
        return NO_TOKEN;
    }
    let at = position - back;
    let root = rows[step.source].y;
    if (at < root) {
        return committed[at];
    }
    // The slots of a tree are numbered like its rows, from tree_start on; a chain's rows follow each other.
    if (step.tree_start == 0xffffffffu) {
        return rows[step.source + at - root].x;
    }
    return rows[slots[own * params.levels + at - root] - step.tree_start].x;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let slot = id.x;
    let row = id.y;
    if (slot >= params.window || row >= step.rows) {
        return;
    }
    let token = token_before(row, slot);
    var count = 0u;
    if (token != NO_TOKEN) {
        for (var other = 0u; other < params.window; other++) {
            if (token_before(row, other) == token) {
                if (other < slot) {
                    count = 0u;
                    break;
                }
                count += 1u;
            }
        }
    }
    windows[row * params.window + slot] = vec2<u32>(token, count);
}
