import package::lib::place::{PANELS, Scales, WORKGROUP, place_of};
import package::lib::product::product;
import package::lib::tile::{TILE, tile_first_row, tile_value};
import package::lib::step::step;

// y[m][n] = sum over k of W[n][k] x[m][k], or added to what y holds. Geometry as in lib/product.wgsl.
//
// Lineage on lavapipe, 1536 x 576 in 4 bits, processor time of one core of two, M = 1 | 2 | 4 | 8, in microseconds:
//   one row an invocation, activations in a uniform buffer: 297 | - | - | 1837
//   four rows, unrolled by hand over 32 weights: 270 | - | - | 870; compiles for 8 s at M = 8
//   subgroup broadcast of activations, two rows at M = 1, four else, loop over 8 weights: 182 | 217 | 347 | 522
// A load whose address is the same in all lanes is still a gather there (index clamp, eight extracts, eight loads,
// eight inserts), which is what the broadcast saves.
struct MatmulParams {
    rows: u32,         // weight rows: n
    blocks: u32,       // k / 32
    first: u32,        // column of y that weight row 0 writes
    stride: u32,       // columns of y
    add: u32,          // 1: y += product, 0: y = product
    scale: f32,        // of the sums, as weight_scale
    weight_scale: f32, // for f16 families: Scales of lib/place.wgsl
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: MatmulParams;
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [batch][stride]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = place_of(group.x, local);
    let first_row = tile_first_row(group.y, step.rows);
    let sums = product(place, params.blocks, first_row, Scales(params.weight_scale, params.scale));
    if (place.slice == 0u) {
        for (var p = 0u; p < PANELS; p++) {
            let n = (place.panel + p) * 8u + place.row;
            if (n < params.rows) {
                // Rows of the tile past the batch land in rows of y that exist and that nobody reads.
                for (var m = 0u; m < TILE; m++) {
                    let at = (first_row + m) * params.stride + params.first + n;
                    let value = tile_value(sums[p], m);
                    y[at] = select(value, y[at] + value, params.add == 1u);
                }
            }
        }
    }
}
