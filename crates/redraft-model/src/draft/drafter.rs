//! A drafter and its forward pass.
//!
//! One decoder layer in the manner of EAGLE-3 (arXiv 2503.01840): `g = fc(features)` for rows whose features the target
//! computed, or what another row of the drafter returned; `x = [norm(embedding), norm(g)]`; attention over `x`; residuals
//! on `g`. It runs on the target's own kernels, so a row of it does not depend on its batch either.

use crate::ModelError;
use crate::forward::{Layer, MAX_ROWS, Product};
use crate::kernels::Tiles;
use redraft_decode::SamplingParams;
use redraft_decode::draft::{Gate, Plan, Tables, WIDTH};
use redraft_decode::sampling::Fma;
use redraft_drafter::Quantization;
use redraft_gguf::ModelConfig;
use redraft_gpu::{Buffer, Dispatch, Gpu, Pass};
use redraft_shaders::params::{FeatureParams, GatherParams, TopParams};

/// How a drafter is loaded.
#[derive(Debug, Clone, Copy)]
pub struct DrafterOptions {
    /// The type that its matrices are rewritten in, unless they are stored in blocks already.
    pub quantization: Quantization,
}

impl Default for DrafterOptions {
    fn default() -> Self {
        Self { quantization: Quantization::Q8_0 }
    }
}

/// A drafter on the GPU, bound to one target and its tree.
#[derive(Debug)]
pub struct Drafter {
    pub(super) config: ModelConfig,
    pub(super) tiles: Tiles,
    pub(super) captures: u32,
    pub(super) target_hidden: u32,
    pub(super) rank: u32,
    pub(super) reconsiders: bool,
    pub(super) tables: Tables,
    pub(super) bytes: u64,
    pub(super) gather_features: [(Dispatch, Buffer); 2],
    pub(super) fc_norm: Vec<Dispatch>,
    pub(super) fc: Product,
    pub(super) embed: Vec<Dispatch>,
    pub(super) hidden_norm: Dispatch,
    pub(super) layer: Layer,
    /// Down, mask, up.
    pub(super) adapter: Option<(Product, Dispatch, Product)>,
    pub(super) output_norm: Dispatch,
    pub(super) head: Product,
    pub(super) gather: (Dispatch, Buffer),
    /// Of step 0, 1, …, as are the next; the last one keeps the root's input.
    pub(super) stores: Vec<Dispatch>,
    pub(super) store_input: Dispatch,
    pub(super) scan: Dispatch,
    pub(super) merges: Vec<Dispatch>,
    pub(super) top_params: Vec<Buffer>,
}

