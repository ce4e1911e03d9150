//! Text generated with drafts is the text that the target generates alone, whatever the drafter says.

use redraft_decode::TokenId;
use redraft_decode::draft::{
    Accept, Draft, Layout, Origin, Plan, REFINED, RoundStats, SpeculationStats, Stop, tree_accept,
};

use crate::script::{Random, Script, Target, random_plan, random_tables};

/// What the target says behind each row, given the whole text on the way there.
fn verify(target: &Target, ids: &[TokenId], layout: &Layout) -> Vec<TokenId> {
    let rows = (0..layout.rows()).map(|row| {
        let path = &layout.ancestors[row * layout.levels..][..=layout.depths[row] as usize];
        let mut text = ids.to_vec();
        text.extend(path[1..].iter().map(|&row| layout.tokens[row as usize]));
        target.next(&text)
    });
    rows.collect()
}

/// What happened in all runs.
#[derive(Default)]
struct Coverage {
    /// `[depth - 1][accepted]` rounds, for plans down to that depth.
    lengths: [[u32; 7]; 6],
    /// Rounds that ended by end-of-sequence or by the limit although the tree went on.
    cut: [u32; 2],
    dead: u32,
    control_rescues: u64,
    below_refined: u32,
    lookup_only: u64,
    chains: u64,
    /// Rounds of which the target added no token of its own.
    drafted_ends: u64,
    stats: SpeculationStats,
}

impl Coverage {
    fn count(&mut self, draft: &Draft, accept: &Accept, goes_on: bool) {
        let (plan, layout) = (draft.pool().plan(), draft.layout());
        if let Some(lengths) = self.lengths.get_mut(plan.depth as usize - 1) {
            lengths[accept.accepted()] += 1;
        }
        match accept.stop {
            Some(Stop::Eos) if accept.accepted() > 0 && goes_on => self.cut[0] += 1,
            Some(Stop::Limit) if accept.accepted() > 0 && goes_on => self.cut[1] += 1,
            _ => {}
        }
        self.dead += u32::from(layout.live < layout.rows());
        assert!(accept.stop.is_some() || accept.origins.last() == Some(&Origin::Target), "goes on by itself");
        let refined = accept.path.iter().position(|&row| layout.origins[row as usize] == Origin::Refined);
        self.control_rescues += u64::from(plan.control && refined.is_some());
        let below = refined.is_some_and(|at| {
            accept.path[at + 1..].iter().any(|&row| draft.pool().node(layout.nodes[row as usize]).flags == 1)
        });
        assert!(!below || plan.expand_refined, "only expanded refined nodes have drafted children");
        self.below_refined += u32::from(below);
        let accepted = accept.accepted() as u64;
        self.lookup_only += if plan.drafter { 0 } else { accepted };
        self.chains += if plan.is_chain() { accepted } else { 0 };
        self.drafted_ends += u64::from(accept.origins.last() != Some(&Origin::Target));
        self.stats.add(&RoundStats::new(*plan, draft.pool().counters(), layout, accept));
    }
}

/// Generates up to `limit` tokens behind `prompt`, drafting with `plan`.
fn generate(
    plan: Plan,
    script: &mut Script,
    prompt: &[TokenId],
    (eos, limit): (&[TokenId], usize),
    coverage: &mut Coverage,
) -> Vec<TokenId> {
    let mut draft = Draft::new(plan, random_tables(&mut script.random)).unwrap();
    let mut ids = prompt.to_vec();
    loop {
        script.ids.clone_from(&ids);
        draft.run(script, &ids).unwrap();
        let layout = draft.layout();
        let target = verify(&script.target, &ids, layout);
        let left = u32::try_from(prompt.len() + limit - ids.len()).unwrap();
        let accept = tree_accept(layout, &target, eos, left).unwrap();
        let free = tree_accept(layout, &target, &[], 0).unwrap();
        coverage.count(&draft, &accept, free.path.len() > accept.path.len());
        assert_eq!(accept.emitted.len(), accept.path.len(), "a token for each row of the path");
        for (&row, (&token, &origin)) in
            accept.path[1..].iter().zip(accept.emitted.iter().zip(&accept.origins))
        {
            assert_eq!(layout.tokens[row as usize], token, "the row that was accepted carries the token");
            assert_eq!(layout.origins[row as usize], origin, "and its origin");
            let node = draft.pool().node(layout.nodes[row as usize]);
            assert_eq!(node.has(REFINED), origin == Origin::Refined, "as the pool has it");
        }
        ids.extend(&accept.emitted);
        if accept.stop.is_some() {
            return ids.split_off(prompt.len());
        }
    }
}

