import package::lib::sampling::{cut_keeps, params};
import package::lib::step::step;
import package::lib::radix::{at_most64, descend, key_at, maxima, pass_number, sub64, weight_of};

// cuts[r] = (key, id): tokens above the key stay, and those at the key up to the id.
//
// The threshold of a finished search. Ties at it weigh the same; as many stay, lowest ids first, as the target needs.
// Geometry: an invocation owns a row; grid (1, rows). params.level is 3.
// Numerics: integers.
// Lineage: 1. tie counts by chunk and a prefix sum; 2. this: usually all ties stay and nothing is walked; else the row
// is walked up to the last tie that stays.

@group(0) @binding(4) var<storage, read> searches: array<vec4<u32>>;   // [rows][8] (prefix, rest, 0) entering each pass
@group(0) @binding(6) var<storage, read_write> cuts: array<vec2<u32>>; // [rows] (key, id)

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.y;
    if (row >= step.rows) {
        return;
    }
    let pass_index = pass_number();
    let search = descend(row, pass_index, searches[row * 8u + pass_index]);
    let before = cuts[row];
    let key = search.prefix;
    let weight = vec2<u32>(weight_of(key, maxima[row].x), 0u);
    // Without the last tie the rest is not reached: all that stayed until now stay on, and nothing is walked.
    let all_stay = !at_most64(weight, sub64(search.sum, search.rest));
    var last = select(0xffffffffu, before.y, key == before.x);
    var rest = search.rest;
    var id = select(0u, params.vocab, all_stay);
    while (id < params.vocab) {
        if (key_at(row, id) == key && cut_keeps(before, key, id)) {
            if (at_most64(rest, weight)) {
                last = id;
                break;
            }
            rest = sub64(rest, weight);
        }
        id += 1u;
    }
    cuts[row] = vec2<u32>(key, last);
}
