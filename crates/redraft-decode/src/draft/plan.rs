//! The shape of a draft round.

use super::TOP;

/// Rows of a drafter step that have an id: row `i` of step `s` has the row id `s · WIDTH + i`.
pub const WIDTH: u32 = 16;
/// Deepest draft node that a plan may ask for.
pub const MAX_DEPTH: u32 = 16;
/// Most nodes that a plan may have verified, the root not counted.
pub const MAX_NODES: u32 = 63;
/// Most nodes of a pool, the root included.
pub const MAX_POOL: u32 = 1024;
/// Most candidates taken of a reconsideration row.
pub const MAX_REFINED: u32 = 4;
/// Row ids of a round: [`WIDTH`] for the extend pass and for each step of the deepest plan.
pub const ROW_IDS: u32 = WIDTH * MAX_DEPTH;

/// How the rows that get a reconsideration pass are picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gate {
    /// None is picked.
    #[default]
    Off,
    /// Unsure is one minus the probability of the best candidate.
    Top1,
    /// Unsure is the entropy of the candidates, scaled to [0, 1].
    Entropy,
    /// The gain of an unsure row is read from the fitted table [`super::Tables::log_gain`].
    Calibrated,
    /// Rows are picked by a hash of root position, step and row: the control of an ablation.
    Random,
}

/// The shape of a draft round; see [`Plan::validate`] for the limits.
///
/// A round drafts down to `depth` in [`Plan::steps`] drafter forwards of `width + reconsider` rows each, keeps `nodes`
/// of all nodes grown and has them verified in one batch of [`Plan::verified_rows`] rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// k: nodes that a drafter step evaluates.
    pub width: u32,
    /// c: children kept of each first pass.
    pub children: u32,
    /// R: nodes that a drafter step evaluates again.
    pub reconsider: u32,
    /// E: candidates taken of each second pass.
    pub refined: u32,
    /// Depth of the deepest draft node; the root has depth 0.
    pub depth: u32,
    /// N: nodes verified, the root not counted.
    pub nodes: u32,
    /// How the nodes of a second pass are picked.
    pub gate: Gate,
    /// Refined nodes may be evaluated by the next step.
    pub expand_refined: bool,
    /// Control: the candidates of a second pass are the next ones of the first pass instead.
    pub control: bool,
    /// Ablation: the second pass reads the feature that the first pass read, not what the first pass returned.
    pub no_recurrence: bool,
    /// Continuations found in the text so far join the tree.
    pub lookup: bool,
    /// The drafter runs; `false` for a plan that only looks up.
    pub drafter: bool,
}

/// Why a plan was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A field is outside its own range.
    #[error("{field} is {found}; expected {least} to {most}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u32,
        /// The least value allowed.
        least: u32,
        /// The largest value allowed.
        most: u32,
    },
    /// Two fields together exceed what they share.
    #[error("{fields} is {found}; expected at most {most}")]
    TooMany {
        /// The sum of fields.
        fields: &'static str,
        /// Its value.
        found: u32,
        /// The largest value allowed.
        most: u32,
    },
    /// The nodes grown do not fit the pool.
    #[error(
        "the plan grows a pool of {found} nodes; expected at most {MAX_POOL}: lower width, children or depth"
    )]
    PoolTooLarge {
        /// Nodes of the pool, the root included.
        found: u32,
    },
    /// Neither the drafter nor the lookup runs.
    #[error("drafter and lookup are both false; expected at least one of them to propose nodes")]
    NothingProposes,
}

impl Default for Plan {
    /// A tree of 15 nodes, four wide and five deep, with two reconsidered nodes a step.
    fn default() -> Self {
        Self::reconsider(15, 5, 4, 4, 2, 2)
    }
}

impl Plan {
    /// A chain of `nodes` nodes: the drafter's best guess behind its best guess.
    #[must_use]
    pub const fn chain(nodes: u32) -> Self {
        Self::tree(nodes, nodes, 1, 1)
    }

    /// A tree of `nodes` nodes down to `depth`, of which each step evaluates `width` and keeps `children` of each.
    #[must_use]
    pub const fn tree(nodes: u32, depth: u32, width: u32, children: u32) -> Self {
        Self {
            width,
            children,
            reconsider: 0,
            refined: 0,
            depth,
            nodes,
            gate: Gate::Off,
            expand_refined: false,
            control: false,
            no_recurrence: false,
            lookup: false,
            drafter: true,
        }
    }

