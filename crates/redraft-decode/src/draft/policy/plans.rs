//! The plans that a policy chooses among.

use crate::draft::{Plan, WIDTH};

/// Chains and trees of 2, 4, 8, 16 and 32 verified rows.
///
/// `template` says what its trees reconsider and how, and whether all look up. Without a drafter: lookups of 2, 4, 8
/// and 16 verified rows.
#[must_use]
pub fn standard_plans(template: &Plan) -> Vec<Plan> {
    let lookup = template.lookup;
    let mut plans: Vec<Plan> = if template.drafter {
        [1, 3, 7, 15].map(|nodes| Plan { lookup, ..Plan::chain(nodes) }).to_vec()
    } else {
        [1, 3, 7, 15].map(Plan::lookup).to_vec()
    };
    if template.drafter {
        let most = WIDTH.saturating_sub(template.reconsider).max(1);
        let trees = [(3, 2, 2, 3), (7, 3, 3, 4), (15, 5, 4, 4), (31, 6, 6, 6)];
        plans.extend(trees.map(|(nodes, depth, width, children)| Plan {
            nodes,
            depth,
            width: most.min(width),
            children: if template.control { template.children } else { children },
            ..*template
        }));
    }
    plans.retain(|plan| plan.validate().is_ok());
    plans
}

/// The plans that an automatic choice has with a drafter: [`standard_plans`], lookups alone, and some of both. Without a
/// drafter the standard ones.
#[must_use]
pub fn automatic_plans(template: &Plan) -> Vec<Plan> {
    let mut plans = standard_plans(template);
    if template.drafter {
        plans.extend([3, 7].map(Plan::lookup));
        let merged = plans.iter().filter(|plan| matches!(plan.nodes, 3 | 7 | 15) && plan.drafter);
        let merged: Vec<Plan> = merged.map(|plan| Plan { lookup: true, ..*plan }).collect();
        plans.extend(merged);
        plans.retain(|plan| plan.validate().is_ok());
    }
    plans
}

/// Tokens that a round of `other` would have emitted where one of `plan` accepted the rows of `path`, root included;
/// `None` where that cannot be told.
///
/// It can for fewer nodes of the same tree, because those are the first rows of the batch, and for shorter chains.
pub(super) fn implied(plan: &Plan, path: &[u32], other: &Plan) -> Option<u32> {
    let same = Plan { nodes: plan.nodes, ..*other } == *plan || (plan.is_chain() && other.is_chain());
    if !same || other.nodes > plan.nodes {
        return None;
    }
    u32::try_from(path.iter().take_while(|&&row| row <= other.nodes).count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_plans_are_valid_and_cover_the_sizes() {
        for template in [Plan::chain(1), Plan::default(), Plan { lookup: true, ..Plan::default() }] {
            let plans = standard_plans(&template);
            let rows: Vec<u32> = plans.iter().map(Plan::verified_rows).collect();
            assert_eq!(rows, [2, 4, 8, 16, 4, 8, 16, 32], "{template:?}");
            assert!(plans.iter().all(|plan| plan.lookup == template.lookup), "lookup is taken over");
            assert!(
                plans[4..].iter().all(|plan| plan.reconsider == template.reconsider),
                "and what is reconsidered"
            );
        }
        let rows: Vec<u32> = standard_plans(&Plan::lookup(1)).iter().map(Plan::verified_rows).collect();
        assert_eq!(rows, [2, 4, 8, 16], "without a drafter");
        let wide = Plan { reconsider: 15, width: 1, ..Plan::default() };
        assert_eq!(standard_plans(&wide).len(), 8, "narrowed to fit");
    }

    #[test]
    fn an_automatic_choice_has_lookups_beside_a_drafter() {
        let plans = automatic_plans(&Plan::default());
        let count = |kind: fn(&&Plan) -> bool| plans.iter().filter(kind).count();
        assert_eq!(count(|plan| plan.drafter && !plan.lookup), 8, "those of the drafter alone");
        assert_eq!(count(|plan| !plan.drafter), 2, "lookups alone");
        assert_eq!(count(|plan| plan.drafter && plan.lookup), 6, "both");
        assert!(plans.iter().all(|plan| plan.validate().is_ok()), "all of them run");
        assert_eq!(automatic_plans(&Plan::lookup(1)), standard_plans(&Plan::lookup(1)), "without a drafter");
    }

    #[test]
    fn what_smaller_plans_would_have_done() {
        let chain = Plan::chain(7);
        assert_eq!(implied(&chain, &[0, 1, 2, 3], &Plan::chain(2)), Some(3), "cut");
        assert_eq!(implied(&chain, &[0, 1], &Plan::chain(5)), Some(2), "not cut");
        assert_eq!(implied(&chain, &[0, 1], &chain), Some(2), "itself");
        assert_eq!(implied(&chain, &[0, 1], &Plan::chain(8)), None, "longer");
        let tree = Plan::tree(15, 5, 4, 4);
        assert_eq!(implied(&tree, &[0, 2, 9, 11], &Plan { nodes: 8, ..tree }), Some(2), "row 9 is missing");
        assert_eq!(implied(&tree, &[0, 2, 9], &Plan { depth: 4, ..tree }), None, "another tree");
        assert_eq!(implied(&tree, &[0, 1], &chain), None, "a chain");
    }
}
