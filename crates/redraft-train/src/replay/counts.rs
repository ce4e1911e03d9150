//! What replayed rounds came to.

use std::borrow::Borrow;

use redraft_decode::draft::{Accept, Draft, MAX_DEPTH, NONE, RoundStats, SpeculationStats, Stop};
use serde::{Deserialize, Serialize};

use super::text::{Prepared, TextId};

/// Depths that acceptance and rejections are told apart by.
const DEPTHS: usize = MAX_DEPTH as usize + 1;

/// Rounds whose walk ended at a node of one depth although more was drafted below such nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejections {
    /// All of them.
    pub all: u64,
    /// The drafter looked at the node.
    pub evaluated: u64,
    /// It was unsure there: at least the gate's threshold.
    pub unsure: u64,
    /// The target was decisive: its likeliest token has at least [`super::DECISIVE`].
    pub decisive: u64,
    /// Both.
    pub both: u64,
    /// The target's token is none that the drafter can propose.
    pub outside: u64,
}

impl Rejections {
    pub(crate) fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.evaluated += other.evaluated;
        self.unsure += other.unsure;
        self.decisive += other.decisive;
        self.both += other.both;
        self.outside += other.outside;
    }
}

/// Counts over rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rounds: forwards of the target.
    pub rounds: u64,
    /// Tokens that they emitted, the target's own included.
    pub emitted: u64,
    /// Nodes verified.
    pub drafted: u64,
    /// Rows that got a second pass.
    pub reconsidered: u64,
    /// Nodes that second passes added to the pool.
    pub refined: u64,
    /// Their candidates that were children already.
    pub duplicates: u64,
    /// Accepted tokens that only a second pass had proposed.
    pub rescues: u64,
    /// Accepted tokens that were looked up.
    pub lookup_hits: u64,
    /// By depth from 1: rounds that had accepted all above and went on.
    pub tried: Vec<u64>,
    /// By depth from 1: rounds that accepted a node there.
    pub accepted: Vec<u64>,
    /// By depth of the last accepted node, the root's first.
    pub rejections: Vec<Rejections>,
}

impl Counts {
    /// τ: tokens a round; `None` without a round.
    #[must_use]
    pub fn tau(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.emitted as f64 / self.rounds as f64)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.emitted += other.emitted;
        self.drafted += other.drafted;
        self.reconsidered += other.reconsidered;
        self.refined += other.refined;
        self.duplicates += other.duplicates;
        self.rescues += other.rescues;
        self.lookup_hits += other.lookup_hits;
        let sum = |mine: &mut Vec<u64>, theirs: &[u64]| {
            mine.resize(mine.len().max(theirs.len()), 0);
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        };
        sum(&mut self.tried, &other.tried);
        sum(&mut self.accepted, &other.accepted);
        let depths = self.rejections.len().max(other.rejections.len());
        self.rejections.resize(depths, Rejections::default());
        self.rejections.iter_mut().zip(&other.rejections).for_each(|(mine, theirs)| mine.add(theirs));
    }

    /// The counts of all.
    #[must_use]
    pub fn sum(all: impl IntoIterator<Item = impl Borrow<Self>>) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, counts| {
            sum.add(counts.borrow());
            sum
        })
    }
}

/// Counts while the rounds of a text run.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    stats: SpeculationStats,
    rejections: [Rejections; DEPTHS],
}

impl Tally {
    /// Takes a finished round with the root at `root`.
    pub(super) fn add(
        &mut self,
        draft: &Draft,
        accept: &Accept,
        text: &Prepared,
        root: usize,
        proposes: &[bool],
    ) {
        let (pool, layout) = (draft.pool(), draft.layout());
        let plan = *pool.plan();
        self.stats.add(&RoundStats::new(plan, pool.counters(), layout, accept));
        let depth = accept.accepted();
        if accept.stop == Some(Stop::Limit) || depth >= plan.depth as usize {
            return;
        }
        let last = accept.path.last().and_then(|&row| layout.nodes.get(row as usize));
        let node = pool.node(last.copied().unwrap_or(NONE));
        let certainty = text.certainty.get(root + depth).copied().unwrap_or(0.0);
        let decisive = certainty >= super::DECISIVE;
        let evaluated = node.row != NONE;
        let unsure = evaluated && draft.outputs().row(node.row).unsure >= draft.tables().gate_threshold;
        let next = text.tokens.get(root + depth + 1);
        let outside = next.is_some_and(|token| !proposes.get(token.0 as usize).copied().unwrap_or(false));
        self.rejections[depth.min(DEPTHS - 1)].add(&Rejections {
            all: 1,
            evaluated: u64::from(evaluated),
            unsure: u64::from(unsure),
            decisive: u64::from(decisive),
            both: u64::from(unsure && decisive),
            outside: u64::from(outside),
        });
    }

    pub(super) fn finish(self) -> Counts {
        let stats = self.stats;
        let depths = stats.by_depth.iter().take_while(|depth| depth.tried > 0).count();
        let by_depth = stats.by_depth.iter().take(depths);
        let rejected = self.rejections.iter().rposition(|at| at.all > 0).map_or(0, |at| at + 1);
        Counts {
            rounds: stats.rounds,
            emitted: stats.emitted,
            drafted: stats.drafted,
            reconsidered: stats.reconsidered,
            refined: stats.refined,
            duplicates: stats.duplicates,
            rescues: stats.rescues,
            lookup_hits: stats.lookup_hits,
            tried: by_depth.clone().map(|depth| depth.tried).collect(),
            accepted: by_depth.map(|depth| depth.accepted).collect(),
            rejections: self.rejections[..rejected].to_vec(),
        }
    }
}

/// Counts of one plan over many texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// By text, in order.
    pub texts: Vec<(TextId, Counts)>,
}

impl Run {
    /// Counts of all texts.
    #[must_use]
    pub fn total(&self) -> Counts {
        Counts::sum(self.texts.iter().map(|(_, counts)| counts))
    }

    /// The run on the texts of one set.
    #[must_use]
    pub fn of_set(&self, set: &str) -> Self {
        Self { texts: self.texts.iter().filter(|(id, _)| id.set == set).cloned().collect() }
    }
}
