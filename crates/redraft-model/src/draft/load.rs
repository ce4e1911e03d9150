//! Loading a drafter: its weights, its cache, and every dispatch of its forward pass.

use super::arena::{MAX_STEPS, ROOT_INPUT, SCRATCH, TreeBuffers};
use super::drafter::{Drafter, DrafterOptions};
use super::memory;
use crate::buffers::{Buffers, Sizes};
use crate::forward::MAX_ROWS;
use crate::load::{Build, check_shape};
use crate::matrix::Loader;
use crate::products::Input;
use crate::{Model, ModelError, Precision, rope};
use redraft_decode::draft::{Tables, WIDTH};
use redraft_drafter::{DrafterFile, DrafterModel};
use redraft_gguf::ModelConfig;
use redraft_gpu::{Buffer, BufferUse, Dispatch};
use redraft_shaders::params::{
    FeatureParams, GatherParams, RmsNormParams, SecondPassParams, StoreParams, TopParams,
};

impl Drafter {
    /// Loads the drafter of `file` beside its target.
    ///
    /// # Errors
    /// [`ModelError::Drafter`] if it is another target's; [`ModelError::Memory`] if the two need more than `memory_limit`;
    /// [`ModelError::Gpu`].
    pub(crate) async fn load(
        model: &Model,
        tree: &TreeBuffers,
        file: &DrafterFile,
        options: DrafterOptions,
        memory_limit: Option<u64>,
    ) -> Result<Self, ModelError> {
        let packed = file.to_model(options.quantization)?;
        let shape = &packed.drafter;
        check_shape(&packed.config)?;
        let captures = shape.captures(model.config.layers)?;
        let mismatch = |what: &'static str, found: u32, expected: u32| ModelError::DrafterShape {
            what,
            found: u64::from(found),
            expected: u64::from(expected),
        };
        if shape.target_hidden != model.config.hidden {
            return Err(mismatch("target_hidden", shape.target_hidden, model.config.hidden));
        }
        if shape.vocab != model.config.vocab {
            return Err(mismatch("vocab", shape.vocab, model.config.vocab));
        }
        if captures[..] != model.capture_layers[..] {
            return Err(ModelError::DrafterCaptures {
                expected: captures.to_vec(),
                found: model.capture_layers.clone(),
            });
        }
        if packed.gguf.tensor("token_embd.weight").is_none() && shape.hidden != model.config.hidden {
            return Err(mismatch(
                "hidden, of a drafter without an embedding of its own,",
                shape.hidden,
                model.config.hidden,
            ));
        }
        let plan = memory::plan(model, Some(&packed))?;
        memory::check(&plan, memory_limit)?;
        Load { model, tree, packed: &packed }.run(file, plan.drafter).await
    }
}

/// What loading works with.
struct Load<'a> {
    model: &'a Model,
    tree: &'a TreeBuffers,
    packed: &'a DrafterModel,
}

