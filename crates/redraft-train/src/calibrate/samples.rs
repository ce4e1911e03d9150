//! Counts of what was proposed and what was right.

use redraft_decode::TokenId;
use redraft_decode::draft::{ALIVE, LOOKUP, MIN_MATCH, NONE, Outputs, Pool, REFINED, find_match};

/// How often something was there, and how often right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) all: f64,
    pub(super) right: f64,
}

impl Cell {
    fn add(&mut self, right: bool) {
        self.all += 1.0;
        self.right += f64::from(u8::from(right));
    }
}

/// Counts by the indices of [`redraft_decode::draft::Tables`].
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// `[pass][depth][rank][bin]`: children of nodes on the true way.
    pub(super) edges: Box<[[[[Cell; 32]; 4]; 8]; 2]>,
    /// `[depth][bin]`: second passes there, and those whose refined candidates hold the token.
    pub(super) gains: [[Cell; 64]; 8],
    /// Probabilities of refined candidates summed, and how many were right.
    pub(super) refined: Cell,
    /// How unsure first passes on the true way were.
    pub(super) unsure: Vec<f32>,
    rounds: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            edges: Box::new([[[[Cell::default(); 32]; 4]; 8]; 2]),
            gains: [[Cell::default(); 64]; 8],
            refined: Cell::default(),
            unsure: Vec::new(),
            rounds: 0,
        }
    }
}

impl Samples {
    /// Whether no round was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rounds == 0
    }

    /// Counts a child. `log_q`: its log-probability; `rank`: its place; `depth`: its depth, from 1.
    pub fn add_edge(&mut self, refined: bool, depth: u32, rank: u32, log_q: f32, right: bool) {
        // The indices of `Tables::edge`.
        #[expect(clippy::cast_possible_truncation, reason = "the bin is wanted, not the fraction")]
        let bin = ((-log_q.min(0.0) * 4.0) as usize).min(31);
        let (depth, rank) = (depth.clamp(1, 8) as usize - 1, rank.min(3) as usize);
        self.edges[usize::from(refined)][depth][rank][bin].add(right);
        if refined {
            self.refined.all += f64::from(log_q.exp());
            self.refined.right += f64::from(u8::from(right));
        }
    }

    /// Counts a second pass at a node of `depth`, the root being 0, whose first pass was `unsure`.
    pub fn add_gain(&mut self, depth: u32, unsure: f32, rescued: bool) {
        // The indices of `Tables::gain`.
        #[expect(clippy::cast_possible_truncation, reason = "the bin is wanted, not the fraction")]
        let bin = ((unsure * 64.0) as usize).min(63);
        self.gains[depth.min(7) as usize][bin].add(rescued);
    }

    /// Adds other samples.
    pub fn add(&mut self, other: &Self) {
        let cells = |samples: &Self| {
            let edges = samples.edges.as_flattened().as_flattened().as_flattened().iter();
            edges.chain(samples.gains.as_flattened()).copied().collect::<Vec<_>>()
        };
        let edges = self.edges.as_flattened_mut().as_flattened_mut().as_flattened_mut().iter_mut();
        edges.chain(self.gains.as_flattened_mut()).zip(cells(other)).for_each(|(mine, theirs)| {
            mine.all += theirs.all;
            mine.right += theirs.right;
        });
        self.refined.all += other.refined.all;
        self.refined.right += other.refined.right;
        self.unsure.extend(&other.unsure);
        self.rounds += other.rounds;
    }

    /// Counts how unsure a first pass was.
    pub fn add_unsure(&mut self, unsure: f32) {
        self.unsure.push(unsure);
    }
}

impl Samples {
    /// Counts a round, whose root the true continuation `truth` begins with.
    pub(super) fn round(&mut self, pool: &Pool, outputs: &Outputs, truth: &[TokenId]) {
        self.rounds += 1;
        let plan = *pool.plan();
        let mut way = Some(0_u32);
        for next in truth.iter().skip(1) {
            let Some(at) = way else { break };
            let node = *pool.node(at);
            if node.row == NONE {
                break;
            }
            let output = outputs.row(node.row);
            self.add_unsure(output.unsure);
            for (rank, top) in (0..plan.children).zip(&output.tops) {
                if top.token.0 != NONE {
                    self.add_edge(false, node.depth + 1, rank, top.log_q, top.token == *next);
                }
            }
            if node.refined_child != 0 {
                let mut rescued = false;
                for rank in 0..plan.refined {
                    let child = pool.node(node.refined_child + rank);
                    if !child.has(ALIVE | REFINED) {
                        continue;
                    }
                    let right = child.token == *next;
                    rescued |= right;
                    if let Some(top) = outputs.row(child.source).tops.get(rank as usize) {
                        self.add_edge(true, node.depth + 1, rank, top.log_q, right);
                    }
                }
                self.add_gain(node.depth, output.unsure, rescued);
            }
            way = (1_u32..).zip(pool.nodes().iter().skip(1)).find_map(|(index, child)| {
                let follows =
                    child.has(ALIVE) && !child.has(LOOKUP) && child.parent == at && child.token == *next;
                follows.then_some(index)
            });
        }
    }
}

