@if(slices16 || shuffle16) import package::lib::biased::signed_of;
import package::lib::octet::Octet;
import package::lib::weights::weights;

// q8x16 (Q6_K): signed 8-bit q, f32 scale per 16; w = scale q.

struct Head {
    quants: u32, // index of the block's first quant word
    first: f32,  // scale of weights 0 … 15
    second: f32, // scale of weights 16 … 31
}

fn panel_words(blocks: u32) -> u32 {
    return blocks * 80u;
}

fn head_at(panel: u32, blocks: u32, block: u32, row: u32) -> Head {
    let base = panel * panel_words(blocks);
    let slot = block * 8u + row;
    let scales = base + blocks * 64u + slot * 2u;
    return Head(base + slot * 8u, bitcast<f32>(weights[scales]), bitcast<f32>(weights[scales + 1u]));
}

fn signed_bytes(word: u32) -> vec4<f32> {
    let shifted = vec4<u32>(word << 24u, word << 16u, word << 8u, word);
    return vec4<f32>(bitcast<vec4<i32>>(shifted) >> vec4<u32>(24u));
}

fn octet_at(head: Head, c: u32) -> Octet {
    let at = head.quants + c * 2u;
    let scale = select(head.second, head.first, c < 2u);
    return Octet(scale * signed_bytes(weights[at]), scale * signed_bytes(weights[at + 1u]));
}

// For lib/half.wgsl: w = half_scale w', where w' = q / 128 times the scale relative to the larger of the two, rounded.
@if(slices16 || shuffle16) fn half_block(head: Head, weight_scale: f32) -> array<vec4<f16>, 8> {
    let at = head.quants;
    let larger = max(abs(head.first), abs(head.second));
    // Of two zeros any part is as good.
    let parts = vec2<f16>(vec2<f32>(head.first, head.second) / select(larger, 1.0, larger == 0.0));
    let first = vec4<f16>(parts.x);
    let second = vec4<f16>(parts.y);
    return array<vec4<f16>, 8>(
        first * signed_of(weights[at]), first * signed_of(weights[at + 1u]),
        first * signed_of(weights[at + 2u]), first * signed_of(weights[at + 3u]),
        second * signed_of(weights[at + 4u]), second * signed_of(weights[at + 5u]),
        second * signed_of(weights[at + 6u]), second * signed_of(weights[at + 7u]),
    );
}
@if(slices16 || shuffle16) fn half_scale(head: Head) -> f32 {
    return 128.0 * max(abs(head.first), abs(head.second));
}
