import package::lib::octet::Octet;
import package::lib::weights::weights;

// bf16: two halves a word, no scales; a half is the upper 16 bits of an f32.

struct Head {
    quants: u32, // index of the block's first word
}

fn panel_words(blocks: u32) -> u32 {
    return blocks * 128u;
}

fn head_at(panel: u32, blocks: u32, block: u32, row: u32) -> Head {
    return Head(panel * panel_words(blocks) + (block * 8u + row) * 16u);
}

fn halves(first: u32, second: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(first << 16u, first & 0xffff0000u, second << 16u, second & 0xffff0000u));
}

fn octet_at(head: Head, c: u32) -> Octet {
    let at = head.quants + c * 4u;
    return Octet(halves(weights[at], weights[at + 1u]), halves(weights[at + 2u], weights[at + 3u]));
}

// For lib/half.wgsl: w' = weight_scale w, rounded where it has more bits than f16.
@if(slices16 || shuffle16) fn half_octet(head: Head, c: u32, weight_scale: f32) -> array<vec4<f16>, 2> {
    let octet = octet_at(head, c);
    return array<vec4<f16>, 2>(vec4<f16>(octet.lo * weight_scale), vec4<f16>(octet.hi * weight_scale));
}
@if(slices16 || shuffle16) fn half_block(head: Head, weight_scale: f32) -> array<vec4<f16>, 8> {
    let a = half_octet(head, 0u, weight_scale);
    let b = half_octet(head, 1u, weight_scale);
    let c = half_octet(head, 2u, weight_scale);
    let d = half_octet(head, 3u, weight_scale);
    return array<vec4<f16>, 8>(a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]);
}
@if(slices16 || shuffle16) fn half_scale(head: Head) -> f32 {
    return 1.0;
}
