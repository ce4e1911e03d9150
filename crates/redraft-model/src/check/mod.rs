//! Proof on the adapter at hand that results do not depend on the batch.
//!
//! One source text is no proof: WGSL lets compilers fuse and reassociate, and tiles of different sizes are different
//! pipelines. So [`adapter`] runs every weight format through every tile and compares the rows bit for bit with each
//! other and, within rounding, with the CPU; then it decodes with a small built-in model, and [`model`] does the same
//! with a loaded one: token trees against plain decoding, bit for bit.

mod product;
mod synthetic;

use crate::{
    Batch, CaptureLayers, LoadOptions, LogitRows, Model, ModelError, Path, Precision, TileReport, Tiles,
};
use redraft_decode::TokenId;
use redraft_gguf::{GgmlType, Gguf};
use redraft_gpu::Gpu;
use std::sync::Arc;

/// What a check found.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// As it must be.
    Pass,
    /// Results that must be equal are not.
    Differs {
        /// How many values, of how many.
        values: usize,
        /// Compared.
        of: usize,
    },
    /// Results are far from the CPU's.
    Wrong {
        /// Greatest error, relative to the sum of the magnitudes of the terms.
        error: f64,
    },
    /// It could not be run.
    Failed(String),
}

/// One check.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckItem {
    /// The kernel and its variant, or the model and the batch.
    pub kernel: String,
    /// The result.
    pub outcome: Outcome,
}

/// All checks of an adapter or a model.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckReport {
    /// Name of the adapter.
    pub adapter: String,
    /// Kernel family.
    pub path: &'static str,
    /// Which tiles agree in everything that ran; `None` if nothing did.
    pub tiles: Option<TileReport>,
    /// In the order they ran.
    pub items: Vec<CheckItem>,
}

/// How far a check has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckProgress {
    /// Done so far.
    pub done: usize,
    /// Of this many.
    pub total: usize,
    /// What runs now.
    pub now: String,
}

impl CheckReport {
    /// Whether everything passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.items.is_empty() && self.items.iter().all(|item| item.outcome == Outcome::Pass)
    }
}

/// Batch sizes that exercise every tile and combinations of them.
const ROWS: [u32; 11] = [2, 3, 4, 5, 8, 9, 13, 16, 17, 32, 33];
/// Committed tokens before the tree: neither a multiple of 8 nor of 64.
const COMMITTED: u32 = 21;

/// Checks the products of every format and a small built-in model, with the adapter's family for `precision`.
///
/// # Errors
/// [`ModelError::Gpu`] if the device is lost; everything else is in the report.
pub async fn adapter(
    gpu: &Arc<Gpu>,
    precision: Precision,
    progress: impl FnMut(&CheckProgress),
) -> Result<CheckReport, ModelError> {
    adapter_on(gpu, Path::of(gpu.capabilities(), precision), progress).await
}

/// The same for a family that is not the adapter's own.
///
/// # Errors
/// As [`adapter`].
pub async fn adapter_on(
    gpu: &Arc<Gpu>,
    path: Path,
    mut progress: impl FnMut(&CheckProgress),
) -> Result<CheckReport, ModelError> {
    // One more than kinds and batches: loading the model.
    let total = product::KINDS.len() + 1 + ROWS.len();
    let mut items = Vec::new();
    let mut agreeing = Tiles::ALL;
    for (done, kind) in product::KINDS.into_iter().enumerate() {
        let label = format!("matmul.{}.{}", product::format_name(kind), path.name());
        progress(&CheckProgress { done, total, now: label.clone() });
        let outcome = product::check(gpu, kind, path).await.map(|(outcome, tiles)| {
            agreeing = agreeing.and(tiles);
            outcome
        });
        items.push(item(label, outcome));
        gpu.healthy()?;
    }
    // The types of the default model: its kernels are the ones most likely to be wanted next.
    let (matrices, table) = (GgmlType::Q4_1, GgmlType::Q8_0);
    let name = format!("model.{}.{}.{}", matrices.name(), table.name(), path.name());
    let before = product::KINDS.len();
    progress(&CheckProgress { done: before, total, now: name.clone() });
    let mut tiles = None;
    match built_in(gpu, matrices, table, path, agreeing).await {
        Ok(model) => {
            let own = model.tiles();
            tiles = Some(TileReport { agreeing: agreeing.and(own.agreeing), ..own });
            items.extend(
                batches(&model, &name, |at, now| {
                    progress(&CheckProgress { done: before + 1 + at, total, now: now.to_owned() });
                })
                .await?,
            );
        }
        Err(error) => items.push(CheckItem { kernel: name, outcome: Outcome::Failed(error.to_string()) }),
    }
    gpu.healthy()?;
    Ok(CheckReport { adapter: gpu.report().name.clone(), path: path.name(), tiles, items })
}

