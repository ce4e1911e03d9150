@if(!slices16 && !shuffle16) import package::lib::activations::tile_columns;
@if(slices16 || shuffle16) import package::lib::half::sum_blocks;
import package::lib::octet::Octet;
import package::lib::place::{PANELS, Place, SLICES, Scales};
import package::lib::tile::{Acc, tile_add, tile_fma};
@if(q4 && !slices16 && !shuffle16) import package::lib::quant::q4::{Head, head_at, octet_at, panel_words};
@if(q4k && !slices16 && !shuffle16) import package::lib::quant::q4k::{Head, head_at, octet_at, panel_words};
@if(q8 && !slices16 && !shuffle16) import package::lib::quant::q8::{Head, head_at, octet_at, panel_words};
@if(q8x16 && !slices16 && !shuffle16) import package::lib::quant::q8x16::{Head, head_at, octet_at, panel_words};
@if(q8m && !slices16 && !shuffle16) import package::lib::quant::q8m::{Head, head_at, octet_at, panel_words};
@if(f16 && !slices16 && !shuffle16) import package::lib::quant::f16::{Head, head_at, octet_at, panel_words};
@if(bf16 && !slices16 && !shuffle16) import package::lib::quant::bf16::{Head, head_at, octet_at, panel_words};
@if(f32 && !slices16 && !shuffle16) import package::lib::quant::f32::{Head, head_at, octet_at, panel_words};

// The product of PANELS weight rows (one of each of PANELS adjacent panels) with a tile of activation rows:
// the part that every quantised product shares.
//
// plain, broadcast: an invocation sums its rows alone, k ascending. Both paths do the same operations in the same
//   order; broadcast shares activations between the lanes of a subgroup.
// slices, shuffle: eight invocations sum a row, slice j the blocks j, j + 8, …, k ascending; the slices are added as
//   ((0+1)+(2+3))+((4+5)+(6+7)). Both paths do the same operations in the same order; shuffle needs subgroups of at
//   least eight lanes. For GPUs, where one invocation a row leaves the machine idle.
// slices16, shuffle16: the same geometry and slices, each block of 32 in f16 (lib/half.wgsl), blocks in f32.
@if(slices || slices16) var<workgroup> partial: array<array<Acc, 64>, PANELS>;

