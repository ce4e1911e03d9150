//! Powers of two that keep f16 kernels within their range whatever the input, found while a model is loaded.
//!
//! What a kernel of an f16 family reads was multiplied by a power of two, so that nothing is beyond [`LIMIT`]; the product
//! undoes it, without rounding. The power follows from a bound that the weights alone give:
//!
//! - A norm divides `n` numbers by the root of their mean square, so their length becomes at most √n, and each number of
//!   its output at most √n times the greatest gain.
//! - By Cauchy and Schwarz the product of that output with a row of weights is at most √n times the length of the row,
//!   each weight times its gain. This bounds values, and with them what attention mixes of them; gates and ups, and with
//!   them `silu(gate) up`, as `|silu(g)| ≤ |g|`.
//!
//! So activations that f16 does not hold, which some models have behind their gates, neither overflow nor have to be
//! looked for. The bounds are far from what occurs, by √n and more, but f16 has 23 powers of two between [`LIMIT`] and
//! where its digits end. Weights that are kept as floats get a power of two for the matrix, from the greatest of them;
//! others are integers times a scale in f32, and need none.

use crate::ModelError;
use crate::matrix::RowSource;
use redraft_gguf::{GgmlType, TensorInfo, dequantize};

/// Greatest activation and greatest weight that f16 products multiply: the sum of eight such products is 2^15, half of
/// what f16 holds.
pub(crate) const LIMIT: f64 = 512.0;
const WEIGHT_LIMIT: f64 = 8.0;

/// What rows that a product reads were multiplied by, and the gain of the norm that they come from, if they do.
#[derive(Debug, Clone)]
pub(crate) struct Fed {
    pub(crate) scale: f32,
    pub(crate) gain: Vec<f32>,
}

impl Default for Fed {
    /// Rows in f32 as they are.
    fn default() -> Self {
        Self { scale: 1.0, gain: Vec::new() }
    }
}

impl Fed {
    /// The output of a norm with this gain, in f16.
    pub(crate) fn by_norm(gain: Vec<f32>) -> Self {
        let greatest = gain.iter().fold(0.0, |most, gain| f64::max(most, f64::from(gain.abs())));
        Self { scale: power_within(LIMIT, length(gain.len()) * greatest), gain }
    }

    /// Numbers of at most `bound`, in f16.
    pub(crate) fn bounded(bound: f64) -> Self {
        Self { scale: power_within(LIMIT, bound), gain: Vec::new() }
    }
}

/// The greatest length of `columns` numbers behind a norm, before its gain.
pub(crate) fn length(columns: usize) -> f64 {
    u32::try_from(columns).map_or(f64::INFINITY, f64::from).sqrt()
}

/// The greatest power of two that keeps numbers of at most `bound` within `limit`; 1 for a bound that is no positive
/// number, of a matrix of zeros or a damaged one.
fn power_within(limit: f64, bound: f64) -> f32 {
    let exponent = (limit / bound).log2().floor();
    if !exponent.is_finite() {
        return 1.0;
    }
    // Beyond these neither the power nor its inverse, nor the product of two, would be a normal f32.
    #[expect(clippy::cast_possible_truncation, reason = "it is a whole number of two digits")]
    let exponent = exponent.clamp(-60.0, 60.0) as i32;
    2.0f32.powi(exponent)
}

/// Whether weights that are packed as this type stay floats, which get a power of two for the matrix.
pub(crate) fn stays_float(kind: GgmlType) -> bool {
    matches!(kind, GgmlType::F16 | GgmlType::BF16 | GgmlType::F32)
}

/// Watches the rows of a matrix while they are packed.
#[derive(Debug, Default)]
pub(crate) struct Meter<'a> {
    /// Nothing is wanted of the rows without it.
    on: bool,
    gain: Option<&'a [f32]>,
    /// Greatest magnitude of weights that stay floats.
    greatest: f64,
    /// `[tensor][row]`: length of the row, each weight times its gain.
    lengths: Vec<Vec<f64>>,
    row: Vec<f32>,
}

impl<'a> Meter<'a> {
    /// For the f16 families, where it is `on`: the scale of floats, and with `gain` the lengths of rows.
    pub(crate) fn new(on: bool, gain: Option<&'a [f32]>) -> Self {
        Self { on, gain: gain.filter(|_| on), ..Self::default() }
    }

