//! Texts of like length as tensors, and which of their rows teach.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::corpus::Corpus;
use crate::error::TrainError;
use crate::random::Random;

/// The rows that have a loss at one step of the unrolling.
#[derive(Clone, Debug)]
pub struct LossRows {
    /// Indices into the step's rows, `[batch · rows]` flattened.
    pub rows: Tensor<1, Int>,
    /// Of each the row of [`Batch::teacher`] that it learns from.
    pub teachers: Tensor<1, Int>,
    /// How many.
    pub count: usize,
}

/// A batch of whole texts. Row t carries the features of token t and the embedding of token t + 1, and guesses
/// token t + 2; at step s of the unrolling row t carries token t + 1 + s.
#[derive(Clone, Debug)]
pub struct Batch {
    /// `[batch, rows + steps]`, zero behind shorter texts.
    pub tokens: Tensor<2, Int>,
    /// `[batch, rows, 3 · target hidden]`.
    pub features: Tensor<3>,
    /// The target's distributions over the draft vocabulary, renormalised, `[teachers, draft vocab]`.
    pub teacher: Tensor<2>,
    /// The target's own choice of each as an index into the draft vocabulary, `[teachers]`.
    pub choice: Tensor<1, Int>,
    /// How sure of it the target was, over its whole vocabulary, `[teachers, 1]`.
    pub certainty: Tensor<2>,
    /// By step.
    pub steps: Vec<LossRows>,
    /// Rows of a text, the longest one's.
    pub rows: usize,
    /// First row that any loss is on: steps behind the first begin here.
    pub first: usize,
}

/// Sample indices by batch, for one pass over the text: shuffled by `seed`, texts of like length together, at most
/// `batch_tokens` tokens with padding.
pub(crate) fn plan(corpus: &Corpus, samples: &[usize], batch_tokens: usize, seed: u64) -> Vec<Vec<usize>> {
    /// Texts that are sorted together: more would pad less and mix less.
    const POOL: usize = 64;
    let length = |index: usize| corpus.manifest().samples[index].tokens.len();
    let mut order = samples.to_vec();
    Random::new(seed).shuffle(&mut order);
    let mut batches = Vec::new();
    for pool in order.chunks_mut(POOL) {
        pool.sort_by_key(|&index| (length(index), index));
        let mut batch: Vec<usize> = Vec::new();
        for &index in pool.iter() {
            // Ascending: the newest text is the longest.
            if !batch.is_empty() && (batch.len() + 1) * length(index) > batch_tokens {
                batches.push(std::mem::take(&mut batch));
            }
            batch.push(index);
        }
        batches.push(batch);
    }
    Random::new(seed ^ 0x5851_f42d_4c95_7f2d).shuffle(&mut batches);
    batches
}

impl Batch {
    /// Reads the records of some samples. `draft_index` has of every token of the target its index in the draft
    /// vocabulary, or none; `head` is the target's head over the draft vocabulary, `[draft vocab, target hidden]`.
    ///
    /// # Errors
    /// [`TrainError`] when a record cannot be read.
    pub fn load(
        corpus: &Corpus,
        samples: &[usize],
        steps: usize,
        draft_index: &[Option<u32>],
        head: &Tensor<2>,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let hidden = corpus.manifest().target.hidden as usize;
        let entry = |index: &usize| &corpus.manifest().samples[*index];
        let longest = samples.iter().map(|index| entry(index).tokens.len()).max().unwrap_or(0);
        let rows = longest.saturating_sub(2).max(1);
        let first = samples.iter().map(|index| entry(index).prompt - 1).min().unwrap_or(0).min(rows - 1);
        let width = rows + steps;
        let mut tokens = vec![0_i64; samples.len() * width];
        let mut features = vec![0.0_f32; samples.len() * rows * 3 * hidden];
        let (mut last, mut choice, mut certainty) = (Vec::new(), Vec::new(), Vec::new());
        let mut placed = vec![(Vec::new(), Vec::new()); steps];
        for (place, index) in samples.iter().enumerate() {
            let (entry, record) = (entry(index), corpus.record(*index)?);
            let count = entry.tokens.len();
            let line = &mut tokens[place * width..][..width];
            line.iter_mut().zip(&entry.tokens).for_each(|(to, &token)| *to = i64::from(token));
            let taken = 3 * hidden * count.min(rows);
            features[place * rows * 3 * hidden..][..taken].copy_from_slice(&record.features[..taken]);
            // The target at position u says what follows token u; the answer's tokens prompt … count - 2 teach.
            for position in entry.prompt..count.saturating_sub(1) {
                let Some(draft) = draft_index.get(record.choice[position] as usize).copied().flatten() else {
                    continue;
                };
                let teacher = choice.len() as i64;
                choice.push(i64::from(draft));
                certainty.push(record.certainty[position]);
                last.extend_from_slice(&record.hidden[position * hidden..][..hidden]);
                for (step, (at, teachers)) in placed.iter_mut().enumerate() {
                    // Row t teaches from position t + 1 + s, and was drafted from a root that the target wrote.
                    let Some(row) = position.checked_sub(1 + step).filter(|row| *row + 1 >= entry.prompt)
                    else {
                        continue;
                    };
                    let (from, held) =
                        if step == 0 { (0, rows) } else { (first, rows - first - step.min(rows - first)) };
                    at.push((place * held + row - from) as i64);
                    teachers.push(teacher);
                }
            }
        }
        let teachers = choice.len();
        let integers = |values: Vec<i64>| {
            Tensor::<1, Int>::from_data(TensorData::new(values.clone(), [values.len()]), device)
        };
        let steps = placed
            .into_iter()
            .map(|(rows, teachers)| LossRows {
                count: rows.len(),
                rows: integers(rows),
                teachers: integers(teachers),
            })
            .collect();
        let last = Tensor::<2>::from_data(TensorData::new(last, [teachers, hidden]), device);
        Ok(Self {
            tokens: Tensor::from_data(TensorData::new(tokens, [samples.len(), width]), device),
            features: Tensor::from_data(TensorData::new(features, [samples.len(), rows, 3 * hidden]), device),
            teacher: softmax(last.matmul(head.clone().transpose()), 1),
            choice: integers(choice),
            certainty: Tensor::from_data(TensorData::new(certainty, [teachers, 1]), device),
            steps,
            rows,
            first,
        })
    }
}
