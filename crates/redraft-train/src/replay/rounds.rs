//! Rounds of many texts side by side, so that a drafter forward has hundreds of rows.

use redraft_decode::TokenId;
use redraft_decode::draft::{
    Draft, DraftError, Gate, NONE, Outputs, Pass, Plan, Pool, ROW_IDS, Row, Tables, Top, tree_accept,
};

use super::counts::{Counts, Tally};
use super::evaluate::{Evaluator, Request};
use super::paths::{Key, Kind, Paths, Place};
use super::text::Prepared;
use super::{Oracle, Variant};
use crate::error::TrainError;

/// Sees each round before the next begins.
pub(crate) trait Observer {
    /// A round behind `root` tokens whose true continuation is `truth`, the root first.
    fn round(&mut self, pool: &Pool, outputs: &Outputs, truth: &[TokenId]);
}

/// Sees nothing.
pub(super) struct NoObserver;

impl Observer for NoObserver {
    fn round(&mut self, _: &Pool, _: &Outputs, _: &[TokenId]) {}
}

/// A text on its way.
struct Session<'a> {
    text: &'a Prepared,
    paths: &'a mut Paths,
    draft: Draft,
    /// Index of the root among the tokens.
    root: usize,
    /// Of each row id the place that it was evaluated at.
    places: Vec<Option<Place>>,
    tally: Tally,
}

/// A row that must be evaluated.
struct Want {
    session: usize,
    row: Row,
    key: Key,
    /// Places of the rows that it attends to.
    chain: Vec<Place>,
    source: Source,
}

/// Where the feature of a row lies.
#[derive(Clone, Copy)]
enum Source {
    /// What the stable row of the root read.
    Fused,
    Output(Place),
}

/// Replays the rounds of `variant` on all texts; one count a text.
pub(super) fn replay(
    evaluator: &Evaluator,
    texts: &mut [(Prepared, Paths)],
    variant: &Variant,
    proposes: &[bool],
    observer: &mut dyn Observer,
) -> Result<Vec<Counts>, TrainError> {
    let mut sessions = Vec::new();
    for (text, paths) in texts {
        let draft = Draft::new(variant.plan, variant.tables.clone()).map_err(refused)?;
        let root = text.prompt;
        let places = vec![None; ROW_IDS as usize];
        sessions.push(Session { text, paths, draft, root, places, tally: Tally::default() });
    }
    loop {
        // An answer of one token has no round: the prompt's own forward yields it.
        let mut active: Vec<&mut Session<'_>> =
            sessions.iter_mut().filter(|session| session.root + 1 < session.text.tokens.len()).collect();
        if active.is_empty() {
            break;
        }
        for session in &mut active {
            session.draft.begin(&session.text.tokens[..=session.root]).map_err(refused)?;
            session.places.fill(None);
        }
        for _ in 0..=variant.plan.steps() {
            let mut wants = Vec::new();
            for (index, session) in active.iter_mut().enumerate() {
                session.pick(index, variant, &mut wants);
            }
            let requests: Vec<Request<'_>> =
                wants.iter().map(|want| active[want.session].request(want)).collect();
            let results = evaluator.evaluate(&requests)?;
            drop(requests);
            for (want, result) in wants.iter().zip(results) {
                let session = &mut active[want.session];
                session.places[want.row.id as usize] = Some(session.paths.insert(want.key, result));
            }
            for session in &mut active {
                session.grow(variant);
            }
        }
        for session in &mut active {
            session.finish(proposes, observer)?;
        }
    }
    Ok(sessions.into_iter().map(|session| session.tally.finish()).collect())
}

fn refused(error: DraftError) -> TrainError {
    let found = match &error {
        DraftError::Plan(plan) => plan.to_string(),
        DraftError::Tables(tables) => tables.to_string(),
        other => other.to_string(),
    };
    TrainError::setting("plan", "one that the tree kernels take", found)
}

