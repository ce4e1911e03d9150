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
