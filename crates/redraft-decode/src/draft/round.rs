//! A whole draft on the CPU, for any drafter.

use super::lookup::{MIN_MATCH, Match, draft_lookup};
use super::node::{NONE, Output, Outputs};
use super::plan::{Plan, PlanError, WIDTH};
use super::pool::Pool;
use super::prune::{Layout, tree_layout, tree_prune};
use super::tables::{Tables, TablesError};
use crate::TokenId;

/// Which pass of the drafter a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The pass that yields the children of a node.
    First,
    /// The reconsideration pass over a node that has had its first.
    Second,
}

/// A row that the drafter evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The row id: step · [`WIDTH`] + slot.
    pub id: u32,
    /// Pool index of the node.
    pub node: u32,
    /// Its token.
    pub token: TokenId,
    /// Its depth; its position is that of the root plus this.
    pub depth: u32,
    /// Row id whose hidden output is the feature that this row reads; [`NONE`] for the target's own feature at the
    /// root.
    pub source: u32,
    /// Which pass.
    pub pass: Pass,
}

impl Row {
    /// Index of the row in its step, below [`WIDTH`].
    #[must_use]
    pub const fn slot(&self) -> usize {
        (self.id % WIDTH) as usize
    }
}

/// The rows that the drafter evaluates in one forward.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// 0 for the extend pass, whose only row is the root.
    pub index: u32,
    /// The nodes so far, for the way from a row up to the root.
    pub pool: &'a Pool,
    /// The rows that are not dead, at least one.
    pub rows: &'a [Row],
}

/// Something that proposes the next tokens behind nodes of a tree.
pub trait Drafter {
    /// Why a row could not be evaluated.
    type Error: From<DraftError>;

    /// Evaluates `step.rows` and writes what it says of each to `outputs[row.slot()]`.
    ///
    /// `outputs`: `[WIDTH]`, all [`Output::EMPTY`] before the call. The candidates of a row are to be sorted, likeliest
    /// first, and their tokens distinct.
    ///
    /// # Errors
    /// Whatever ends the round.
    fn evaluate(&mut self, step: Step<'_>, outputs: &mut [Output]) -> Result<(), Self::Error>;
}

/// A drafter that proposes nothing, for plans that only look up.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDrafter;

impl Drafter for NoDrafter {
    type Error = DraftError;