/// How often a looked-up token was right, by the length of the match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookupSamples {
    pub(super) cells: [Cell; 17],
}

impl LookupSamples {
    /// Tokens that are looked up behind a place.
    const REACH: usize = 8;

    /// Looks up at every token of the answer, and counts what would have been tried: all up to the first that is wrong.
    pub fn add(&mut self, tokens: &[TokenId], prompt: usize) {
        for root in prompt..tokens.len().saturating_sub(1) {
            let Some(found) = find_match(&tokens[..=root], MIN_MATCH) else { continue };
            let behind = tokens[found.at as usize + 1..=root].iter().cycle();
            for (guess, token) in behind.zip(&tokens[root + 1..]).take(Self::REACH) {
                self.cells[found.len.min(16) as usize].add(guess == token);
                if guess != token {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redraft_decode::draft::{Draft, Plan, Tables, Top};

    #[test]
    fn a_round_by_hand() {
        let plan = Plan { gate: redraft_decode::draft::Gate::Top1, ..Plan::reconsider(9, 3, 2, 2, 1, 2) };
        let mut draft = Draft::new(plan, Tables { gate_threshold: 0.0, ..Tables::default() }).unwrap();
        let text = [4, 5, 10, 40, 7].map(TokenId);
        draft.begin(&text[..2]).unwrap();
        while let Some(step) = draft.pick() {
            let rows = step.rows.to_vec();
            for row in rows {
                let slot = &mut draft.said()[row.slot()];
                let second = row.pass == redraft_decode::draft::Pass::Second;
                // Behind every token: 10 and 11, on second thoughts 11 and 40.
                let tops = if second { [(11, -0.5), (40, -1.3)] } else { [(10, -0.1), (11, -3.0)] };
                for (top, (token, log_q)) in slot.tops.iter_mut().zip(tops) {
                    *top = Top { token: TokenId(token), log_q };
                }
                slot.unsure = 0.25;
            }
            draft.grow();
        }
        draft.finish(&text[..2]);
        let mut samples = Samples::default();
        samples.round(draft.pool(), draft.outputs(), &text[1..]);
        let cell = |all, right| Cell { all, right };
        // The root: 10 is right. Behind it 40: wrong, wrong, and only the second pass has it.
        assert_eq!(samples.edges[0][0][0][0], cell(1.0, 1.0), "10 behind the root");
        assert_eq!(samples.edges[0][0][1][12], cell(1.0, 0.0), "11 behind the root");
        assert_eq!(samples.edges[0][1][0][0], cell(1.0, 0.0), "10 behind 10");
        assert_eq!(samples.edges[1][0][1][5], cell(1.0, 0.0), "refined behind the root: 40 is wrong there");
        assert_eq!(samples.edges[1][1][1][5], cell(1.0, 1.0), "refined behind 10");
        assert_eq!(samples.gains[0][16], cell(1.0, 0.0), "no rescue at the root");
        assert_eq!(samples.gains[1][16], cell(1.0, 1.0), "a rescue behind it");
        assert_eq!(samples.unsure.len(), 2, "the refined node was not evaluated");
        let all: f64 = samples.edges.iter().flatten().flatten().flatten().map(|cell| cell.all).sum();
        assert_eq!(all, 6.0, "and nothing else");
        let mut twice = samples.clone();
        twice.add(&samples);
        assert_eq!(twice.edges[0][0][0][0], cell(2.0, 2.0), "added up");
        assert_eq!(
            (twice.gains[1][16], twice.rounds, twice.unsure.len()),
            (cell(2.0, 2.0), 2, 4),
            "all of it"
        );
        assert!((samples.refined.all - 2.0 * f64::from((-1.3_f32).exp())).abs() < 1e-6, "probabilities");
    }

    #[test]
    fn looked_up_tokens_by_hand() {
        let mut samples = LookupSamples::default();
        // Behind the second "1 2" comes 3 again, and then 9 in the place of 4.
        let tokens = [1, 2, 3, 4, 1, 2, 3, 9].map(TokenId);
        samples.add(&tokens, 4);
        // At index 5 a match of two: 3 right, 4 wrong. At index 6 a match of three: 4 wrong.
        assert_eq!(samples.cells[2], Cell { all: 2.0, right: 1.0 }, "two tokens");
        assert_eq!(samples.cells[3], Cell { all: 1.0, right: 0.0 }, "three tokens");
        assert_eq!(samples.cells.iter().map(|cell| cell.all).sum::<f64>(), 3.0, "nothing else");
    }
}
