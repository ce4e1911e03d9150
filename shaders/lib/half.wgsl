import package::lib::activations::row_block;
import package::lib::place::{PANELS, Place, SLICES, Scales};
import package::lib::tile::{Acc, TILE};
@if(q4) import package::lib::quant::q4::{Head, half_block, half_minimum, half_scale, head_at, panel_words};
@if(q4k) import package::lib::quant::q4k::{Head, half_block, half_minimum, half_scale, head_at, panel_words};
@if(q8) import package::lib::quant::q8::{Head, half_block, half_scale, head_at, panel_words};
@if(q8x16) import package::lib::quant::q8x16::{Head, half_block, half_scale, head_at, panel_words};
@if(q8m) import package::lib::quant::q8m::{Head, half_block, half_minimum, half_scale, head_at, panel_words};
@if(f16) import package::lib::quant::f16::{Head, half_block, half_scale, head_at, panel_words};
@if(bf16) import package::lib::quant::bf16::{Head, half_block, half_scale, head_at, panel_words};
@if(f32) import package::lib::quant::f32::{Head, half_block, half_scale, head_at, panel_words};

// The product of blocks of 32 in f16, summed over the blocks in f32: for GPUs that multiply pairs of f16 at once.
//
// Ranges. The host scales activations by powers of two so that none is beyond 512, whatever the input, and weights that
// are floats so that none is beyond 8 (crates/redraft-model/src/range.rs); others come as numbers of at most 1 with the
// rest in half_scale: q4 as (q - 8) / 8, q8 as q / 128, without rounding. So a lane's sum of eight products stays below
// 2^15, half of what f16 holds, and nothing turns into infinity. What is below 2^-14 a device may flush to zero.
//
// Rounding. A product goes through at most eight roundings of 2^-11, its own and seven sums; lanes, scales, minimums and
// the sum over blocks are f32.
//
// Each row of a tile is computed by the same operations in the same order, so rows do not depend on the batch.
// Lineage: rows of a tile as a vector, eight k in f16, then f32: transposes activations, converts four times as often,
// and one row multiplies no pairs; this. No GPU has measured either. On lavapipe, which widens each f16 to compute:
// see shaders/matmul.wgsl.
alias Block = array<vec4<f16>, 8>; // 32 adjacent k

fn lanes_of(sums: vec4<f16>) -> f32 {
    let lanes = vec4<f32>(sums);
    return (lanes.x + lanes.y) + (lanes.z + lanes.w);
}

fn block_dot(w: Block, x: Block) -> f32 {
    var sums = w[0] * x[0];
    sums = fma(w[1], x[1], sums);
    sums = fma(w[2], x[2], sums);
    sums = fma(w[3], x[3], sums);
    sums = fma(w[4], x[4], sums);
    sums = fma(w[5], x[5], sums);
    sums = fma(w[6], x[6], sums);
    sums = fma(w[7], x[7], sums);
    return lanes_of(sums);
}

// What minimums multiply.
@if(q4 || q4k || q8m) fn block_sum(x: Block) -> f32 {
    return lanes_of(((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])));
}
@if(!q4 && !q4k && !q8m) fn block_sum(x: Block) -> f32 {
    return 0.0;
}
@if(q4 || q4k || q8m) fn add_minimum(head: Head, total: f32, sum: f32) -> f32 {
    return fma(half_minimum(head), total, sum);
}
@if(!q4 && !q4k && !q8m) fn add_minimum(head: Head, total: f32, sum: f32) -> f32 {
    return sum;
}

@if(m1) fn tile_from(sums: array<f32, TILE>, scale: f32) -> Acc {
    return sums[0] * scale;
}
@if(m2) fn tile_from(sums: array<f32, TILE>, scale: f32) -> Acc {
    return vec2<f32>(sums[0], sums[1]) * scale;
}
@if(m4) fn tile_from(sums: array<f32, TILE>, scale: f32) -> Acc {
    return vec4<f32>(sums[0], sums[1], sums[2], sums[3]) * scale;
}
@if(m8) fn tile_from(sums: array<f32, TILE>, scale: f32) -> Acc {
    let lo = vec4<f32>(sums[0], sums[1], sums[2], sums[3]) * scale;
    let hi = vec4<f32>(sums[4], sums[5], sums[6], sums[7]) * scale;
    return Acc(lo, hi);
}

fn sum_blocks(place: Place, blocks: u32, first_row: u32, scales: Scales) -> array<Acc, PANELS> {
    var sums: array<array<f32, TILE>, PANELS>;
    for (var b = place.slice; b < blocks; b += SLICES) {
        var heads: array<Head, PANELS>;
        var w: array<Block, PANELS>;
        for (var p = 0u; p < PANELS; p++) {
            heads[p] = head_at(place.panel + p, blocks, b, place.row);
            w[p] = half_block(heads[p], scales.weights);
        }
        for (var m = 0u; m < TILE; m++) {
            let x = row_block(first_row + m, blocks, b);
            let total = block_sum(x);
            for (var p = 0u; p < PANELS; p++) {
                let sum = fma(half_scale(heads[p]), block_dot(w[p], x), sums[p][m]);
                sums[p][m] = add_minimum(heads[p], total, sum);
            }
        }
    }
    var acc: array<Acc, PANELS>;
    for (var p = 0u; p < PANELS; p++) {
        acc[p] = tile_from(sums[p], scales.sums);
    }
    return acc;
}