impl Drafter {
    /// Bytes of storage that it takes on the device, weights included.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.bytes
    }

    /// Whether it was trained for second passes: it has a pass embedding or an adapter.
    #[must_use]
    pub fn reconsiders(&self) -> bool {
        self.reconsiders
    }

    /// Calibration and gains that came with it.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Writes what depends on the plan. `coupled`: at a temperature its proposals are drawn with the target's noise.
    pub(crate) fn set_plan(&self, gpu: &Gpu, plan: &Plan, sampling: &SamplingParams, coupled: bool) {
        let (_, buffer) = &self.gather;
        let params = GatherParams { columns: self.config.hidden, rows: plan.step_rows(), pad0: 0, pad1: 0 };
        gpu.write(buffer.whole(), bytemuck::bytes_of(&params));
        let [_, (_, path)] = &self.gather_features;
        gpu.write(path.whole(), bytemuck::bytes_of(&self.feature_params(plan.depth + 1, 0, false)));
        let numbers = sampling.coefficients(Fma::Split);
        let coupled = coupled && sampling.temperature > 0.0;
        for (step, buffer) in (0u32..).zip(&self.top_params) {
            let params = TopParams {
                vocab: self.config.vocab,
                first: step * WIDTH,
                coupled: u32::from(coupled),
                inv_temperature: numbers.inv_temperature,
                seed_lo: numbers.seed_lo,
                seed_hi: numbers.seed_hi,
                entropy: u32::from(plan.gate == Gate::Entropy),
                pad0: 0,
            };
            gpu.write(buffer.whole(), bytemuck::bytes_of(&params));
        }
    }

    fn feature_params(&self, rows: u32, first: u32, chain: bool) -> FeatureParams {
        FeatureParams {
            columns: self.target_hidden,
            layers: self.captures,
            rows,
            first,
            chain: u32::from(chain),
            stride: MAX_ROWS,
            pad0: 0,
            pad1: 0,
        }
    }

    /// Features of the first `rows` rows of the target's last batch go to rows `first …` of the drafter's input.
    pub(crate) fn record_chain_features(
        &self,
        gpu: &Gpu,
        pass: &mut Pass<'_>,
        rows: u32,
        first: u32,
    ) -> Result<(), ModelError> {
        let [(chain, params), _] = &self.gather_features;
        gpu.write(params.whole(), bytemuck::bytes_of(&self.feature_params(rows, first, true)));
        Ok(pass.run(chain, [self.target_hidden.div_ceil(64), rows, self.captures])?)
    }

    /// Features of the accepted path of at most `rows` rows.
    pub(crate) fn record_path_features(&self, pass: &mut Pass<'_>, rows: u32) -> Result<(), ModelError> {
        let [_, (path, _)] = &self.gather_features;
        Ok(pass.run(path, [self.target_hidden.div_ceil(64), rows, self.captures])?)
    }

    /// The extend pass over `rows` rows of features, none of which attends past `last`; with `propose`, what its last row
    /// says of the root.
    pub(crate) fn record_extend(
        &self,
        pass: &mut Pass<'_>,
        rows: u32,
        last: u32,
        propose: bool,
    ) -> Result<(), ModelError> {
        for norm in &self.fc_norm {
            pass.run(norm, [rows, 1, 1])?;
        }
        self.fc.run(pass, self.tiles, rows)?;
        if propose {
            pass.run(&self.store_input, [self.config.hidden.div_ceil(64), 1, 1])?;
        }
        self.record_layer(pass, rows, last, false)?;
        if propose { self.record_head(pass, 0, 1) } else { Ok(()) }
    }

    /// One forward over the rows of a step.
    pub(crate) fn record_step(
        &self,
        pass: &mut Pass<'_>,
        plan: &Plan,
        step: u32,
        last: u32,
    ) -> Result<(), ModelError> {
        let rows = plan.step_rows();
        let (gather, _) = &self.gather;
        pass.run(gather, [self.config.hidden.div_ceil(64), rows, 1])?;
        self.record_layer(pass, rows, last, plan.reconsider > 0)?;
        self.record_head(pass, step, rows)
    }

    fn record_layer(
        &self,
        pass: &mut Pass<'_>,
        rows: u32,
        last: u32,
        second: bool,
    ) -> Result<(), ModelError> {
        for part in &self.embed {
            pass.run(part, [self.config.hidden.div_ceil(64), rows, 1])?;
        }
        pass.run(&self.layer.attention_norm, [rows, 1, 1])?;
        pass.run(&self.hidden_norm, [rows, 1, 1])?;
        let adapter = self.adapter.as_ref().filter(|_| second);
        if let Some((down, mask, _)) = adapter {
            down.run(pass, self.tiles, rows)?;
            pass.run(mask, [self.rank.div_ceil(64), rows, 1])?;
        }
        self.layer.record_behind_norm(pass, &self.config, self.tiles, rows, last)?;
        if let Some((.., up)) = adapter {
            up.run(pass, self.tiles, rows)?;
        }
        Ok(())
    }

    fn record_head(&self, pass: &mut Pass<'_>, step: u32, rows: u32) -> Result<(), ModelError> {
        let at = step as usize;
        let (Some(store), Some(merge)) = (self.stores.get(at), self.merges.get(at)) else {
            return Ok(());
        };
        pass.run(&self.output_norm, [rows, 1, 1])?;
        pass.run(store, [self.config.hidden.div_ceil(64), rows, 1])?;
        self.head.run(pass, self.tiles, rows)?;
        pass.run(&self.scan, [1, rows, 1])?;
        Ok(pass.run(merge, [1, rows, 1])?)
    }
}
