import package::lib::octet::Octet;
import package::lib::weights::weights;

// f32: one weight a word, no scales.

struct Head {
    quants: u32, // index of the block's first word
}

fn panel_words(blocks: u32) -> u32 {
    return blocks * 256u;
}

fn head_at(panel: u32, blocks: u32, block: u32, row: u32) -> Head {
    return Head(panel * panel_words(blocks) + (block * 8u + row) * 32u);
}

fn octet_at(head: Head, c: u32) -> Octet {
    let at = head.quants + c * 8u;
    return Octet(
        bitcast<vec4<f32>>(vec4<u32>(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u])),
        bitcast<vec4<f32>>(vec4<u32>(weights[at + 4u], weights[at + 5u], weights[at + 6u], weights[at + 7u])),
    );
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
