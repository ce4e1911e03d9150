//! The buffers of a draft tree, and the kernels that know nothing of a drafter's weights.

use crate::forward::MAX_ROWS;
use crate::{Model, ModelError, Sampler};
use redraft_decode::TokenId;
use redraft_decode::draft::{Gate, MAX_DEPTH, MAX_POOL, Plan, ROW_IDS, TABLE_WORDS, TOP, Tables, WIDTH};
use redraft_gpu::{Buffer, BufferUse, Dispatch, Gpu, Pass};
use redraft_shaders::params::{AcceptParams, CompactParams, DraftParams, Node, Round, Step};

/// Drafter forwards behind the extend pass of the deepest plan.
pub(crate) const MAX_STEPS: u32 = MAX_DEPTH - 1;
/// Slots of the drafter's cache behind those of positions: one for every row of every step, and spare ones.
pub(crate) const SCRATCH: u32 = ROW_IDS;
/// Row id under which the root's input of the extend pass is kept.
pub(crate) const ROOT_INPUT: u32 = ROW_IDS;
/// End-of-sequence tokens that the GPU looks for; the host looks for all of them.
const ENDS: usize = 16;
/// Rows of a batch, as the kernels know it.
const ROWS: u64 = MAX_ROWS as u64;

/// Buffers of one tree.
#[derive(Debug)]
pub(crate) struct TreeBuffers {
    /// [`Round`].
    pub(crate) round: Buffer,
    /// `[MAX_POOL]` of [`Node`].
    pub(crate) nodes: Buffer,
    /// `[ROW_IDS]` node of each evaluated row.
    pub(crate) row_nodes: Buffer,
    /// `[ROW_IDS][TOP]` (token, log-probability).
    pub(crate) tops: Buffer,
    /// `[ROW_IDS]` f32.
    pub(crate) unsure: Buffer,
    /// Reconsidered, refined, duplicates, looked up, faults.
    pub(crate) counts: Buffer,
    /// Edges, gains, lookup.
    pub(crate) tables: Buffer,
    /// `[MAX_ROWS]` nodes, then `[MAX_POOL]` rows.
    pub(crate) order: Buffer,
    /// `[MAX_ROWS]` of token, parent row, origin, node.
    pub(crate) verified: Buffer,
    /// `[64]` (length, end).
    pub(crate) matches: Buffer,
    /// The drafter's batch: `[MAX_ROWS]` of token, position, slot, keys beyond the position.
    pub(crate) rows: Buffer,
    /// `[MAX_ROWS][MAX_ROWS]` slot of each key from the committed ones on.
    pub(crate) slots: Buffer,
    /// `[MAX_ROWS]` row id whose output is the row's feature.
    pub(crate) sources: Buffer,
    /// [`Step`] of the drafter's forward, and of its head.
    pub(crate) step: Buffer,
    pub(crate) head_step: Buffer,
    /// `[MAX_STEPS + 1]` of [`DraftParams`].
    pub(crate) params: Vec<Buffer>,
    accept_params: Buffer,
}

