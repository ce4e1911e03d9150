@if(slices16 || shuffle16) import package::lib::biased::nibbles_of;
import package::lib::octet::Octet;
import package::lib::weights::weights;

// q4k (Q4_K): 4-bit q, 6-bit scale s and minimum m per 32, f16 d and dmin per 256; w = (d s) q - (dmin m).

struct Head {
    quants: u32, // index of the block's first quant word
    scale: f32,
    minimum: f32,
}

fn panel_words(blocks: u32) -> u32 {
    return blocks * 41u;
}

fn head_at(panel: u32, blocks: u32, block: u32, row: u32) -> Head {
    let base = panel * panel_words(blocks);
    let slot = block * 8u + row;
    let scales = base + blocks * 32u;
    let small = weights[scales + slot];
    let large = unpack2x16float(weights[scales + blocks * 8u + (block / 8u) * 8u + row]);
    return Head(
        base + slot * 4u,
        large.x * f32(i32(small & 63u)),
        -(large.y * f32(i32((small >> 8u) & 63u))),
    );
}

fn octet_at(head: Head, c: u32) -> Octet {
    let word = weights[head.quants + c];
    let lo = vec4<u32>(word, word >> 4u, word >> 8u, word >> 12u) & vec4<u32>(15u);
    let hi = vec4<u32>(word >> 16u, word >> 20u, word >> 24u, word >> 28u) & vec4<u32>(15u);
    let d = vec4<f32>(head.scale);
    let m = vec4<f32>(head.minimum);
    return Octet(fma(d, vec4<f32>(vec4<i32>(lo)), m), fma(d, vec4<f32>(vec4<i32>(hi)), m));
}

// For lib/half.wgsl: w = half_scale w' + half_minimum, where w' = (q - 8) / 8.
@if(slices16 || shuffle16) fn half_block(head: Head, weight_scale: f32) -> array<vec4<f16>, 8> {
    let a = nibbles_of(weights[head.quants]);
    let b = nibbles_of(weights[head.quants + 1u]);
    let c = nibbles_of(weights[head.quants + 2u]);
    let d = nibbles_of(weights[head.quants + 3u]);
    return array<vec4<f16>, 8>(a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]);
}
@if(slices16 || shuffle16) fn half_scale(head: Head) -> f32 {
    return 8.0 * head.scale;
}
@if(slices16 || shuffle16) fn half_minimum(head: Head) -> f32 {
    return fma(8.0, head.scale, head.minimum);
}
