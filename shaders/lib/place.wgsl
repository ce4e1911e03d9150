// What one invocation of a product owns.
//
// Owning four panels, an invocation loads activations half as often as with two. With one row that pays where a load is a
// gather, as in SwiftShader, not where it is broadcast.
@if(m1 && !plain) const PANELS = 2u;
@if(!m1 || plain) const PANELS = 4u;

@if(plain || broadcast) const WORKGROUP = 8u;
@if(!plain && !broadcast) const WORKGROUP = 64u;

@if(broadcast) const SLICES = 1u;
@if(!plain && !broadcast) const SLICES = 8u;

struct Place {
    panel: u32, // first of the PANELS panels
    row: u32,   // row in each panel
    slice: u32, // slice of k, 0 where a row has one invocation
    lane: u32,  // k mod 8 that this invocation loads for its neighbours
}

@if(plain || broadcast) fn place_of(group: u32, local: u32) -> Place {
    return Place(group * PANELS, local, 0u, local);
}
@if(!plain && !broadcast) fn place_of(group: u32, local: u32) -> Place {
    return Place(group * PANELS, local / 8u, local % 8u, 0u);
}

// What keeps f16 within its range, powers of two (lib/half.wgsl); of no use to the other families.
struct Scales {
    weights: f32, // weights that are kept as floats are multiplied by it
    sums: f32,    // and sums by this, which undoes it and the scale of the activations
}
