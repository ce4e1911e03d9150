//! What the drafter is told: the target's distribution over the draft vocabulary.

use burn::tensor::{Device, Int, Tensor};

use super::rows;

/// What training lowers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Cross-entropy against the target's distribution.
    CrossEntropy,
    /// Cross-entropy where little would be accepted yet, and one minus the accepted mass Σ min(p, q) where much is:
    /// λ·CE + (1 − λ)·TV with λ = exp(−3·Σ min(p, q)) (arXiv 2602.23881).
    Acceptance,
}

/// Scores of some rows, outside of the graph of gradients.
#[derive(Clone, Debug)]
pub struct Scores {
    /// Cross-entropy, `[rows, 1]`.
    pub loss: Tensor<2>,
    /// Σ min(p, q), `[rows, 1]`.
    pub accepted: Tensor<2>,
    /// 1 − q(top-1), `[rows, 1]`.
    pub unsure: Tensor<2>,
    /// 1 where the drafter's first token is the target's, `[rows, 1]`.
    pub right: Tensor<2>,
    pub(super) gradient: Tensor<2>, // of the objective by the logits, [rows, draft vocab]
}

/// Compares `logits`, `[rows, draft vocab]`, with the `teacher`'s distribution of each row and its `choice`.
#[must_use]
pub fn score(logits: &Tensor<2>, teacher: Tensor<2>, choice: Tensor<1, Int>, objective: Objective) -> Scores {
    let z = logits.clone().without_autodiff();
    if z.device() == Device::flex()
        && let Ok(choice) = choice.clone().into_data().convert::<i64>().try_into_vec()
        && let Some(scores) = rows::score(&z, teacher.clone(), &choice, objective)
    {
        return scores;
    }
    by_tensors(z, teacher, choice, objective)
}

/// [`score`] as tensor operations, for any device; `z` is outside of the graph of gradients.
fn by_tensors(z: Tensor<2>, teacher: Tensor<2>, choice: Tensor<1, Int>, objective: Objective) -> Scores {
    let (best, at) = z.clone().max_dim_with_indices(1);
    let weights = (z.clone() - best.clone()).exp();
    let sum = weights.clone().sum_dim(1);
    let q = weights / sum.clone();
    let loss = best + sum.clone().log() - (teacher.clone() * z).sum_dim(1);
    let accepted = teacher.clone().min_pair(q.clone()).sum_dim(1);
    let right = at.squeeze_dim::<1>(1).equal(choice).float().unsqueeze_dim(1);
    let away = q.clone() - teacher.clone();
    let gradient = match objective {
        Objective::CrossEntropy => away,
        Objective::Acceptance => {
            // d(−Σ min(p, q))/dz = q·Σ_{q<p} q − q·[q < p].
            let low = q.clone().lower(teacher).float() * q.clone();
            let distance = q * low.clone().sum_dim(1) - low;
            let share = accepted.clone().mul_scalar(-3.0).exp();
            away * share.clone() + distance * share.neg().add_scalar(1.0)
        }
    };
    Scores { loss, accepted, unsure: sum.recip().neg().add_scalar(1.0), right, gradient }
}