    fn evaluate(&mut self, _: Step<'_>, _: &mut [Output]) -> Result<(), DraftError> {
        Ok(())
    }
}

/// Why a draft did not run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DraftError {
    /// The plan does not validate.
    #[error("the plan does not validate")]
    Plan(#[from] PlanError),
    /// The tables do not validate.
    #[error("the tables do not validate")]
    Tables(#[from] TablesError),
    /// There is no text, so there is no root.
    #[error("a draft needs the token that it goes on from; found no tokens")]
    NoRoot,
}

/// Drafts of one plan, one after another in the same memory.
///
/// [`Draft::run`] is a whole round. Its parts are there for callers that evaluate the rows of many drafts in one
/// forward: [`Draft::begin`], then [`Draft::pick`], [`Draft::said`] and [`Draft::grow`] until no step is left, then
/// [`Draft::finish`].
#[derive(Clone, Debug)]
pub struct Draft {
    tables: Tables,
    pool: Pool,
    outputs: Outputs,
    rows: Vec<Row>,
    /// The step that is picked next, or was picked and is not grown yet.
    step: u32,
    selected: Vec<u32>,
    keys: Vec<u64>,
    layout: Layout,
    found: Option<Match>,
}

impl Draft {
    /// Room for rounds of `plan`, with the tables that the plan's gate reads ([`Tables::for_gate`]).
    ///
    /// # Errors
    /// [`DraftError`] for a plan or tables that do not validate.
    pub fn new(plan: Plan, tables: Tables) -> Result<Self, DraftError> {
        let pool = Pool::new(plan)?;
        tables.validate()?;
        Ok(Self {
            tables: tables.for_gate(plan.gate),
            pool,
            outputs: Outputs::default(),
            rows: Vec::with_capacity(WIDTH as usize),
            step: 0,
            selected: Vec::new(),
            keys: Vec::new(),
            layout: Layout::with_capacity(&plan),
            found: None,
        })
    }

    /// Drafts what may follow `ids` and lays it out for verification; the last id is the root.
    ///
    /// # Errors
    /// [`DraftError::NoRoot`] without ids, and whatever the drafter returns.
    pub fn run<D: Drafter>(&mut self, drafter: &mut D, ids: &[TokenId]) -> Result<&Layout, D::Error> {
        self.begin(ids)?;
        while let Some(Step { index, .. }) = self.pick() {
            if !self.rows.is_empty() {
                let step = Step { index, pool: &self.pool, rows: &self.rows };
                drafter.evaluate(step, self.outputs.step_mut(index))?;
            }
            self.grow();
        }
        Ok(self.finish(ids))
    }

    /// Starts a round behind `ids`, the root last.
    ///
    /// # Errors
    /// [`DraftError::NoRoot`] without ids.
    pub fn begin(&mut self, ids: &[TokenId]) -> Result<(), DraftError> {
        let (&root, committed) = ids.split_last().ok_or(DraftError::NoRoot)?;
        self.pool.reset(root, u32::try_from(committed.len()).unwrap_or(u32::MAX));
        self.step = 0;
        Ok(())
    }

    /// The rows of the next drafter forward, none of them if all are dead; `None` behind the last step. [`Draft::said`]
    /// is empty then, for the drafter to fill.
    pub fn pick(&mut self) -> Option<Step<'_>> {
        let plan = *self.pool.plan();
        let index = self.step;
        if !plan.drafter || index > plan.steps() {
            return None;
        }
        self.pool.rows(index, &self.outputs, &self.tables);
        self.outputs.step_mut(index).fill(Output::EMPTY);
        let pool = &self.pool;
        self.rows.clear();
        for id in index * WIDTH..index * WIDTH + plan.step_rows() {
            let node_index = pool.row_node(id);
            if node_index == NONE {
                continue;
            }
            let node = pool.node(node_index);
            let pass = if id == node.row { Pass::First } else { Pass::Second };
            let source = match pass {
                Pass::Second if !plan.no_recurrence => node.row,
                _ => node.source,
            };
            let (token, depth) = (node.token, node.depth);
            self.rows.push(Row { id, node: node_index, token, depth, source, pass });
        }
        Some(Step { index, pool: &self.pool, rows: &self.rows })
    }

    /// The rows picked last.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// `[WIDTH]` what the drafter says of the rows picked last, by [`Row::slot`].
    pub fn said(&mut self) -> &mut [Output] {
        self.outputs.step_mut(self.step)
    }

    /// Turns what was said of the rows picked last into nodes.
    pub fn grow(&mut self) {
        self.pool.grow(self.step, &self.outputs, &self.tables);
        self.step += 1;
    }

    /// Looks up what the plan wants looked up behind `ids`, the root last, and lays the best nodes out for verification.
    pub fn finish(&mut self, ids: &[TokenId]) -> &Layout {
        self.found = draft_lookup(&mut self.pool, ids, &self.tables, MIN_MATCH);
        tree_prune(&self.pool, &mut self.selected, &mut self.keys);
        tree_layout(&self.pool, &self.selected, &mut self.layout);
        &self.layout
    }

    /// The batch of the last round.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The nodes of the last round.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The tables, as the plan's gate reads them.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What the drafter said in the last round.
    #[must_use]
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// The match that the last round followed, if it looked up and found one.
    #[must_use]
    pub fn found(&self) -> Option<Match> {
        self.found
    }
}

/// One draft of `plan` behind `ids`, the root last. [`Draft`] does many in the same memory.
///
/// # Errors
/// As [`Draft::new`] and [`Draft::run`].
pub fn draft<D: Drafter>(
    plan: Plan,
    tables: Tables,
    drafter: &mut D,
    ids: &[TokenId],
) -> Result<Layout, D::Error> {
    let mut draft = Draft::new(plan, tables)?;
    draft.run(drafter, ids)?;
    Ok(draft.layout)
}

#[cfg(test)]
mod tests {
    use super::super::{Gate, Top};
    use super::*;

    /// Says 10, 11, … of every row, and notes the rows.
    #[derive(Default)]
    struct Notes(Vec<(u32, Row)>);

    impl Drafter for Notes {
        type Error = DraftError;

        fn evaluate(&mut self, step: Step<'_>, outputs: &mut [Output]) -> Result<(), DraftError> {
            for row in step.rows {
                self.0.push((step.index, *row));
                let output = &mut outputs[row.slot()];
                output.unsure = 1.0;
                let base = if row.pass == Pass::First { 10u16 } else { 11 };
                for (top, rank) in output.tops.iter_mut().zip(0u16..) {
                    let token = TokenId(u32::from(base + rank));
                    *top = Top { token, log_q: -1.0 - f32::from(rank) };
                }
            }
            Ok(())
        }
    }

