//! Counts of what speculation did.

use super::accept::Accept;
use super::plan::{MAX_DEPTH, Plan};
use super::pool::Counters;
use super::prune::{Layout, Origin};

/// Most entries of [`SpeculationStats::history`]; the oldest are dropped.
pub const HISTORY: usize = 64;

/// What one round of drafting, verifying and accepting did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundStats<'a> {
    /// The plan.
    pub plan: Plan,
    /// Nodes verified, dead rows and root not counted.
    pub drafted: u32,
    /// What happened while the pool grew.
    pub counters: Counters,
    /// Who proposed each token emitted ([`Accept::origins`]).
    pub origins: &'a [Origin],
    /// Whether the answer ended in this round, so that the walk was cut.
    pub stopped: bool,
}

impl<'a> RoundStats<'a> {
    /// The record of a round run by the twins.
    #[must_use]
    pub fn new(plan: Plan, counters: Counters, layout: &Layout, accept: &'a Accept) -> Self {
        let drafted = u32::try_from(layout.live.saturating_sub(1)).unwrap_or(u32::MAX);
        Self { plan, drafted, counters, origins: &accept.origins, stopped: accept.stop.is_some() }
    }
}

/// Acceptance at one depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepthStats {
    /// Rounds that had accepted all above, went on, and whose plan reached this depth.
    pub tried: u64,
    /// Rounds that accepted a node at this depth.
    pub accepted: u64,
}

impl DepthStats {
    /// Share of the tried that was accepted; `None` before the first try.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.tried > 0).then(|| ratio(self.accepted, self.tried))
    }
}

/// A run of rounds under one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRun {
    /// The plan; `None` for plain decoding.
    pub plan: Option<Plan>,
    /// Target forwards.
    pub rounds: u64,
    /// Tokens emitted.
    pub emitted: u64,
}

/// Counts over many rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeculationStats {
    /// Rounds with a draft, that is target forwards that verified one.
    pub rounds: u64,
    /// Tokens decoded plainly, one a forward, because the plan was to speculate not at all.
    pub plain: u64,
    /// Nodes verified.
    pub drafted: u64,
    /// Nodes accepted.
    pub accepted: u64,
    /// Tokens that the rounds emitted: the accepted ones, and one of the target's own a round unless the answer ended
    /// with an accepted one.
    pub emitted: u64,
    /// Rows that were given a second pass.
    pub reconsidered: u64,
    /// Nodes that second passes added to the pool.
    pub refined: u64,
    /// Candidates of second passes that the node had as children already.
    pub duplicates: u64,
    /// Accepted nodes that a second pass added.
    pub rescues: u64,
    /// Accepted nodes that were found in the text so far.
    pub lookup_hits: u64,
    /// `[MAX_DEPTH]` acceptance by depth, that of depth 1 first.
    pub by_depth: [DepthStats; MAX_DEPTH as usize],
    /// Which plan ran when, oldest first; at most [`HISTORY`] runs.
    pub history: Vec<PlanRun>,
}

impl SpeculationStats {
    /// Counts a round. One without a token emitted counts nothing.
    pub fn add(&mut self, round: &RoundStats<'_>) {
        if round.origins.is_empty() {
            return;
        }
        let count = |origin| round.origins.iter().map(|&found| u64::from(found == origin)).sum::<u64>();
        let emitted = round.origins.iter().fold(0, |sum, _| sum + 1);
        let accepted = round.origins.iter().take_while(|origin| **origin != Origin::Target).count();
        self.rounds += 1;
        self.drafted += u64::from(round.drafted);
        self.accepted += emitted - count(Origin::Target);
        self.emitted += emitted;
        self.reconsidered += u64::from(round.counters.reconsidered);
        self.refined += u64::from(round.counters.refined);
        self.duplicates += u64::from(round.counters.duplicates);
        self.rescues += count(Origin::Refined);
        self.lookup_hits += count(Origin::Lookup);
        let tried = accepted + usize::from(!round.stopped);
        let reach = tried.min(round.plan.depth as usize);
        for (depth, stats) in self.by_depth.iter_mut().enumerate().take(reach) {
            stats.tried += 1;
            stats.accepted += u64::from(depth < accepted);
        }
        self.record(PlanRun { plan: Some(round.plan), rounds: 1, emitted });
    }

    /// Counts `tokens` decoded plainly, one a forward.
    pub fn add_plain(&mut self, tokens: u64) {
        self.plain += tokens;
        if tokens > 0 {
            self.record(PlanRun { plan: None, rounds: tokens, emitted: tokens });
        }
    }

    /// Adds the counts of a later stretch.
    pub fn merge(&mut self, later: &Self) {
        self.rounds += later.rounds;
        self.plain += later.plain;
        self.drafted += later.drafted;
        self.accepted += later.accepted;
        self.emitted += later.emitted;
        self.reconsidered += later.reconsidered;
        self.refined += later.refined;
        self.duplicates += later.duplicates;
        self.rescues += later.rescues;
        self.lookup_hits += later.lookup_hits;
        for (mine, other) in self.by_depth.iter_mut().zip(&later.by_depth) {
            mine.tried += other.tried;
            mine.accepted += other.accepted;
        }
        for &run in &later.history {
            self.record(run);
        }
    }

