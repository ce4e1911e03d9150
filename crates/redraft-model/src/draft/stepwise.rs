//! A round kernel by kernel: to look at its tree, and to run any kernel of the tree on the CPU instead.
//!
//! The same kernels in the same order as [`Speculator::round`], but with a submission each, so that the host can read
//! the tree between them. A wrong tree is bisected by moving kernels to their twins until it is right.

use super::round::{RoundResult, Speculator};
use crate::forward::MAX_ROWS;
use crate::{Model, ModelError, Sampler};
use redraft_decode::draft::{
    self, ALIVE, LOOKUP, Layout, MIN_MATCH, NONE, Origin, Outputs, Plan, Pool, REFINED, ROW_IDS, Stop, TOP,
    Tables, Top, WIDTH,
};
use redraft_decode::sampling::key_float;
use redraft_decode::{TokenId, TreeError};
use redraft_gpu::{Buffer, Gpu, Pass};
use redraft_shaders::params::{Node, Round, Step};

/// A kernel of the tree, as its twin is called in `redraft_decode::draft`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeKernel {
    /// `draft_grow` and `draft_refine`.
    Grow,
    /// `draft_rows`.
    Rows,
    /// `lookup_scan` and `lookup_grow`.
    Lookup,
    /// `tree_prune`.
    Prune,
    /// `tree_layout`.
    Layout,
    /// `tree_accept`.
    Accept,
}

impl TreeKernel {
    /// All of them, in the order of a round.
    pub const ALL: [Self; 6] =
        [Self::Grow, Self::Rows, Self::Lookup, Self::Prune, Self::Layout, Self::Accept];
}

/// A node of a traced tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceNode {
    /// Its token.
    pub token: TokenId,
    /// Index of its parent among the trace's nodes; `None` for the root.
    pub parent: Option<usize>,
    /// Edges to the root.
    pub depth: u32,
    /// Sum of the edges' log-probabilities.
    pub score: f32,
    /// Who proposed it.
    pub origin: Origin,
    /// How unsure the drafter was of what follows; `None` where it did not look.
    pub unsure: Option<f32>,
    /// Whether it had a second pass.
    pub reconsidered: bool,
    /// Its row in the verified batch, the root's being 0; `None` where it was pruned.
    pub row: Option<u32>,
}

/// The tree of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundTrace {
    /// What it was drafted by.
    pub plan: Plan,
    /// Tokens before the root.
    pub start: u32,
    /// All nodes, the root first, parents before children.
    pub nodes: Vec<TraceNode>,
    /// Accepted nodes, the root first.
    pub accepted: Vec<usize>,
}

/// What lies on the GPU between two kernels.
struct State {
    pool: Pool,
    outputs: Outputs,
    counts: [u32; 8],
    round: Round,
}

