//! The pool of drafted nodes, and the kernels that grow it.
//!
//! Twins of `shaders/draft_grow.wgsl` and `shaders/draft_rows.wgsl`. A round alternates them: the drafter evaluates
//! rows, [`Pool::grow`] turns what it said into nodes, [`Pool::rows`] picks the rows of the next step.

use super::node::{ALIVE, CHAIN, NONE, Node, Outputs, REFINED, falling};
use super::plan::{Gate, Plan, PlanError, ROW_IDS, WIDTH};
use super::tables::Tables;
use crate::TokenId;
use crate::sampling::pcg4d;

/// What happened while a pool grew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rows that were given a second pass.
    pub reconsidered: u32,
    /// Nodes that a second pass added.
    pub refined: u32,
    /// Candidates of a second pass that were children of the node already.
    pub duplicates: u32,
}

/// The nodes of one round, for reuse by the next.
#[derive(Clone, Debug)]
pub struct Pool {
    plan: Plan,
    /// Tokens before the root.
    committed: u32,
    /// `[plan.pool_len()]`
    nodes: Vec<Node>,
    /// `[ROW_IDS]` node of each row; [`NONE`] for a dead row.
    row_nodes: Vec<u32>,
    counters: Counters,
    /// Sort keys.
    keys: Vec<u64>,
}

impl Pool {
    /// An empty pool for rounds of `plan`; [`Pool::reset`] starts a round.
    ///
    /// # Errors
    /// [`PlanError`] for a plan that does not validate.
    pub fn new(plan: Plan) -> Result<Self, PlanError> {
        plan.validate()?;
        let len = plan.pool_len() as usize;
        let mut pool = Self {
            plan,
            committed: 0,
            nodes: vec![Node::DEAD; len],
            row_nodes: vec![NONE; ROW_IDS as usize],
            counters: Counters::default(),
            keys: Vec::with_capacity(len),
        };
        pool.reset(TokenId(0), 0);
        Ok(pool)
    }

    /// Starts a round behind `committed` tokens: only the root is alive, and it is row 0.
    pub fn reset(&mut self, root: TokenId, committed: u32) {
        self.committed = committed;
        self.counters = Counters::default();
        self.nodes.fill(Node::DEAD);
        self.row_nodes.fill(NONE);
        if let [first, ..] = self.nodes.as_mut_slice() {
            *first = Node { token: root, flags: ALIVE | CHAIN, row: 0, ..Node::DEAD };
        }
        self.set_row(0, 0);
    }

    /// Turns what the drafter said of the rows of `step` into nodes: step 0 is the extend pass, whose only row is the
    /// root. A step that the plan does not have grows nothing.
    pub fn grow(&mut self, step: u32, outputs: &Outputs, tables: &Tables) {
        if !self.has_step(step) {
            return;
        }
        let plan = self.plan;
        let first_rows = if step == 0 { 1 } else { plan.width };
        for slot in 0..first_rows {
            let row = step * WIDTH + slot;
            self.grow_first(row, plan.block(step) + slot * plan.children, outputs, tables);
        }
        if step > 0 {
            for slot in 0..plan.reconsider {
                let row = step * WIDTH + plan.width + slot;
                self.grow_second(row, plan.refined_block(step) + slot * plan.refined, outputs, tables);
            }
        }
    }

    /// Picks the rows of `step` (1 to [`Plan::steps`]) among the nodes that the step before it grew and evaluated. A
    /// step that the plan does not have picks nothing.
    pub fn rows(&mut self, step: u32, outputs: &Outputs, tables: &Tables) {
        if step == 0 || !self.has_step(step) {
            return;
        }
        self.pick_frontier(step);
        self.pick_reconsidered(step, outputs, tables);
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// L: tokens before the root, which therefore is the position of the root.
    #[must_use]
    pub fn committed(&self) -> u32 {
        self.committed
    }

    /// `[plan.pool_len()]` the nodes, dead slots included.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node at `index`; [`Node::DEAD`] outside the pool.
    #[must_use]
    pub fn node(&self, index: u32) -> &Node {
        self.nodes.get(index as usize).unwrap_or(&Node::DEAD)
    }

    /// Pool index of the node that the row with this id evaluates; [`NONE`] for a dead row.
    #[must_use]
    pub fn row_node(&self, row: u32) -> u32 {
        self.row_nodes.get(row as usize).copied().unwrap_or(NONE)
    }

    /// What happened since [`Pool::reset`].
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Pool indices from `index` up to the root, both included; empty for a dead node.
    pub fn upward(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let alive = |&index: &u32| self.node(index).has(ALIVE);
        std::iter::successors(Some(index).filter(alive), move |&step| {
            Some(self.node(step).parent).filter(alive)
        })
    }

    pub(super) fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.nodes.get_mut(index as usize)
    }

    /// The child of `parent` that carries `token`, among its first-pass and its refined children.
    pub(super) fn child(&self, parent: u32, token: TokenId) -> Option<u32> {
        let node = self.node(parent);
        self.find(node.first_child, self.plan.children, token)
            .or_else(|| self.find(node.refined_child, self.plan.refined, token))
    }

