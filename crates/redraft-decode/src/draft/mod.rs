//! A draft round: trees of drafted tokens, grown step by step.
//!
//! The kernels of a round have their twins here, bit for bit and under the same names: `draft_grow` and `draft_rows` are
//! [`Pool::grow`] and [`Pool::rows`], then [`draft_lookup`], [`tree_prune`], [`tree_layout`] and [`tree_accept`]. They
//! share the shape of a round, [`Plan`], and the fitted [`Tables`].

mod accept;
mod grow;
mod lookup;
mod node;
mod plan;
mod pool;
mod prune;
mod round;
mod rows;
mod stats;
mod tables;

pub use accept::{Accept, Stop, tree_accept};
pub use lookup::{MAX_MATCH, MIN_MATCH, Match, draft_lookup, find_match};
pub use node::{ALIVE, CHAIN, LOOKUP, NONE, Node, Output, Outputs, REFINED, TOP, Top};
pub use plan::{Gate, MAX_DEPTH, MAX_NODES, MAX_POOL, MAX_REFINED, Plan, PlanError, ROW_IDS, WIDTH};
pub use pool::{Counters, Pool};
pub use prune::{Layout, Origin, tree_layout, tree_prune};
pub use round::{Draft, DraftError, Drafter, NoDrafter, Pass, Row, Step, draft};
pub use rows::random;
pub use stats::{DepthStats, HISTORY, PlanRun, RoundStats, SpeculationStats};
pub use tables::{EDGE_WORDS, GAIN_WORDS, LOOKUP_WORDS, TABLE_WORDS, Tables, TablesError};
