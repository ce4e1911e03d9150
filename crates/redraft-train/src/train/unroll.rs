//! Training-time test (EAGLE-3): the drafter runs on its own outputs, as it will when it drafts.
//!
//! At step s row t has token t + 1 + s and the output of row t at step s - 1 as its feature; it attends to the rows
//! 0 … t of step 0 and to its own rows of the steps between. A second pass reads the step's output plus the pass
//! embedding, has the same token and position, and sees the first pass's row too.

use burn::tensor::Tensor;

use super::batch::Batch;
use crate::drafter::{Drafter, Frame, KeysValues, attend};
use crate::ops::causal_mask;

/// What a step yields on the rows that have a loss, `[rows, hidden]`, normed for the head.
#[derive(Clone, Debug)]
pub struct StepOutput {
    /// Of the first pass.
    pub first: Tensor<2>,
    /// Of the second pass, where one was asked for.
    pub second: Option<Tensor<2>>,
}

/// Runs all steps of a batch. `second` asks for second passes.
#[must_use]
pub fn unroll(drafter: &Drafter, frame: &Frame, batch: &Batch, second: bool) -> Vec<StepOutput> {
    let device = batch.features.device();
    let copies = (frame.config.heads / frame.config.kv_heads) as usize;
    let mut outputs = Vec::new();
    let mut chain: Vec<KeysValues> = Vec::new();
    let fused = drafter.fuse(frame, batch.features.clone());
    let mut feature = fused;
    let mut stretch: Option<KeysValues> = None;
    for (step, loss_rows) in batch.steps.iter().enumerate() {
        // Step 0 has all rows, because later ones attend to them; the others those that can have a loss.
        let first = if step == 0 { 0 } else { batch.first };
        let rows = if step == 0 { batch.rows } else { (batch.rows - first).saturating_sub(step) };
        if rows == 0 || loss_rows.count == 0 {
            break;
        }
        let skip = if step == 1 { batch.first } else { 0 };
        feature = feature.narrow(1, skip, rows);
        let embedded = frame.embed(batch.tokens.clone().narrow(1, first + 1 + step, rows));
        let position = first + step;
        let input = drafter.input(frame, embedded.clone(), feature.clone());
        let q = drafter.queries(frame, input.clone(), position);
        let own = drafter.keys_values(frame, input.clone(), position);
        chain = chain.iter().map(|row| row.narrow(0, rows)).collect();
        let columns = match &stretch {
            None => {
                stretch = Some(own);
                rows
            }
            Some(stretch) => {
                chain.push(own);
                stretch.keys.dims()[2]
            }
        };
        let Some(stretch) = &stretch else { break };
        let mask = causal_mask(first, rows, columns, copies, &device);
        let attended = attend(q, stretch, mask.clone(), &chain);
        let h = drafter.finish(frame, feature, attended, None);
        let normed = drafter.normed(frame, h.clone());
        let next = if frame.config.norm_output { normed.clone() } else { h };
        let select = |x: Tensor<3>| {
            let [batch, rows, hidden] = x.dims();
            x.reshape([batch * rows, hidden]).select(0, loss_rows.rows.clone())
        };
        let again = second.then(|| {
            let feature = next.clone() + drafter.pass.val().unsqueeze();
            let feature = drafter.with_candidates(frame, feature, &normed);
            let layer = drafter.second_layer();
            let input = layer.input(frame, embedded, feature.clone());
            let q = layer.queries(frame, input.clone(), position);
            let own = layer.keys_values(frame, input.clone(), position);
            let mut chain = chain.clone();
            chain.push(own);
            let attended = attend(q, stretch, mask, &chain);
            select(layer.normed(frame, layer.finish(frame, feature, attended, Some(input))))
        });
        outputs.push(StepOutput { first: select(normed), second: again });
        feature = next;
    }
    outputs
}
