//! The tree of a draft: closed, ordered, with distinct siblings, and made of what the drafter said.

use std::collections::{BTreeMap, BTreeSet};

use redraft_decode::draft::{
    ALIVE, CHAIN, Draft, DraftError, Drafter, Gate, LOOKUP, Layout, NONE, Node, Output, Pass, Pool, REFINED,
    Step, Tables, WIDTH, random, tree_accept,
};
use redraft_decode::{Position, TokenId, ancestor_table};

use crate::script::{Random, Script, Target, random_plan, random_tables};

/// Checks the rows of each step against the words of the definition, then lets the script answer.
struct Checked<'a> {
    script: &'a mut Script,
    tables: Tables,
    /// What the script said, by row id.
    said: BTreeMap<u32, Output>,
    /// The scores before each step grew.
    scores: Vec<Vec<f32>>,
    frontier_refined: u32,
}

impl Drafter for Checked<'_> {
    type Error = DraftError;

    fn evaluate(&mut self, step: Step<'_>, outputs: &mut [Output]) -> Result<(), DraftError> {
        if step.index > 0 {
            let of = |pass| step.rows.iter().filter(move |row| row.pass == pass);
            let first: Vec<(u32, u32)> = of(Pass::First).map(|row| (row.id, row.node)).collect();
            let second: Vec<(u32, u32)> = of(Pass::Second).map(|row| (row.id, row.node)).collect();
            assert_eq!(first, self.frontier(&step), "frontier of step {}", step.index);
            assert_eq!(second, self.reconsidered(&step), "second passes of step {}", step.index);
            let refined = first.iter().filter(|row| step.pool.node(row.1).has(REFINED)).count();
            self.frontier_refined += u32::try_from(refined).unwrap();
        }
        assert!(outputs.iter().all(|output| *output == Output::EMPTY), "outputs start empty");
        self.scores.resize(step.index as usize, Vec::new());
        self.scores.push(step.pool.nodes().iter().map(|node| node.score).collect());
        self.script.evaluate(step, outputs)?;
        for row in step.rows {
            self.said.insert(row.id, outputs[row.slot()]);
        }
        Ok(())
    }
}

impl Checked<'_> {
    fn frontier(&self, step: &Step<'_>) -> Vec<(u32, u32)> {
        let plan = step.pool.plan();
        let mut nodes: Vec<(u32, &Node)> = (plan.block(step.index - 1)..plan.block(step.index))
            .map(|index| (index, step.pool.node(index)))
            .filter(|(_, node)| node.has(ALIVE) && (plan.expand_refined || !node.has(REFINED)))
            .collect();
        nodes.sort_by(|(i, a), (j, b)| {
            let chain = b.has(CHAIN).cmp(&a.has(CHAIN));
            chain.then(b.score.partial_cmp(&a.score).unwrap()).then(i.cmp(j))
        });
        let ids = step.index * WIDTH..;
        ids.zip(nodes).take(plan.width as usize).map(|(id, (index, _))| (id, index)).collect()
    }

    fn reconsidered(&self, step: &Step<'_>) -> Vec<(u32, u32)> {
        let plan = step.pool.plan();
        let mut rows: Vec<(f32, u32)> = Vec::new();
        for (&row, output) in self.said.range((step.index - 1) * WIDTH..) {
            let (slot, node) = (row % WIDTH, step.pool.node(step.pool.row_node(row)));
            if slot >= plan.width {
                continue;
            }
            let bin = (0..64u8).rev().find(|&bin| output.unsure >= f32::from(bin) / 64.0).unwrap();
            let gain = self.tables.log_gain[node.depth.min(7) as usize][usize::from(bin)];
            let raw = ((f64::from(bin) + 0.5) / 64.0).ln();
            let eligible = output.unsure >= self.tables.gate_threshold;
            match plan.gate {
                Gate::Random => rows.push((random(step.pool.committed(), step.index, slot), row)),
                Gate::Calibrated if eligible => rows.push((node.score + gain, row)),
                #[expect(clippy::cast_possible_truncation, reason = "rounded as the tables are")]
                Gate::Top1 | Gate::Entropy if eligible => rows.push((node.score + raw as f32, row)),
                _ => {}
            }
        }
        rows.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
        let ids = step.index * WIDTH + plan.width..;
        let nodes = rows.iter().map(|&(_, row)| step.pool.row_node(row));
        ids.zip(nodes).take(plan.reconsider as usize).collect()
    }
}

