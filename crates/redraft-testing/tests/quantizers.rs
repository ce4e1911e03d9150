//! Quantisers: what is written reads back within a step, and bad values are refused.

use redraft_gguf::{GgmlType, dequantize};
use redraft_testing::{Prng, QuantizeError, Tolerance, assert_close, quantize};

/// Types with the number of steps between a block's extremes, the values that share a scale, and how much of
/// the range the rounding of scales may cost on top of one step.
const STEPPED: [(GgmlType, f32, usize, f32); 8] = [
    (GgmlType::Q4_0, 15.0, 32, 0.0),
    (GgmlType::Q4_1, 15.0, 32, 0.0),
    (GgmlType::Q5_0, 31.0, 32, 0.0),
    (GgmlType::Q5_1, 31.0, 32, 0.0),
    (GgmlType::Q8_0, 254.0, 32, 0.0),
    (GgmlType::Q4K, 15.0, 32, 1.0 / 63.0),
    (GgmlType::Q5K, 31.0, 32, 1.0 / 63.0),
    (GgmlType::Q6K, 63.0, 16, 1.0 / 127.0),
];

fn round_trip(kind: GgmlType, values: &[f32]) -> Vec<f32> {
    let bytes = quantize(kind, values).unwrap();
    assert_eq!(bytes.len(), values.len() / kind.block_size() * kind.block_bytes(), "{} bytes", kind.name());
    let mut out = vec![f32::NAN; values.len()];
    dequantize(kind, &bytes, &mut out).unwrap();
    out
}

/// Blocks of several kinds: symmetric, one-sided, constant, zero, with an outlier.
fn samples() -> Vec<f32> {
    let mut prng = Prng::new(9);
    let mut values = Vec::new();
    for (mean, spread) in
        [(0.0, 1.0), (0.0, 1e-3), (3.0, 1.0), (-3.0, 0.5), (0.7, 0.0), (0.0, 0.0), (-2.0, 0.0)]
    {
        values.extend((0..256).map(|_| mean + spread * prng.signed()));
    }
    let mut outlier = prng.signed_values(256, 0.1);
    outlier[37] = -8.0;
    values.extend(outlier);
    values
}

#[test]
fn stepped_types_round_to_within_a_step() {
    let values = samples();
    for (kind, steps, group, slack) in STEPPED {
        let found = round_trip(kind, &values);
        for (block, (found, expected)) in found.chunks(256).zip(values.chunks(256)).enumerate() {
            // K-quants share 16-bit scales over 256 values, so the slack is of the super-block's range.
            let whole = span(expected);
            for (found, expected) in found.chunks(group).zip(expected.chunks(group)) {
                // The range a scale must cover always includes zero, except for Q4_1 and Q5_1.
                let own = match kind {
                    // The minimum is rounded to f16, half a unit in eleven bits.
                    GgmlType::Q4_1 | GgmlType::Q5_1 => plain_span(expected) + steps * span(expected) / 2048.0,
                    GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::Q6K => 2.0 * span(expected),
                    _ => span(expected),
                };
                let step = own / steps + slack * whole;
                let what = format!("{}, block {block}", kind.name());
                assert_close(&what, found, expected, Tolerance::within(step));
            }
        }
    }
}

/// Largest distance from zero, or the width of the range if that is larger.
fn span(values: &[f32]) -> f32 {
    values.iter().fold(plain_span(values), |span, value| span.max(value.abs()))
}

fn plain_span(values: &[f32]) -> f32 {
    let (low, high) = values.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    high - low
}

/// Coarser types must not be better than finer ones: catches a quantiser that wastes its levels.
#[test]
fn more_bits_mean_less_error() {
    let values = Prng::new(4).signed_values(4096, 1.0);
    let error = |kind| {
        let found = round_trip(kind, &values);
        found.iter().zip(&values).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / values.len() as f64
    };
    // Uniform rounding in n steps over [−1, 1) has the error (2 / n)² / 12.
    for (kind, steps, ..) in STEPPED {
        let ideal = (2.0 / f64::from(steps)).powi(2) / 12.0;
        let found = error(kind);
        assert!(found < 2.2 * ideal, "{}: mean square error {found:e}, ideal {ideal:e}", kind.name());
    }
    assert!(error(GgmlType::Q8_0) < error(GgmlType::Q6K), "Q8_0 is finer than Q6_K");
    assert!(error(GgmlType::Q5K) < error(GgmlType::Q4K), "Q5_K is finer than Q4_K");
}

