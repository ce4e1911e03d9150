// t[m] = 0 for rows that are no second pass: what the adapter adds is theirs alone.
//
// Geometry: an invocation owns an element; grid (columns / 64, rows).
struct SecondPassParams {
    columns: u32, // rank of the adapter
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> params: SecondPassParams;
@group(0) @binding(1) var<storage, read> rows: array<vec4<u32>>; // [batch] token, position, slot, 1 for a second pass
@group(0) @binding(2) var<storage, read_write> t: array<f32>; // [batch][columns]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params.columns && rows[id.y].w != 1u) {
        t[id.y * params.columns + id.x] = 0.0;
    }
}