impl Speculator {
    /// One round as [`Speculator::round`] makes it, with the kernels of `on_cpu` run by their twins, and its tree.
    ///
    /// # Errors
    /// As [`Speculator::round`].
    pub async fn round_stepwise(
        &mut self,
        model: &Model,
        sampler: &Sampler,
        on_cpu: &[TreeKernel],
    ) -> Result<(RoundResult, RoundTrace), ModelError> {
        self.check_room(model)?;
        let plan = self.plan;
        let here = |kernel: TreeKernel| on_cpu.contains(&kernel);
        for step in (0..=plan.steps()).filter(|_| plan.drafter) {
            match here(TreeKernel::Rows) {
                _ if step == 0 => {}
                true => self.rows_on_cpu(step).await?,
                false => self.alone(|pass| self.record_rows(pass, step))?,
            }
            self.alone(|pass| self.record_outputs(pass, step))?;
            match here(TreeKernel::Grow) {
                true => self.grow_on_cpu(step).await?,
                false => self.alone(|pass| self.arena.record_grow(pass, &plan, step))?,
            }
        }
        match here(TreeKernel::Lookup) {
            true => self.lookup_on_cpu(sampler).await?,
            false => self.alone(|pass| self.arena.record_lookup(pass, &plan))?,
        }
        match here(TreeKernel::Prune) {
            true => self.prune_on_cpu().await?,
            false => self.alone(|pass| self.arena.record_prune(pass, &plan))?,
        }
        match here(TreeKernel::Layout) {
            true => self.layout_on_cpu(model).await?,
            false => self.alone(|pass| self.arena.record_layout(pass))?,
        }
        let mut trace = self.trace().await?;
        self.alone(|pass| self.record_verify(pass, model, sampler))?;
        match here(TreeKernel::Accept) {
            true => self.accept_on_cpu(sampler).await?,
            false => self.alone(|pass| self.arena.record_accept(pass))?,
        }
        let round: Round = self.fetch_one(&self.arena.buffers.round).await?;
        self.alone(|pass| self.record_keep(pass))?;
        let result = self.finish(&round)?;
        trace.accepted = result
            .rows
            .iter()
            .filter_map(|row| trace.nodes.iter().position(|node| node.row == Some(*row)))
            .collect();
        Ok((result, trace))
    }