impl Load<'_> {
    async fn run(&self, file: &DrafterFile, bytes: u64) -> Result<Drafter, ModelError> {
        let Self { model, tree, packed } = *self;
        let gpu = &*model.gpu;
        let config = packed.config.clone();
        let shape = &packed.drafter;
        let (h, ht) = (config.hidden, shape.target_hidden);
        let slots = model.context + MAX_ROWS + SCRATCH;
        let sizes = Sizes { slots, x_columns: 2 * h, captures: 0 };
        // A drafter is a small part of a round, and its features are a residual stream with no bound: f32 always.
        let path = model.path.with_precision(Precision::F32);
        let mut buffers = Buffers::new(gpu, &config, path, model.kv, &sizes).await?;
        // The batch is the tree's: its kernels write it.
        buffers.step = tree.step.clone();
        buffers.head_step = tree.head_step.clone();
        buffers.rows = tree.rows.clone();
        buffers.slots = tree.slots.clone();
        let rows = u64::from(MAX_ROWS);
        let storage = async |label: &str, words: u64| gpu.buffer(label, words * 4, BufferUse::Storage).await;
        let features = storage("drafter.features", rows * 3 * u64::from(ht)).await?;
        let embedding = storage("drafter.e", rows * u64::from(h)).await?;
        let hidden = storage("drafter.hidden", u64::from(ROOT_INPUT + 1) * u64::from(h)).await?;
        let table = rope::table(&config, model.context + MAX_ROWS, None);
        let rope = gpu.storage("drafter.rope", &table).await?;
        let loader = Loader { gpu, source: &packed.bytes, progress: |_| {}, done: 0, total: 0, unflushed: 0 };
        let mut build = Build {
            gpu,
            gguf: &packed.gguf,
            config: &config,
            path,
            kv: model.kv,
            buffers: &buffers,
            rope,
            loader,
        };
        let own = packed.gguf.tensor("token_embd.weight").is_some();
        let embed = match own {
            true => {
                let table = build.token_table("token_embd.weight", shape.vocab).await?;
                build.embed(&table, &embedding).await?
            }
            false => build.embed(&model.token_table, &embedding).await?,
        };
        let eps = config.rms_eps;
        let half = |y_first: u32| RmsNormParams { y_stride: 2 * h, y_first, ..RmsNormParams::dense(h, eps) };
        let (step, x) = (&buffers.step, &buffers.x);
        let attention_norm = build.norm_of("blk.0.attn_norm.weight", step, half(0), &embedding, x).await?;
        let hidden_norm = build.norm_of("blk.0.hidden_norm.weight", step, half(h), &buffers.h, x).await?;
        let mut fc_norm = Vec::new();
        if shape.fc_norm {
            for index in 0..3 {
                // In place: an element is read before it is written, by the invocation that writes it.
                let params = RmsNormParams {
                    h_stride: 3 * ht,
                    h_first: index * ht,
                    y_stride: 3 * ht,
                    y_first: index * ht,
                    ..RmsNormParams::dense(ht, eps)
                };
                fc_norm.push((format!("fc_norm.{index}.weight"), params));
            }
        }
        let (fc_input, fc_norm) = match fc_norm.is_empty() {
            true => (features.clone(), Vec::new()),
            false => {
                let normed = storage("drafter.normed_features", rows * 3 * u64::from(ht)).await?;
                let mut norms = Vec::new();
                for (name, params) in &fc_norm {
                    norms.push(build.norm_of(name, step, *params, &features, &normed).await?);
                }
                (normed, norms)
            }
        };
        let fc = build.product_of("fc.weight", Input::single(&fc_input), false, &buffers.h).await?;
        let layer = build.drafter_layer(attention_norm).await?;
        let adapter = match packed.reconsider.rank {
            Some(rank) => {
                let t = storage("drafter.adapter", rows * u64::from(rank)).await?;
                let down = build.product_of("reconsider.down.weight", Input::single(x), false, &t).await?;
                let params = SecondPassParams { columns: rank, pad0: 0, pad1: 0, pad2: 0 };
                let params = gpu.uniform("second_pass.params", &params).await?;
                let mask = self.bind("second_pass", &[&params, &tree.rows, &t]).await?;
                let up =
                    build.product_of("reconsider.up.weight", Input::single(&t), true, &buffers.h).await?;
                Some((down, mask, up))
            }
            None => None,
        };
        let (output_norm, fed) = build.norm("output_norm.weight", &buffers.head_step).await?;
        let head = build.token_table("output.weight", config.vocab).await?;
        let head = build.head(&head, &fed).await?;
        let rest = self.rest(&config, &buffers, &features, &hidden).await?;
        gpu.flush().await?;
        let tables = tables_of(file)?;
        Ok(Drafter {
            tiles: model.tiles.used,
            captures: 3,
            target_hidden: ht,
            rank: packed.reconsider.rank.unwrap_or(0),
            reconsiders: packed.reconsider.embedding.is_some() || packed.reconsider.rank.is_some(),
            tables,
            bytes,
            gather_features: rest.gather_features,
            fc_norm,
            fc,
            embed,
            hidden_norm,
            layer,
            adapter,
            output_norm,
            head,
            gather: rest.gather,
            stores: rest.stores,
            store_input: rest.store_input,
            scan: rest.scan,
            merges: rest.merges,
            top_params: rest.top_params,
            config,
        })
    }

    async fn bind(&self, name: &str, buffers: &[&Buffer]) -> Result<Dispatch, ModelError> {
        let gpu = &self.model.gpu;
        let pipeline = gpu.kernel(name, &[]).await?;
        let slices: Vec<_> = buffers.iter().map(|buffer| buffer.whole()).collect();
        Ok(gpu.bind(&pipeline, &slices).await?)
    }

    /// What stands around the layer.
    async fn rest(
        &self,
        config: &ModelConfig,
        buffers: &Buffers,
        features: &Buffer,
        hidden: &Buffer,
    ) -> Result<Rest, ModelError> {
        let Self { model, tree, packed } = *self;
        let gpu = &*model.gpu;
        let storage = async |label: &str, words: u64| gpu.buffer(label, words * 4, BufferUse::Storage).await;
        let captures = model.buffers.captures.as_ref().ok_or(ModelError::DrafterCaptures {
            expected: model.capture_layers.clone(),
            found: Vec::new(),
        })?;
        let blank: FeatureParams = bytemuck::Zeroable::zeroed();
        let mut gathers = Vec::new();
        for _ in 0..2 {
            let params = gpu.uniform("features.params", &blank).await?;
            let gather = self.bind("feature_gather", &[&params, &tree.round, captures, features]).await?;
            gathers.push((gather, params));
        }
        let gather_features = <[_; 2]>::try_from(gathers).map_err(|_| ModelError::Shape {
            what: "feature gathers",
            found: 0,
            expected: "two",
        })?;
        let pass_embedding = match &packed.reconsider.embedding {
            Some(values) => values.clone(),
            None => vec![0.0; config.hidden as usize],
        };
        let pass_embedding = gpu.storage("drafter.pass_embedding", &pass_embedding).await?;
        let blank: GatherParams = bytemuck::Zeroable::zeroed();
        let gather_params = gpu.uniform("gather.params", &blank).await?;
        let gather = self
            .bind(
                "draft_gather",
                &[&gather_params, &tree.rows, &tree.sources, hidden, &pass_embedding, &buffers.h],
            )
            .await?;
        let rows = u64::from(WIDTH);
        let best = storage("drafter.best", rows * 64 * 8 * 2).await?;
        let sums = storage("drafter.sums", rows * 64 * 2).await?;
        let ids = gpu.storage("drafter.ids", &packed.draft_ids).await?;
        let normed = packed.drafter.norm_output;
        let output = if normed { &buffers.x } else { &buffers.h };
        let store = async |first: u32, normed: bool, from: &Buffer| {
            let params = StoreParams { columns: config.hidden, first, normed: u32::from(normed), pad0: 0 };
            let params = gpu.uniform("store.params", &params).await?;
            self.bind("draft_store", &[&params, &tree.head_step, from, hidden]).await
        };
        let (mut stores, mut merges, mut top_params) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..=MAX_STEPS {
            stores.push(store(step * WIDTH, normed, output).await?);
            let blank: TopParams = bytemuck::Zeroable::zeroed();
            let params = gpu.uniform("top.params", &blank).await?;
            let buffers =
                [&params, &tree.head_step, &best, &sums, &ids, &tree.tops, &tree.unsure, &tree.counts];
            merges.push(self.bind("draft_merge", &buffers).await?);
            top_params.push(params);
        }
        let store_input = store(ROOT_INPUT, false, &buffers.h).await?;
        let first = top_params.first().ok_or(ModelError::Shape {
            what: "steps",
            found: 0,
            expected: "at least one",
        })?;
        let scan = self
            .bind("draft_scan", &[first, &tree.head_step, &buffers.logits, &ids, &tree.rows, &best, &sums])
            .await?;
        Ok(Rest {
            gather_features,
            gather: (gather, gather_params),
            stores,
            store_input,
            scan,
            merges,
            top_params,
        })
    }
}

struct Rest {
    gather_features: [(Dispatch, Buffer); 2],
    gather: (Dispatch, Buffer),
    stores: Vec<Dispatch>,
    store_input: Dispatch,
    scan: Dispatch,
    merges: Vec<Dispatch>,
    top_params: Vec<Buffer>,
}

/// The tables of a file, defaults where it has none.
fn tables_of(file: &DrafterFile) -> Result<Tables, ModelError> {
    let reconsider = file.reconsider();
    let settings = reconsider.settings;
    let mut tables = Tables { calibrated: settings.calibrated, ..Tables::default() };
    if let Some(threshold) = settings.gate_threshold {
        tables.gate_threshold = threshold;
    }
    if let Some(offset) = settings.refined_offset {
        tables.refined_offset = offset;
    }
    let fill = |to: &mut [f32], from: &Option<Vec<f32>>| {
        if let Some(from) = from {
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
    };
    fill(tables.edges.as_flattened_mut().as_flattened_mut().as_flattened_mut(), &reconsider.edges);
    fill(tables.log_gain.as_flattened_mut(), &reconsider.log_gain);
    fill(&mut tables.lookup_edge, &reconsider.lookup_edge);
    tables.validate()?;
    Ok(tables)
}
