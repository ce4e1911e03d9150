//! Second passes that were tried and are not served: what they gain says what to build.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};

use super::{Drafter, Frame};
use crate::ops::{product, rms_norm};

/// What a second pass consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SecondPass {
    /// The layer of the first pass, a pass embedding and a low-rank adapter: what drafter files hold.
    #[default]
    Adapter,
    /// The same, and its feature has what the first pass expects next: the mean of the draft vocabulary's embeddings under
    /// q, normed, through a matrix of its own.
    Candidates,
    /// A layer of its own, which starts as a copy of the first pass's: as much capacity as a drafter of two layers has.
    Layer,
}

impl SecondPass {
    /// Whether drafter files hold it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        *self == Self::Adapter
    }
}

/// What an alternative has beside the weights of a drafter: nothing, or one of the two.
#[derive(Module, Debug)]
pub(crate) struct Alternative {
    candidates: Vec<Param<Tensor<2>>>, // [hidden, hidden]
    matrices: Vec<Param<Tensor<2>>>,   // q, k, v, output, gate, up, down
    norms: Vec<Param<Tensor<1>>>,      // input, hidden, ffn, norm
}

impl Alternative {
    pub(super) fn none() -> Self {
        Self { candidates: Vec::new(), matrices: Vec::new(), norms: Vec::new() }
    }

    /// All of its weights.
    pub(crate) fn weights(&mut self) -> (Vec<&mut Param<Tensor<2>>>, Vec<&mut Param<Tensor<1>>>) {
        (self.candidates.iter_mut().chain(&mut self.matrices).collect(), self.norms.iter_mut().collect())
    }
}

impl Drafter {
    /// The drafter with another second pass, which starts as that of the drafter.
    #[must_use]
    pub fn with_second_pass(mut self, form: SecondPass) -> Self {
        self.alternative = Alternative::none();
        match form {
            SecondPass::Adapter => {}
            SecondPass::Candidates => {
                let [hidden] = self.pass.val().dims();
                let zeros = Tensor::zeros([hidden, hidden], &self.pass.val().device());
                self.alternative.candidates = vec![Param::from_tensor(zeros)];
            }
            SecondPass::Layer => {
                let matrices = [&self.q, &self.k, &self.v, &self.output, &self.gate, &self.up, &self.down];
                let norms = [&self.input_norm, &self.hidden_norm, &self.ffn_norm, &self.norm];
                // Parameters of their own: the optimizer tells them by id.
                self.alternative.matrices = matrices.map(|param| Param::from_tensor(param.val())).to_vec();
                self.alternative.norms = norms.map(|param| Param::from_tensor(param.val())).to_vec();
            }
        }
        self
    }

    /// The drafter whose layer is that of second passes.
    pub(crate) fn second_layer(&self) -> Self {
        let mut other = self.clone();
        if let [q, k, v, output, gate, up, down] = self.alternative.matrices.as_slice() {
            (other.q, other.k, other.v, other.output) = (q.clone(), k.clone(), v.clone(), output.clone());
            (other.gate, other.up, other.down) = (gate.clone(), up.clone(), down.clone());
        }
        if let [input, hidden, ffn, norm] = self.alternative.norms.as_slice() {
            (other.input_norm, other.hidden_norm) = (input.clone(), hidden.clone());
            (other.ffn_norm, other.norm) = (ffn.clone(), norm.clone());
        }
        other
    }

    /// The feature of second passes, `[batch, rows, hidden]`, with what the first ones expect next where the second pass
    /// reads that. `normed`: what the head reads of the first passes, of the same shape.
    pub(crate) fn with_candidates(&self, frame: &Frame, feature: Tensor<3>, normed: &Tensor<3>) -> Tensor<3> {
        let (Some(matrix), Some(drafts)) = (self.alternative.candidates.first(), &frame.drafts) else {
            return feature;
        };
        let [batch, rows, hidden] = normed.dims();
        // Outside of the graph of gradients: the first pass is not to learn from what the second makes of its guess.
        let normed = normed.clone().without_autodiff().reshape([batch * rows, hidden]);
        let logits = normed.matmul(self.head.val().without_autodiff().transpose());
        let mean = activation::softmax(logits, 1).matmul(drafts.clone());
        let ones = Tensor::ones([hidden], &mean.device());
        let mean = rms_norm(mean.reshape([batch, rows, hidden]), ones, frame.config.rms_eps);
        let mean = Tensor::from_data(mean.into_data(), &feature.device());
        feature + product(mean, matrix.val())
    }
}