    /// Takes a row as the file has it, which is packed as type `kept`.
    pub(crate) fn take(
        &mut self,
        source: RowSource,
        tensor: &TensorInfo,
        raw: &[u8],
        kept: GgmlType,
    ) -> Result<(), ModelError> {
        let floats = stays_float(kept);
        if !self.on || !floats && self.gain.is_none() {
            return Ok(());
        }
        self.row.resize(usize::try_from(tensor.columns()).unwrap_or(0), 0.0);
        dequantize(tensor.kind, raw, &mut self.row)
            .map_err(|source| ModelError::Pack { tensor: tensor.name.clone(), source })?;
        if floats {
            let most = self.row.iter().fold(0.0f32, |most, weight| most.max(weight.abs()));
            self.greatest = self.greatest.max(f64::from(most));
        }
        if let Some(gain) = self.gain {
            let square = |(weight, gain): (&f32, &f32)| (f64::from(*weight) * f64::from(*gain)).powi(2);
            let length = self.row.iter().zip(gain).map(square).sum::<f64>().sqrt();
            if self.lengths.len() <= source.tensor {
                self.lengths.resize(source.tensor + 1, Vec::new());
            }
            if let Some(lengths) = self.lengths.get_mut(source.tensor) {
                let row = source.row as usize;
                lengths.resize(lengths.len().max(row + 1), 0.0);
                if let Some(slot) = lengths.get_mut(row) {
                    *slot = length;
                }
            }
        }
        Ok(())
    }

    /// What floats are multiplied by, so that none is beyond [`WEIGHT_LIMIT`].
    pub(crate) fn weight_scale(&self) -> f32 {
        if self.greatest > 0.0 { power_within(WEIGHT_LIMIT, self.greatest) } else { 1.0 }
    }

    /// Bound of the products of `tensor`'s rows with what a norm of that gain gives.
    pub(crate) fn bound(&self, tensor: usize) -> f64 {
        let most = self.lengths(tensor).iter().fold(0.0, |most, length| f64::max(most, *length));
        most * self.norm()
    }

    /// Bound of `silu(a) b` over the rows of the first two tensors.
    pub(crate) fn gated_bound(&self) -> f64 {
        let pairs = self.lengths(0).iter().zip(self.lengths(1));
        pairs.fold(0.0, |most, (a, b)| f64::max(most, a * b)) * self.norm().powi(2)
    }

    fn lengths(&self, tensor: usize) -> &[f64] {
        self.lengths.get(tensor).map_or(&[], Vec::as_slice)
    }

    fn norm(&self) -> f64 {
        length(self.gain.map_or(0, <[f32]>::len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_the_greatest_that_fit() {
        for (limit, bound, power) in [
            (4096.0, 1.0, 4096.0),
            (4096.0, 1.001, 2048.0),
            (4096.0, 3e6, 2f32.powi(-10)),
            (1.0, 0.3, 2.0),
            (1.0, 1e-30, 2f32.powi(60)),
            (4096.0, 0.0, 1.0),
            (4096.0, f64::INFINITY, 1.0),
            (4096.0, f64::NAN, 1.0),
        ] {
            assert_eq!(power_within(limit, bound), power, "{bound} within {limit}");
        }
        let fed = Fed::by_norm(vec![0.5, -3.0, 1.0, 0.0]);
        // √4 · 3 = 6, and 512 / 6 is between 64 and 128.
        assert_eq!(fed.scale, 64.0, "of a norm");
    }

    #[test]
    fn bounds_hold_where_they_are_met() {
        let tensor = |name: &str| TensorInfo {
            name: name.to_owned(),
            dims: vec![4, 1],
            kind: GgmlType::F32,
            offset: 0,
            size: 16,
        };
        let gain = [1.0, 2.0, 0.5, 1.0];
        let mut meter = Meter::new(true, Some(&gain));
        for (at, row) in [[3.0f32, 1.0, -2.0, 0.0], [1.0, 1.0, 2.0, 1.0]].iter().enumerate() {
            let raw: Vec<u8> = row.iter().flat_map(|w| w.to_le_bytes()).collect();
            let source = RowSource { tensor: at, row: 0 };
            meter.take(source, &tensor("t"), &raw, GgmlType::F32).expect("a valid row");
        }
        // The input of length √n along the row itself, behind the gain, meets the bound.
        let met = 2.0 * f64::sqrt(9.0 + 4.0 + 1.0);
        assert!((meter.bound(0) - met).abs() < 1e-9, "{}", meter.bound(0));
        let both = met * 2.0 * f64::sqrt(1.0 + 4.0 + 1.0 + 1.0);
        assert!((meter.gated_bound() - both).abs() < 1e-9, "{}", meter.gated_bound());
        assert_eq!(meter.weight_scale(), 2.0, "the greatest weight is 3");
        let mut off = Meter::new(false, Some(&gain));
        off.take(RowSource { tensor: 0, row: 0 }, &tensor("t"), &[0; 16], GgmlType::F32).expect("ignored");
        assert_eq!((off.weight_scale(), off.bound(0)), (1.0, 0.0), "nothing is wanted");
    }
}