fn plain(target: &Target, prompt: &[TokenId], eos: &[TokenId], limit: usize) -> Vec<TokenId> {
    let mut ids = prompt.to_vec();
    while ids.len() < prompt.len() + limit {
        ids.push(target.next(&ids));
        if ids.last().is_some_and(|last| eos.contains(last)) {
            break;
        }
    }
    ids.split_off(prompt.len())
}

#[test]
fn drafted_text_is_the_targets_own() {
    let mut coverage = Coverage::default();
    let mut tokens = 0;
    for seed in 0..3000 {
        let mut random = Random(seed);
        let plan = random_plan(&mut random);
        let target = Target { seed, vocab: 3 + random.below(30) };
        let prompt: Vec<TokenId> =
            (0..=random.below(9)).map(|_| TokenId(random.below(target.vocab))).collect();
        let eos: Vec<TokenId> = (0..random.below(3)).map(|_| TokenId(random.below(40))).collect();
        let limit = 1 + random.below(60) as usize;
        let (first, second) = (random.below(101), random.below(101));
        let mut script = Script { target, ids: Vec::new(), first, second, silent: 10, random };
        let text = generate(plan, &mut script, &prompt, (&eos, limit), &mut coverage);
        assert_eq!(text, plain(&target, &prompt, &eos, limit), "seed {seed}, {plan:?}");
        tokens += text.len() as u64;
    }
    for (depth, lengths) in (1..).zip(&coverage.lengths) {
        assert!(lengths[..=depth].iter().all(|&rounds| rounds > 0), "plans of depth {depth}: {lengths:?}");
    }
    assert!(coverage.cut.iter().all(|&rounds| rounds > 20), "ends inside a run: {:?}", coverage.cut);
    assert!(coverage.dead > 1000, "dead rows: {}", coverage.dead);
    assert!(coverage.control_rescues > 20, "control rescues: {}", coverage.control_rescues);
    assert!(coverage.below_refined > 20, "accepted below a refined node: {}", coverage.below_refined);
    assert!(coverage.lookup_only > 100, "accepted without a drafter: {}", coverage.lookup_only);
    assert!(coverage.chains > 100, "accepted of chains: {}", coverage.chains);

    let stats = coverage.stats;
    assert_eq!(stats.emitted, tokens, "every token is counted once");
    let own = stats.emitted - stats.accepted;
    assert_eq!(
        own + coverage.drafted_ends,
        stats.rounds,
        "one a round is the target's own, unless the text ends"
    );
    assert!(coverage.drafted_ends > 20, "texts that end with a drafted token: {}", coverage.drafted_ends);
    assert_eq!(stats.by_depth.iter().map(|depth| depth.accepted).sum::<u64>(), stats.accepted, "by depth");
    assert!(stats.by_depth.windows(2).all(|pair| pair[0].accepted >= pair[1].tried), "tried if accepted");
    assert!(stats.rescues > 1000, "rescues: {}", stats.rescues);
    assert!(stats.lookup_hits > 1000, "lookup hits: {}", stats.lookup_hits);
    assert!(stats.duplicates > 1000, "duplicates: {}", stats.duplicates);
}

#[test]
fn a_perfect_drafter_is_accepted_to_the_end() {
    for seed in 0..50 {
        let mut coverage = Coverage::default();
        let target = Target { seed, vocab: 1000 };
        let random = Random(seed);
        let mut script = Script { target, ids: Vec::new(), first: 100, second: 0, silent: 0, random };
        let text = generate(Plan::chain(4), &mut script, &[TokenId(1)], (&[], 50), &mut coverage);
        assert_eq!(text, plain(&target, &[TokenId(1)], &[], 50), "seed {seed}");
        assert_eq!(coverage.lengths[3][4], 10, "five tokens a round: {:?}", coverage.lengths[3]);
    }
}