impl TreeBuffers {
    /// The storage buffers with their words.
    pub(crate) const WORDS: [(&'static str, u64); 13] = {
        let (pool, row_ids) = (MAX_POOL as u64, ROW_IDS as u64);
        [
            ("draft.round", (size_of::<Round>() / 4) as u64),
            ("draft.nodes", pool * (size_of::<Node>() / 4) as u64),
            ("draft.row_nodes", row_ids),
            ("draft.tops", row_ids * TOP as u64 * 2),
            ("draft.unsure", row_ids),
            ("draft.counts", 8),
            ("draft.tables", TABLE_WORDS as u64),
            ("draft.order", ROWS + pool),
            ("draft.verified", ROWS * 4),
            ("draft.matches", 128),
            ("draft.rows", ROWS * 4),
            ("draft.slots", ROWS * ROWS),
            ("draft.sources", ROWS),
        ]
    };

    async fn new(gpu: &Gpu) -> Result<Self, ModelError> {
        let mut made = Vec::new();
        for (label, words) in Self::WORDS {
            made.push(gpu.buffer(label, words * 4, BufferUse::Storage).await?);
        }
        let made = <[Buffer; 13]>::try_from(made).map_err(|made| ModelError::Shape {
            what: "buffers of a tree",
            found: made.len() as u64,
            expected: "13",
        })?;
        let [
            round,
            nodes,
            row_nodes,
            tops,
            unsure,
            counts,
            tables,
            order,
            verified,
            matches,
            rows,
            slots,
            sources,
        ] = made;
        let blank = Step { rows: 0, source: 0, tree_start: 0, pad0: 0 };
        let mut params = Vec::new();
        for _ in 0..=MAX_STEPS {
            let blank: DraftParams = bytemuck::Zeroable::zeroed();
            params.push(gpu.uniform("draft.params", &blank).await?);
        }
        let accept: AcceptParams = bytemuck::Zeroable::zeroed();
        Ok(Self {
            round,
            nodes,
            row_nodes,
            tops,
            unsure,
            counts,
            tables,
            order,
            verified,
            matches,
            rows,
            slots,
            sources,
            step: gpu.shared_uniform("draft.step", &blank).await?,
            head_step: gpu.shared_uniform("draft.head_step", &blank).await?,
            params,
            accept_params: gpu.uniform("accept.params", &accept).await?,
        })
    }
}

/// Buffers and kernels of one tree over one target.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) buffers: TreeBuffers,
    context: u32,
    root: Dispatch,
    /// Step parameters of the extend pass, and of the steps.
    steps: [Dispatch; 2],
    /// Of step 0, 1, ….
    grow: Vec<Dispatch>,
    /// Of step 1, 2, …, as are the next.
    refine: Vec<Dispatch>,
    rows: Vec<Dispatch>,
    lookup: [Dispatch; 2],
    prune: Dispatch,
    layout: Dispatch,
    accept: Dispatch,
    /// Of each layer of the target.
    compact: Vec<Dispatch>,
    /// Workgroups that cover a slot of the target's cache.
    compact_groups: u32,
}