// One barrier, then the first invocation of each row adds: fewer barriers than a tree over the invocations, each of
// which a CPU rasteriser compiles into a coroutine.
@if(slices || slices16) fn add_slices(panel: u32, row: u32) -> Acc {
    let first = row * 8u;
    let a = tile_add(partial[panel][first], partial[panel][first + 1u]);
    let b = tile_add(partial[panel][first + 2u], partial[panel][first + 3u]);
    let c = tile_add(partial[panel][first + 4u], partial[panel][first + 5u]);
    let d = tile_add(partial[panel][first + 6u], partial[panel][first + 7u]);
    return tile_add(tile_add(a, b), tile_add(c, d));
}
@if((shuffle || shuffle16) && !m8) fn add_slices(acc: Acc) -> Acc {
    var sum = acc + subgroupShuffleXor(acc, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    return sum + subgroupShuffleXor(sum, 4u);
}
@if((shuffle || shuffle16) && m8) fn add_slices4(acc: vec4<f32>) -> vec4<f32> {
    var sum = acc + subgroupShuffleXor(acc, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    return sum + subgroupShuffleXor(sum, 4u);
}
@if((shuffle || shuffle16) && m8) fn add_slices(acc: Acc) -> Acc {
    return Acc(add_slices4(acc.lo), add_slices4(acc.hi));
}

// A function for each path, so that compilers see uniform control flow around the broadcasts.
@if(broadcast) fn first_block(place: Place) -> u32 {
    return 0u;
}
@if(slices || shuffle) fn first_block(place: Place) -> u32 {
    return place.slice;
}

// Columns 8c … 8c + 7 of a row, k ascending.
fn add_octet(w: Octet, columns: array<Acc, 8>, acc: Acc) -> Acc {
    var sum = acc;
    sum = tile_fma(w.lo.x, columns[0], sum);
    sum = tile_fma(w.lo.y, columns[1], sum);
    sum = tile_fma(w.lo.z, columns[2], sum);
    sum = tile_fma(w.lo.w, columns[3], sum);
    sum = tile_fma(w.hi.x, columns[4], sum);
    sum = tile_fma(w.hi.y, columns[5], sum);
    sum = tile_fma(w.hi.z, columns[6], sum);
    sum = tile_fma(w.hi.w, columns[7], sum);
    return sum;
}

// The panels written out: SwiftShader keeps arrays that a loop indexes in memory, lane by lane, and takes about 1.5 times
// as long with them; and at one row the four octets of a block. With the four panels of an invocation that took a step of
// SmolLM2 there from 0.66 s of processor time to 0.49 (`npm run step` in web/bench). The same operations in the same order
// as below.
@if(plain && m1) fn add_octets(heads: array<Head, 4>, c: u32, first_column: u32, lane: u32, acc: vec4<f32>) -> vec4<f32> {
    let columns = tile_columns(0u, 0u, first_column + c * 8u, lane);
    return vec4<f32>(
        add_octet(octet_at(heads[0], c), columns, acc.x),
        add_octet(octet_at(heads[1], c), columns, acc.y),
        add_octet(octet_at(heads[2], c), columns, acc.z),
        add_octet(octet_at(heads[3], c), columns, acc.w),
    );
}
@if(plain && m1) fn product(place: Place, blocks: u32, first_row: u32, scales: Scales) -> array<Acc, PANELS> {
    var acc: vec4<f32>; // one of each panel
    for (var b = 0u; b < blocks; b++) {
        let heads = array<Head, 4>(
            head_at(place.panel, blocks, b, place.row),
            head_at(place.panel + 1u, blocks, b, place.row),
            head_at(place.panel + 2u, blocks, b, place.row),
            head_at(place.panel + 3u, blocks, b, place.row),
        );
        let first_column = (first_row * blocks + b) * 32u;
        let first = add_octets(heads, 0u, first_column, place.lane, acc);
        let second = add_octets(heads, 1u, first_column, place.lane, first);
        let third = add_octets(heads, 2u, first_column, place.lane, second);
        acc = add_octets(heads, 3u, first_column, place.lane, third);
    }
    return array<Acc, PANELS>(acc.x, acc.y, acc.z, acc.w);
}
@if(plain && !m1) fn product(place: Place, blocks: u32, first_row: u32, scales: Scales) -> array<Acc, PANELS> {
    var acc0: Acc;
    var acc1: Acc;
    var acc2: Acc;
    var acc3: Acc;
    for (var b = 0u; b < blocks; b++) {
        let head0 = head_at(place.panel, blocks, b, place.row);
        let head1 = head_at(place.panel + 1u, blocks, b, place.row);
        let head2 = head_at(place.panel + 2u, blocks, b, place.row);
        let head3 = head_at(place.panel + 3u, blocks, b, place.row);
        for (var c = 0u; c < 4u; c++) {
            let columns = tile_columns(first_row, blocks * 32u, b * 32u + c * 8u, place.lane);
            acc0 = add_octet(octet_at(head0, c), columns, acc0);
            acc1 = add_octet(octet_at(head1, c), columns, acc1);
            acc2 = add_octet(octet_at(head2, c), columns, acc2);
            acc3 = add_octet(octet_at(head3, c), columns, acc3);
        }
    }
    return array<Acc, PANELS>(acc0, acc1, acc2, acc3);
}
@if(!plain && !slices16 && !shuffle16) fn sum_blocks(place: Place, blocks: u32, first_row: u32, scales: Scales) -> array<Acc, PANELS> {
    var acc: array<Acc, PANELS>;
    for (var b = first_block(place); b < blocks; b += SLICES) {
        var heads: array<Head, PANELS>;
        for (var p = 0u; p < PANELS; p++) {
            heads[p] = head_at(place.panel + p, blocks, b, place.row);
        }
        for (var c = 0u; c < 4u; c++) {
            let columns = tile_columns(first_row, blocks * 32u, b * 32u + c * 8u, place.lane);
            for (var p = 0u; p < PANELS; p++) {
                acc[p] = add_octet(octet_at(heads[p], c), columns, acc[p]);
            }
        }
    }
    return acc;
}
@if(!plain) fn product(place: Place, blocks: u32, first_row: u32, scales: Scales) -> array<Acc, PANELS> {
    var acc = sum_blocks(place, blocks, first_row, scales);
    @if(shuffle || shuffle16) {
        for (var p = 0u; p < PANELS; p++) {
            acc[p] = add_slices(acc[p]);
        }
    }
    @if(slices || slices16) {
        for (var p = 0u; p < PANELS; p++) {
            partial[p][place.row * 8u + place.slice] = acc[p];
        }
        workgroupBarrier();
        for (var p = 0u; p < PANELS; p++) {
            acc[p] = add_slices(p, place.row);
        }
    }
    return acc;
}