impl Session<'_> {
    /// Picks the rows of the next step; what was never evaluated is added to `wants`.
    fn pick(&mut self, index: usize, variant: &Variant, wants: &mut Vec<Want>) {
        let Self { draft, places, paths, root, .. } = self;
        let Some(step) = draft.pick() else { return };
        for row in step.rows {
            if row.id == 0 {
                places[0] = Some(Paths::root(*root - 1));
                continue;
            }
            let place = |id: u32| places.get(id as usize).copied().flatten();
            let first_of = |node: u32| place(step.pool.node(node).row);
            let (key, source) = match row.pass {
                Pass::First => {
                    let parent = step.pool.node(step.pool.node(row.node).parent).row;
                    let late = if row.source == parent { None } else { place(row.source) };
                    let (Some(from), Some(source)) = (place(parent), place(row.source)) else { continue };
                    (Key::first(from, row.token, late), Source::Output(source))
                }
                Pass::Second => {
                    let kind = match (variant.plan.no_recurrence, variant.blind) {
                        (true, _) => Kind::Unlike,
                        (false, true) => Kind::Blind,
                        (false, false) => Kind::Second,
                    };
                    let Some(from) = first_of(row.node) else { continue };
                    (Key::second(from, kind), place(row.source).map_or(Source::Fused, Source::Output))
                }
            };
            if let Some(found) = paths.find(&key) {
                places[row.id as usize] = Some(found);
                continue;
            }
            // Stable rows reach up to the root's; what is below it is attended to one by one.
            let own = row.pass == Pass::Second && key.kind != Kind::Blind;
            let above = step.pool.upward(row.node).skip(usize::from(!own)).filter(|&node| node != 0);
            let mut chain: Vec<Place> = above.filter_map(first_of).collect();
            chain.reverse();
            wants.push(Want { session: index, row: *row, key, chain, source });
        }
    }

    fn request<'b>(&'b self, want: &Want) -> Request<'b> {
        let extended = &self.text.extended;
        let root = self.root - 1;
        let blind_root = want.row.node == 0 && want.key.kind == Kind::Blind;
        let feature = match want.source {
            Source::Fused => extended.feature(root),
            Source::Output(place) => {
                self.paths.row(place).map_or(extended.hidden(root), |(state, _)| &state.hidden)
            }
        };
        Request {
            token: want.row.token,
            position: root + want.row.depth as usize,
            second: want.row.pass == Pass::Second,
            feature,
            text: extended,
            stable: if blind_root { root } else { root + 1 },
            chain: want
                .chain
                .iter()
                .filter_map(|&place| self.paths.row(place))
                .map(|(state, _)| state)
                .collect(),
        }
    }

    /// Hands the outputs of the rows picked last to the draft.
    fn grow(&mut self, variant: &Variant) {
        let entropy = variant.plan.gate == Gate::Entropy;
        let mut picked: Vec<(Row, bool)> = Vec::new();
        for row in self.draft.rows() {
            let way: Vec<u32> = self.draft.pool().upward(row.node).collect();
            let truth = self.text.tokens[self.root..].iter();
            let right = way
                .iter()
                .rev()
                .zip(truth.clone())
                .all(|(&node, token)| self.draft.pool().node(node).token == *token);
            picked.push((*row, right && way.len() <= truth.len()));
        }
        let threshold = self.draft.tables().gate_threshold;
        for (row, right) in picked {
            let Some(place) = self.places[row.id as usize] else { continue };
            let said = match self.paths.row(place) {
                Some((_, said)) => said,
                None => self.text.extended.said(self.root - 1),
            };
            let mut output = said.output(entropy);
            if right && variant.oracle != Oracle::None {
                let at = self.root + row.depth as usize;
                let hesitant = row.pass == Pass::Second || output.unsure >= threshold;
                let asked = match variant.oracle {
                    Oracle::None => false,
                    Oracle::First => row.pass == Pass::First,
                    Oracle::Second => row.pass == Pass::Second,
                };
                let certainty = self.text.certainty.get(at).copied().unwrap_or(0.0);
                if asked && hesitant && certainty >= super::DECISIVE {
                    answer(&mut output.tops, TokenId(self.text.choice[at]), certainty.min(1.0).ln());
                }
            }
            if row.pass == Pass::First && row.depth > variant.deepest {
                // Below every threshold.
                output.unsure = -1.0;
            }
            if let Some(slot) = self.draft.said().get_mut(row.slot()) {
                *slot = output;
            }
        }
        self.draft.grow();
    }

    /// Ends the round and goes on behind what it emitted.
    fn finish(&mut self, proposes: &[bool], observer: &mut dyn Observer) -> Result<(), TrainError> {
        let tokens = &self.text.tokens;
        let layout = self.draft.finish(&tokens[..=self.root]);
        // The walk only reads the target's token at rows that are right so far: there it is the text's.
        let behind =
            |depth: &u32| tokens.get(self.root + *depth as usize + 1).copied().unwrap_or(TokenId(NONE));
        let target: Vec<TokenId> = layout.depths.iter().map(behind).collect();
        let left = u32::try_from(tokens.len() - 1 - self.root).unwrap_or(u32::MAX);
        let accept = tree_accept(layout, &target, &[], left).map_err(|error| TrainError::Framework {
            what: "accepting a tree",
            message: error.to_string(),
        })?;
        observer.round(self.draft.pool(), self.draft.outputs(), &tokens[self.root..]);
        self.tally.add(&self.draft, &accept, self.text, self.root, proposes);
        self.root += accept.emitted.len();
        Ok(())
    }
}

/// Makes `token` the first candidate; the others keep their order, the last one goes if it was none of them.
fn answer(tops: &mut [Top], token: TokenId, log_q: f32) {
    let held = tops.iter().position(|top| top.token == token).unwrap_or(tops.len() - 1);
    tops[..=held].rotate_right(1);
    tops[0] = Top { token, log_q };
}

/// Plan and tables with which nothing is reconsidered.
#[must_use]
pub fn baseline(nodes: u32, depth: u32, width: u32, children: u32, tables: Tables) -> Variant {
    Variant::new(Plan::tree(nodes, depth, width, children), tables)
}
