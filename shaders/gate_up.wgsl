import package::lib::place::{PANELS, Scales, WORKGROUP, place_of};
import package::lib::product::product;
import package::lib::tile::{TILE, tile_first_row, tile_value};
import package::lib::step::step;

// SwiGLU: y[m][n] = silu(G[n] x[m]) (U[n] x[m]), silu(g) = g / (1 + exp(-g)).
//
// G and U are stored as one matrix whose even panels are rows of G and odd panels the same rows of U, so that one
// invocation holds both products. Geometry as in lib/product.wgsl.
// Lineage: one product over [G; U] and a second kernel for silu (a dispatch more a layer); this.
struct GateUpParams {
    rows: u32,         // rows of G, and of U, in this matrix: n
    blocks: u32,       // k / 32
    first: u32,        // column of y that row 0 writes
    stride: u32,       // columns of y
    scale: f32,        // of the sums, as weight_scale
    weight_scale: f32, // for f16 families: Scales of lib/place.wgsl
    y_scale: f32,      // for f16 families: what y is multiplied by before it is rounded
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: GateUpParams;
@if(!slices16 && !shuffle16) @group(0) @binding(4) var<storage, read_write> y: array<f32>; // [batch][stride]
@if(slices16 || shuffle16) @group(0) @binding(4) var<storage, read_write> y: array<f16>; // the same, scaled

@if(!slices16 && !shuffle16) fn stored(value: f32) -> f32 {
    return value;
}
@if(slices16 || shuffle16) fn stored(value: f32) -> f16 {
    return f16(value * params.y_scale);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = place_of(group.x, local);
    let first_row = tile_first_row(group.y, step.rows);
    let sums = product(place, params.blocks, first_row, Scales(params.weight_scale, params.scale));
    if (place.slice == 0u) {
        for (var p = 0u; p < PANELS; p += 2u) {
            let n = (place.panel + p) * 4u + place.row;
            if (n < params.rows) {
                // Rows of the tile past the batch land in rows of y that exist and that nobody reads.
                for (var m = 0u; m < TILE; m++) {
                    let gate = tile_value(sums[p], m);
                    let up = tile_value(sums[p + 1u], m);
                    y[(first_row + m) * params.stride + params.first + n] = stored(gate / (1.0 + exp(-gate)) * up);
                }
            }
        }
    }
}