/// Checks a loaded model: trees of several sizes against plain decoding. Overwrites its KV cache.
///
/// # Errors
/// [`ModelError::Gpu`] if the device is lost.
pub async fn model(model: &Model) -> Result<CheckReport, ModelError> {
    let items = batches(model, "model", |_, _| {}).await?;
    let (adapter, path) = (model.gpu().report().name.clone(), model.path().name());
    Ok(CheckReport { adapter, path, tiles: Some(model.tiles()), items })
}

fn item(kernel: String, outcome: Result<Outcome, ModelError>) -> CheckItem {
    CheckItem { kernel, outcome: outcome.unwrap_or_else(|error| Outcome::Failed(error.to_string())) }
}

/// Loaded with its first steps, which drop tiles that differ: the trees then prove that this suffices.
async fn built_in(
    gpu: &Arc<Gpu>,
    matrices: GgmlType,
    table: GgmlType,
    path: Path,
    tiles: Tiles,
) -> Result<Model, ModelError> {
    let file = synthetic::file(matrices, table);
    let gguf = Gguf::read(&file).await?;
    let captures = CaptureLayers::At((0..=synthetic::LAYERS).collect());
    let options = LoadOptions { path: Some(path), captures, tiles, ..LoadOptions::default() };
    Model::load(Arc::clone(gpu), &file, &gguf, &options, |_| {}).await
}

async fn batches(
    model: &Model,
    name: &str,
    mut progress: impl FnMut(usize, &str),
) -> Result<Vec<CheckItem>, ModelError> {
    let mut items = Vec::new();
    for (at, rows) in ROWS.into_iter().enumerate() {
        if COMMITTED + rows < model.context() {
            let label = format!("{name}.m{rows}");
            progress(at, &label);
            items.push(item(label, batch(model, rows).await));
            model.gpu().healthy()?;
        }
    }
    Ok(items)
}

/// What row `row` of the last batch of `rows` rows left behind: logits, captures, and its keys and values, which are in
/// `slot`. In four-byte words.
async fn row_of(
    model: &Model,
    row: u32,
    rows: u32,
    slot: u32,
    captures: bool,
) -> Result<Vec<u8>, ModelError> {
    let gpu = model.gpu();
    let mut bytes = gpu.fetch(model.logits_row(row)).await?;
    let hidden = model.config().hidden as usize * 4;
    for index in 0..if captures { model.capture_layers().len() } else { 0 } {
        if let Some(all) = model.capture(index, rows) {
            let all = gpu.fetch(all).await?;
            bytes.extend(all.get(row as usize * hidden..(row as usize + 1) * hidden).unwrap_or_default());
        }
    }
    for layer in 0..model.config().layers as usize {
        if let Some((key, value)) = model.key_value(layer, slot) {
            bytes.extend(gpu.fetch(key).await?);
            bytes.extend(gpu.fetch(value).await?);
        }
    }
    Ok(bytes)
}

/// A binary tree of `rows` rows; its deepest path is decoded token by token and must leave the same behind.
async fn batch(model: &Model, rows: u32) -> Result<Outcome, ModelError> {
    let vocab = model.config().vocab;
    let token = |index: u32| TokenId(index.wrapping_mul(2_654_435_761) % vocab);
    let prefix: Vec<_> = (0..COMMITTED).map(token).collect();
    let tree: Vec<_> = (0..rows).map(|row| token(COMMITTED + row)).collect();
    let parents: Vec<_> = (0..rows).map(|row| row.checked_sub(1).map(|above| above / 2)).collect();
    let captures = !model.capture_layers().is_empty();
    let run = |batch: Batch| {
        let batch = if captures { batch.with_captures() } else { batch };
        model.submit(&batch, |_| Ok::<(), ModelError>(()), &[])
    };
    run(Batch::chain(0, &prefix, LogitRows::None))?;
    run(Batch::tree(COMMITTED, &tree, &parents))?;
    let mut path = vec![rows - 1];
    while let Some(Some(parent)) = path.last().and_then(|row| parents.get(*row as usize)) {
        path.push(*parent);
    }
    path.reverse();
    let mut expected = Vec::new();
    for row in &path {
        expected.push(row_of(model, *row, rows, COMMITTED + row, captures).await?);
    }
    let (mut values, mut of) = (0, 0);
    for ((position, row), expected) in (COMMITTED..).zip(&path).zip(&expected) {
        let one = tree.get(*row as usize).copied().into_iter().collect::<Vec<_>>();
        run(Batch::chain(position, &one, LogitRows::Last))?;
        let found = row_of(model, 0, 1, position, captures).await?;
        of += found.len() / 4;
        values += found.chunks(4).zip(expected.chunks(4)).filter(|(a, b)| a != b).count();
    }
    Ok(if values == 0 { Outcome::Pass } else { Outcome::Differs { values, of } })
}