fn check_pool(pool: &Pool, said: &BTreeMap<u32, Output>) {
    let plan = pool.plan();
    let mut siblings = BTreeSet::new();
    for (index, node) in (0u32..).zip(pool.nodes()).skip(1).filter(|(_, node)| node.has(ALIVE)) {
        let parent = pool.node(node.parent);
        assert!(parent.has(ALIVE) && node.parent < index, "node {index}: its parent lives, and before it");
        assert!(node.score <= parent.score, "node {index}: {} above {}", node.score, parent.score);
        assert_eq!(node.depth, parent.depth + 1, "node {index}: depth");
        assert!(node.depth <= plan.depth, "node {index}: depth {}", node.depth);
        assert!(siblings.insert((node.parent, node.token)), "node {index}: a second {}", node.token);
        if node.has(LOOKUP) {
            assert_eq!((node.source, node.row), (NONE, NONE), "node {index}: not evaluated");
            continue;
        }
        let (rank, row) = if !node.has(REFINED) {
            (index - parent.first_child, parent.row)
        } else if plan.control {
            (index - parent.refined_child + plan.children, parent.row)
        } else {
            let rows = said.keys().filter(|&&row| pool.row_node(row) == node.parent && row != parent.row);
            (index - parent.refined_child, *rows.max().unwrap())
        };
        assert_eq!(node.source, row, "node {index}: its feature");
        assert_eq!(said[&row].tops[rank as usize].token, node.token, "node {index}: said at rank {rank}");
        assert_eq!(
            node.has(CHAIN),
            parent.has(CHAIN) && rank == 0 && !node.has(REFINED),
            "node {index}: chain"
        );
    }
    // All that first passes said and that fits is there.
    for (&row, output) in said.iter().filter(|(row, _)| **row % WIDTH < plan.width) {
        let parent = pool.row_node(row);
        let alive = output.tops.iter().take(plan.children as usize).filter(|top| top.token.0 != NONE);
        for top in alive {
            assert!(siblings.contains(&(parent, top.token)), "row {row}: {} is missing", top.token);
        }
    }
}

/// Each candidate's node scores at least what its row gives it, and no more unless something may have raised it.
fn check_scores(pool: &Pool, drafter: &Checked<'_>) {
    let plan = pool.plan();
    for (&row, output) in &drafter.said {
        let (parent, second) = (pool.row_node(row), row % WIDTH >= plan.width);
        let score = drafter.scores[(row / WIDTH) as usize][parent as usize];
        let tops = match (second, plan.control) {
            (true, true) => &drafter.said[&pool.node(parent).row].tops,
            _ => &output.tops,
        };
        let first = if second && plan.control { plan.children } else { 0 };
        let taken = if second { plan.refined } else { plan.children };
        for rank in first..first + taken {
            let top = tops[rank as usize];
            if top.token.0 == NONE {
                continue;
            }
            let mut nodes = pool.nodes().iter().filter(|node| node.has(ALIVE) && node.parent == parent);
            let node = nodes.find(|node| node.token == top.token).unwrap();
            let refined = second && !plan.control;
            let expected = score + drafter.tables.edge(top.log_q, rank, node.depth, refined);
            let raised = plan.lookup || (plan.reconsider > 0 && !node.has(REFINED));
            assert!(node.score >= expected, "row {row}, rank {rank}: {} below {expected}", node.score);
            assert!(raised || node.score == expected, "row {row}, rank {rank}: {} above", node.score);
        }
    }
}

fn check_layout(pool: &Pool, layout: &Layout) {
    let plan = pool.plan();
    assert_eq!(layout.rows(), plan.verified_rows() as usize, "rows");
    let mut order: Vec<(u32, &Node)> =
        (0u32..).zip(pool.nodes()).skip(1).filter(|(_, node)| node.has(ALIVE)).collect();
    order.sort_by(|(i, a), (j, b)| {
        let chain = b.has(CHAIN).cmp(&a.has(CHAIN));
        let depth = if a.has(CHAIN) && b.has(CHAIN) { a.depth.cmp(&b.depth) } else { i.cmp(i) };
        chain.then(depth).then(b.score.partial_cmp(&a.score).unwrap()).then(i.cmp(j))
    });
    let expected: Vec<u32> = order.iter().take(plan.nodes as usize).map(|(index, _)| *index).collect();
    assert_eq!(layout.nodes[1..layout.live], expected, "the best nodes in order");
    assert!(layout.nodes[layout.live..].iter().all(|&node| node == NONE), "dead rows last");

    let mut chain = Vec::new();
    let mut at = pool.node(0).first_child;
    while at != 0 && pool.node(at).has(ALIVE) {
        chain.push(at);
        at = pool.node(at).first_child;
    }
    let kept = chain.len().min(plan.nodes as usize);
    assert_eq!(layout.nodes[1..=kept], chain[..kept], "the greedy chain is kept");

    for row in 1..layout.live {
        let parent = layout.parents[row] as usize;
        assert!(parent < row, "row {row}: its parent stands before it");
        assert_eq!(
            layout.nodes[parent],
            pool.node(layout.nodes[row]).parent,
            "row {row}: closed under parents"
        );
        let mut path: Vec<u32> = pool.upward(layout.nodes[row]).collect();
        path.reverse();
        let table = &layout.ancestors[row * layout.levels..][..path.len()];
        let nodes: Vec<u32> = table.iter().map(|&row| layout.nodes[row as usize]).collect();
        assert_eq!(nodes, path, "row {row}: ancestors");
    }
    let rows = layout.tree_rows(Position(pool.committed())).unwrap();
    assert_eq!(rows.tree().depths(), &layout.depths[..layout.live], "depths");
    let table = ancestor_table(rows.tree());
    for (row, entries) in table.chunks(rows.tree().levels()).enumerate() {
        assert_eq!(layout.ancestors[row * layout.levels..][..entries.len()], *entries, "row {row}: table");
    }
}

