// h[m] = output of the row that proposed row m, or of its own first pass plus the pass embedding for a second pass.
//
// Geometry: an invocation owns an element; grid (columns / 64, rows).
struct GatherParams {
    columns: u32,
    rows: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> params: GatherParams;
@group(0) @binding(1) var<storage, read> rows: array<vec4<u32>>; // [batch] token, position, slot, 1 for a second pass
@group(0) @binding(2) var<storage, read> sources: array<u32>; // [batch] row id
@group(0) @binding(3) var<storage, read> hidden: array<f32>; // [row ids][columns]
@group(0) @binding(4) var<storage, read> embedding: array<f32>; // [columns] of the second pass
@group(0) @binding(5) var<storage, read_write> h: array<f32>; // [batch][columns]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params.columns && id.y < params.rows) {
        let value = hidden[sources[id.y] * params.columns + id.x];
        h[id.y * params.columns + id.x] = value + select(0.0, embedding[id.x], rows[id.y].w == 1u);
    }
}
