//! Order-preserving integer keys of floats.

/// What a bias of minus infinity becomes: low enough that the token never wins against one that is not banned, and
/// finite, because shaders need not keep infinities.
pub const BANNED: f32 = -1e30;

/// The rank of a float among floats: `a < b` exactly when `float_key(a) < float_key(b)`.
///
/// -0 has the key of 0, NaN has key 0, below minus infinity. Deciding by keys makes the order total and keeps it in
/// integers, where every device agrees.
#[must_use]
pub fn float_key(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        0
    } else if magnitude == 0 {
        0x8000_0000
    } else if bits == magnitude {
        bits | 0x8000_0000
    } else {
        !bits
    }
}

/// The float of a key; inverse of [`float_key`] but for -0 and NaN.
#[must_use]
pub fn key_float(key: u32) -> f32 {
    f32::from_bits(if key >= 0x8000_0000 { key & 0x7fff_ffff } else { !key })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn special_values_are_ordered() {
        let ascending =
            [f32::NEG_INFINITY, f32::MIN, BANNED, -1.0, -1e-45, 0.0, 1e-45, 1.0, f32::MAX, f32::INFINITY];
        for pair in ascending.windows(2) {
            assert!(float_key(pair[0]) < float_key(pair[1]), "{pair:?}");
        }
        assert_eq!(float_key(-0.0), float_key(0.0), "zeros tie");
        for nan in [f32::NAN, -f32::NAN] {
            assert!(float_key(nan) < float_key(f32::NEG_INFINITY), "NaN is last");
        }
    }

    proptest! {
        #[test]
        fn keys_order_and_invert(a in any::<f32>(), b in any::<f32>()) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(a < b, float_key(a) < float_key(b));
            prop_assert_eq!(key_float(float_key(a)), a);
        }
    }
}
