@if(slices16 || shuffle16) import package::lib::biased::fives_of;
import package::lib::octet::Octet;
import package::lib::weights::weights;

// q8m (Q5_1, Q5_K): unsigned 8-bit q, f32 scale and minimum per 32; w = scale q + minimum.

struct Head {
    quants: u32, // index of the block's first quant word
    scale: f32,
    minimum: f32,
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

fn unsigned_bytes(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(255u);
    return vec4<f32>(vec4<i32>(bytes));
}

fn octet_at(head: Head, c: u32) -> Octet {
    let at = head.quants + c * 2u;
    let d = vec4<f32>(head.scale);
    let m = vec4<f32>(head.minimum);
    return Octet(
        fma(d, unsigned_bytes(weights[at]), m),
        fma(d, unsigned_bytes(weights[at + 1u]), m),
    );
}

// For lib/half.wgsl: w = half_scale w' + half_minimum, where w' = (q - 16) / 16; Q5_1 and Q5_K have five bits.
@if(slices16 || shuffle16) fn half_block(head: Head, weight_scale: f32) -> array<vec4<f16>, 8> {
    let at = head.quants;
    return array<vec4<f16>, 8>(
        fives_of(weights[at]), fives_of(weights[at + 1u]), fives_of(weights[at + 2u]), fives_of(weights[at + 3u]),
        fives_of(weights[at + 4u]), fives_of(weights[at + 5u]), fives_of(weights[at + 6u]), fives_of(weights[at + 7u]),
    );
}
@if(slices16 || shuffle16) fn half_scale(head: Head) -> f32 {
    return 16.0 * head.scale;
}
@if(slices16 || shuffle16) fn half_minimum(head: Head) -> f32 {
    return fma(16.0, head.scale, head.minimum);
}
