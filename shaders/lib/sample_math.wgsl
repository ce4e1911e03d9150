// exp and ln from explicit multiply-adds, operation by operation as redraft_decode::sampling has them: WGSL leaves the
// precision of its own to the driver. Every product that feeds a sum is an fma, so nothing is left to contract. A device
// may round the product of an fma (lavapipe does) or not; the CPU twin is told which (Fma).

const LOG2_E = 1.442695f;
const LN2_HI = 0.69314575f; // 15 bits: its product with a small integer is exact
const LN2_LO = 1.4286068e-6f;

// exp(0) in fixed point.
const WEIGHT_ONE = 0x40000000u;

// exp(x) 2^30 rounded to an integer, for x <= 0.
fn exp_weight(x: f32) -> u32 {
    let clamped = max(x, -22.0f);
    let k = floor(fma(clamped, LOG2_E, 0.5f));
    let r = fma(k, -LN2_LO, fma(k, -LN2_HI, clamped));
    var p = 1.9790321e-4f;
    p = fma(r, p, 1.394468e-3f);
    p = fma(r, p, 8.333497e-3f);
    p = fma(r, p, 0.041666295f);
    p = fma(r, p, 0.16666666f);
    p = fma(r, p, 0.5f);
    let e = 1.0f + fma(r * r, p, r);
    let scaled = e * bitcast<f32>(u32(i32(k) + 157) << 23u);
    return u32(select(scaled, scaled + 0.5f, scaled < 4194304.0f));
}

// ln x for a normal positive x.
fn ln(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let e = bitcast<i32>(bits - 0x3f3504f3u) >> 23u;
    let m = bitcast<f32>(bits - bitcast<u32>(e << 23u));
    let k = f32(e);
    return fma(k, LN2_HI, fma(k, LN2_LO, ln_1p_core(m - 1.0f)));
}

// ln(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1].
fn ln_1p_core(f: f32) -> f32 {
    let f2 = f * f;
    var p = 0.06747724f;
    p = fma(f, p, -0.116775095f);
    p = fma(f, p, 0.11888696f);
    p = fma(f, p, -0.12405341f);
    p = fma(f, p, 0.14219454f);
    p = fma(f, p, -0.16668005f);
    p = fma(f, p, 0.20002124f);
    p = fma(f, p, -0.2500001f);
    p = fma(f, p, 0.33333313f);
    return fma(f2 * f, p, fma(f2, -0.5f, f));
}
