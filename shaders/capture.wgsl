import package::lib::step::step;

// Copies the residual stream of all rows, as it enters a layer, for whoever reads features of the target.
struct CaptureParams {
    columns: u32, // hidden
    first: u32,   // element of `captures` where this layer's rows begin
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> params: CaptureParams;
@group(0) @binding(2) var<storage, read> h: array<f32>; // [batch][columns]
@group(0) @binding(3) var<storage, read_write> captures: array<f32>; // [layers][most rows][columns]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params.columns && id.y < step.rows) {
        let at = id.y * params.columns + id.x;
        captures[params.first + at] = h[at];
    }
}
