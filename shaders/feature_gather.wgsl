import package::lib::draft::Round;

// features[first + j] = the captured residual streams of accepted row j, one after the other: what the drafter reads.
//
// Geometry: an invocation owns an element of a capture; grid (columns / 64, rows, captures).
struct FeatureParams {
    columns: u32, // of a capture
    layers: u32,  // captures
    rows: u32,    // rows of this dispatch
    first: u32,   // row of `features` that row 0 goes to
    chain: u32,   // 1: row j of the batch is row j, 0: it is row path[j]
    stride: u32,  // rows between captures
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> params: FeatureParams;
@group(0) @binding(1) var<storage, read> round: Round;
@group(0) @binding(2) var<storage, read> captures: array<f32>; // [captures][stride][columns]
@group(0) @binding(3) var<storage, read_write> features: array<f32>; // [rows][captures][columns]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.columns || id.y >= params.rows) {
        return;
    }
    var row = id.y;
    if (params.chain == 0u) {
        // Rows past the last accepted one repeat it: finite, and read by nobody.
        row = round.path[min(id.y, max(round.emitted, 1u) - 1u)];
    }
    let from_capture = captures[(id.z * params.stride + row) * params.columns + id.x];
    features[((params.first + id.y) * params.layers + id.z) * params.columns + id.x] = from_capture;
}
