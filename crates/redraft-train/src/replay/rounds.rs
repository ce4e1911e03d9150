//! Rounds of many texts and variants side by side, so that a drafter forward has hundreds of rows.

use std::collections::HashMap;

use redraft_decode::TokenId;
use redraft_decode::draft::{
    Draft, DraftError, Gate, NONE, Outputs, Pass, Pool, ROW_IDS, Row, Top, tree_accept,
};

use super::counts::{Counts, Tally};
use super::evaluate::{Evaluator, Request, Said};
use super::paths::{Key, Kind, Paths, Place};
use super::text::Prepared;
use super::{Oracle, Variant};
use crate::error::TrainError;

/// Sees each round of a job before the next begins: the index of the job, the tree, what the drafter said, and the true
/// continuation of the text, the root first.
pub(crate) type Observer<'a> = dyn FnMut(usize, &Pool, &Outputs, &[TokenId]) + 'a;

/// A variant on a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    /// Index of the text.
    pub(crate) text: usize,
    pub(crate) variant: &'a Variant,
}

/// A job on its way.
struct Session<'a> {
    job: usize,
    text: usize,
    variant: &'a Variant,
    draft: Draft,
    /// Index of the root among the tokens.
    root: usize,
    /// Drafter forwards of the round so far.
    step: u32,
    /// Of each row id the place that it was evaluated at.
    places: Vec<Option<Place>>,
    /// Rows picked last that are not evaluated yet: row id, index among what is wanted.
    waiting: Vec<(u32, usize)>,
    tally: Tally,
}

