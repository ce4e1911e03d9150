//! From text to a corpus: one pass of the target over every sample.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use indicatif::{ProgressBar, ProgressStyle};

use crate::corpus::{Corpus, Manifest, Record};
use crate::data::{Sample, Split, draft_vocabulary};
use crate::error::TrainError;
use crate::target::{Target, TargetFile};

/// Samples whose records are written together.
const GROUP: usize = 32;
/// Rows of the target's head at a time: their logits over the vocabulary are in memory.
const HEAD_ROWS: usize = 256;

/// How a corpus is made.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Layers of the target whose input is captured, ascending.
    pub captures: [u32; 3],
    /// Tokens that the drafter proposes.
    pub draft_vocab: usize,
    /// Share of the prompts that are held out.
    pub held_out: f64,
    /// Tokens, padding included, that the target reads at a time.
    pub batch_tokens: usize,
    /// Whether to print progress.
    pub progress: bool,
}

/// Makes the corpus of `samples` in `directory`, or goes on with it.
///
/// # Errors
/// [`TrainError`] names the file or setting.
pub fn prepare(
    file: &TargetFile,
    samples: Vec<Sample>,
    directory: &Path,
    options: &PrepareOptions,
    device: &Device,
) -> Result<Corpus, TrainError> {
    if !(0.0..1.0).contains(&options.held_out) {
        return Err(TrainError::setting("--held-out", "0 to below 1", options.held_out));
    }
    let vocab = file.config.vocab as usize;
    let mut counts = vec![0_u64; vocab];
    let training = samples.iter().filter(|sample| sample.split(options.held_out) == Split::Train);
    training.flat_map(|sample| &sample.response).for_each(|&token| counts[token as usize] += 1);
    let draft_ids = draft_vocabulary(&counts, options.draft_vocab)?;
    let covered: u64 = draft_ids.iter().map(|&id| counts[id as usize]).sum();
    let coverage = covered as f64 / counts.iter().sum::<u64>().max(1) as f64;
    let longest = samples.iter().map(Sample::len).max().unwrap_or(0);
    let fingerprint = file.fingerprint(options.captures)?;
    let manifest = Manifest::new(fingerprint, draft_ids, coverage, samples, options.held_out);
    let mut corpus = Corpus::create(directory, manifest)?;

    let total: usize = corpus.manifest().samples.iter().map(|entry| entry.tokens.len()).sum();
    let done = |corpus: &Corpus| -> u64 {
        corpus.manifest().samples.iter().take(corpus.ready()).map(|entry| entry.tokens.len() as u64).sum()
    };
    if done(&corpus) == total as u64 {
        return Ok(corpus);
    }
    let target = Target::load(file, options.captures, longest, device)?;
    let bar = if options.progress { ProgressBar::new(total as u64) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template("features {bar:30} {pos}/{len} tokens, {per_sec}, ETA {eta}")
    {
        bar.set_style(style);
    }
    bar.set_position(done(&corpus));
    bar.reset_eta();
    while corpus.ready() < corpus.manifest().samples.len() {
        let first = corpus.ready();
        let group: Vec<(&[u32], usize)> = corpus.manifest().samples[first..]
            .iter()
            .take(GROUP)
            .map(|entry| (entry.tokens.as_slice(), entry.prompt))
            .collect();
        let records = teach(&target, &group, options.batch_tokens, device)?;
        corpus.append(&records)?;
        bar.set_position(done(&corpus));
    }
    bar.finish();
    Ok(corpus)
}

/// Records of some samples, each its tokens and the length of its prompt.
///
/// # Errors
/// [`TrainError::Framework`] when the device fails.
pub fn teach(
    target: &Target,
    samples: &[(&[u32], usize)],
    batch_tokens: usize,
    device: &Device,
) -> Result<Vec<Record>, TrainError> {
    // Samples of like length share a batch.
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|&index| samples[index].0.len());
    let mut records: Vec<Option<Record>> = vec![None; samples.len()];
    let mut rest = order.as_slice();
    while !rest.is_empty() {
        let fits = |count: &usize| samples[rest[count - 1]].0.len() * count <= batch_tokens;
        let count = (1..=rest.len()).take_while(fits).last().unwrap_or(1);
        let (batch, behind) = rest.split_at(count);
        rest = behind;
        let rows = batch.iter().map(|&index| samples[index].0.len()).max().unwrap_or(0);
        let mut ids = vec![0_i64; count * rows];
        for (line, &index) in ids.chunks_exact_mut(rows).zip(batch) {
            line.iter_mut().zip(samples[index].0).for_each(|(to, &token)| *to = i64::from(token));
        }
        let tokens = Tensor::<2, Int>::from_data(TensorData::new(ids, [count, rows]), device);
        let taught = target.forward(tokens);
        for (place, &index) in batch.iter().enumerate() {
            let (tokens, prompt) = samples[index];
            let features = taught.features.clone().narrow(0, place, 1).narrow(1, 0, tokens.len());
            let hidden: Tensor<2> =
                taught.hidden.clone().narrow(0, place, 1).narrow(1, 0, tokens.len()).squeeze_dim(0);
            let (mut choice, mut certainty) = (vec![0; tokens.len()], vec![0.0; tokens.len()]);
            let mut at = prompt - 1;
            while at < tokens.len() {
                let count = HEAD_ROWS.min(tokens.len() - at);
                let logits = target.logits(hidden.clone().narrow(0, at, count));
                let (best, ids) = logits.clone().max_dim_with_indices(1);
                let sure = (logits - best).exp().sum_dim(1).recip();
                for (to, id) in choice[at..].iter_mut().zip(integers(ids)?) {
                    *to = u32::try_from(id).unwrap_or(u32::MAX);
                }
                certainty[at..][..count].copy_from_slice(&floats(sure)?);
                at += count;
            }
            records[index] =
                Some(Record { features: floats(features)?, hidden: floats(hidden)?, choice, certainty });
        }
    }
    Ok(records.into_iter().flatten().collect())
}

/// The values of a tensor.
pub(crate) fn floats<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, TrainError> {
    tensor
        .try_into_vec_as::<f32>()
        .map_err(|error| TrainError::Framework { what: "reading a tensor", message: format!("{error:?}") })
}

/// The values of a tensor of integers.
pub(crate) fn integers<const D: usize>(tensor: Tensor<D, Int>) -> Result<Vec<i64>, TrainError> {
    tensor
        .try_into_vec_as::<i64>()
        .map_err(|error| TrainError::Framework { what: "reading a tensor", message: format!("{error:?}") })
}
