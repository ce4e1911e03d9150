// A tile: the batch rows that one invocation multiplies by each weight it unpacks, as one vector.
//
// Every row of a tile is computed by the same operations in the same order as a tile of one row, so results do not
// depend on the tile that a row lands in.
@if(m1) const TILE = 1u;
@if(m2) const TILE = 2u;
@if(m4) const TILE = 4u;
@if(m8) const TILE = 8u;

@if(m1) alias Acc = f32;
@if(m2) alias Acc = vec2<f32>;
@if(m4) alias Acc = vec4<f32>;
@if(m8) struct Acc {
    lo: vec4<f32>, // rows 0 … 3
    hi: vec4<f32>, // rows 4 … 7
}

@if(m1) fn tile_value(acc: Acc, row: u32) -> f32 {
    return acc;
}
@if(m2 || m4) fn tile_value(acc: Acc, row: u32) -> f32 {
    return acc[row];
}
@if(m8) fn tile_value(acc: Acc, row: u32) -> f32 {
    return select(acc.hi[row & 3u], acc.lo[row & 3u], row < 4u);
}

// acc + w x, for each row.
@if(!m8) fn tile_fma(w: f32, x: Acc, acc: Acc) -> Acc {
    return fma(Acc(w), x, acc);
}
@if(m8) fn tile_fma(w: f32, x: Acc, acc: Acc) -> Acc {
    let splat = vec4<f32>(w);
    return Acc(fma(splat, x.lo, acc.lo), fma(splat, x.hi, acc.hi));
}

@if(!m8) fn tile_add(a: Acc, b: Acc) -> Acc {
    return a + b;
}
@if(m8) fn tile_add(a: Acc, b: Acc) -> Acc {
    return Acc(a.lo + b.lo, a.hi + b.hi);
}

// Batches of more than four rows are whole tiles of eight, the last one padded; smaller ones are one tile.
fn tile_first_row(index: u32, rows: u32) -> u32 {
    return index * TILE;
}
