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
