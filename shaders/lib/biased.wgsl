// Small integers as f16 without a conversion: set in the low bits of a power of two whose last place is their unit, they
// are that power plus the integer times the unit. What is taken off again is exact too.
//
// WGSL can bitcast to f16, naga cannot yet; the detour through unpack2x16float is one that compilers fold.
fn pair_of(bits: u32) -> vec2<f16> {
    return vec2<f16>(unpack2x16float(bits));
}

// (q - 8) / 8 of the eight nibbles of a word, the lowest first.
fn nibbles_of(word: u32) -> array<vec4<f16>, 2> {
    let a = pair_of((word & 0x000f000fu) | 0x58005800u); // 128 + q / 8
    let b = pair_of(((word >> 4u) & 0x000f000fu) | 0x58005800u);
    let c = pair_of(((word >> 8u) & 0x000f000fu) | 0x58005800u);
    let d = pair_of(((word >> 12u) & 0x000f000fu) | 0x58005800u);
    let centre = vec4<f16>(129.0h);
    return array<vec4<f16>, 2>(vec4<f16>(a.x, b.x, c.x, d.x) - centre, vec4<f16>(a.y, b.y, c.y, d.y) - centre);
}

// q / 128 of the four signed bytes of a word.
fn signed_of(word: u32) -> vec4<f16> {
    let raised = word ^ 0x80808080u; // q + 128
    let a = pair_of((raised & 0x00ff00ffu) | 0x48004800u); // 8 + (q + 128) / 128
    let b = pair_of(((raised >> 8u) & 0x00ff00ffu) | 0x48004800u);
    return vec4<f16>(a.x, b.x, a.y, b.y) - vec4<f16>(9.0h);
}

// (q - 16) / 16 of the four unsigned bytes of a word, all below 32.
fn fives_of(word: u32) -> vec4<f16> {
    let a = pair_of((word & 0x00ff00ffu) | 0x54005400u); // 64 + q / 16
    let b = pair_of(((word >> 8u) & 0x00ff00ffu) | 0x54005400u);
    return vec4<f16>(a.x, b.x, a.y, b.y) - vec4<f16>(65.0h);
}
