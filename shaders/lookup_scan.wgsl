import package::lib::draft::Round;

// matches = for each of 64 interleaved parts of the sequence, the longest earlier occurrence of its own end: (length, end).
//
// Of equal lengths the latest wins: it has the most in common with what comes next.
// Geometry: an invocation owns every 64th end; one workgroup.
// Numerics: integers.
@group(0) @binding(0) var<storage, read> round: Round;
@group(0) @binding(1) var<storage, read> ids: array<u32>; // [context] tokens by position, the root included
@group(0) @binding(2) var<storage, read_write> matches: array<vec2<u32>>; // [64] length, last position of the match

const LONGEST = 16u;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) local: u32) {
    let last = round.length;
    var best = vec2<u32>(0u, 0u);
    for (var t = local; t < last; t += 64u) {
        var length = 0u;
        while (length < LONGEST && length <= t && ids[t - length] == ids[last - length]) {
            length += 1u;
        }
        if (length >= best.x) {
            best = vec2<u32>(length, t);
        }
    }
    matches[local] = best;
}
