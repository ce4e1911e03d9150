//! The drafter's forward over rows of many texts at once.

use burn::module::Module as _;
use burn::tensor::{Device, Int, Tensor, TensorData};
use rayon::prelude::*;
use redraft_decode::draft::{Output, TOP, Top};
use redraft_decode::sampling::{Fma, gumbel};
use redraft_decode::{Position, TokenId};
use redraft_drafter::DrafterFile;

use super::attention::{Heads, attend};
use super::text::{Extended, Noise, Prepared, Text, TextId};
use crate::drafter::{Drafter, Frame};
use crate::error::TrainError;
use crate::ops::{causal_mask, from_heads};
use crate::prepare::floats;

/// Rows whose logits are in memory at a time.
const ROWS: usize = 1024;
/// Candidates that are kept of a row: those that are served, and as many behind them for the control of second passes.
const BREADTH: usize = 2 * TOP as usize;
/// Rank of the adapter that a drafter without one is given; its product is zero.
const NO_RANK: usize = 32;

/// A drafter that evaluates rows.
pub struct Evaluator {
    drafter: Drafter,
    frame: Frame,
    ids: Vec<TokenId>,
    pass: Vec<f32>,
    positions: usize,
    device: Device,
}

/// What evaluating a row leaves behind. No row attends to a second pass, so that has neither keys nor values.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) keys: Box<[f32]>,   // [key heads · width], after RoPE
    pub(super) values: Box<[f32]>, // [key heads · width]
    pub(super) hidden: Box<[f32]>, // [hidden] feature of the rows after it
}

/// What the drafter proposes behind a row, whatever the gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposal {
    tops: [Top; BREADTH],
    /// 1 − q(top-1).
    doubt: f32,
    /// Entropy of the candidates and the rest, as a share of ln 9.
    entropy: f32,
}

impl Proposal {
    /// As [`redraft_decode::draft::Draft`] takes it.
    pub(super) fn output(&self, entropy: bool) -> Output {
        self.behind(0, entropy)
    }

    /// The same without the first `children` candidates, at most [`TOP`] of them.
    pub(super) fn behind(&self, children: u32, entropy: bool) -> Output {
        let from = children.min(TOP) as usize;
        let mut output = Output::EMPTY;
        output.tops.copy_from_slice(&self.tops[from..from + TOP as usize]);
        output.unsure = if entropy { self.entropy } else { self.doubt };
        output
    }
}

/// What the drafter says of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    plain: Proposal,
    /// With the noise that the text was drawn with, where there is some.
    coupled: Option<Proposal>,
}

impl Said {
    /// `coupled`: with the noise, if the text was drawn with any.
    pub(super) fn proposal(&self, coupled: bool) -> &Proposal {
        self.coupled.as_ref().filter(|_| coupled).unwrap_or(&self.plain)
    }
}

/// A row to be evaluated.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    pub(super) token: TokenId,
    pub(super) position: usize,
    pub(super) second: bool,
    /// What it continues from, `[hidden]`, without the pass embedding.
    pub(super) feature: &'a [f32],
    pub(super) text: &'a Extended,
    /// Stable rows of the text that it attends to.
    pub(super) stable: usize,
    /// Rows of earlier steps that it attends to.
    pub(super) chain: Vec<&'a State>,
}