    /// [`Plan::tree`] whose steps also evaluate `reconsider` nodes again and take `refined` candidates of each, picked
    /// by [`Gate::Top1`].
    #[must_use]
    pub const fn reconsider(
        nodes: u32,
        depth: u32,
        width: u32,
        children: u32,
        reconsider: u32,
        refined: u32,
    ) -> Self {
        Self { reconsider, refined, gate: Gate::Top1, ..Self::tree(nodes, depth, width, children) }
    }

    /// `depth` tokens found in the text so far, without a drafter.
    #[must_use]
    pub const fn lookup(depth: u32) -> Self {
        Self { lookup: true, drafter: false, ..Self::chain(depth) }
    }

    /// Checks the plan against the limits of the kernels.
    ///
    /// # Errors
    /// [`PlanError`], naming the first field that does not fit.
    pub fn validate(&self) -> Result<(), PlanError> {
        let refined_least = u32::from(self.reconsider > 0);
        for (field, found, least, most) in [
            ("width", self.width, 1, WIDTH),
            ("children", self.children, 1, TOP),
            ("reconsider", self.reconsider, 0, WIDTH - 1),
            ("refined", self.refined, refined_least, MAX_REFINED),
            ("depth", self.depth, 1, MAX_DEPTH),
            ("nodes", self.nodes, 1, MAX_NODES),
        ] {
            if !(least..=most).contains(&found) {
                return Err(PlanError::OutOfRange { field, found, least, most });
            }
        }
        if self.step_rows() > WIDTH {
            return Err(PlanError::TooMany {
                fields: "width + reconsider",
                found: self.step_rows(),
                most: WIDTH,
            });
        }
        if self.control && self.children + self.refined > TOP {
            let found = self.children + self.refined;
            return Err(PlanError::TooMany {
                fields: "children + refined of a control plan",
                found,
                most: TOP,
            });
        }
        if !self.drafter && !self.lookup {
            return Err(PlanError::NothingProposes);
        }
        match self.pool_len() {
            0..=MAX_POOL => Ok(()),
            found => Err(PlanError::PoolTooLarge { found }),
        }
    }

    /// S: drafter forwards of a round behind the extend pass.
    #[must_use]
    pub const fn steps(&self) -> u32 {
        if self.drafter { self.depth.saturating_sub(1) } else { 0 }
    }

    /// k + R: rows of a drafter step.
    #[must_use]
    pub const fn step_rows(&self) -> u32 {
        self.width.saturating_add(self.reconsider)
    }

    /// M: rows of the verification batch, the root included.
    #[must_use]
    pub const fn verified_rows(&self) -> u32 {
        self.nodes.saturating_add(1)
    }

    /// Whether the plan is a chain: one node wide, one child, nothing reconsidered or looked up.
    #[must_use]
    pub fn is_chain(&self) -> bool {
        *self == Self::chain(self.nodes)
    }

    /// Whether the verified rows are one path from the root down, so that the accepted ones follow each other.
    #[must_use]
    pub const fn in_order(&self) -> bool {
        let one = self.width == 1 && self.children == 1 && self.reconsider == 0;
        !self.drafter || (one && !self.lookup)
    }

    /// Pool index of the first node grown by `step`; block 0 holds the root's children.
    #[must_use]
    pub const fn block(&self, step: u32) -> u32 {
        if step == 0 {
            return 1;
        }
        let later = (step - 1).saturating_mul(self.block_len());
        self.children.saturating_add(1).saturating_add(later)
    }

    /// Pool index of the first refined node of `step`, which stand behind the first-pass children of its block.
    ///
    /// Step 0 has none; its index is the end of block 0.
    #[must_use]
    pub const fn refined_block(&self, step: u32) -> u32 {
        let rows = if step == 0 { 1 } else { self.width };
        self.block(step).saturating_add(rows.saturating_mul(self.children))
    }

    /// Pool index of the first looked-up node: behind all blocks, or behind the root without a drafter.
    #[must_use]
    pub const fn lookup_block(&self) -> u32 {
        if self.drafter { self.block(self.steps().saturating_add(1)) } else { 1 }
    }

    /// Nodes of the pool, the root included; the lookup block of `depth` nodes only where the plan looks up.
    #[must_use]
    pub const fn pool_len(&self) -> u32 {
        let lookup = if self.lookup { self.depth } else { 0 };
        self.lookup_block().saturating_add(lookup)
    }