    fn noted(plan: Plan) -> Vec<(u32, u32, u32, Pass, u32)> {
        let mut notes = Notes::default();
        draft(plan, Tables::default(), &mut notes, &[TokenId(1), TokenId(2)]).unwrap();
        notes.0.iter().map(|(step, row)| (*step, row.id, row.node, row.pass, row.source)).collect()
    }

    #[test]
    fn rows_of_a_round_by_hand() {
        use Pass::{First, Second};
        let plan = Plan::reconsider(9, 3, 2, 2, 1, 2);
        // Blocks: 1, 2 | 3, 4 below 1; 5, 6 below 2; refined 7, 8 | …
        let expected = [
            (0, 0, 0, First, NONE),
            (1, 16, 1, First, 0),
            (1, 17, 2, First, 0),
            (1, 18, 0, Second, 0),
            (2, 32, 3, First, 16),
            (2, 33, 4, First, 16),
            (2, 34, 1, Second, 16),
        ];
        assert_eq!(noted(plan), expected, "k = 2, R = 1");
        let unlike = noted(Plan { no_recurrence: true, ..plan });
        assert_eq!(unlike[3], (1, 18, 0, Second, NONE), "the root's own feature");
        assert_eq!(unlike[6], (2, 34, 1, Second, 0), "the feature of the first pass");
        let off = noted(Plan { gate: Gate::Off, ..plan });
        assert!(off.iter().all(|row| row.3 == First), "no gate, no second pass");
    }

    #[test]
    fn parts_of_a_round_make_the_round() {
        let plan = Plan { lookup: true, ..Plan::reconsider(9, 3, 2, 2, 1, 2) };
        let text = [1, 2, 1, 2].map(TokenId);
        let mut whole = Draft::new(plan, Tables::default()).unwrap();
        whole.run(&mut Notes::default(), &text).unwrap();
        let mut parts = Draft::new(plan, Tables::default()).unwrap();
        // A second round in the same memory is the first again.
        for _ in 0..2 {
            parts.begin(&text).unwrap();
            let mut steps = 0;
            while let Some(step) = parts.pick() {
                assert_eq!(step.index, steps, "in order");
                let rows = step.rows.to_vec();
                let mut notes = Notes::default();
                let pool = parts.pool().clone();
                notes.evaluate(Step { index: steps, pool: &pool, rows: &rows }, parts.said()).unwrap();
                parts.grow();
                steps += 1;
            }
            assert_eq!(steps, plan.steps() + 1, "the extend pass and the steps");
            assert_eq!(parts.finish(&text), whole.layout(), "the same batch");
            assert_eq!(parts.pool().nodes(), whole.pool().nodes(), "the same nodes");
            assert_eq!(parts.found(), whole.found(), "the same match");
        }
        let mut lookup = Draft::new(Plan::lookup(2), Tables::default()).unwrap();
        lookup.begin(&text).unwrap();
        assert!(lookup.pick().is_none(), "no drafter, no steps");
    }

    #[test]
    fn bad_rounds_are_errors() {
        let error = Draft::new(Plan::chain(0), Tables::default()).unwrap_err();
        assert!(matches!(error, DraftError::Plan(_)), "plan: {error}");
        let tables = Tables { refined_offset: f32::NAN, ..Tables::default() };
        let error = Draft::new(Plan::default(), tables).unwrap_err();
        assert!(matches!(error, DraftError::Tables(_)), "tables: {error}");
        let error = draft(Plan::lookup(2), Tables::default(), &mut NoDrafter, &[]).unwrap_err();
        assert_eq!(error, DraftError::NoRoot, "no ids");
    }

    #[test]
    fn without_proposals_only_the_root_lives() {
        let mut draft = Draft::new(Plan { lookup: true, ..Plan::default() }, Tables::default()).unwrap();
        let layout = draft.run(&mut NoDrafter, &[TokenId(4)]).unwrap();
        assert_eq!((layout.live, layout.rows()), (1, 16), "dead rows");
        assert_eq!(draft.found(), None, "nothing to look up in one token");
        let text = [4, 5, 4, 5].map(TokenId);
        let layout = draft.run(&mut NoDrafter, &text).unwrap();
        assert_eq!(layout.live, 6, "five looked up");
        assert_eq!(draft.found(), Some(Match { at: 1, len: 2 }), "the match");
        assert_eq!(draft.layout().tokens[1..3], [TokenId(4), TokenId(5)], "its continuation");
    }
}