impl Evaluator {
    /// The drafter of a file, in the precision that it is stored in. `embedding` is the target's, `[vocab, hidden]`,
    /// for drafters without one of their own; texts and trees may reach up to `positions`.
    ///
    /// # Errors
    /// [`TrainError`] when a tensor is missing or cannot be dequantised.
    pub fn new(
        file: &DrafterFile,
        embedding: Tensor<2>,
        positions: usize,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let config = file.config().clone();
        let embedding = match file.tensor("embed_tokens.weight") {
            Some(own) => {
                let values = own.to_f32().map_err(|source| TrainError::Tensor {
                    name: "embed_tokens.weight".to_owned(),
                    source,
                })?;
                let shape = [config.vocab as usize, config.hidden as usize];
                Tensor::from_data(TensorData::new(values, shape), device)
            }
            None => embedding,
        };
        let found = embedding.dims();
        if found != [config.vocab as usize, config.hidden as usize] {
            let wanted = format!("an embedding of {} tokens, {} wide", config.vocab, config.hidden);
            return Err(TrainError::setting("drafter", wanted, format!("{found:?}")));
        }
        // The seed does not matter: what a file lacks stays without effect.
        let drafter = Drafter::from_file(file, NO_RANK, 0, device)?.no_grad();
        let pass = floats(drafter.pass.val())?;
        Ok(Self {
            drafter,
            frame: Frame::new(config, embedding, positions, device),
            ids: file.draft_ids().iter().copied().map(TokenId).collect(),
            pass,
            positions,
            device: device.clone(),
        })
    }

    /// Tokens that it can propose, ascending.
    #[must_use]
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    fn heads(&self) -> Heads {
        let config = &self.frame.config;
        let [queries, keys, width] = [config.heads, config.kv_heads, config.head_dim].map(|x| x as usize);
        Heads { queries, keys, width }
    }

    /// One pass over the true features of a text.
    ///
    /// # Errors
    /// [`TrainError::Setting`] for a text that is too long or of another target; [`TrainError::Framework`].
    pub(super) fn extend(&self, text: Text) -> Result<Prepared, TrainError> {
        let wide = 3 * self.frame.config.target_hidden as usize;
        let rows = text.tokens.len().saturating_sub(1);
        if rows + redraft_decode::draft::MAX_DEPTH as usize > self.positions {
            let wanted = format!("texts with room below position {}", self.positions);
            return Err(TrainError::setting("text", wanted, format!("{} tokens", rows + 1)));
        }
        if text.record.features.len() != (rows + 1) * wide || !(1..=rows).contains(&text.prompt) {
            let wanted = format!("a prompt, an answer and features {wide} wide");
            let found = format!("{} numbers for {} tokens", text.record.features.len(), rows + 1);
            return Err(TrainError::setting("text", wanted, found));
        }
        let mut features = text.record.features;
        features.truncate(rows * wide);
        let features = Tensor::<3>::from_data(TensorData::new(features, [1, rows, wide]), &self.device);
        let (drafter, frame) = (&self.drafter, &self.frame);
        let fused = drafter.fuse(frame, features);
        let embedded = frame.embed(self.tokens(text.tokens.iter().skip(1).copied()));
        let input = drafter.input(frame, embedded, fused.clone());
        let stretch = drafter.keys_values(frame, input.clone(), 0);
        let heads = self.heads();
        let mask = causal_mask(0, rows, rows, heads.queries / heads.keys, &self.device);
        let attended = crate::drafter::attend(drafter.queries(frame, input, 0), &stretch, mask, &[]);
        let h = drafter.finish(frame, fused.clone(), attended, None);
        let first = text.prompt - 1;
        let behind = |x: Tensor<3>| x.narrow(1, first, rows - first);
        let (fused, h) = (behind(fused), behind(h));
        let noises: Vec<_> = (first..rows).map(|row| (text.noise, row)).collect();
        let (hidden, said) = self.conclude(h, &noises)?;
        let extended = Extended {
            rows,
            width: heads.width,
            keys: floats(stretch.keys)?,
            values: floats(stretch.values)?,
            first,
            feature: floats(fused)?,
            hidden,
            said,
            noise: text.noise,
        };
        Ok(Prepared {
            id: TextId { set: text.set, prompt_id: text.prompt_id },
            tokens: text.tokens,
            prompt: text.prompt,
            choice: text.record.choice,
            certainty: text.record.certainty,
            extended,
        })
    }

