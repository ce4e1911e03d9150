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
