//! How close is close enough, as a named type.

use std::fmt;

/// Limits for the difference of two vectors of f32.
///
/// Two limits hold at once. Elementwise, `|found − expected| ≤ absolute + relative · max(|expected|, rms)`
/// where `rms` is the root mean square of all expected values: an element near zero is a sum that cancelled,
/// and its error scales with the terms, not with the result. Over the whole vector, the normalised mean
/// square error `Σ(found − expected)² / Σ expected²` is at most `nmse`; that catches a small error
/// everywhere. A non-finite value only matches the identical one (any NaN matches any NaN).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Allowed difference of any element, in the unit of the values.
    pub absolute: f32,
    /// Allowed difference of any element, as a fraction of the element or of the rms if larger.
    pub relative: f32,
    /// Allowed normalised mean square error, without unit.
    pub nmse: f64,
}

impl Tolerance {
    /// Same arithmetic in f32, other order of summation: NMSE ≤ 1e-7.
    pub const F32: Self = Self { absolute: 1e-6, relative: 2e-3, nmse: 1e-7 };
    /// Some operand rounded through f16: NMSE ≤ 1e-6.
    pub const F16: Self = Self { absolute: 1e-5, relative: 8e-3, nmse: 1e-6 };
    /// Equal values (0 and −0 count as equal; compare bits yourself where they must not).
    pub const EXACT: Self = Self { absolute: 0.0, relative: 0.0, nmse: 0.0 };

    /// Only an elementwise bound in the unit of the values.
    pub const fn within(absolute: f32) -> Self {
        Self { absolute, relative: 0.0, nmse: f64::INFINITY }
    }

    /// The same limits with another elementwise absolute bound.
    #[must_use]
    pub const fn with_absolute(self, absolute: f32) -> Self {
        Self { absolute, ..self }
    }

    /// The same limits with another elementwise relative bound.
    #[must_use]
    pub const fn with_relative(self, relative: f32) -> Self {
        Self { relative, ..self }
    }

    /// The same limits with another NMSE.
    #[must_use]
    pub const fn with_nmse(self, nmse: f64) -> Self {
        Self { nmse, ..self }
    }

    /// Measures the difference and tells whether it is inside the limits.
    ///
    /// # Errors
    /// The measured difference when the lengths differ or a limit is exceeded.
    pub fn compare(&self, found: &[f32], expected: &[f32]) -> Result<Difference, Difference> {
        let difference = self.measure(found, expected);
        let inside =
            found.len() == expected.len() && difference.excess <= 1.0 && difference.nmse <= self.nmse;
        if inside { Ok(difference) } else { Err(difference) }
    }

    fn measure(&self, found: &[f32], expected: &[f32]) -> Difference {
        let finite = || expected.iter().filter(|value| value.is_finite()).map(|&value| f64::from(value));
        let energy: f64 = finite().map(|value| value * value).sum();
        let rms = (energy / finite().count().max(1) as f64).sqrt();
        let mut result =
            Difference { limits: *self, lengths: (found.len(), expected.len()), ..Difference::NONE };
        let mut error = 0.0;
        for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let alike = found == expected || (found.is_nan() && expected.is_nan());
            let (distance, excess) = if alike {
                (0.0, 0.0)
            } else if !found.is_finite() || !expected.is_finite() {
                (f64::INFINITY, f64::INFINITY)
            } else {
                let distance = (f64::from(found) - f64::from(expected)).abs();
                let scale = f64::from(expected).abs().max(rms);
                // A distance above zero against a limit of zero is an infinite excess.
                (distance, distance / (f64::from(self.absolute) + f64::from(self.relative) * scale))
            };
            error += distance * distance;
            if index == 0 || excess > result.excess {
                result = Difference { index, found, expected, excess, ..result };
            }
        }
        // Against a vector of zeros only the elementwise limit speaks.
        result.nmse = if energy > 0.0 { error / energy } else { 0.0 };
        result
    }
}

/// What [`Tolerance::compare`] measured; prints as one line with the worst element.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Index of the worst element.
    pub index: usize,
    /// The worst element's value.
    pub found: f32,
    /// What it should have been.
    pub expected: f32,
    /// Its distance as a multiple of the elementwise limit; above 1 is a failure.
    pub excess: f64,
    /// Normalised mean square error of the whole vector.
    pub nmse: f64,
    /// Lengths of the vectors, found and expected.
    pub lengths: (usize, usize),
    /// The limits applied.
    pub limits: Tolerance,
}

impl Difference {
    const NONE: Self = Self {
        index: 0,
        found: 0.0,
        expected: 0.0,
        excess: 0.0,
        nmse: 0.0,
        lengths: (0, 0),
        limits: Tolerance::EXACT,
    };
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lengths.0 != self.lengths.1 {
            return write!(f, "found {} values, expected {}", self.lengths.0, self.lengths.1);
        }
        write!(
            f,
            "worst at [{}] of {}: found {:e}, expected {:e}, {:.3} times the limit \
             (absolute {:e}, relative {:e}); NMSE {:.3e}, limit {:.3e}",
            self.index,
            self.lengths.1,
            self.found,
            self.expected,
            self.excess,
            self.limits.absolute,
            self.limits.relative,
            self.nmse,
            self.limits.nmse,
        )
    }
}

/// Panics with the worst index and its values unless `found` is within `tolerance` of `expected`.
///
/// `what` names the thing compared; it opens the message.
///
/// # Panics
/// When the lengths differ or a limit is exceeded: this is an assertion.
#[track_caller]
pub fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: Tolerance) -> Difference {
    match tolerance.compare(found, expected) {
        Ok(difference) => difference,
        Err(difference) => panic!("{what}: {difference}"),
    }
}
