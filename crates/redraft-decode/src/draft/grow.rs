//! From what the drafter said to nodes.
//!
//! Twins of `shaders/draft_grow.wgsl` and, for second passes, `shaders/draft_refine.wgsl`.

use super::node::{ALIVE, CHAIN, NONE, Node, Outputs, REFINED};
use super::plan::WIDTH;
use super::pool::Pool;
use super::tables::Tables;

impl Pool {
    /// Turns what the drafter said of the rows of `step` into nodes: step 0 is the extend pass, whose only row is the
    /// root. A step that the plan does not have grows nothing.
    pub fn grow(&mut self, step: u32, outputs: &Outputs, tables: &Tables) {
        if !self.has_step(step) {
            return;
        }
        let plan = *self.plan();
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

    fn grow_first(&mut self, row: u32, block: u32, outputs: &Outputs, tables: &Tables) {
        let index = self.row_node(row);
        let parent = *self.node(index);
        for (rank, top) in (0..self.plan().children).zip(&outputs.row(row).tops) {
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
        let control = self.plan().control;
        let (source, first) = if control { (parent.row, self.plan().children) } else { (row, 0) };
        for slot in 0..self.plan().refined {
            let rank = first + slot;
            let top = outputs.row(source).tops.get(rank as usize).filter(|top| top.token.0 != NONE);
            let mut child = Node::DEAD;
            if let Some(top) = top.filter(|_| index != NONE) {
                let (token, depth) = (top.token, parent.depth + 1);
                let score = parent.score + tables.edge(top.log_q, rank, depth, !control);
                if let Some(twin) = self.find(parent.first_child, self.plan().children, token) {
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
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::super::pool::Counters;
    use super::super::pool::fixture::{grown, row_nodes};
    use super::*;
    use crate::TokenId;

    #[test]
    fn first_passes_grow_children() {
        let pool = grown(Plan::reconsider(9, 3, 2, 2, 1, 2), &[]);
        assert_eq!(row_nodes(&pool, 1, 3), [1, 2, 0], "chain first although it scores less; the root again");
        let root = pool.node(0);
        assert_eq!((root.first_child, root.refined_child, root.row, root.parent), (1, 7, 0, NONE), "root");
        let child = pool.node(3);
        assert_eq!(
            (child.token, child.parent, child.depth, child.score),
            (TokenId(20), 1, 2, -1.25),
            "child"
        );
        assert_eq!((child.flags, child.source, child.row), (ALIVE | CHAIN, 16, 32), "chain");
        assert_eq!(pool.node(4).flags, 0, "no token, no child");
        assert_eq!((pool.node(5).flags, pool.node(5).score), (ALIVE, -0.625), "no chain below 11");
        assert_eq!((pool.node(1).first_child, pool.node(2).first_child), (3, 5), "blocks");
        assert_eq!(pool.upward(5).collect::<Vec<_>>(), [5, 2, 0], "upward");
        assert_eq!(pool.upward(4).count(), 0, "from a dead node");
        assert_eq!(pool.counters(), Counters { reconsidered: 2, refined: 0, duplicates: 0 }, "counters");
    }

    #[test]
    fn second_passes_add_or_raise() {
        let pool = grown(Plan::reconsider(9, 3, 2, 2, 1, 3), &[(10, -0.125), (40, -2.0), (11, -9.0)]);
        assert_eq!(pool.node(1).score, -0.1875, "raised");
        assert_eq!(pool.node(3).score, -1.25, "but not what is below");
        assert_eq!(pool.node(2).score, -0.5, "never lowered");
        let refined = *pool.node(8);
        assert_eq!(
            (refined.token, refined.parent, refined.depth),
            (TokenId(40), 0, 1),
            "new child of the root"
        );
        assert_eq!((refined.flags, refined.source, refined.score), (ALIVE | REFINED, 18, -2.0625), "refined");
        assert_eq!([7, 9].map(|index| pool.node(index).flags), [0, 0], "slots of duplicates are dead");
        assert_eq!(pool.counters(), Counters { reconsidered: 2, refined: 1, duplicates: 2 }, "counters");
        assert_eq!(pool.child(0, TokenId(40)), Some(8), "found below the root");
    }

    #[test]
    fn the_control_takes_the_next_of_the_first_pass() {
        let plan = Plan { control: true, ..Plan::reconsider(9, 3, 2, 2, 1, 2) };
        let pool = grown(plan, &[(40, -0.25)]);
        let added = [7, 8].map(|index| (pool.node(index).token.0, pool.node(index).score));
        assert_eq!(added, [(12, -3.0), (13, -4.0)], "third and fourth of the root");
        assert_eq!((pool.node(7).source, pool.node(7).flags), (0, ALIVE | REFINED), "from the root's row");
    }
}
