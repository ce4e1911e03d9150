import package::lib::step::step;

// hidden[first + m] = output of row source + m, kept for the rows that read it as their feature.
//
// Geometry: an invocation owns an element; grid (columns / 64, rows of the head).
struct StoreParams {
    columns: u32,
    first: u32,  // row id of row 0
    normed: u32, // 1: h is the normalised output, whose row 0 is row `source` already
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: StoreParams;
@group(0) @binding(2) var<storage, read> h: array<f32>; // [batch][columns]
@group(0) @binding(3) var<storage, read_write> hidden: array<f32>; // [row ids][columns]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params.columns && id.y < step.rows) {
        let row = id.y + select(step.source, 0u, params.normed == 1u);
        hidden[(params.first + id.y) * params.columns + id.x] = h[row * params.columns + id.x];
    }
}