/// Against a walk written over paths, and against [`redraft_decode::TreeRows::accept`]. Returns what was accepted.
fn check_accept(layout: &Layout, random: &mut Random) -> usize {
    let target: Vec<TokenId> = (0u32..)
        .take(layout.rows())
        .map(|row| {
            let children: Vec<usize> =
                (1..layout.live).filter(|&child| layout.parents[child] == row).collect();
            match children.len() {
                0 => TokenId(random.below(9)),
                _ if random.chance(20) => TokenId(random.below(9)),
                len => layout.tokens[children[random.below(u32::try_from(len).unwrap()) as usize]],
            }
        })
        .collect();
    let (eos, limit) = ([TokenId(random.below(9))], 1 + random.below(8));
    let accept = tree_accept(layout, &target, &eos, limit).unwrap();
    let whole = layout.tree_rows(Position(0)).unwrap().accept(&target[..layout.live]).unwrap();
    let end = whole.tokens.iter().position(|token| eos.contains(token)).map_or(usize::MAX, |at| at + 1);
    let taken = whole.tokens.len().min(end).min(limit as usize);
    assert_eq!(accept.path, whole.rows[..taken], "rows of the tree's walk");
    assert_eq!(accept.emitted, whole.tokens[..taken], "tokens of the tree's walk");
    assert_eq!(accept.stop.is_some(), taken == end || taken == limit as usize, "stop");

    let right = |row: usize| {
        let path = &layout.ancestors[row * layout.levels..][..=layout.depths[row] as usize];
        path.windows(2).all(|edge| target[edge[0] as usize] == layout.tokens[edge[1] as usize])
    };
    let deepest = (0..layout.live).filter(|&row| right(row)).map(|row| layout.depths[row]).max().unwrap();
    assert_eq!(whole.rows.len(), deepest as usize + 1, "the deepest row whose path is the target's");
    // The last token emitted may have been drafted too, where the answer ends with it.
    accept.path.len() - 1
}

#[test]
fn trees_are_what_the_definition_says() {
    let (mut accepted, mut refined, mut duplicates, mut dead, mut expanded, mut found) =
        ([0; 8], 0, 0, 0, 0, 0);
    for seed in 0..3000 {
        let mut random = Random(seed);
        let plan = random_plan(&mut random);
        let tables = random_tables(&mut random);
        let target = Target { seed, vocab: 3 + random.below(30) };
        let mut draft = Draft::new(plan, tables.clone()).unwrap();
        let ids: Vec<TokenId> =
            (0..=random.below(30)).map(|_| TokenId(random.below(target.vocab.min(4)))).collect();
        let mut script = Script {
            target,
            ids: ids.clone(),
            first: 50,
            second: 50,
            silent: 10,
            random: Random(seed ^ 0xabcd),
        };
        for _ in 0..3 {
            let said = BTreeMap::new();
            let mut drafter = Checked {
                script: &mut script,
                tables: tables.clone(),
                said,
                scores: Vec::new(),
                frontier_refined: 0,
            };
            draft.run(&mut drafter, &ids).unwrap();
            expanded += drafter.frontier_refined;
            check_pool(draft.pool(), &drafter.said);
            check_scores(draft.pool(), &drafter);
            check_layout(draft.pool(), draft.layout());
            accepted[check_accept(draft.layout(), &mut random)] += 1;
            refined += draft.pool().counters().refined;
            duplicates += draft.pool().counters().duplicates;
            dead += usize::from(draft.layout().live < draft.layout().rows());
            found += usize::from(draft.found().is_some());
        }
    }
    assert!(accepted.iter().all(|&rounds| rounds > 0), "accepted lengths 0 to 7: {accepted:?}");
    assert!(refined > 1000 && duplicates > 1000, "refined {refined}, duplicates {duplicates}");
    assert!(
        dead > 1000 && expanded > 1000 && found > 1000,
        "dead {dead}, expanded {expanded}, found {found}"
    );
}

#[test]
fn a_draft_is_a_function_of_its_input() {
    for seed in 0..50 {
        let mut random = Random(seed);
        let (plan, tables) = (random_plan(&mut random), random_tables(&mut random));
        let target = Target { seed, vocab: 9 };
        let ids: Vec<TokenId> = (0..20).map(|_| TokenId(random.below(3))).collect();
        let script =
            Script { target, ids: ids.clone(), first: 50, second: 50, silent: 10, random: Random(seed) };
        let mut draft = Draft::new(plan, tables).unwrap();
        let first = draft.run(&mut script.clone(), &ids).unwrap().clone();
        let others: Vec<TokenId> = ids.iter().map(|id| TokenId(id.0 + 7)).collect();
        draft.run(&mut script.clone(), &others).unwrap();
        assert_eq!(draft.run(&mut script.clone(), &ids).unwrap(), &first, "{plan:?}");
    }
}
