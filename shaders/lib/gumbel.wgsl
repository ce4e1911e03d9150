import package::lib::sample_math::{ln, ln_1p_core};

// Standard Gumbel noise keyed by (seed, position, token id): v uniform in (0, 1), E = -ln(1 - v), G = -ln E.
fn gumbel(seed_lo: u32, seed_hi: u32, position: u32, id: u32) -> f32 {
    return -ln(exponential(pcg4d(vec4<u32>(seed_lo, seed_hi, position, id)).w));
}

// The winning tail is small v: the series in v below a quarter, above it 1 - v exactly, from the complement.
fn exponential(h: u32) -> f32 {
    if (h < 0x40000000u) {
        return -ln_1p_core(-unit_interval(h));
    }
    return -ln(unit_interval(~h));
}

// (h + 1/2) / 2^32 cut to 24 leading bits, in integers: WGSL leaves the rounding of large integers to the device.
fn unit_interval(h: u32) -> f32 {
    if (h == 0u) {
        return bitcast<f32>(0x2f000000u);
    }
    let zeros = countLeadingZeros(h);
    let half = select(0u, (1u << zeros) >> 1u, zeros > 0u);
    let mantissa = ((h << zeros) | half) >> 8u;
    return bitcast<f32>(((126u - zeros) << 23u) | (mantissa & 0x007fffffu));
}

// The PCG-4D hash of Jarzynski and Olano (2020).
fn pcg4d(input: vec4<u32>) -> vec4<u32> {
    var v = input * 1664525u + 1013904223u;
    v = pcg4d_cross(v);
    v = v ^ (v >> vec4<u32>(16u));
    return pcg4d_cross(v);
}

fn pcg4d_cross(input: vec4<u32>) -> vec4<u32> {
    var v = input;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}
