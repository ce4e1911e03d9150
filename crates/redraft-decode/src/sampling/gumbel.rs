//! Keyed Gumbel noise: a pure function of (seed, position, token id).
//!
//! With v uniform in (0, 1), E = -ln(1 - v) is exponential and G = -ln E is Gumbel. The winning tail is large G, that is
//! small E, that is small v: there E must be taken from v itself and not from a rounded 1 - v.
//! Twin of `shaders/lib/gumbel.wgsl`.

use super::math::{Fma, ln, ln_1p_core};
use crate::{Position, TokenId};

/// Standard Gumbel noise for drawing `token` as the token at `position` under `seed`. Between -3.2 and 22.9.
#[must_use]
pub fn gumbel(seed: u64, position: Position, token: TokenId, fma: Fma) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the seed")]
    let (low, high) = (seed as u32, (seed >> 32) as u32);
    let [_, _, _, random] = pcg4d([low, high, position.0, token.0]);
    -ln(exponential(random, fma), fma)
}

/// The exponential variate of 32 random bits `h`: -ln(1 - v) with v = (h + ½) / 2³².
///
/// Below v = ¼ the series in v is used. Above, 1 - v is taken exactly from the integer complement of `h`.
#[must_use]
pub fn exponential(h: u32, fma: Fma) -> f32 {
    if h < 0x4000_0000 { -ln_1p_core(-unit(h), fma) } else { -ln(unit(!h), fma) }
}

/// (h + ½) / 2³², cut to the 24 leading bits that f32 holds.
///
/// By integer operations, because WGSL leaves the rounding of large integers to the device.
#[must_use]
pub fn unit(h: u32) -> f32 {
    let zeros = h.leading_zeros();
    // The 24 leading bits of 2h + 1, the half included where it fits.
    let mantissa = match zeros {
        0 => h >> 8,
        32 => 0x0080_0000,
        _ => ((h << zeros) | (1 << (zeros - 1))) >> 8,
    };
    f32::from_bits(((126 - zeros) << 23) | (mantissa & 0x007f_ffff))
}

/// The PCG-4D hash of Jarzynski and Olano (Hash Functions for GPU Rendering, 2020): two rounds of a linear step and
/// cross products.
#[must_use]
pub fn pcg4d(input: [u32; 4]) -> [u32; 4] {
    let mut v = input.map(|word| word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    cross(&mut v);
    v = v.map(|word| word ^ (word >> 16));
    cross(&mut v);
    v
}

fn cross([x, y, z, w]: &mut [u32; 4]) {
    *x = x.wrapping_add(y.wrapping_mul(*w));
    *y = y.wrapping_add(z.wrapping_mul(*x));
    *z = z.wrapping_add(x.wrapping_mul(*y));
    *w = w.wrapping_add(y.wrapping_mul(*z));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Noise = fn(u32) -> f32;

    fn exact_unit(h: u32) -> f64 {
        (f64::from(h) + 0.5) / 4_294_967_296.0
    }

    #[test]
    fn unit_at_its_edges() {
        assert_eq!(unit(0), 2f32.powi(-33), "the smallest");
        assert_eq!(f64::from(unit(1)), 1.5 / 4_294_967_296.0, "the half survives");
        assert_eq!(unit(u32::MAX), 1.0 - 2f32.powi(-24), "below one");
        assert_eq!(unit(0x8000_0000), 0.5, "the half is cut where it does not fit");
    }

    #[test]
    fn both_tails_are_precise() {
        for h in (0..64).chain([0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, 0xffff_fff0, u32::MAX - 1, u32::MAX]) {
            for fma in [Fma::Split, Fma::Fused] {
                let exact = -(-exact_unit(h)).ln_1p();
                let got = f64::from(exponential(h, fma));
                assert!((got - exact).abs() <= exact * 5e-7, "E({h:#x}) = {got} against {exact}");
                let exact = -exact.ln();
                let got = f64::from(-ln(exponential(h, fma), fma));
                assert!(
                    (got - exact).abs() <= 6e-7f64.max(exact.abs() * 2.4e-7),
                    "G({h:#x}) = {got} against {exact}"
                );
            }
        }
    }

    #[test]
    fn noise_is_standard_gumbel() {
        // Kolmogorov-Smirnov against exp(-exp(-g)) for noise taken along each coordinate of the key.
        let along: [(&str, Noise); 4] = [
            ("ids", |i| gumbel(3, Position(9), TokenId(i), Fma::Split)),
            ("positions", |i| gumbel(3, Position(i), TokenId(5), Fma::Split)),
            ("seeds", |i| gumbel(u64::from(i), Position(9), TokenId(5), Fma::Split)),
            ("high seeds", |i| gumbel(u64::from(i) << 32, Position(0), TokenId(0), Fma::Split)),
        ];
        for (name, noise) in along {
            let count = 40_000u32;
            let mut values: Vec<f64> = (0..count).map(|i| f64::from(noise(i))).collect();
            values.sort_by(f64::total_cmp);
            let distance = values.iter().zip(0u32..).fold(0f64, |worst, (&g, i)| {
                let expected = (-(-g).exp()).exp();
                worst.max((expected - f64::from(i) / f64::from(count)).abs())
            });
            // 1.95 / √n is the 0.1 % level.
            assert!(distance < 1.95 / f64::from(count).sqrt(), "{name}: distance {distance}");
        }
    }

    #[test]
    fn neighbouring_keys_are_uncorrelated() {
        let base =
            |p: u32, i: u32| f64::from(gumbel(11, Position(p), TokenId(i), Fma::Split)) - 0.577_215_664_9;
        for (dp, di) in [(0, 1), (1, 0), (1, 1), (0, 256), (7, 0), (1, 2)] {
            let (mut sum, n) = (0.0, 200u32);
            for p in 0..n {
                for i in 0..n {
                    sum += base(p, i) * base(p + dp, i + di);
                }
            }
            let correlation = sum / f64::from(n * n) / (std::f64::consts::PI.powi(2) / 6.0);
            assert!(correlation.abs() < 4.0 / f64::from(n), "shift ({dp}, {di}): {correlation}");
        }
    }

    proptest! {
        #[test]
        fn unit_is_close(h in any::<u32>()) {
            let exact = exact_unit(h);
            let got = f64::from(unit(h));
            prop_assert!(got > 0.0 && got < 1.0 && got <= exact && exact - got <= exact * 1.2e-7);
        }

        #[test]
        fn exponential_is_close(h in any::<u32>()) {
            let exact = -(-exact_unit(h)).ln_1p();
            for fma in [Fma::Split, Fma::Fused] {
                prop_assert!((f64::from(exponential(h, fma)) - exact).abs() <= exact * 5e-7);
            }
        }
    }
}