impl Arena {
    pub(crate) async fn new(model: &Model, sampler: &Sampler) -> Result<Self, ModelError> {
        let gpu = &**model.gpu();
        let b = TreeBuffers::new(gpu).await?;
        let bind = async |name: &str, buffers: &[&Buffer]| {
            let pipeline = gpu.kernel(name, &[]).await?;
            let slices: Vec<_> = buffers.iter().map(|buffer| buffer.whole()).collect();
            gpu.bind(&pipeline, &slices).await
        };
        let [first, second, ..] = &b.params[..] else {
            return Err(ModelError::Shape { what: "steps", found: 0, expected: "at least one" });
        };
        let (mut grow, mut refine, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (step, params) in b.params.iter().enumerate() {
            grow.push(bind("draft_grow", &[params, &b.tables, &b.row_nodes, &b.tops, &b.nodes]).await?);
            if step > 0 {
                let buffers = [params, &b.tables, &b.row_nodes, &b.tops, &b.nodes, &b.counts];
                refine.push(bind("draft_refine", &buffers).await?);
                let buffers = [
                    params,
                    &b.tables,
                    &b.round,
                    &b.unsure,
                    &b.row_nodes,
                    &b.nodes,
                    &b.rows,
                    &b.slots,
                    &b.sources,
                ];
                rows.push(bind("draft_rows", &buffers).await?);
            }
        }
        let words = u64::from(model.config.kv_heads * model.config.head_dim) * model.kv.bytes() / 4;
        let words = u32::try_from(words).unwrap_or(u32::MAX);
        let compact_params = CompactParams { words, pad0: 0, pad1: 0, pad2: 0 };
        let compact_params = gpu.uniform("compact.params", &compact_params).await?;
        let mut compact = Vec::new();
        for (keys, values) in &model.buffers.kv {
            compact.push(bind("kv_compact", &[&compact_params, &b.round, keys, values]).await?);
        }
        let target = &model.buffers;
        let ids = sampler.committed();
        let (drawn, maxima) = sampler.results();
        Ok(Self {
            context: model.context,
            root: bind("draft_root", &[first, &b.round, &b.rows, &b.nodes, &b.row_nodes, &b.counts]).await?,
            steps: [
                bind("draft_step", &[first, &b.round, &b.step, &b.head_step]).await?,
                bind("draft_step", &[second, &b.round, &b.step, &b.head_step]).await?,
            ],
            lookup: [
                bind("lookup_scan", &[&b.round, ids, &b.matches]).await?,
                bind("lookup_grow", &[first, &b.tables, &b.round, ids, &b.matches, &b.nodes, &b.counts])
                    .await?,
            ],
            prune: bind("tree_prune", &[first, &b.nodes, &b.order]).await?,
            layout: bind(
                "tree_layout",
                &[
                    first,
                    &b.round,
                    &b.nodes,
                    &b.order,
                    &target.rows,
                    &target.slots,
                    &b.verified,
                    &target.step,
                    &target.head_step,
                ],
            )
            .await?,
            accept: bind(
                "tree_accept",
                &[&b.accept_params, &b.verified, drawn, maxima, &b.counts, &b.round, ids],
            )
            .await?,
            compact,
            compact_groups: words.div_ceil(64),
            grow,
            refine,
            rows,
            buffers: b,
        })
    }

    /// First slot of the drafter's cache for the rows of steps.
    pub(crate) fn scratch(context: u32) -> u32 {
        context + MAX_ROWS
    }

    /// The same, of this arena.
    pub(crate) fn first_scratch(&self) -> u32 {
        Self::scratch(self.context)
    }

    /// Writes the parameters of a plan, for all rounds recorded from now on.
    pub(crate) fn set_plan(&self, gpu: &Gpu, plan: &Plan, tables: &Tables, ends: &[TokenId]) {
        let params = |step: u32| DraftParams {
            step,
            width: plan.width,
            children: plan.children,
            reconsider: plan.reconsider,
            refined: plan.refined,
            depth: plan.depth,
            nodes: plan.nodes,
            gate: match plan.gate {
                Gate::Off => 0,
                Gate::Top1 | Gate::Entropy | Gate::Calibrated => 1,
                Gate::Random => 2,
            },
            expand_refined: u32::from(plan.expand_refined),
            control: u32::from(plan.control),
            calibrated: u32::from(tables.calibrated),
            refined_offset: tables.refined_offset,
            gate_threshold: tables.gate_threshold,
            min_match: if plan.lookup { redraft_decode::draft::MIN_MATCH } else { 0 },
            lookup_block: plan.lookup_block(),
            pool: plan.pool_len(),
            scratch: Self::scratch(self.context),
            no_recurrence: u32::from(plan.no_recurrence),
            spare_slot: self.context + MAX_ROWS - 1,
            pad0: 0,
        };
        for (step, buffer) in (0u32..).zip(&self.buffers.params) {
            gpu.write(buffer.whole(), bytemuck::bytes_of(&params(step)));
        }
        let words = tables.clone().for_gate(plan.gate).to_words();
        gpu.write(self.buffers.tables.whole(), bytemuck::cast_slice(&words));
        let mut end_tokens = [[0u32; 4]; 4];
        for (place, token) in end_tokens.as_flattened_mut().iter_mut().zip(ends) {
            *place = token.0;
        }
        let accept = AcceptParams {
            rows: plan.verified_rows(),
            ends: u32::try_from(ends.len().min(ENDS)).unwrap_or(0),
            pad0: 0,
            pad1: 0,
            end_tokens,
        };
        gpu.write(self.buffers.accept_params.whole(), bytemuck::bytes_of(&accept));
    }

    /// Makes `root`, which stands behind `length` committed tokens, the root of the next tree.
    pub(crate) fn set_root(&self, gpu: &Gpu, length: u32, root: TokenId, limit: u32) {
        let mut round: Round = bytemuck::Zeroable::zeroed();
        round.length = length;
        round.root = root.0;
        round.limit = limit;
        round.start = length;
        gpu.write(self.buffers.round.whole(), bytemuck::bytes_of(&round));
        let node = Node {
            token: root.0,
            parent: u32::MAX,
            depth: 0,
            score: 0.0,
            flags: 3,
            source: ROOT_INPUT,
            row: 0,
            first_child: 0,
            refined_child: 0,
        };
        gpu.write(self.buffers.nodes.slice(0, size_of::<Node>() as u64), bytemuck::bytes_of(&node));
        // Of the rows of the extend pass, the first one's node is the root.
        let mut row_nodes = [u32::MAX; WIDTH as usize];
        row_nodes[0] = 0;
        let bytes: &[u8] = bytemuck::cast_slice(&row_nodes);
        gpu.write(self.buffers.row_nodes.slice(0, bytes.len() as u64), bytes);
        gpu.write(self.buffers.counts.whole(), &[0; 32]);
    }

    /// Rows of the extend pass, step parameters with them, and the root of the next tree.
    pub(crate) fn record_root(&self, pass: &mut Pass<'_>) -> Result<(), ModelError> {
        let [extend, _] = &self.steps;
        pass.run(&self.root, [1, 1, 1])?;
        Ok(pass.run(extend, [1, 1, 1])?)
    }

    /// Step parameters of the steps.
    pub(crate) fn record_steps(&self, pass: &mut Pass<'_>) -> Result<(), ModelError> {
        let [_, steps] = &self.steps;
        Ok(pass.run(steps, [1, 1, 1])?)
    }

    /// The rows that step `step`, 1 or more, evaluates.
    pub(crate) fn record_rows(&self, pass: &mut Pass<'_>, plan: &Plan, step: u32) -> Result<(), ModelError> {
        let candidates = plan.block(step) - plan.block(step - 1);
        let groups = candidates.max(16).div_ceil(64);
        let planes = if plan.reconsider > 0 { 2 } else { 1 };
        match self.rows.get(step as usize - 1) {
            Some(rows) => Ok(pass.run(rows, [groups, planes, 1])?),
            None => Ok(()),
        }
    }

    /// The children of what step `step` evaluated.
    pub(crate) fn record_grow(&self, pass: &mut Pass<'_>, plan: &Plan, step: u32) -> Result<(), ModelError> {
        if let Some(grow) = self.grow.get(step as usize) {
            pass.run(grow, [1, 1, 1])?;
        }
        if plan.reconsider > 0
            && let Some(refine) = (step as usize).checked_sub(1).and_then(|at| self.refine.get(at))
        {
            pass.run(refine, [1, 1, 1])?;
        }
        Ok(())
    }

    /// Lookup, if the plan has it.
    pub(crate) fn record_lookup(&self, pass: &mut Pass<'_>, plan: &Plan) -> Result<(), ModelError> {
        if plan.lookup {
            for kernel in &self.lookup {
                pass.run(kernel, [1, 1, 1])?;
            }
        }
        Ok(())
    }

    /// Which nodes are verified, in which row.
    pub(crate) fn record_prune(&self, pass: &mut Pass<'_>, plan: &Plan) -> Result<(), ModelError> {
        Ok(pass.run(&self.prune, [plan.pool_len().max(plan.nodes + 1).div_ceil(64), 1, 1])?)
    }

    /// The target's batch.
    pub(crate) fn record_layout(&self, pass: &mut Pass<'_>) -> Result<(), ModelError> {
        Ok(pass.run(&self.layout, [1, 1, 1])?)
    }

    /// What of the batch is accepted.
    pub(crate) fn record_accept(&self, pass: &mut Pass<'_>) -> Result<(), ModelError> {
        Ok(pass.run(&self.accept, [1, 1, 1])?)
    }

    /// The target's cache of what was accepted. Rows of a chain are where they belong already.
    pub(crate) fn record_compact(&self, pass: &mut Pass<'_>, plan: &Plan) -> Result<(), ModelError> {
        for layer in self.compact.iter().filter(|_| !plan.in_order()) {
            pass.run(layer, [self.compact_groups, 1, 1])?;
        }
        Ok(())
    }
}
