//! Which nodes a step evaluates.
//!
//! Twin of `shaders/draft_rows.wgsl`.

use super::node::{ALIVE, NONE, Outputs, falling};
use super::plan::{Gate, WIDTH};
use super::pool::Pool;
use super::tables::Tables;
use crate::sampling::pcg4d;

impl Pool {
    /// Picks the rows of `step` (1 to [`super::Plan::steps`]) among the nodes that the step before it grew and evaluated. A
    /// step that the plan does not have picks nothing.
    pub fn rows(&mut self, step: u32, outputs: &Outputs, tables: &Tables) {
        if step == 0 || !self.has_step(step) {
            return;
        }
        self.pick_frontier(step);
        self.pick_reconsidered(step, outputs, tables);
    }

    fn pick_frontier(&mut self, step: u32) {
        let plan = *self.plan();
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
        let plan = *self.plan();
        self.keys.clear();
        // Step 0 has one row; those behind it are dead.
        for slot in 0..plan.width {
            let row = (step - 1) * WIDTH + slot;
            let index = self.row_node(row);
            if index == NONE {
                continue;
            }
            let unsure = outputs.row(row).unsure;
            let priority = match plan.gate {
                Gate::Off => None,
                Gate::Random => Some(random(self.committed(), step, slot)),
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

#[cfg(test)]
mod tests {
    use super::super::node::Node;
    use super::super::plan::Plan;
    use super::super::pool::fixture::{grown, row_nodes, say};
    use super::*;
    use crate::TokenId;

    #[test]
    fn refined_nodes_are_evaluated_where_the_plan_says_so() {
        let plan = Plan::reconsider(9, 3, 2, 2, 1, 1);
        let second = [(40, -0.25)];
        assert_eq!(row_nodes(&grown(plan, &second), 2, 2), [3, 5], "leaf only");
        let plan = Plan { expand_refined: true, ..plan };
        assert_eq!(row_nodes(&grown(plan, &second), 2, 2), [3, 7], "one step late");
    }

    #[test]
    fn gates_pick_unsure_rows() {
        let plan = Plan::reconsider(9, 3, 2, 2, 2, 1);
        let picked = |pool: Pool| row_nodes(&pool, 2, 4)[2..].to_vec();
        // 11: −0.5 + ln(51.5/64); 10: −1 + ln(57.5/64).
        assert_eq!(picked(grown(plan, &[])), [2, 1], "by score and gain");
        assert_eq!(picked(grown(Plan { gate: Gate::Off, ..plan }, &[])), [NONE, NONE], "off");
        let random: Vec<f32> = (0..2).map(|slot| random(5, 2, slot)).collect();
        let expected = if random[0] >= random[1] { [1, 2] } else { [2, 1] };
        assert_eq!(picked(grown(Plan { gate: Gate::Random, ..plan }, &[])), expected, "{random:?}");

        let (mut outputs, mut pool) = (Outputs::default(), Pool::new(plan).unwrap());
        for (unsure, threshold, expected) in [(0.5, 0.5, 0), (0.49, 0.5, NONE)] {
            let tables = Tables { gate_threshold: threshold, ..Tables::default() };
            pool.reset(TokenId(9), 5);
            say(&mut outputs, 0, unsure, &[(10, -1.0)]);
            pool.grow(0, &outputs, &tables);
            pool.rows(1, &outputs, &tables);
            assert_eq!(row_nodes(&pool, 1, 4), [1, NONE, expected, NONE], "unsure {unsure}");
            assert_eq!(pool.counters().reconsidered, u32::from(expected == 0), "unsure {unsure}: counted");
        }
    }

    #[test]
    fn random_priorities_are_spread() {
        let values: Vec<f32> = (0..1000).map(|slot| random(7, 3, slot)).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)), "range");
        let below = values.iter().filter(|&&value| value < 0.5).count();
        assert!((400..600).contains(&below), "{below} of 1000 below a half");
        assert_ne!(random(7, 3, 0), random(8, 3, 0), "by position");
        assert_ne!(random(7, 3, 0), random(7, 4, 0), "by step");
    }

    #[test]
    fn steps_that_the_plan_lacks_do_nothing() {
        let mut pool = grown(Plan::reconsider(9, 3, 2, 2, 1, 2), &[]);
        let before = pool.nodes().to_vec();
        for step in [3, 16, u32::MAX] {
            pool.rows(step, &Outputs::default(), &Tables::default());
            pool.grow(step, &Outputs::default(), &Tables::default());
        }
        pool.rows(0, &Outputs::default(), &Tables::default());
        assert_eq!(pool.nodes(), before, "untouched");
        assert_eq!((pool.node(u32::MAX), pool.row_node(u32::MAX)), (&Node::DEAD, NONE), "outside");
    }
}
