//! The pool of drafted nodes.
//!
//! A round alternates two kernels on it: the drafter evaluates rows, [`Pool::grow`] turns what it said into nodes,
//! [`Pool::rows`] picks the rows of the next step.

use super::node::{ALIVE, CHAIN, NONE, Node};
use super::plan::{Plan, PlanError, ROW_IDS};
use crate::TokenId;

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
    pub(super) counters: Counters,
    /// Sort keys.
    pub(super) keys: Vec<u64>,
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

    /// Goes on with a round that was grown elsewhere, behind `committed` tokens: `nodes` `[plan.pool_len()]`, `row_nodes`
    /// `[ROW_IDS]`; what is missing is dead. Counters start at 0.
    pub fn restore(&mut self, committed: u32, nodes: &[Node], row_nodes: &[u32]) {
        self.reset(TokenId(NONE), committed);
        for (own, node) in self.nodes.iter_mut().zip(nodes) {
            *own = *node;
        }
        for (own, node) in self.row_nodes.iter_mut().zip(row_nodes) {
            *own = *node;
        }
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

    pub(super) fn find(&self, block: u32, len: u32, token: TokenId) -> Option<u32> {
        let alive = |&index: &u32| {
            let node = self.node(index);
            node.has(ALIVE) && node.token == token
        };
        if block == 0 { None } else { (block..block.saturating_add(len)).find(alive) }
    }

    pub(super) fn raise(&mut self, index: u32, score: f32) {
        if let Some(node) = self.node_mut(index) {
            node.score = node.score.max(score);
        }
    }

    pub(super) fn has_step(&self, step: u32) -> bool {
        self.plan.drafter && step <= self.plan.steps()
    }

    pub(super) fn set_row(&mut self, row: u32, node: u32) {
        if let Some(entry) = self.row_nodes.get_mut(row as usize) {
            *entry = node;
        }
    }

    pub(super) fn set_node(&mut self, index: u32, node: Node) {
        if let Some(slot) = self.node_mut(index) {
            *slot = node;
        }
    }
}

#[cfg(test)]
pub(super) mod fixture {
    use super::super::node::Outputs;
    use super::super::node::Top;
    use super::super::plan::WIDTH;
    use super::super::tables::Tables;
    use super::*;

    pub(in super::super) fn say(outputs: &mut Outputs, row: u32, unsure: f32, tops: &[(u32, f32)]) {
        let output = &mut outputs.step_mut(row / WIDTH)[(row % WIDTH) as usize];
        output.unsure = unsure;
        for (top, &(token, log_q)) in output.tops.iter_mut().zip(tops) {
            *top = Top { token: TokenId(token), log_q };
        }
    }

    pub(in super::super) fn row_nodes(pool: &Pool, step: u32, rows: u32) -> Vec<u32> {
        (step * WIDTH..step * WIDTH + rows).map(|row| pool.row_node(row)).collect()
    }

    /// Root children 10 (−1) and 11 (−0.5); step 1 evaluates both and the root again.
    pub(in super::super) fn grown(plan: Plan, second: &[(u32, f32)]) -> Pool {
        let mut outputs = Outputs::default();
        let tables = Tables { refined_offset: -0.0625, ..Tables::default() };
        let mut pool = Pool::new(plan).unwrap();
        pool.reset(TokenId(9), 5);
        say(&mut outputs, 0, 0.5, &[(10, -1.0), (11, -0.5), (12, -3.0), (13, -4.0)]);
        pool.grow(0, &outputs, &tables);
        pool.rows(1, &outputs, &tables);
        say(&mut outputs, 16, 0.9, &[(20, -0.25)]);
        say(&mut outputs, 17, 0.8, &[(30, -0.125), (31, -2.0)]);
        say(&mut outputs, 18, 0.0, second);
        pool.grow(1, &outputs, &tables);
        pool.rows(2, &outputs, &tables);
        pool
    }
}
