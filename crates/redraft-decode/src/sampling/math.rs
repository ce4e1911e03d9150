//! `exp` and `ln` from explicit multiply-adds.
//!
//! WGSL leaves the precision of its own to the driver. These are written operation by operation, the same in
//! `shaders/lib/sample_math.wgsl`. Every product that feeds a sum is an explicit `fma`, so a compiler that contracts has
//! nothing left to contract. WGSL lets a device round the product of an `fma` or not ([`Fma`]); with the device's
//! choice the bits agree. The polynomials are our own minimax fits.

use std::f32::consts::LOG2_E;

/// How a device computes `fma(a, b, c)`; WGSL allows both. Software rasterisers split, GPUs fuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fma {
    /// The product is rounded, then the sum. Fast on any CPU.
    #[default]
    Split,
    /// Only the result is rounded.
    Fused,
}

impl Fma {
    /// a · b + c.
    #[must_use]
    #[inline]
    pub fn mul_add(self, a: f32, b: f32, c: f32) -> f32 {
        match self {
            Self::Split => a * b + c,
            Self::Fused => a.mul_add(b, c),
        }
    }
}

/// [`exp_weight`] of 0: the fixed-point one, 2³⁰.
pub const WEIGHT_ONE: u32 = 1 << 30;

/// Below this the weight rounds to 0: e⁻²² · 2³⁰ < 0.5.
const WEIGHT_FLOOR: f32 = -22.0;

/// ln 2 cut to 15 bits, so that its product with a small integer is exact.
const LN2_HI: f32 = 0.693_145_75;
/// ln 2 - `LN2_HI`.
const LN2_LO: f32 = 1.428_606_8e-6;

/// eˣ · 2³⁰ rounded to an integer, for `x <= 0`; 0 for NaN.
///
/// Within 2⁻²² relative, or half a unit, of the exact value, and exactly 2³⁰ at 0.
#[must_use]
pub fn exp_weight(x: f32, fma: Fma) -> u32 {
    if x.is_nan() || x <= WEIGHT_FLOOR {
        return 0;
    }
    let k = fma.mul_add(x, LOG2_E, 0.5).floor();
    let r = fma.mul_add(k, -LN2_LO, fma.mul_add(k, -LN2_HI, x));
    let mut p = 1.979_032_1e-4;
    p = fma.mul_add(r, p, 1.394_468e-3);
    p = fma.mul_add(r, p, 8.333_497e-3);
    p = fma.mul_add(r, p, 0.041_666_295);
    p = fma.mul_add(r, p, 0.166_666_66);
    p = fma.mul_add(r, p, 0.5);
    let e = 1.0 + fma.mul_add(r * r, p, r);
    #[expect(clippy::cast_possible_truncation, reason = "k is an integer in -32..=0")]
    let exponent = (k as i32 + 157).cast_unsigned();
    let scaled = e * f32::from_bits(exponent << 23);
    // From 2²² on the value has no fraction worth rounding and the sum itself would round.
    let rounded = if scaled < 4_194_304.0 { scaled + 0.5 } else { scaled };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within 0..=2^30; meant to truncate"
    )]
    let weight = rounded as u32;
    weight
}

/// ln x for a normal positive `x`, within 2.4e-7 relative.
#[must_use]
pub fn ln(x: f32, fma: Fma) -> f32 {
    // The mantissa is brought into [√½, √2), so that ln near 1 keeps its relative precision.
    let bits = x.to_bits();
    let e = bits.wrapping_sub(0x3f35_04f3).cast_signed() >> 23;
    let m = f32::from_bits(bits.wrapping_sub((e << 23).cast_unsigned()));
    #[expect(clippy::cast_precision_loss, reason = "an exponent: |e| <= 128")]
    let k = e as f32;
    fma.mul_add(k, LN2_HI, fma.mul_add(k, LN2_LO, ln_1p_core(m - 1.0, fma)))
}

/// ln(1 + f) for `f` in [√½ - 1, √2 - 1]: f - f²/2 + f³·P(f).
pub(super) fn ln_1p_core(f: f32, fma: Fma) -> f32 {
    let f2 = f * f;
    let mut p = 0.067_477_24;
    p = fma.mul_add(f, p, -0.116_775_095);
    p = fma.mul_add(f, p, 0.118_886_96);
    p = fma.mul_add(f, p, -0.124_053_41);
    p = fma.mul_add(f, p, 0.142_194_54);
    p = fma.mul_add(f, p, -0.166_680_05);
    p = fma.mul_add(f, p, 0.200_021_24);
    p = fma.mul_add(f, p, -0.250_000_1);
    p = fma.mul_add(f, p, 0.333_333_13);
    fma.mul_add(f2 * f, p, fma.mul_add(f2, -0.5, f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_weight_is_the_exponential() {
        for fma in [Fma::Split, Fma::Fused] {
            assert_eq!(exp_weight(0.0, fma), WEIGHT_ONE, "one");
            assert_eq!(exp_weight(-0.0, fma), WEIGHT_ONE, "one");
            for x in [f32::NAN, f32::NEG_INFINITY, -22.0, -1e30] {
                assert_eq!(exp_weight(x, fma), 0, "{x}");
            }
            let mut last = u32::MAX;
            for step in 0..2_200_000u32 {
                let x = -(step as f32) * 1e-5;
                let exact = f64::from(x).exp() * f64::from(WEIGHT_ONE);
                let got = exp_weight(x, fma);
                let error = (f64::from(got) - exact).abs();
                assert!(error <= 0.5 + exact * 2f64.powi(-22), "exp({x}): {got} against {exact}, {fma:?}");
                assert!(got <= last.saturating_add(last >> 22), "monotone but for the last bits at {x}");
                last = got;
            }
        }
    }

    #[test]
    fn ln_is_the_logarithm() {
        for fma in [Fma::Split, Fma::Fused] {
            let mut bits = f32::MIN_POSITIVE.to_bits();
            while bits < f32::INFINITY.to_bits() {
                let x = f32::from_bits(bits);
                let exact = f64::from(x).ln();
                let error = (f64::from(ln(x, fma)) - exact).abs();
                assert!(error <= exact.abs() * 2.4e-7, "ln({x}) is {exact}, off by {error}, {fma:?}");
                bits += 997;
            }
            for step in -20_000i32..20_000 {
                let x = f32::from_bits(1f32.to_bits().wrapping_add_signed(step));
                let exact = f64::from(x).ln();
                assert!((f64::from(ln(x, fma)) - exact).abs() <= exact.abs() * 1.2e-7, "ln({x}) near one");
            }
            assert_eq!(ln(1.0, fma), 0.0, "exactly");
        }
    }
}
