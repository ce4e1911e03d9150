//! How good the drafter is, step by step of the unrolling.

use serde::{Deserialize, Serialize};

use super::Stage;
use super::loss::Scores;
use crate::error::TrainError;
use crate::prepare::floats;

/// Sums over the rows of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Rows.
    pub rows: f64,
    /// Cross-entropy.
    pub loss: f64,
    /// Rows whose first token is the target's.
    pub right: f64,
    /// Σ min(p, q).
    pub accepted: f64,
    /// Rows above the threshold of hesitation.
    pub hesitant: f64,
    /// Hesitant rows whose first guess was wrong.
    pub hesitant_wrong: f64,
    /// Of these, those whose second guess is right.
    pub rescued: f64,
    /// Cross-entropy of the second pass.
    pub second_loss: f64,
    /// Rows whose second pass's first token is the target's.
    pub second_right: f64,
}

impl StepMetrics {
    /// Sums the scores of a step.
    pub(super) fn of(first: &Scores, second: Option<&Scores>, threshold: f64) -> Result<Self, TrainError> {
        let sum = |values: &[f32]| values.iter().map(|&value| f64::from(value)).sum::<f64>();
        let (loss, right) = (floats(first.loss.clone())?, floats(first.right.clone())?);
        let unsure = floats(first.unsure.clone())?;
        let mut metrics = Self {
            rows: loss.len() as f64,
            loss: sum(&loss),
            right: sum(&right),
            accepted: sum(&floats(first.accepted.clone())?),
            ..Self::default()
        };
        let again = second.map(|scores| floats(scores.right.clone())).transpose()?;
        if let (Some(scores), Some(again)) = (second, &again) {
            metrics.second_loss = sum(&floats(scores.loss.clone())?);
            metrics.second_right = sum(again);
        }
        for (row, (unsure, right)) in unsure.iter().zip(&right).enumerate() {
            if f64::from(*unsure) > threshold {
                metrics.hesitant += 1.0;
                if *right == 0.0 {
                    metrics.hesitant_wrong += 1.0;
                    metrics.rescued += again.as_ref().map_or(0.0, |again| f64::from(again[row]));
                }
            }
        }
        Ok(metrics)
    }

    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.loss += other.loss;
        self.right += other.right;
        self.accepted += other.accepted;
        self.hesitant += other.hesitant;
        self.hesitant_wrong += other.hesitant_wrong;
        self.rescued += other.rescued;
        self.second_loss += other.second_loss;
        self.second_right += other.second_right;
    }

    /// Share of rows whose first token is the target's.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        self.right / self.rows.max(1.0)
    }
}

/// Metrics of all steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// By step of the unrolling.
    pub steps: Vec<StepMetrics>,
    /// Mean cross-entropy of the first pass, over steps and rows.
    pub loss: f64,
}

impl Metrics {
    pub(super) fn push(&mut self, step: StepMetrics) {
        self.steps.push(step);
        self.refresh();
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if self.steps.len() < other.steps.len() {
            self.steps.resize(other.steps.len(), StepMetrics::default());
        }
        self.steps.iter_mut().zip(&other.steps).for_each(|(sum, step)| sum.add(step));
        self.refresh();
    }

    fn refresh(&mut self) {
        let total = |of: fn(&StepMetrics) -> f64| self.steps.iter().map(of).sum::<f64>();
        let rows = total(|step| step.rows).max(1.0);
        self.loss = total(|step| step.loss + step.second_loss) / rows;
    }

    /// Tokens a round of a greedy chain as deep as the unrolling, the target's own included: 1 plus the products of the
    /// accuracies. (An estimate: it takes a step's accuracy on all rows for that behind accepted ones.)
    #[must_use]
    pub fn expected_tau(&self) -> f64 {
        let mut chance = 1.0;
        1.0 + self
            .steps
            .iter()
            .map(|step| {
                chance *= step.accuracy();
                chance
            })
            .sum::<f64>()
    }

    /// What the best checkpoint has most of.
    pub(super) fn measure(&self, stage: Stage) -> f64 {
        let rows: f64 = self.steps.iter().map(|step| step.rows).sum::<f64>().max(1.0);
        let second = self.steps.iter().map(|step| step.second_loss).sum::<f64>() / rows;
        match stage {
            Stage::Base => self.expected_tau(),
            Stage::Reconsider => -second,
            Stage::Joint => self.expected_tau() - 0.1 * second,
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let list = |of: fn(&StepMetrics) -> f64| {
            self.steps
                .iter()
                .map(|step| format!("{:.3}", of(step) / step.rows.max(1.0)))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut text = format!(
            "loss {:.3}, accuracy {}, chain tau {:.3}",
            self.loss,
            list(|s| s.right),
            self.expected_tau()
        );
        if self.steps.iter().any(|step| step.second_loss > 0.0) {
            let wrong: f64 = self.steps.iter().map(|step| step.hesitant_wrong).sum();
            let rescued: f64 = self.steps.iter().map(|step| step.rescued).sum();
            text += &format!(
                ", second {}, hesitant {}, rescued {:.3}",
                list(|s| s.second_right),
                list(|s| s.hesitant),
                rescued / wrong.max(1.0)
            );
        }
        text
    }
}