impl Scores {
    /// A scalar whose gradient by the weights is that of the objective, weighted by row and summed: the gradient by the
    /// logits is known in closed form, which spares the graph of everything between.
    #[must_use]
    pub fn surrogate(self, logits: Tensor<2>, weight: Tensor<2>) -> Tensor<1> {
        (logits * (self.gradient * weight)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Objective, by_tensors, score};
    use burn::tensor::activation::log_softmax;
    use burn::tensor::{Device, Distribution, Int, Tensor};

    /// The passes over rows against the tensor operations.
    #[test]
    fn rows_score_as_tensors_do() {
        let plain = Device::flex();
        plain.seed(3);
        let normal = Distribution::Normal(0.0, 2.0);
        let z = Tensor::<2>::random([33, 100], normal, &plain);
        let p = burn::tensor::activation::softmax(Tensor::<2>::random([33, 100], normal, &plain), 1);
        // Every other choice is the drafter's own first token, so that both answers occur.
        let tops: Vec<i64> = z.clone().argmax(1).into_data().convert::<i64>().try_into_vec().unwrap();
        let choices: Vec<i64> = tops
            .iter()
            .enumerate()
            .map(|(row, top)| if row % 2 == 0 { *top } else { (top + 1) % 100 })
            .collect();
        let choice = Tensor::<1, Int>::from_ints(choices.as_slice(), &plain);
        for objective in [Objective::CrossEntropy, Objective::Acceptance] {
            let rows = super::rows::score(&z, p.clone(), &choices, objective).expect("dense f32");
            let tensors = by_tensors(z.clone(), p.clone(), choice.clone(), objective);
            let values = |tensor: &Tensor<2>| tensor.clone().into_data().try_into_vec::<f32>().unwrap();
            assert_eq!(values(&rows.right).iter().sum::<f32>(), 17.0);
            for (rows, tensors) in [
                (&rows.loss, &tensors.loss),
                (&rows.accepted, &tensors.accepted),
                (&rows.unsure, &tensors.unsure),
                (&rows.right, &tensors.right),
                (&rows.gradient, &tensors.gradient),
            ] {
                for (found, wanted) in values(rows).iter().zip(values(tensors)) {
                    assert!((found - wanted).abs() < 1e-5, "{objective:?}: {found} and {wanted}");
                }
            }
        }
    }

    /// The closed gradients against automatic differentiation of the formulas.
    #[test]
    fn gradients_are_those_of_the_formulas() {
        let device = Device::flex().autodiff();
        let plain = Device::flex();
        let values = [[0.3_f32, -1.0, 2.0, 0.1], [1.0, 0.5, 0.2, -3.0]];
        let p = Tensor::<2>::from_floats([[0.1_f32, 0.2, 0.65, 0.05], [0.05, 0.6, 0.3, 0.05]], &plain);
        let choice = Tensor::<1, Int>::from_ints([2, 1], &plain);
        let weight = Tensor::<2>::from_floats([[0.7_f32], [1.3]], &plain);
        for objective in [Objective::CrossEntropy, Objective::Acceptance] {
            let z = Tensor::<2>::from_floats(values, &device).require_grad();
            let scores = score(&z, p.clone(), choice.clone(), objective);
            let accepted = scores.accepted.clone();
            let grads = scores.surrogate(z.clone(), weight.clone()).backward();
            let found: Vec<f32> = z.grad(&grads).unwrap().into_data().try_to_vec().unwrap();

            let z = Tensor::<2>::from_floats(values, &device).require_grad();
            let teacher = p.clone();
            let log_q = log_softmax(z.clone(), 1);
            let entropy = (teacher.clone() * log_q.clone()).sum_dim(1).neg();
            let loss = match objective {
                Objective::CrossEntropy => entropy,
                Objective::Acceptance => {
                    let share = accepted.mul_scalar(-3.0).exp();
                    let distance = teacher.min_pair(log_q.exp()).sum_dim(1).neg();
                    entropy * share.clone() + distance * share.neg().add_scalar(1.0)
                }
            };
            let grads = (loss * weight.clone()).sum().backward();
            let wanted: Vec<f32> = z.grad(&grads).unwrap().into_data().try_to_vec().unwrap();
            for (found, wanted) in found.iter().zip(&wanted) {
                assert!((found - wanted).abs() < 1e-6, "{objective:?}: {found} and {wanted}");
            }
        }
    }

    #[test]
    fn scores_by_hand() {
        let plain = Device::flex();
        let z = Tensor::<2>::from_floats([[0.0_f32, 0.0], [0.0, 3.0_f32.ln()]], &plain);
        let p = Tensor::<2>::from_floats([[0.75_f32, 0.25], [0.25, 0.75]], &plain);
        let choice = Tensor::<1, Int>::from_ints([0, 0], &plain);
        let scores = score(&z, p, choice, Objective::CrossEntropy);
        let values = |tensor: Tensor<2>| tensor.into_data().try_to_vec::<f32>().unwrap();
        for (found, wanted) in [
            (values(scores.loss), [2.0_f32.ln(), 0.562_335]),
            (values(scores.accepted), [0.75, 1.0]),
            (values(scores.unsure), [0.5, 0.25]),
            (values(scores.right), [1.0, 0.0]),
        ] {
            assert!((found[0] - wanted[0]).abs() < 1e-5 && (found[1] - wanted[1]).abs() < 1e-5, "{found:?}");
        }
    }
}
