import package::lib::octet::Octet;
import package::lib::weights::weights;

// f16: two halves a word, no scales. Unpacked by core WGSL, so no adapter feature is needed.

struct Head {
    quants: u32, // index of the block's first word
}

fn panel_words(blocks: u32) -> u32 {
    return blocks * 128u;
}

fn head_at(panel: u32, blocks: u32, block: u32, row: u32) -> Head {
    return Head(panel * panel_words(blocks) + (block * 8u + row) * 16u);
}

fn octet_at(head: Head, c: u32) -> Octet {
    let at = head.quants + c * 4u;
    return Octet(
        vec4<f32>(unpack2x16float(weights[at]), unpack2x16float(weights[at + 1u])),
        vec4<f32>(unpack2x16float(weights[at + 2u]), unpack2x16float(weights[at + 3u])),
    );
}
