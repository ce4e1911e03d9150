import package::lib::step::step;
@if(q4) import package::lib::quant::q4::{head_at, octet_at};
@if(q4k) import package::lib::quant::q4k::{head_at, octet_at};
@if(q8) import package::lib::quant::q8::{head_at, octet_at};
@if(q8x16) import package::lib::quant::q8x16::{head_at, octet_at};
@if(q8m) import package::lib::quant::q8m::{head_at, octet_at};
@if(f16) import package::lib::quant::f16::{head_at, octet_at};
@if(bf16) import package::lib::quant::bf16::{head_at, octet_at};
@if(f32) import package::lib::quant::f32::{head_at, octet_at};

// h[m] = E[token of row m]. One invocation writes eight adjacent elements.
//
// A table larger than a binding comes in parts; each dispatch writes the rows whose token is in its part.
struct EmbedParams {
    blocks: u32, // hidden / 32
    first: u32,  // first token of this part
    count: u32,  // tokens of this part
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: EmbedParams;
@group(0) @binding(2) var<storage, read> rows: array<vec4<u32>>; // [batch] token, position, slot, 0
@group(0) @binding(4) var<storage, read_write> h: array<f32>; // [batch][hidden]

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let octet = id.x;
    let row = id.y;
    let token = rows[row].x - params.first;
    if (octet >= params.blocks * 4u || row >= step.rows || token >= params.count) {
        return;
    }
    let head = head_at(token / 8u, params.blocks, octet / 4u, token % 8u);
    let w = octet_at(head, octet % 4u);
    let at = row * params.blocks * 32u + octet * 8u;
    for (var i = 0u; i < 4u; i++) {
        h[at + i] = w.lo[i];
        h[at + 4u + i] = w.hi[i];
    }
}
