//! A table in place of a drafter, for tests of everything else.

use super::arena::{MAX_STEPS, TreeBuffers};
use crate::forward::MAX_ROWS;
use crate::{Model, ModelError};
use redraft_decode::TokenId;
use redraft_decode::draft::NONE;
use redraft_gpu::{Buffer, Dispatch, Pass};

/// Candidates of a row, as the kernels have it.
const TOP: usize = redraft_decode::draft::TOP as usize;

/// What is proposed for one position, whatever came before it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OracleEntry {
    /// Tokens of a first pass with their log-probabilities, likeliest first; at most eight.
    pub first: Vec<(TokenId, f32)>,
    /// Those of a second pass.
    pub second: Vec<(TokenId, f32)>,
    /// How unsure the pass is that proposes them, 0 to 1.
    pub unsure: f32,
}

/// Proposes from a table by position. It costs next to nothing and needs no weights, so whole generations with any
/// acceptance can be run.
#[derive(Debug)]
pub struct Oracle {
    table: Buffer,
    doubts: Buffer,
    steps: Vec<Dispatch>,
}

impl Oracle {
    pub(crate) async fn new(model: &Model, tree: &TreeBuffers) -> Result<Self, ModelError> {
        let gpu = &model.gpu;
        let positions = model.context as usize + MAX_ROWS as usize;
        let table = gpu.storage("oracle.table", &vec![[NONE, 0]; positions * 2 * TOP]).await?;
        let doubts = gpu.storage("oracle.doubts", &vec![0.0f32; positions]).await?;
        let pipeline = gpu.kernel("draft_oracle", &[]).await?;
        let mut steps = Vec::new();
        for params in tree.params.iter().take(MAX_STEPS as usize + 1) {
            let buffers = [
                params,
                &tree.row_nodes,
                &tree.nodes,
                &tree.round,
                &table,
                &doubts,
                &tree.tops,
                &tree.unsure,
            ];
            let slices: Vec<_> = buffers.iter().map(|buffer| buffer.whole()).collect();
            steps.push(gpu.bind(&pipeline, &slices).await?);
        }
        Ok(Self { table, doubts, steps })
    }

    /// Notes what to propose for the positions from `first` on.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if they do not fit the context.
    pub(crate) fn write(&self, model: &Model, first: u32, entries: &[OracleEntry]) -> Result<(), ModelError> {
        let mut words = Vec::with_capacity(entries.len() * 2 * TOP);
        for entry in entries {
            for pass in [&entry.first, &entry.second] {
                let mut top: Vec<[u32; 2]> =
                    pass.iter().take(TOP).map(|(token, log_q)| [token.0, log_q.to_bits()]).collect();
                top.resize(TOP, [NONE, 0]);
                words.extend(top);
            }
        }
        let doubts: Vec<f32> = entries.iter().map(|entry| entry.unsure).collect();
        let (count, at) = (entries.len() as u64, u64::from(first));
        if (at + count) * 4 > self.doubts.size() {
            return Err(crate::batch::batch("position", at + count, "within the context".to_owned()));
        }
        let entry = 2 * TOP as u64 * 8;
        model.gpu.write(self.table.slice(at * entry, count * entry), bytemuck::cast_slice(&words));
        model.gpu.write(self.doubts.slice(at * 4, count * 4), bytemuck::cast_slice(&doubts));
        Ok(())
    }

    pub(crate) fn record_step(&self, pass: &mut Pass<'_>, step: u32) -> Result<(), ModelError> {
        match self.steps.get(step as usize) {
            Some(dispatch) => Ok(pass.run(dispatch, [1, 1, 1])?),
            None => Ok(()),
        }
    }
}