    fn alone(&self, record: impl FnOnce(&mut Pass<'_>) -> Result<(), ModelError>) -> Result<(), ModelError> {
        self.gpu.submit(record, &[])?;
        Ok(())
    }

    async fn fetch<T: bytemuck::AnyBitPattern>(
        &self,
        buffer: &Buffer,
        count: usize,
    ) -> Result<Vec<T>, ModelError> {
        let bytes = (count * size_of::<T>()) as u64;
        let bytes = self.gpu.fetch(buffer.slice(0, bytes)).await?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    async fn fetch_one<T: bytemuck::AnyBitPattern>(&self, buffer: &Buffer) -> Result<T, ModelError> {
        let bytes = self.gpu.fetch(buffer.slice(0, size_of::<T>() as u64)).await?;
        Ok(bytemuck::pod_read_unaligned(&bytes))
    }

    fn tables_on_gpu(&self) -> Tables {
        self.tables.clone().for_gate(self.plan.gate)
    }

    async fn state(&self) -> Result<State, ModelError> {
        let b = &self.arena.buffers;
        let round: Round = self.fetch_one(&b.round).await?;
        let nodes: Vec<Node> = self.fetch(&b.nodes, self.plan.pool_len() as usize).await?;
        let nodes: Vec<_> = nodes.iter().map(twin_node).collect();
        let row_nodes: Vec<u32> = self.fetch(&b.row_nodes, ROW_IDS as usize).await?;
        let tops: Vec<[u32; 2]> = self.fetch(&b.tops, (ROW_IDS * TOP) as usize).await?;
        let unsure: Vec<f32> = self.fetch(&b.unsure, ROW_IDS as usize).await?;
        let mut outputs = Outputs::default();
        for step in 0..ROW_IDS / WIDTH {
            for (output, row) in outputs.step_mut(step).iter_mut().zip(step * WIDTH..) {
                let first = (row * TOP) as usize;
                for (top, [token, log_q]) in output.tops.iter_mut().zip(tops.iter().skip(first)) {
                    *top = Top { token: TokenId(*token), log_q: f32::from_bits(*log_q) };
                }
                output.unsure = unsure.get(row as usize).copied().unwrap_or(0.0);
            }
        }
        let mut pool = Pool::new(self.plan)?;
        pool.restore(round.length, &nodes, &row_nodes);
        let counts: Vec<u32> = self.fetch(&b.counts, 8).await?;
        let counts = <[u32; 8]>::try_from(counts).unwrap_or_default();
        Ok(State { pool, outputs, counts, round })
    }

    fn put(&self, state: &State) {
        let b = &self.arena.buffers;
        let nodes: Vec<Node> = state.pool.nodes().iter().map(gpu_node).collect();
        let row_nodes: Vec<u32> = (0..ROW_IDS).map(|row| state.pool.row_node(row)).collect();
        write(&self.gpu, &b.nodes, &nodes);
        write(&self.gpu, &b.row_nodes, &row_nodes);
        write(&self.gpu, &b.counts, &state.counts);
    }

    async fn grow_on_cpu(&self, step: u32) -> Result<(), ModelError> {
        let mut state = self.state().await?;
        state.pool.grow(step, &state.outputs, &self.tables_on_gpu());
        let counters = state.pool.counters();
        let first = step * WIDTH + self.plan.width;
        let second = if step > 0 { self.plan.reconsider } else { 0 };
        let made = (first..first + second).filter(|row| state.pool.row_node(*row) != NONE).count();
        let [reconsidered, refined, duplicates, ..] = &mut state.counts;
        *reconsidered += u32::try_from(made).unwrap_or(0);
        *refined += counters.refined;
        *duplicates += counters.duplicates;
        self.put(&state);
        Ok(())
    }

    async fn rows_on_cpu(&self, step: u32) -> Result<(), ModelError> {
        let mut state = self.state().await?;
        state.pool.rows(step, &state.outputs, &self.tables_on_gpu());
        let (plan, b) = (&self.plan, &self.arena.buffers);
        let scratch = self.arena.first_scratch();
        let slot = |row_id: u32| scratch + row_id - WIDTH;
        let count = plan.step_rows();
        let mut rows: Vec<[u32; 4]> = Vec::new();
        let mut slots: Vec<u32> = self.fetch(&b.slots, (count * MAX_ROWS) as usize).await?;
        let mut sources = Vec::new();
        for row in 0..count {
            let own = step * WIDTH + row;
            let index = state.pool.row_node(own);
            if index == NONE {
                rows.push([0, 0, slot(own), 0]);
                sources.push(0);
                continue;
            }
            let (node, second) = (*state.pool.node(index), row >= plan.width);
            let position = state.round.length - 1 + node.depth;
            rows.push([node.token.0, position, slot(own), u32::from(second)]);
            // Root excluded: its key is among the committed ones.
            let mut path: Vec<u32> = state
                .pool
                .upward(index)
                .filter(|at| *at != 0)
                .map(|at| slot(state.pool.node(at).row))
                .collect();
            path.reverse();
            if second {
                path.push(slot(own));
            }
            let start = (row * MAX_ROWS) as usize;
            for (to, from) in slots.iter_mut().skip(start).zip(&path) {
                *to = *from;
            }
            sources.push(match second {
                true if !plan.no_recurrence => node.row,
                _ => node.source,
            });
        }
        self.put(&state);
        write(&self.gpu, &b.rows, &rows);
        write(&self.gpu, &b.slots, &slots);
        write(&self.gpu, &b.sources, &sources);
        Ok(())
    }

    async fn lookup_on_cpu(&self, sampler: &Sampler) -> Result<(), ModelError> {
        let mut state = self.state().await?;
        let ids: Vec<u32> = self.fetch(sampler.committed(), state.round.length as usize + 1).await?;
        let ids: Vec<_> = ids.into_iter().map(TokenId).collect();
        draft::draft_lookup(&mut state.pool, &ids, &self.tables_on_gpu(), MIN_MATCH);
        let first = self.plan.lookup_block() as usize;
        let added = state.pool.nodes().iter().skip(first).filter(|node| node.has(ALIVE | LOOKUP)).count();
        if let Some(looked_up) = state.counts.get_mut(3) {
            *looked_up += u32::try_from(added).unwrap_or(0);
        }
        self.put(&state);
        Ok(())
    }

    async fn prune_on_cpu(&self) -> Result<(), ModelError> {
        let state = self.state().await?;
        let mut selected = Vec::new();
        draft::tree_prune(&state.pool, &mut selected, &mut Vec::new());
        let mut order = vec![NONE; (MAX_ROWS + self.plan.pool_len()) as usize];
        for (row, node) in (0u32..).zip([0].iter().chain(&selected)) {
            for (at, value) in [(row as usize, *node), ((MAX_ROWS + node) as usize, row)] {
                if let Some(place) = order.get_mut(at) {
                    *place = value;
                }
            }
        }
        write(&self.gpu, &self.arena.buffers.order, &order);
        Ok(())
    }

    /// The layout of the nodes that were selected.
    async fn layout(&self, state: &State) -> Result<Layout, ModelError> {
        let rows = self.plan.verified_rows() as usize;
        let order: Vec<u32> = self.fetch(&self.arena.buffers.order, rows).await?;
        let selected: Vec<u32> = order.into_iter().skip(1).take_while(|node| *node != NONE).collect();
        let mut layout = Layout::with_capacity(&self.plan);
        draft::tree_layout(&state.pool, &selected, &mut layout);
        Ok(layout)
    }

    async fn layout_on_cpu(&self, model: &Model) -> Result<(), ModelError> {
        let state = self.state().await?;
        let layout = self.layout(&state).await?;
        let length = state.round.length;
        let count = self.plan.verified_rows();
        let mut rows: Vec<[u32; 4]> = Vec::new();
        let mut verified: Vec<[u32; 4]> = Vec::new();
        let mut slots: Vec<u32> = self.fetch(&model.buffers.slots, (count * MAX_ROWS) as usize).await?;
        for (row, token) in (0u32..).zip(&layout.tokens) {
            let at = row as usize;
            let get = |list: &[u32]| list.get(at).copied().unwrap_or(NONE);
            let (depth, parent) = (get(&layout.depths), get(&layout.parents));
            rows.push([token.0, length + depth, length + row, 0]);
            let origin = layout.origins.get(at).copied().unwrap_or_default();
            verified.push([token.0, parent, origin.code(), get(&layout.nodes)]);
            let ancestors = layout.ancestors.iter().skip(at * layout.levels).take(depth as usize + 1);
            for (to, ancestor) in slots.iter_mut().skip((row * MAX_ROWS) as usize).zip(ancestors) {
                *to = length + ancestor;
            }
        }
        rows.resize(MAX_ROWS as usize, [0, 0, model.context + MAX_ROWS - 1, 0]);
        verified.resize(MAX_ROWS as usize, [0, NONE, 0, NONE]);
        let step = [Step { rows: count, source: 0, tree_start: length, pad0: 0 }];
        write(&self.gpu, &model.buffers.rows, &rows);
        write(&self.gpu, &model.buffers.slots, &slots);
        write(&self.gpu, &model.buffers.step, &step);
        write(&self.gpu, &model.buffers.head_step, &step);
        write(&self.gpu, &self.arena.buffers.verified, &verified);
        Ok(())
    }

    async fn accept_on_cpu(&self, sampler: &Sampler) -> Result<(), ModelError> {
        let state = self.state().await?;
        let layout = self.layout(&state).await?;
        let (drawn, maxima) = sampler.results();
        let count = self.plan.verified_rows() as usize;
        let drawn: Vec<u32> = self.fetch(drawn, count).await?;
        let maxima: Vec<[u32; 2]> = self.fetch(maxima, count).await?;
        let drawn: Vec<_> = drawn.into_iter().map(TokenId).collect();
        let mut round = state.round;
        let mut accept = draft::tree_accept(&layout, &drawn, &self.ends, round.limit)
            .map_err(|source: TreeError| ModelError::Tree(source))?;
        let key = |row: &u32| maxima.get(*row as usize).map_or(0, |key| key[0]);
        // What a row that is no number would say is not said.
        let sound = accept.path.iter().take_while(|row| key_float(key(row)).is_finite()).count();
        let broken = accept.path.get(sound).map(key);
        accept.path.truncate(sound);
        accept.emitted.truncate(sound);
        accept.origins.truncate(sound);
        let emitted = u32::try_from(accept.emitted.len()).unwrap_or(0);
        let fill = |list: &mut [u32; 17], values: &mut dyn Iterator<Item = u32>| {
            for (to, from) in list.iter_mut().zip(values) {
                *to = from;
            }
        };
        fill(&mut round.path, &mut accept.path.iter().copied());
        fill(&mut round.tokens, &mut accept.emitted.iter().map(|token| token.0));
        fill(&mut round.origins, &mut accept.origins.iter().map(|origin| origin.code()));
        round.start = round.length;
        round.length += emitted;
        round.root = accept.emitted.last().map_or(round.root, |token| token.0);
        round.limit = round.limit.saturating_sub(emitted);
        round.stop = match (broken, accept.stop) {
            (Some(_), _) => 3,
            (None, Some(Stop::Eos)) => 1,
            (None, Some(Stop::Limit)) => 2,
            (None, None) => 0,
        };
        round.greatest = broken.unwrap_or(0);
        round.emitted = emitted;
        round.drafted = u32::try_from(layout.live - 1).unwrap_or(0);
        [round.reconsidered, round.refined, round.duplicates, round.looked_up, round.faults, ..] =
            state.counts;
        sampler.commit(round.start + 1, &accept.emitted)?;
        write(&self.gpu, &self.arena.buffers.round, &[round]);
        Ok(())
    }

    /// The tree as it was laid out; nothing is accepted yet.
    async fn trace(&self) -> Result<RoundTrace, ModelError> {
        let state = self.state().await?;
        let layout = self.layout(&state).await?;
        let pool = &state.pool;
        let alive: Vec<u32> = (0..self.plan.pool_len()).filter(|at| pool.node(*at).has(ALIVE)).collect();
        let place = |index: u32| alive.iter().position(|at| *at == index);
        let second = |index: u32| {
            (1..=self.plan.steps()).any(|step| {
                let first = step * WIDTH + self.plan.width;
                (first..first + self.plan.reconsider).any(|row| pool.row_node(row) == index)
            })
        };
        let nodes = alive
            .iter()
            .map(|index| {
                let node = pool.node(*index);
                let origin = match node.flags & (REFINED | LOOKUP) {
                    _ if *index == 0 => Origin::Target,
                    0 => Origin::Drafted,
                    REFINED => Origin::Refined,
                    _ => Origin::Lookup,
                };
                let row = layout.nodes.iter().position(|other| other == index);
                TraceNode {
                    token: node.token,
                    parent: place(node.parent),
                    depth: node.depth,
                    score: node.score,
                    origin,
                    unsure: (node.row != NONE && self.plan.drafter)
                        .then(|| state.outputs.row(node.row).unsure),
                    reconsidered: second(*index),
                    row: row.and_then(|row| u32::try_from(row).ok()),
                }
            })
            .collect();
        Ok(RoundTrace { plan: self.plan, start: state.round.length, nodes, accepted: Vec::new() })
    }
}

fn write<T: bytemuck::NoUninit>(gpu: &Gpu, buffer: &Buffer, values: &[T]) {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    gpu.write(buffer.slice(0, bytes.len() as u64), bytes);
}

fn twin_node(node: &Node) -> draft::Node {
    draft::Node {
        token: TokenId(node.token),
        parent: node.parent,
        depth: node.depth,
        score: node.score,
        flags: node.flags,
        source: node.source,
        row: node.row,
        first_child: node.first_child,
        refined_child: node.refined_child,
        ..draft::Node::DEAD
    }
}

fn gpu_node(node: &draft::Node) -> Node {
    Node {
        token: node.token.0,
        parent: node.parent,
        depth: node.depth,
        score: node.score,
        flags: node.flags,
        source: node.source,
        row: node.row,
        first_child: node.first_child,
        refined_child: node.refined_child,
    }
}