#[test]
fn floating_types_round_to_their_precision() {
    let values = samples();
    assert_eq!(round_trip(GgmlType::F32, &values), values);
    for (kind, relative) in [(GgmlType::F16, 1.0 / 2048.0), (GgmlType::BF16, 1.0 / 256.0)] {
        let limits = Tolerance::EXACT.with_relative(relative).with_absolute(6e-8).with_nmse(1e-5);
        assert_close(kind.name(), &round_trip(kind, &values), &values, limits);
    }
}

/// Bytes worked out by hand from the layout, so that writer and reader cannot be wrong together.
#[test]
fn layouts_match_vectors_worked_out_by_hand() {
    // Q4_1, d = 1, m = 0: weight j at byte j low (j < 16) or byte j − 16 high.
    let mut values = [0.0_f32; 32];
    (values[0], values[1], values[16], values[31]) = (15.0, 3.0, 7.0, 9.0);
    let bytes = quantize(GgmlType::Q4_1, &values).unwrap();
    assert_eq!(bytes[..6], [0x00, 0x3C, 0x00, 0x00, 0x7F, 0x03]);
    assert_eq!(bytes[19], 0x90);
    // Q5_1, d = 1: bit 4 of weight j is bit j of the word after d and m.
    (values[0], values[31]) = (31.0, 16.0);
    let bytes = quantize(GgmlType::Q5_1, &values).unwrap();
    assert_eq!(bytes[..9], [0x00, 0x3C, 0x00, 0x00, 0x01, 0x00, 0x00, 0x80, 0x7F]);
    assert_eq!(bytes[23], 0x00);
    // Q8_0, d = 1.
    (values[0], values[31]) = (127.0, -127.0);
    let bytes = quantize(GgmlType::Q8_0, &values).unwrap();
    assert_eq!((bytes[..3].to_vec(), bytes[33]), (vec![0x00, 0x3C, 0x7F], 0x81));
    // Q4_0, d = 1 from the extreme −8: zero is level 8.
    values.fill(0.0);
    (values[0], values[16]) = (-8.0, 7.0);
    let bytes = quantize(GgmlType::Q4_0, &values).unwrap();
    assert_eq!(bytes[..4], [0x00, 0x3C, 0xF0, 0x88]);
    // Q4_K, d = 1, no minimum: scales 63 and 1 in sub-blocks 0 and 5, whose levels are at bytes 16.. and 80...
    let mut values = [0.0_f32; 256];
    (values[0], values[5 * 32]) = (63.0 * 15.0, 15.0);
    let bytes = quantize(GgmlType::Q4K, &values).unwrap();
    assert_eq!(bytes[..4], [0x00, 0x3C, 0x00, 0x00]);
    assert_eq!(bytes[4..16], [63, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!((bytes[16], bytes[16 + 64]), (0x0F, 0xF0));
    // Q6_K, d = 1: scale −128 of sub-block 0 gives the extreme 4096 = −128 · (0 − 32).
    values.fill(0.0);
    values[0] = 4096.0;
    let bytes = quantize(GgmlType::Q6K, &values).unwrap();
    assert_eq!(bytes[208..], [0x00, 0x3C]);
    assert_eq!((bytes[192], bytes[193]), (0x80, 0x00));
    assert_eq!((bytes[0], bytes[1], bytes[128], bytes[129]), (0x00, 0x00, 0xA8, 0xAA));
}

#[test]
fn values_that_cannot_be_written_are_refused_by_name() {
    let message = |kind, values: &[f32]| quantize(kind, values).unwrap_err().to_string();
    assert!(message(GgmlType::Q4K, &[0.0; 64]).contains("multiple of 256 values, found 64"));
    assert!(message(GgmlType::Q8_0, &[0.0; 33]).contains("Q8_0"));
    assert!(message(GgmlType::F16, &[1.0, 1e6]).contains("1000000"));
    assert!(message(GgmlType::Q4_1, &[-1e7; 32]).contains("Q4_1"));
    assert_eq!(
        quantize(GgmlType::F32, &[0.0, f32::INFINITY]),
        Err(QuantizeError::NotFinite { index: 1, value: f32::INFINITY })
    );
    assert!(message(GgmlType::Iq4Nl, &[0.0; 32]).contains("IQ4_NL"));
    for (kind, ..) in STEPPED {
        assert!(quantize(kind, &[]).unwrap().is_empty(), "no values, no bytes");
    }
}
