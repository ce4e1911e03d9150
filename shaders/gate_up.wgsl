import package::lib::product::{PANELS, WORKGROUP, place_of, product};
import package::lib::tile::{TILE, tile_first_row, tile_value};
import package::lib::step::step;

// SwiGLU: y[m][n] = silu(G[n] x[m]) (U[n] x[m]), silu(g) = g / (1 + exp(-g)).
//
// G and U are stored as one matrix whose even panels are rows of G and odd panels the same rows of U, so that one
// invocation holds both products. Geometry as in lib/product.wgsl.
// Lineage: one product over [G; U] and a second kernel for silu (a dispatch more a layer); this.
struct GateUpParams {
    rows: u32,   // rows of G, and of U, in this matrix: n
    blocks: u32, // k / 32
    first: u32,  // column of y that row 0 writes
    stride: u32, // columns of y
}

@group(0) @binding(0) var<uniform> params: GateUpParams;
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [batch][stride]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = place_of(group.x, local);
    let first_row = tile_first_row(group.y, step.rows);
    let sums = product(place, params.blocks, first_row);
    if (place.slice == 0u) {
        for (var p = 0u; p < PANELS; p += 2u) {
            let n = (place.panel + p) * 4u + place.row;
            if (n < params.rows) {
                // Rows of the tile past the batch land in rows of y that exist and that nobody reads.
                for (var m = 0u; m < TILE; m++) {
                    let gate = tile_value(sums[p], m);
                    let up = tile_value(sums[p + 1u], m);
                    y[(first_row + m) * params.stride + params.first + n] = gate / (1.0 + exp(-gate)) * up;
                }
            }
        }
    }
}
