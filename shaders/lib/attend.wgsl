import package::lib::step::step;

// What the attention kernels share: parameters, rows, and where a position's key and value are.
//
// A row attends to keys 0 … last in that order: those of positions 0 … p for a row at position p. Keys before
// step.tree_start are in the slot of their own number; later ones belong to the row's own ancestors, whose slots stand
// in `slots`. A second pass of a drafter sees its own first pass as well: one key more than its position tells.
struct AttentionParams {
    heads: u32,
    group: u32,    // query heads of a key head
    half: u32,     // head size / 2
    kv_pairs: u32, // key heads * half
    stride: u32,   // columns of the scores
    depth: u32,    // columns of the slot table
    scale: f32,    // 1 / sqrt(head size)
    y_scale: f32,  // y16: a power of two that y is multiplied by before it is rounded
}

@group(0) @binding(0) var<uniform> params: AttentionParams;
@group(0) @binding(2) var<storage, read> rows: array<vec4<u32>>; // [batch] token, position, slot, keys beyond the position
@group(0) @binding(3) var<storage, read> slots: array<u32>; // [batch][depth] slot of the ancestor at tree_start + d

fn last_of(row: u32) -> u32 {
    return rows[row].y + rows[row].w;
}

fn slot_of(row: u32, t: u32) -> u32 {
    if (t < step.tree_start) {
        return t;
    }
    return slots[row * params.depth + t - step.tree_start];
}
