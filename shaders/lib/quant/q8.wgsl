@if(slices16 || shuffle16) import package::lib::biased::signed_of;
import package::lib::octet::Octet;
import package::lib::weights::weights;

// q8 (Q8_0, Q5_0, IQ4_NL): signed 8-bit q, f32 scale per 32; w = scale q.

struct Head {
    quants: u32, // index of the block's first quant word
    scale: f32,
}

fn panel_words(blocks: u32) -> u32 {
    return blocks * 72u;
}

fn head_at(panel: u32, blocks: u32, block: u32, row: u32) -> Head {
    let base = panel * panel_words(blocks);
    let slot = block * 8u + row;
    return Head(base + slot * 8u, bitcast<f32>(weights[base + blocks * 64u + slot]));
}

fn signed_bytes(word: u32) -> vec4<f32> {
    let shifted = vec4<u32>(word << 24u, word << 16u, word << 8u, word);
    return vec4<f32>(bitcast<vec4<i32>>(shifted) >> vec4<u32>(24u));
}

fn octet_at(head: Head, c: u32) -> Octet {
    let at = head.quants + c * 2u;
    return Octet(head.scale * signed_bytes(weights[at]), head.scale * signed_bytes(weights[at + 1u]));
}

// For lib/half.wgsl: w = half_scale w', where w' = q / 128.
@if(slices16 || shuffle16) fn half_block(head: Head, weight_scale: f32) -> array<vec4<f16>, 8> {
    let at = head.quants;
    return array<vec4<f16>, 8>(
        signed_of(weights[at]), signed_of(weights[at + 1u]), signed_of(weights[at + 2u]), signed_of(weights[at + 3u]),
        signed_of(weights[at + 4u]), signed_of(weights[at + 5u]), signed_of(weights[at + 6u]), signed_of(weights[at + 7u]),
    );
}
@if(slices16 || shuffle16) fn half_scale(head: Head) -> f32 {
    return 128.0 * head.scale;
}
