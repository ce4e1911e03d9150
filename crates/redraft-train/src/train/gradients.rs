//! What a batch teaches: gradients of the weights that a stage trains, and metrics.

use burn::module::{Module as _, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::batch::{self, Batch};
use super::loss::score;
use super::metrics::{Metrics, StepMetrics};
use super::unroll::unroll;
use super::{Setting, Stage, TrainOptions};
use crate::drafter::Drafter;
use crate::error::TrainError;

/// The batch of some samples.
pub(super) fn load(setting: &Setting<'_>, indices: &[usize], steps: usize) -> Result<Batch, TrainError> {
    Batch::load(setting.corpus, indices, steps, &setting.draft_index, &setting.teacher_head, &setting.device)
}

/// Stops gradients of what a stage leaves alone.
pub(super) fn frozen(mut drafter: Drafter, stage: Stage) -> Drafter {
    let (first, second) = match stage {
        Stage::Base => (true, false),
        Stage::Reconsider => (false, true),
        Stage::Joint => (true, true),
    };
    let matrices = [
        &mut drafter.fc,
        &mut drafter.q,
        &mut drafter.k,
        &mut drafter.v,
        &mut drafter.output,
        &mut drafter.gate,
        &mut drafter.up,
        &mut drafter.down,
        &mut drafter.head,
    ];
    matrices.into_iter().for_each(|param| require(param, first));
    let vectors =
        [&mut drafter.input_norm, &mut drafter.hidden_norm, &mut drafter.ffn_norm, &mut drafter.norm];
    vectors.into_iter().for_each(|param| require(param, first));
    drafter.fc_norm.iter_mut().for_each(|param| require(param, first));
    require(&mut drafter.pass, second);
    require(&mut drafter.adapter_down, second);
    require(&mut drafter.adapter_up, second);
    let (matrices, vectors) = drafter.alternative.weights();
    matrices.into_iter().for_each(|param| require(param, second));
    vectors.into_iter().for_each(|param| require(param, second));
    drafter
}

fn require<const D: usize>(param: &mut Param<Tensor<D>>, wanted: bool) {
    let id = param.id;
    *param = Param::initialized(id, param.val().without_autodiff().autodiff().set_require_grad(wanted));
}

/// Gradients and metrics of a batch.
pub(super) fn step(
    setting: &Setting<'_>,
    drafter: &Drafter,
    batch: &Batch,
    options: &TrainOptions,
) -> Result<(GradientsParams, Metrics), TrainError> {
    let second = options.stage != Stage::Base;
    let outputs = unroll(drafter, &setting.frame, batch, second);
    let mut metrics = Metrics::default();
    let mut total: Option<Tensor<1>> = None;
    let mut weight = 1.0;
    for (rows, output) in batch.steps.iter().zip(outputs) {
        let mean = weight / rows.count as f64;
        weight *= options.decay;
        let teacher = batch.teacher.clone().select(0, rows.teachers.clone());
        let choice = batch.choice.clone().select(0, rows.teachers.clone());
        let logits = drafter.logits(output.first);
        let first = score(&logits, teacher.clone(), choice.clone(), options.objective);
        let mut add = |surrogate: Tensor<1>| {
            total = Some(match total.take() {
                Some(sum) => sum + surrogate,
                None => surrogate,
            });
        };
        let mut measured = StepMetrics::of(&first, None, options.hesitant)?;
        if let Some(normed) = output.second {
            let logits = drafter.logits(normed);
            let scores = score(&logits, teacher, choice, options.objective);
            measured = StepMetrics::of(&first, Some(&scores), options.hesitant)?;
            let certainty = batch.certainty.clone().select(0, rows.teachers.clone());
            let hesitant = first.unsure.clone().greater_scalar(options.hesitant).float();
            let wrong = first.right.clone().neg().add_scalar(1.0).mul_scalar(options.second_wrong);
            let extra = certainty.mul_scalar(options.second_decisive).add_scalar(1.0) + wrong;
            let weights = (hesitant * extra).add_scalar(options.second_base);
            add(scores.surrogate(logits, weights.mul_scalar(mean * options.second_weight)));
        }
        if options.stage != Stage::Reconsider {
            let ones = first.loss.ones_like().mul_scalar(mean);
            add(first.surrogate(logits, ones));
        }
        metrics.push(measured);
    }
    let total = total
        .ok_or_else(|| TrainError::setting("--data", "answers of at least two tokens", "a batch without"))?;
    Ok((GradientsParams::from_grads(total.backward(), drafter), metrics))
}

/// Metrics on held-out samples, without gradients.
pub(super) fn evaluate(
    setting: &Setting<'_>,
    drafter: &Drafter,
    samples: &[usize],
    options: &TrainOptions,
) -> Result<Metrics, TrainError> {
    let drafter = drafter.valid();
    let mut sum = Metrics::default();
    for indices in batch::plan(setting.corpus, samples, options.batch_tokens, 0) {
        let batch = load(setting, &indices, options.steps)?;
        let outputs = unroll(&drafter, &setting.frame, &batch, options.stage != Stage::Base);
        let mut metrics = Metrics::default();
        for (rows, output) in batch.steps.iter().zip(outputs) {
            let teacher = batch.teacher.clone().select(0, rows.teachers.clone());
            let choice = batch.choice.clone().select(0, rows.teachers.clone());
            let first =
                score(&drafter.logits(output.first), teacher.clone(), choice.clone(), options.objective);
            let again = output
                .second
                .map(|normed| score(&drafter.logits(normed), teacher, choice, options.objective));
            metrics.push(StepMetrics::of(&first, again.as_ref(), options.hesitant)?);
        }
        sum.merge(&metrics);
    }
    Ok(sum)
}
