//! [`super::loss::score`] for the processor: one pass over each row, rows spread over all cores.
//!
//! As tensor operations the scores of a row are some fifteen passes over arrays of the size of the logits, each on one
//! core; in training on two cores they were a third of the time.

use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use super::loss::{Objective, Scores};

/// Four numbers of a row: cross-entropy, accepted mass, 1 − q(top-1), and whether the first token is the target's.
type Row = [f32; 4];

/// As [`super::loss::score`]; `logits` and `teacher` are `[rows, width]`, `choice` has an index a row. None if the arrays
/// are not dense f32 of these shapes.
pub(super) fn score(
    logits: &Tensor<2>,
    teacher: Tensor<2>,
    choice: &[i64],
    objective: Objective,
) -> Option<Scores> {
    let [count, width] = logits.dims();
    let device = logits.device();
    let mut gradient: Vec<f32> = logits.clone().into_data().try_into_vec().ok()?;
    let teacher: Vec<f32> = teacher.into_data().try_into_vec().ok()?;
    if width == 0 || teacher.len() != gradient.len() || choice.len() != count {
        return None;
    }
    let rows: Vec<Row> = gradient
        .par_chunks_exact_mut(width)
        .zip(teacher.par_chunks_exact(width))
        .zip(choice)
        .map(|((z, p), &choice)| row(z, p, choice, objective))
        .collect();
    let column = |part: usize| {
        let values: Vec<f32> = rows.iter().map(|row| row[part]).collect();
        Tensor::from_data(TensorData::new(values, [count, 1]), &device)
    };
    let (loss, accepted, unsure, right) = (column(0), column(1), column(2), column(3));
    let gradient = Tensor::from_data(TensorData::new(gradient, [count, width]), &device);
    Some(Scores { loss, accepted, unsure, right, gradient })
}

/// Scores a row and leaves in `z`, its logits, the objective's gradient by them.
fn row(z: &mut [f32], p: &[f32], choice: i64, objective: Objective) -> Row {
    let (mut top, mut best) = (0, f32::NEG_INFINITY);
    for (index, &value) in z.iter().enumerate() {
        if value > best {
            (top, best) = (index, value);
        }
    }
    let (mut sum, mut told) = (0.0_f64, 0.0_f64);
    for (z, &p) in z.iter_mut().zip(p) {
        told += f64::from(p) * f64::from(*z);
        *z = (*z - best).exp();
        sum += f64::from(*z);
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
    let (loss, scale) = ((f64::from(best) + sum.ln() - told) as f32, sum.recip() as f32);
    let (mut accepted, mut low) = (0.0_f64, 0.0_f64);
    for (q, &p) in z.iter_mut().zip(p) {
        *q *= scale;
        accepted += f64::from(q.min(p));
        low += if *q < p { f64::from(*q) } else { 0.0 };
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
    let (accepted, low) = (accepted as f32, low as f32);
    match objective {
        Objective::CrossEntropy => z.iter_mut().zip(p).for_each(|(q, p)| *q -= p),
        Objective::Acceptance => {
            let share = (-3.0 * accepted).exp();
            for (q, &p) in z.iter_mut().zip(p) {
                // d(−Σ min(p, q))/dz = q·Σ_{q<p} q − q·[q < p].
                let distance = *q * low - if *q < p { *q } else { 0.0 };
                *q = (*q - p) * share + distance * (1.0 - share);
            }
        }
    }
    let right = i64::try_from(top).is_ok_and(|top| top == choice);
    [loss, accepted, 1.0 - scale, f32::from(u8::from(right))]
}