    /// τ: tokens emitted a round, the target's own included; `None` before the first round.
    #[must_use]
    pub fn tau(&self) -> Option<f64> {
        (self.rounds > 0).then(|| ratio(self.emitted, self.rounds))
    }

    /// Share of the verified nodes that was accepted; `None` before the first.
    #[must_use]
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| ratio(self.accepted, self.drafted))
    }

    fn record(&mut self, run: PlanRun) {
        match self.history.last_mut() {
            Some(last) if last.plan == run.plan => {
                last.rounds += run.rounds;
                last.emitted += run.emitted;
            }
            _ => self.history.push(run),
        }
        let surplus = self.history.len().saturating_sub(HISTORY);
        self.history.drain(..surplus);
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::Origin::{Drafted, Lookup, Refined, Target};
    use super::*;

    fn round(plan: Plan, origins: &[Origin], stopped: bool) -> RoundStats<'_> {
        let counters = Counters { reconsidered: 3, refined: 2, duplicates: 1 };
        RoundStats { plan, drafted: plan.nodes, counters, origins, stopped }
    }

    #[test]
    fn counts_by_hand() {
        let mut stats = SpeculationStats::default();
        assert_eq!((stats.tau(), stats.acceptance()), (None, None), "nothing yet");
        let (wide, chain) = (Plan::tree(7, 3, 2, 2), Plan::chain(2));
        stats.add(&round(wide, &[Drafted, Refined, Lookup, Target], false));
        stats.add(&round(wide, &[Target], false));
        stats.add_plain(5);
        stats.add_plain(0);
        stats.add_plain(1);
        stats.add(&round(chain, &[Drafted, Target], true));
        stats.add(&round(chain, &[Lookup, Target], false));
        stats.add(&round(chain, &[], false));
        // The answer ended with a drafted token: nothing is the target's own.
        stats.add(&round(chain, &[Drafted], true));
        assert_eq!((stats.rounds, stats.plain, stats.emitted), (5, 6, 10), "tokens");
        assert_eq!((stats.drafted, stats.accepted), (7 + 7 + 2 + 2 + 2, 6), "nodes");
        assert_eq!((stats.rescues, stats.lookup_hits), (1, 2), "origins");
        assert_eq!((stats.reconsidered, stats.refined, stats.duplicates), (15, 10, 5), "counters");
        assert_eq!((stats.tau(), stats.acceptance()), (Some(2.0), Some(6.0 / 20.0)), "rates");
        let depths: Vec<(u64, u64)> = stats.by_depth.iter().map(|d| (d.tried, d.accepted)).collect();
        // Depth 2: the first round accepts, the stopped ones do not try, the one between them tries.
        assert_eq!(depths[..4], [(5, 4), (2, 1), (1, 1), (0, 0)], "depths");
        assert_eq!(stats.by_depth[0].rate(), Some(0.8), "rate");
        assert_eq!(stats.by_depth[9].rate(), None, "never tried");
        let history: Vec<_> = stats.history.iter().map(|run| (run.plan, run.rounds, run.emitted)).collect();
        assert_eq!(history, [(Some(wide), 2, 5), (None, 6, 6), (Some(chain), 3, 5)], "history");
    }

    #[test]
    fn merged_counts_are_the_counts_of_all() {
        let rounds = [
            (Plan::chain(3), vec![Drafted, Target]),
            (Plan::chain(3), vec![Target]),
            (Plan::lookup(4), vec![Lookup, Lookup, Target]),
            (Plan::lookup(4), vec![Lookup, Target]),
        ];
        let mut whole = SpeculationStats::default();
        for cut in 0..=rounds.len() {
            let mut parts = [SpeculationStats::default(), SpeculationStats::default()];
            whole = SpeculationStats::default();
            for (at, (plan, origins)) in rounds.iter().enumerate() {
                for stats in [&mut whole, &mut parts[usize::from(at >= cut)]] {
                    stats.add(&round(*plan, origins, at == 2));
                    stats.add_plain(u64::from(at == 1));
                }
            }
            let [mut first, second] = parts;
            first.merge(&second);
            assert_eq!(first, whole, "cut at {cut}");
        }
        assert_eq!(whole.emitted, 8, "something was counted");
    }

    #[test]
    fn history_is_bounded() {
        let mut stats = SpeculationStats::default();
        for nodes in 0..200 {
            stats.add(&round(Plan::chain(1 + nodes % 16), &[Target], false));
        }
        assert_eq!(stats.history.len(), HISTORY, "the oldest are dropped");
        assert_eq!(stats.history.last().and_then(|run| run.plan), Some(Plan::chain(8)), "the latest kept");
        assert_eq!(stats.rounds, 200, "but counted");
    }
}
