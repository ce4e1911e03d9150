//! A draft round: trees of drafted tokens, grown step by step, and when to draft at all.
//!
//! The kernels of a round have their twins here, bit for bit: `draft_grow` and `draft_refine` are [`Pool::grow`],
//! `draft_rows` is [`Pool::rows`], `lookup_scan` and `lookup_grow` are [`draft_lookup`], and [`tree_prune`],
//! [`tree_layout`] and [`tree_accept`] have the names of theirs. They share the shape of a round, [`Plan`], and the fitted
//! [`Tables`]. [`Draft`] runs them one behind the other for any
//! [`Drafter`]; [`Policy`] picks the plan of the next round by what a [`Survey`] measured and by what came of rounds, and
//! [`SpeculationStats`] counts it.
//!
//! ```
//! use redraft_decode::TokenId;
//! use redraft_decode::draft::{Draft, NoDrafter, Plan, RoundStats, SpeculationStats, Tables, tree_accept};
//!
//! let plan = Plan::lookup(3);
//! let mut draft = Draft::new(plan, Tables::default())?;
//! let text = [7, 1, 2, 3, 4, 9, 7, 1].map(TokenId);
//! let layout = draft.run(&mut NoDrafter, &text)?;
//! assert_eq!(layout.tokens, [1, 2, 3, 4].map(TokenId), "the root, and what followed 7 1 before");
//!
//! // The target goes on with 2 3 5: two of the drafted tokens are right, the third token is its own.
//! let accept = tree_accept(layout, &[2, 3, 5, 0].map(TokenId), &[], 100)?;
//! assert_eq!(accept.emitted, [2, 3, 5].map(TokenId), "three tokens for one forward");
//!
//! let mut stats = SpeculationStats::default();
//! stats.add(&RoundStats::new(plan, draft.pool().counters(), draft.layout(), &accept));
//! assert_eq!(stats.tau(), Some(3.0), "tokens a round");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accept;
mod grow;
mod lookup;
mod node;
mod plan;
mod policy;
mod pool;
mod prune;
mod round;
mod rows;
mod stats;
mod survey;
mod tables;

pub use accept::{Accept, Stop, tree_accept};
pub use lookup::{MAX_MATCH, MIN_MATCH, Match, draft_lookup, find_match, has_match};
pub use node::{ALIVE, CHAIN, LOOKUP, NONE, Node, Output, Outputs, REFINED, TOP, Top};
pub use plan::{Gate, MAX_DEPTH, MAX_NODES, MAX_POOL, MAX_REFINED, Plan, PlanError, ROW_IDS, WIDTH};
pub use policy::{
    CostError, Costs, Curve, EXPLORING, LONGEST_PATIENCE, MARGIN, MOST_SLOWER, OPENING, Observation, Policy,
    PolicyError, Reason, Switch, automatic_plans, patience, standard_plans,
};
pub use pool::{Counters, Pool};
pub use prune::{Layout, Origin, tree_layout, tree_prune};
pub use round::{Draft, DraftError, Drafter, NoDrafter, Pass, Row, Step, draft};
pub use rows::random;
pub use stats::{DepthStats, HISTORY, PlanRun, RoundStats, SpeculationStats};
pub use survey::{Extent, Probe, Survey};
pub use tables::{EDGE_WORDS, GAIN_WORDS, LOOKUP_WORDS, TABLE_WORDS, Tables, TablesError};
