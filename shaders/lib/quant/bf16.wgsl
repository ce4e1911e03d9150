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
