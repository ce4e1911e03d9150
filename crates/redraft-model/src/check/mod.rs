//! Proof on the adapter at hand that results do not depend on the batch.
//!
//! One source text is no proof: WGSL lets compilers fuse and reassociate, and tiles of different sizes are different
//! pipelines. So [`adapter`] runs every weight format through every tile and compares the rows bit for bit with each
//! other and, within rounding, with the CPU; then it decodes with a small built-in model, and [`model`] does the same
//! with a loaded one: token trees against plain decoding, bit for bit.

mod product;
mod synthetic;

use crate::{Batch, LoadOptions, LogitRows, Model, ModelError, Path};
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
    /// In the order they ran.
    pub items: Vec<CheckItem>,
}

impl CheckReport {
    /// Whether everything passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.items.is_empty() && self.items.iter().all(|item| item.outcome == Outcome::Pass)
    }
}

/// Batch sizes that exercise every tile and combinations of them.
const ROWS: [u32; 8] = [2, 3, 4, 5, 8, 9, 13, 17];
/// Committed tokens before the tree: neither a multiple of 8 nor of 64.
const COMMITTED: u32 = 21;

/// Checks the products of every format and a small built-in model.
///
/// # Errors
/// [`ModelError::Gpu`] if the device is lost; everything else is in the report.
pub async fn adapter(gpu: &Arc<Gpu>) -> Result<CheckReport, ModelError> {
    adapter_on(gpu, Path::of(gpu.capabilities())).await
}

/// The same for a family that is not the adapter's own.
///
/// # Errors
/// As [`adapter`].
pub async fn adapter_on(gpu: &Arc<Gpu>, path: Path) -> Result<CheckReport, ModelError> {
    let mut items = Vec::new();
    for kind in product::KINDS {
        let label = format!("matmul.{}.{}", product::format_name(kind), path.name());
        items.push(item(label, product::check(gpu, kind, path).await));
        gpu.healthy()?;
    }
    // The types of the default model: its kernels are the ones most likely to be wanted next.
    let (matrices, table) = (GgmlType::Q4_1, GgmlType::Q8_0);
    let name = format!("model.{}.{}.{}", matrices.name(), table.name(), path.name());
    match built_in(gpu, matrices, table, path).await {
        Ok(model) => items.extend(batches(&model, &name).await?),
        Err(error) => items.push(CheckItem { kernel: name, outcome: Outcome::Failed(error.to_string()) }),
    }
    gpu.healthy()?;
    Ok(CheckReport { adapter: gpu.report().name.clone(), path: path.name(), items })
}

/// Checks a loaded model: trees of several sizes against plain decoding. Overwrites its KV cache.
///
/// # Errors
/// [`ModelError::Gpu`] if the device is lost.
pub async fn model(model: &Model) -> Result<CheckReport, ModelError> {
    let items = batches(model, "model").await?;
    Ok(CheckReport { adapter: model.gpu().report().name.clone(), path: model.path().name(), items })
}

fn item(kernel: String, outcome: Result<Outcome, ModelError>) -> CheckItem {
    CheckItem { kernel, outcome: outcome.unwrap_or_else(|error| Outcome::Failed(error.to_string())) }
}

async fn built_in(
    gpu: &Arc<Gpu>,
    matrices: GgmlType,
    table: GgmlType,
    path: Path,
) -> Result<Model, ModelError> {
    let file = synthetic::file(matrices, table);
    let gguf = Gguf::read(&file).await?;
    let options = LoadOptions { path: Some(path), skip_first_steps: true, ..LoadOptions::default() };
    Model::load(Arc::clone(gpu), &file, &gguf, &options, |_| {}).await
}

async fn batches(model: &Model, name: &str) -> Result<Vec<CheckItem>, ModelError> {
    let mut items = Vec::new();
    for rows in ROWS {
        if COMMITTED + rows < model.context() {
            items.push(item(format!("{name}.m{rows}"), batch(model, rows).await));
            model.gpu().healthy()?;
        }
    }
    Ok(items)
}

/// A binary tree of `rows` rows; its deepest path is decoded token by token and must give the same logits.
async fn batch(model: &Model, rows: u32) -> Result<Outcome, ModelError> {
    let vocab = model.config().vocab;
    let token = |index: u32| TokenId(index.wrapping_mul(2_654_435_761) % vocab);
    let prefix: Vec<_> = (0..COMMITTED).map(token).collect();
    let tree: Vec<_> = (0..rows).map(|row| token(COMMITTED + row)).collect();
    let parents: Vec<_> = (0..rows).map(|row| row.checked_sub(1).map(|above| above / 2)).collect();
    model.submit(&Batch::chain(0, &prefix, LogitRows::None), |_| Ok(()), &[])?;
    model.submit(&Batch::tree(COMMITTED, &tree, &parents), |_| Ok(()), &[])?;
    let mut path = vec![rows - 1];
    while let Some(Some(parent)) = path.last().and_then(|row| parents.get(*row as usize)) {
        path.push(*parent);
    }
    path.reverse();
    let mut expected = Vec::new();
    for row in &path {
        expected.push(model.gpu().fetch(model.logits_row(*row)).await?);
    }
    let (mut values, mut of) = (0, 0);
    for ((position, row), expected) in (COMMITTED..).zip(&path).zip(&expected) {
        let one = tree.get(*row as usize).copied().into_iter().collect::<Vec<_>>();
        model.submit(&Batch::chain(position, &one, LogitRows::Last), |_| Ok(()), &[])?;
        let found = model.gpu().fetch(model.logits_row(0)).await?;
        of += found.len() / 4;
        values += found.chunks(4).zip(expected.chunks(4)).filter(|(a, b)| a != b).count();
    }
    Ok(if values == 0 { Outcome::Pass } else { Outcome::Differs { values, of } })
}