    /// Nodes of a block behind block 0: k·c + R·E.
    const fn block_len(&self) -> u32 {
        let first = self.width.saturating_mul(self.children);
        first.saturating_add(self.reconsider.saturating_mul(self.refined))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_plan_by_hand() {
        let plan = Plan { lookup: true, ..Plan::reconsider(15, 4, 3, 4, 2, 2) };
        assert_eq!(plan.validate(), Ok(()), "a good plan");
        assert_eq!((plan.steps(), plan.step_rows(), plan.verified_rows()), (3, 5, 16), "rows");
        assert_eq!([0, 1, 2, 3].map(|s| plan.block(s)), [1, 5, 21, 37], "blocks of 3·4 + 2·2 behind 1 + 4");
        assert_eq!([0, 1, 2, 3].map(|s| plan.refined_block(s)), [5, 17, 33, 49], "refined nodes");
        assert_eq!((plan.lookup_block(), plan.pool_len()), (53, 57), "lookup block");
        let plan = Plan { lookup: false, ..plan };
        assert_eq!(plan.pool_len(), 53, "no lookup block");
        let plan = Plan::lookup(6);
        assert_eq!((plan.lookup_block(), plan.pool_len(), plan.steps()), (1, 7, 0), "lookup only");
        let plan = Plan::chain(5);
        assert_eq!((plan.depth, plan.pool_len(), plan.steps()), (5, 6, 4), "a chain");
        assert!(plan.is_chain() && !Plan::default().is_chain() && !Plan::lookup(3).is_chain(), "chains");
        assert!(plan.in_order() && Plan::lookup(3).in_order(), "one path");
        assert!(!Plan { lookup: true, ..plan }.in_order() && !Plan::default().in_order(), "several");
        assert_eq!(Plan::default().validate(), Ok(()), "the default");
    }

    #[test]
    fn every_limit_is_checked() {
        let good = Plan::reconsider(15, 5, 4, 4, 2, 2);
        let range = |field, found, least, most| Err(PlanError::OutOfRange { field, found, least, most });
        let cases = [
            (Plan { width: 0, ..good }, range("width", 0, 1, 16)),
            (Plan { width: 17, ..good }, range("width", 17, 1, 16)),
            (Plan { children: 0, ..good }, range("children", 0, 1, 8)),
            (Plan { children: 9, ..good }, range("children", 9, 1, 8)),
            (Plan { reconsider: u32::MAX, ..good }, range("reconsider", u32::MAX, 0, 15)),
            (Plan { refined: 0, ..good }, range("refined", 0, 1, 4)),
            (Plan { refined: 5, ..good }, range("refined", 5, 1, 4)),
            (Plan { depth: 0, ..good }, range("depth", 0, 1, 16)),
            (Plan { depth: 17, ..good }, range("depth", 17, 1, 16)),
            (Plan { nodes: 0, ..good }, range("nodes", 0, 1, 63)),
            (Plan { nodes: 64, ..good }, range("nodes", 64, 1, 63)),
            (
                Plan { width: 15, ..good },
                Err(PlanError::TooMany { fields: "width + reconsider", found: 17, most: 16 }),
            ),
            (
                Plan { children: 6, refined: 3, control: true, ..good },
                Err(PlanError::TooMany { fields: "children + refined of a control plan", found: 9, most: 8 }),
            ),
            (Plan { children: 6, refined: 2, control: true, ..good }, Ok(())),
            (Plan { children: 6, refined: 3, ..good }, Ok(())),
            (Plan { drafter: false, ..good }, Err(PlanError::NothingProposes)),
            (Plan::tree(63, 9, 16, 8), Err(PlanError::PoolTooLarge { found: 1033 })),
            (Plan::tree(63, 8, 16, 8), Ok(())),
            (Plan::chain(16), Ok(())),
            (Plan::lookup(16), Ok(())),
        ];
        for (plan, expected) in cases {
            assert_eq!(plan.validate(), expected, "{plan:?}");
        }
        let wild = Plan { width: u32::MAX, children: u32::MAX, depth: u32::MAX, nodes: u32::MAX, ..good };
        assert_eq!(wild.pool_len(), u32::MAX, "offsets of a bad plan saturate");
        let message = PlanError::OutOfRange { field: "depth", found: 17, least: 1, most: 16 }.to_string();
        assert_eq!(message, "depth is 17; expected 1 to 16", "message");
    }
}