    fn find(&self, block: u32, len: u32, token: TokenId) -> Option<u32> {
        let alive = |&index: &u32| {
            let node = self.node(index);
            node.has(ALIVE) && node.token == token
        };
        if block == 0 { None } else { (block..block.saturating_add(len)).find(alive) }
    }

    fn has_step(&self, step: u32) -> bool {
        self.plan.drafter && step <= self.plan.steps()
    }

    fn set_row(&mut self, row: u32, node: u32) {
        if let Some(entry) = self.row_nodes.get_mut(row as usize) {
            *entry = node;
        }
    }

    pub(super) fn set_node(&mut self, index: u32, node: Node) {
        if let Some(slot) = self.node_mut(index) {
            *slot = node;
        }
    }

    fn grow_first(&mut self, row: u32, block: u32, outputs: &Outputs, tables: &Tables) {
        let index = self.row_node(row);
        let parent = *self.node(index);
        for (rank, top) in (0..self.plan.children).zip(&outputs.row(row).tops) {
            let mut child = Node::DEAD;
            if index != NONE && top.token.0 != NONE {
                let depth = parent.depth + 1;
                let chain = if rank == 0 { parent.flags & CHAIN } else { 0 };
                let score = parent.score + tables.edge(top.log_q, rank, depth, false);
                let flags = ALIVE | chain;
                child =
                    Node { token: top.token, parent: index, depth, score, flags, source: row, ..Node::DEAD };
            }
            self.set_node(block + rank, child);
        }
        if let Some(node) = self.node_mut(index) {
            node.first_child = block;
        }
    }

    fn grow_second(&mut self, row: u32, block: u32, outputs: &Outputs, tables: &Tables) {
        let index = self.row_node(row);
        let parent = *self.node(index);
        let control = self.plan.control;
        let (source, first) = if control { (parent.row, self.plan.children) } else { (row, 0) };
        for slot in 0..self.plan.refined {
            let rank = first + slot;
            let top = outputs.row(source).tops.get(rank as usize).filter(|top| top.token.0 != NONE);
            let mut child = Node::DEAD;
            if let Some(top) = top.filter(|_| index != NONE) {
                let (token, depth) = (top.token, parent.depth + 1);
                let score = parent.score + tables.edge(top.log_q, rank, depth, !control);
                if let Some(twin) = self.find(parent.first_child, self.plan.children, token) {
                    self.counters.duplicates += 1;
                    self.raise(twin, score);
                } else {
                    self.counters.refined += 1;
                    let flags = ALIVE | REFINED;
                    child = Node { token, parent: index, depth, score, flags, source, ..Node::DEAD };
                }
            }
            self.set_node(block + slot, child);
        }
        if let Some(node) = self.node_mut(index) {
            node.refined_child = block;
        }
    }

    pub(super) fn raise(&mut self, index: u32, score: f32) {
        if let Some(node) = self.node_mut(index) {
            node.score = node.score.max(score);
        }
    }

    fn pick_frontier(&mut self, step: u32) {
        let plan = self.plan;
        let end = if plan.expand_refined { plan.block(step) } else { plan.refined_block(step - 1) };
        self.keys.clear();
        for index in plan.block(step - 1)..end {
            let node = self.node(index);
            if node.has(ALIVE) {
                let key = node.order(index);
                self.keys.push(key);
            }
        }
        self.keys.sort_unstable();
        for slot in 0..plan.width {
            let row = step * WIDTH + slot;
            let node = self.picked(slot);
            self.set_row(row, node);
            if let Some(node) = self.node_mut(node) {
                node.row = row;
            }
        }
    }

    fn pick_reconsidered(&mut self, step: u32, outputs: &Outputs, tables: &Tables) {
        let plan = self.plan;
        self.keys.clear();
        let evaluated = if step == 1 { 1 } else { plan.width };
        for slot in 0..evaluated {
            let row = (step - 1) * WIDTH + slot;
            let index = self.row_node(row);
            if index == NONE {
                continue;
            }
            let unsure = outputs.row(row).unsure;
            let priority = match plan.gate {
                Gate::Off => None,
                Gate::Random => Some(random(self.committed, step, slot)),
                Gate::Top1 | Gate::Entropy | Gate::Calibrated => {
                    let node = self.node(index);
                    (unsure >= tables.gate_threshold).then(|| node.score + tables.gain(node.depth, unsure))
                }
            };
            self.keys.extend(priority.map(|priority| falling(priority, slot)));
        }
        self.keys.sort_unstable();
        for slot in 0..plan.reconsider {
            let from = self.picked(slot);
            let node = if from == NONE { NONE } else { self.row_node((step - 1) * WIDTH + from) };
            self.counters.reconsidered += u32::from(node != NONE);
            self.set_row(step * WIDTH + plan.width + slot, node);
        }
    }

    /// The index in the sort key at `place`; [`NONE`] behind the last.
    fn picked(&self, place: u32) -> u32 {
        self.keys.get(place as usize).map_or(NONE, |&key| (key & 0xffff) as u32)
    }
}

/// The priority of a row under [`Gate::Random`], in [0, 1).
#[must_use]
pub fn random(committed: u32, step: u32, slot: u32) -> f32 {
    let [hash, ..] = pcg4d([committed, step, slot, 0x5eed]);
    // 24 bits and a power of two: exact.
    (hash >> 8) as f32 / 16_777_216.0
}
