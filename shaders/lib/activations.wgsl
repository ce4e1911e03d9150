import package::lib::tile::Acc;

// Activations of a tile: eight adjacent k of each of its rows, as eight vectors over the rows.
//
// x has room for whole tiles; what lies past the last row is finite or not, and never mixes into another row.
@if(broadcast) @group(0) @binding(2) var<storage, read> x: array<f32>; // [rows][columns]
@if(!broadcast && !slices16 && !shuffle16) @group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [rows][columns / 4]
@if(slices16 || shuffle16) @group(0) @binding(2) var<storage, read> x: array<vec4<f16>>; // the same, scaled: lib/half.wgsl

// Each lane loads one k and hands it to the others: one load for eight uses, where a CPU rasteriser would gather the
// same address lane by lane. Needs subgroups of at least eight lanes, and lane = k mod 8.
@if(broadcast && !m8) fn octet_of(v: Acc) -> array<Acc, 8> {
    return array<Acc, 8>(
        subgroupBroadcast(v, 0u), subgroupBroadcast(v, 1u), subgroupBroadcast(v, 2u), subgroupBroadcast(v, 3u),
        subgroupBroadcast(v, 4u), subgroupBroadcast(v, 5u), subgroupBroadcast(v, 6u), subgroupBroadcast(v, 7u),
    );
}
@if(broadcast && m8) fn octet_of(a: vec4<f32>, b: vec4<f32>) -> array<Acc, 8> {
    return array<Acc, 8>(
        Acc(subgroupBroadcast(a, 0u), subgroupBroadcast(b, 0u)),
        Acc(subgroupBroadcast(a, 1u), subgroupBroadcast(b, 1u)),
        Acc(subgroupBroadcast(a, 2u), subgroupBroadcast(b, 2u)),
        Acc(subgroupBroadcast(a, 3u), subgroupBroadcast(b, 3u)),
        Acc(subgroupBroadcast(a, 4u), subgroupBroadcast(b, 4u)),
        Acc(subgroupBroadcast(a, 5u), subgroupBroadcast(b, 5u)),
        Acc(subgroupBroadcast(a, 6u), subgroupBroadcast(b, 6u)),
        Acc(subgroupBroadcast(a, 7u), subgroupBroadcast(b, 7u)),
    );
}
@if(broadcast && (m4 || m8)) fn load4(at: u32, stride: u32) -> vec4<f32> {
    return vec4<f32>(x[at], x[at + stride], x[at + 2u * stride], x[at + 3u * stride]);
}

@if(broadcast && m1) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    return octet_of(x[row * stride + k + lane]);
}
@if(broadcast && m2) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    let at = row * stride + k + lane;
    return octet_of(vec2<f32>(x[at], x[at + stride]));
}
@if(broadcast && m4) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    return octet_of(load4(row * stride + k + lane, stride));
}
@if(broadcast && m8) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    let at = row * stride + k + lane;
    return octet_of(load4(at, stride), load4(at + 4u * stride, stride));
}

@if(!broadcast && !slices16 && !shuffle16 && m1) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    let at = (row * stride + k) / 4u;
    let lo = x[at];
    let hi = x[at + 1u];
    return array<Acc, 8>(lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w);
}
@if(!broadcast && !slices16 && !shuffle16 && m2) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    let at = (row * stride + k) / 4u;
    let lo = transpose(mat2x4<f32>(x[at], x[at + stride / 4u]));
    let hi = transpose(mat2x4<f32>(x[at + 1u], x[at + stride / 4u + 1u]));
    return array<Acc, 8>(lo[0], lo[1], lo[2], lo[3], hi[0], hi[1], hi[2], hi[3]);
}
@if(!broadcast && !slices16 && !shuffle16 && (m4 || m8)) fn columns4(at: u32, stride: u32) -> mat4x4<f32> {
    return transpose(mat4x4<f32>(x[at], x[at + stride], x[at + 2u * stride], x[at + 3u * stride]));
}
@if(!broadcast && !slices16 && !shuffle16 && m4) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    let at = (row * stride + k) / 4u;
    let lo = columns4(at, stride / 4u);
    let hi = columns4(at + 1u, stride / 4u);
    return array<Acc, 8>(lo[0], lo[1], lo[2], lo[3], hi[0], hi[1], hi[2], hi[3]);
}
@if(!broadcast && !slices16 && !shuffle16 && m8) fn tile_columns(row: u32, stride: u32, k: u32, lane: u32) -> array<Acc, 8> {
    let at = (row * stride + k) / 4u;
    let lo0 = columns4(at, stride / 4u);
    let hi0 = columns4(at + 1u, stride / 4u);
    let lo1 = columns4(at + stride, stride / 4u);
    let hi1 = columns4(at + stride + 1u, stride / 4u);
    return array<Acc, 8>(
        Acc(lo0[0], lo1[0]), Acc(lo0[1], lo1[1]), Acc(lo0[2], lo1[2]), Acc(lo0[3], lo1[3]),
        Acc(hi0[0], hi1[0]), Acc(hi0[1], hi1[1]), Acc(hi0[2], hi1[2]), Acc(hi0[3], hi1[3]),
    );
}

// The 32 activations of a block of one row.
@if(slices16 || shuffle16) fn row_block(row: u32, blocks: u32, block: u32) -> array<vec4<f16>, 8> {
    let at = (row * blocks + block) * 8u;
    return array<vec4<f16>, 8>(
        x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u],
    );
}