    /// Evaluates rows, which do not see each other.
    ///
    /// # Errors
    /// [`TrainError::Framework`].
    pub(super) fn evaluate(&self, requests: &[Request<'_>]) -> Result<Vec<(State, Said)>, TrainError> {
        let mut results = Vec::with_capacity(requests.len());
        for part in requests.chunks(ROWS) {
            results.extend(self.forward(part)?);
        }
        Ok(results)
    }

    fn forward(&self, requests: &[Request<'_>]) -> Result<Vec<(State, Said)>, TrainError> {
        // Second passes last: only they have the adapter.
        let (first, second): (Vec<usize>, Vec<usize>) =
            (0..requests.len()).partition(|&at| !requests[at].second);
        let count = first.len();
        let order: Vec<usize> = first.into_iter().chain(second).collect();
        let requests: Vec<Request<'_>> = order.iter().map(|&at| requests[at].clone()).collect();
        let rows = requests.len();
        let (drafter, frame, heads) = (&self.drafter, &self.frame, self.heads());
        let hidden = frame.config.hidden as usize;

        let mut features = Vec::with_capacity(rows * hidden);
        for request in &requests {
            match request.second {
                true => features.extend(request.feature.iter().zip(&self.pass).map(|(x, r)| x + r)),
                false => features.extend_from_slice(request.feature),
            }
        }
        let feature = Tensor::<3>::from_data(TensorData::new(features, [1, rows, hidden]), &self.device);
        let positions: Vec<i64> = requests.iter().map(|request| request.position as i64).collect();
        let positions = Tensor::<1, Int>::from_data(TensorData::new(positions, [rows]), &self.device);
        let embedded = frame.embed(self.tokens(requests.iter().map(|request| request.token)));
        let input = drafter.input(frame, embedded, feature.clone());
        let q = floats(from_heads(drafter.queries_at(frame, input.clone(), &positions)))?;
        let own = drafter.keys_values_at(frame, input.clone(), &positions);
        let (keys, values) = (floats(from_heads(own.keys))?, floats(from_heads(own.values))?);
        let attended = attend(heads, &requests, &q, &keys, &values);
        let attended = TensorData::new(attended, [1, rows, heads.queries * heads.width]);
        let attended = Tensor::<3>::from_data(attended, &self.device);

        let part = |x: &Tensor<3>, start: usize, len: usize| x.clone().narrow(1, start, len);
        let mut outputs = Vec::new();
        if count > 0 {
            outputs.push(drafter.finish(frame, part(&feature, 0, count), part(&attended, 0, count), None));
        }
        if count < rows {
            let (start, len) = (count, rows - count);
            let (feature, attended) = (part(&feature, start, len), part(&attended, start, len));
            outputs.push(drafter.finish(frame, feature, attended, Some(part(&input, start, len))));
        }
        let noises: Vec<_> = requests.iter().map(|request| (request.text.noise, request.position)).collect();
        let (hiddens, said) = self.conclude(Tensor::cat(outputs, 1), &noises)?;
        let narrow = heads.keys * heads.width;
        let mut results: Vec<Option<(State, Said)>> = vec![None; rows];
        for (place, (&at, said)) in order.iter().zip(said).enumerate() {
            let line = |values: &[f32], width: usize| Box::from(&values[place * width..][..width]);
            let attended = if place < count { narrow } else { 0 };
            let state = State {
                keys: line(&keys, attended),
                values: line(&values, attended),
                hidden: line(&hiddens, hidden),
            };
            results[at] = Some((state, said));
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// The features that rows hand on, `[rows, hidden]`, and what they say; `noises` has the noise of each row's text, and
    /// its position.
    fn conclude(
        &self,
        h: Tensor<3>,
        noises: &[(Option<Noise>, usize)],
    ) -> Result<(Vec<f32>, Vec<Said>), TrainError> {
        let [_, rows, hidden] = h.dims();
        let normed = self.drafter.normed(&self.frame, h.clone());
        let handed = if self.frame.config.norm_output { normed.clone() } else { h };
        let normed = normed.reshape([rows, hidden]);
        let mut said = Vec::with_capacity(rows);
        for start in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - start);
            let logits = floats(self.drafter.logits(normed.clone().narrow(0, start, count)))?;
            let lines: Vec<Said> = logits
                .par_chunks_exact(self.ids.len())
                .zip(&noises[start..start + count])
                .map(|(line, (noise, position))| Said {
                    plain: say(line, &self.ids),
                    coupled: noise.map(|noise| say(&perturbed(line, &self.ids, noise, *position), &self.ids)),
                })
                .collect();
            said.extend(lines);
        }
        Ok((floats(handed)?, said))
    }

    fn tokens(&self, tokens: impl Iterator<Item = TokenId>) -> Tensor<2, Int> {
        let ids: Vec<i64> = tokens.map(|token| i64::from(token.0)).collect();
        let shape = [1, ids.len()];
        Tensor::from_data(TensorData::new(ids, shape), &self.device)
    }
}

/// Logits of a row at `position` as the kernel `draft_scan` has them where proposals are coupled: with the noise that the
/// target draws with. The row reads the feature one before its token; its candidates stand one behind the token.
pub(super) fn perturbed(logits: &[f32], ids: &[TokenId], noise: Noise, position: usize) -> Vec<f32> {
    let behind = Position(u32::try_from(position + 2).unwrap_or(u32::MAX));
    let noised = |(&logit, &id): (&f32, &TokenId)| {
        logit.mul_add(noise.inv_temperature, gumbel(noise.seed, behind, id, Fma::Split))
    };
    logits.iter().zip(ids).map(noised).collect()
}

/// Top tokens and uncertainty of a row of logits, `[draft vocab]`, as the kernels `draft_scan` and `draft_merge` have
/// them: ties go to the lower index, a row that is no number says nothing.
pub(super) fn say(logits: &[f32], ids: &[TokenId]) -> Proposal {
    let mut best = [(f32::NEG_INFINITY, usize::MAX); BREADTH];
    for (index, &value) in logits.iter().enumerate() {
        if value > best[best.len() - 1].0 {
            let place = best.partition_point(|held| held.0 >= value);
            best[place..].rotate_right(1);
            best[place] = (value, index);
        }
    }
    let greatest = best[0].0;
    let sum: f32 = logits.iter().map(|value| (value - greatest).exp()).sum();
    let total = greatest + sum.ln();
    let nothing = Proposal { tops: [Top::EMPTY; BREADTH], doubt: 0.0, entropy: 0.0 };
    if !(total > -1.0e30 && total < 1.0e30) {
        return nothing;
    }
    let mut said = nothing;
    let (mut rest, mut entropy) = (1.0_f32, 0.0_f32);
    for (rank, (top, &(value, index))) in (0..).zip(said.tops.iter_mut().zip(&best)) {
        let Some(&token) = ids.get(index) else { break };
        let log_q = value - total;
        *top = Top { token, log_q };
        if rank < TOP {
            rest -= log_q.exp();
            entropy -= log_q.exp() * log_q;
        }
    }
    if rest > 1.0e-6 {
        entropy -= rest * rest.ln();
    }
    said.doubt = (1.0 - (greatest - total).exp()).clamp(0.0, 1.0);
    // ln 9: nine equal shares, the top eight and the rest.
    said.entropy = (entropy / 9.0_f32.ln()).clamp(0.0, 1.0);
    said
}

#[cfg(test)]
mod tests {
    use redraft_decode::{Sampler, SamplingParams};

    use super::*;

    #[test]
    fn rows_of_logits_by_hand() {
        let ids: Vec<TokenId> = (0..12).map(|id| TokenId(100 + id)).collect();
        let mut logits = vec![0.0; 12];
        (logits[7], logits[3], logits[5]) = (3.0_f32.ln(), 2.0_f32.ln(), 2.0_f32.ln());
        // Shares of 16: 3, 2, 2 and nine of 1.
        let said = say(&logits, &ids);
        let tokens = |output: Output| output.tops.map(|top| top.token.0);
        assert_eq!(tokens(said.output(false)), [107, 103, 105, 100, 101, 102, 104, 106], "ties by index");
        let none = Top::EMPTY.token.0;
        assert_eq!(
            tokens(said.behind(6, true)),
            [104, 106, 108, 109, 110, 111, none, none],
            "behind the sixth"
        );
        assert_eq!(said.behind(6, true).unsure, said.output(true).unsure, "as unsure");
        for (top, share) in said.tops.iter().zip([3.0_f32, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]) {
            assert!((top.log_q.exp() - share / 16.0).abs() < 1e-6, "{top:?}");
        }
        let entropy = |shares: &[f32]| -shares.iter().map(|s| s / 16.0 * (s / 16.0).ln()).sum::<f32>();
        let expected = entropy(&[3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0]) / 9.0_f32.ln();
        assert!((said.output(true).unsure - expected).abs() < 1e-6, "entropy");
        assert!((said.output(false).unsure - 13.0 / 16.0).abs() < 1e-6, "one minus the first");
    }

    #[test]
    fn uncertainty_is_that_of_the_distribution() {
        let ids: Vec<TokenId> = (0..300).map(TokenId).collect();
        let mut prng = redraft_testing::Prng::new(9);
        let mut apart = 0;
        for spread in [0.5_f32, 2.0, 6.0, 20.0].into_iter().cycle().take(80) {
            let logits = prng.signed_values(300, spread);
            let said = say(&logits, &ids);
            // Once more in f64, by the definition.
            let mut shares: Vec<f64> = logits.iter().map(|logit| f64::from(*logit).exp()).collect();
            let sum: f64 = shares.iter().sum();
            shares.iter_mut().for_each(|share| *share /= sum);
            shares.sort_by(|a, b| b.total_cmp(a));
            let rest: f64 = shares[TOP as usize..].iter().sum();
            let entropy: f64 =
                shares[..TOP as usize].iter().chain([&rest]).map(|share| -share * share.ln()).sum();
            for (kind, expected) in [(true, entropy / 9.0_f64.ln()), (false, 1.0 - shares[0])] {
                let found = f64::from(said.output(kind).unsure);
                assert!(
                    (found - expected).abs() < 1e-5,
                    "entropy: {kind}, spread {spread}: {found}, {expected}"
                );
            }
            apart += usize::from((entropy / 9.0_f64.ln() - (1.0 - shares[0])).abs() > 0.02);
        }
        assert!(apart > 40, "the two are not the same: {apart} of 80 rows");
    }

    #[test]
    fn coupled_proposals_are_what_the_sampler_draws() {
        let vocab = 300_u32;
        let ids: Vec<TokenId> = (0..vocab).map(TokenId).collect();
        let mut prng = redraft_testing::Prng::new(3);
        let mut alike = 0;
        for seed in 0..20 {
            let logits = prng.signed_values(vocab as usize, 3.0);
            let params = SamplingParams { temperature: 0.75, seed, ..SamplingParams::default() };
            let mut sampler = Sampler::new(params, vocab).unwrap();
            // A row at 40 reads the feature of token 40 and token 41: it proposes token 42.
            let drawn = sampler.sample(&logits, &[], Position(42)).unwrap();
            let noise = Noise { seed, inv_temperature: 1.0 / 0.75 };
            let proposed = say(&perturbed(&logits, &ids, noise, 40), &ids).tops[0].token;
            assert_eq!(proposed, drawn, "seed {seed}");
            alike += usize::from(say(&logits, &ids).tops[0].token == drawn);
        }
        assert!(alike < 10, "without the noise it is another token: {alike} of 20 alike");
    }

    #[test]
    fn short_rows_and_rows_that_are_no_numbers() {
        let ids = [TokenId(5), TokenId(6)];
        let said = say(&[0.0, 1.0], &ids);
        assert_eq!([said.tops[0].token, said.tops[1].token], [TokenId(6), TokenId(5)], "both");
        assert_eq!(said.tops[2], Top::EMPTY, "no third");
        for bad in [f32::NAN, f32::INFINITY] {
            let said = say(&[bad, 1.0], &ids);
            assert!(said.tops.iter().all(|top| *top == Top::EMPTY), "{bad}");
            assert_eq!(said.output(false).unsure, 0.0, "{bad}");
        }
    }
}