/// A row that must be evaluated.
struct Want {
    text: usize,
    /// Index of the root among the tokens.
    root: usize,
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

/// What a step wants evaluated, each row once.
#[derive(Default)]
struct Wants {
    rows: Vec<Want>,
    places: HashMap<(usize, Key), usize>,
}

/// Replays the rounds of all jobs; one count a job.
pub(super) fn replay(
    evaluator: &Evaluator,
    texts: &mut [(Prepared, Paths)],
    jobs: &[Job<'_>],
    proposes: &[bool],
    observer: &mut Observer<'_>,
) -> Result<Vec<Counts>, TrainError> {
    let mut sessions = Vec::with_capacity(jobs.len());
    for (job, &Job { text, variant }) in jobs.iter().enumerate() {
        let draft = Draft::new(variant.plan, variant.tables.clone()).map_err(refused)?;
        let places = vec![None; ROW_IDS as usize];
        let mut session = Session {
            job,
            text,
            variant,
            draft,
            root: texts[text].0.prompt,
            step: 0,
            places,
            waiting: Vec::new(),
            tally: Tally::default(),
        };
        session.begin(&texts[text].0)?;
        sessions.push(session);
    }
    let mut counts = vec![Counts::default(); jobs.len()];
    while !sessions.is_empty() {
        let mut wants = Wants::default();
        for session in &mut sessions {
            session.pick(&texts[session.text].1, &mut wants);
        }
        let requests: Vec<Request<'_>> = wants.rows.iter().map(|want| want.request(texts)).collect();
        let results = evaluator.evaluate(&requests)?;
        drop(requests);
        let found: Vec<Place> = (wants.rows.into_iter().zip(results))
            .map(|(want, result)| texts[want.text].1.insert(want.key, result))
            .collect();
        let mut open = Vec::with_capacity(sessions.len());
        for mut session in sessions {
            for (row, want) in std::mem::take(&mut session.waiting) {
                session.places[row as usize] = Some(found[want]);
            }
            let (text, paths) = &texts[session.text];
            if session.grow(text, paths, proposes, observer)? {
                open.push(session);
            } else {
                counts[session.job] = session.tally.finish();
            }
        }
        sessions = open;
    }
    Ok(counts)
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
    /// Begins the round behind the root, if the text goes on behind it: an answer of one token has no round, because the
    /// prompt's own forward yields it. Says whether it does.
    fn begin(&mut self, text: &Prepared) -> Result<bool, TrainError> {
        let goes_on = self.root + 1 < text.tokens.len();
        if goes_on {
            self.draft.begin(&text.tokens[..=self.root]).map_err(refused)?;
            self.places.fill(None);
            self.step = 0;
        }
        Ok(goes_on)
    }

    /// Picks the rows of the next step; what was never evaluated is wanted.
    fn pick(&mut self, paths: &Paths, wants: &mut Wants) {
        let Self { text, variant, draft, root, places, waiting, .. } = self;
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
                    let (Some(from), Some(source)) = (place(parent), place(row.source)) else { continue };
                    // What a second pass hands on may be what the first one did.
                    let late = (source != from).then_some(source);
                    (Key::first(from, row.token, late), Source::Output(source))
                }
                // The control takes its candidates from the first pass: nobody reads what the second one says.
                Pass::Second if variant.plan.control => continue,
                Pass::Second if variant.beyond => {
                    places[row.id as usize] = first_of(row.node);
                    continue;
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
            let wanted = *wants.places.entry((*text, key)).or_insert_with(|| {
                // Stable rows reach up to the root's; what is below it is attended to one by one.
                let own = row.pass == Pass::Second && key.kind != Kind::Blind;
                let above = step.pool.upward(row.node).skip(usize::from(!own)).filter(|&node| node != 0);
                let mut chain: Vec<Place> = above.filter_map(first_of).collect();
                chain.reverse();
                wants.rows.push(Want { text: *text, root: *root, row: *row, key, chain, source });
                wants.rows.len() - 1
            });
            waiting.push((row.id, wanted));
        }
    }

    /// Hands the outputs of the rows picked last to the draft; ends the round behind its last step and begins the next.
    /// Says whether there is one.
    fn grow(
        &mut self,
        text: &Prepared,
        paths: &Paths,
        proposes: &[bool],
        observer: &mut Observer<'_>,
    ) -> Result<bool, TrainError> {
        if self.root + 1 >= text.tokens.len() {
            return Ok(false);
        }
        self.hand_over(text, paths);
        self.step += 1;
        if self.step <= self.variant.plan.steps() {
            return Ok(true);
        }
        self.finish(text, proposes, observer)?;
        self.begin(text)
    }

    fn hand_over(&mut self, text: &Prepared, paths: &Paths) {
        let Self { variant, draft, root, places, .. } = self;
        let entropy = variant.plan.gate == Gate::Entropy;
        let mut picked: Vec<(Row, bool)> = Vec::new();
        for row in draft.rows() {
            let way: Vec<u32> = draft.pool().upward(row.node).collect();
            let truth = text.tokens[*root..].iter();
            let right = way
                .iter()
                .rev()
                .zip(truth.clone())
                .all(|(&node, token)| draft.pool().node(node).token == *token);
            picked.push((*row, right && way.len() <= truth.len()));
        }
        let threshold = draft.tables().gate_threshold;
        for (row, right) in picked {
            let Some(place) = places[row.id as usize] else { continue };
            let said: &Said = match paths.row(place) {
                Some((_, said)) => said,
                None => text.extended.said(*root - 1),
            };
            let proposal = said.proposal(variant.coupled);
            let mut output = match row.pass {
                Pass::Second if variant.beyond => proposal.behind(variant.plan.children, entropy),
                _ => proposal.output(entropy),
            };
            if right && variant.oracle != Oracle::None {
                let at = *root + row.depth as usize;
                let hesitant = row.pass == Pass::Second || output.unsure >= threshold;
                let asked = match variant.oracle {
                    Oracle::None => false,
                    Oracle::First => row.pass == Pass::First,
                    Oracle::Second => row.pass == Pass::Second,
                };
                let certainty = text.certainty.get(at).copied().unwrap_or(0.0);
                if asked && hesitant && certainty >= super::DECISIVE {
                    answer(&mut output.tops, TokenId(text.choice[at]), certainty.min(1.0).ln());
                }
            }
            if row.pass == Pass::First && row.depth > variant.deepest {
                // Below every threshold.
                output.unsure = -1.0;
            }
            if let Some(slot) = draft.said().get_mut(row.slot()) {
                *slot = output;
            }
        }
        draft.grow();
    }

    /// Ends the round and goes on behind what it emitted.
    fn finish(
        &mut self,
        text: &Prepared,
        proposes: &[bool],
        observer: &mut Observer<'_>,
    ) -> Result<(), TrainError> {
        let tokens = &text.tokens;
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
        observer(self.job, self.draft.pool(), self.draft.outputs(), &tokens[self.root..]);
        self.tally.add(&self.draft, &accept, text, self.root, proposes);
        self.root += accept.emitted.len();
        Ok(())
    }
}

impl Want {
    fn request<'b>(&self, texts: &'b [(Prepared, Paths)]) -> Request<'b> {
        let (text, paths) = &texts[self.text];
        let extended = &text.extended;
        let root = self.root - 1;
        let blind_root = self.row.node == 0 && self.key.kind == Kind::Blind;
        let feature = match self.source {
            Source::Fused => extended.feature(root),
            Source::Output(place) => {
                paths.row(place).map_or(extended.hidden(root), |(state, _)| &state.hidden)
            }
        };
        Request {
            token: self.row.token,
            position: root + self.row.depth as usize,
            second: self.row.pass == Pass::Second,
            feature,
            text: extended,
            stable: if blind_root { root } else { root + 1 },
            chain: self.chain.iter().filter_map(|&place| paths.row(place)).map(|(state, _)| state).collect(),
        }
    }
}

/// Makes `token` the first candidate; the others keep their order, the last one goes if it was none of them.
fn answer(tops: &mut [Top], token: TokenId, log_q: f32) {
    let held = tops.iter().position(|top| top.token == token).unwrap_or(tops.len() - 1);
    tops[..=held].rotate_right(1);
    tops[0] = Top { token, log_q };
}
