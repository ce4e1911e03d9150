//! Scripts: random plans and tables, a target that is a function of the text, and a drafter that half knows it.

use redraft_decode::TokenId;
use redraft_decode::draft::{DraftError, Drafter, Gate, Output, Pass, Plan, Step, Tables, Top};

/// The `SplitMix64` generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).unwrap()
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// A multiple of an eighth in [0, eighths / 8), so that sums are exact and ties happen.
    pub(crate) fn eighths(&mut self, eighths: u16) -> f32 {
        f32::from(u16::try_from(self.below(u32::from(eighths))).unwrap()) / 8.0
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A plan that validates; all kinds occur.
pub(crate) fn random_plan(random: &mut Random) -> Plan {
    let depth = 1 + random.below(7);
    match random.below(8) {
        0 => return Plan::chain(depth),
        1 => return Plan { lookup: true, ..Plan::chain(depth) },
        2 => return Plan { nodes: 1 + random.below(9), ..Plan::lookup(depth) },
        _ => {}
    }
    loop {
        let gates = [Gate::Off, Gate::Top1, Gate::Entropy, Gate::Calibrated, Gate::Random];
        let plan = Plan {
            width: 1 + random.below(6),
            children: 1 + random.below(6),
            reconsider: random.below(4),
            refined: 1 + random.below(4),
            depth,
            nodes: 1 + random.below(63),
            gate: gates[random.below(5) as usize],
            expand_refined: random.chance(50),
            control: random.chance(30),
            no_recurrence: random.chance(20),
            lookup: random.chance(40),
            drafter: true,
        };
        if plan.validate().is_ok() {
            return plan;
        }
    }
}

/// Tables that validate, half of them calibrated.
pub(crate) fn random_tables(random: &mut Random) -> Tables {
    let mut tables = Tables {
        calibrated: random.chance(50),
        refined_offset: random.eighths(32) - 2.0,
        gate_threshold: random.eighths(6),
        ..Tables::default()
    };
    for edge in tables.edges.as_flattened_mut().as_flattened_mut().as_flattened_mut() {
        *edge = -random.eighths(24);
    }
    for gain in tables.log_gain.as_flattened_mut() {
        *gain = random.eighths(24) - 2.0;
    }
    for edge in &mut tables.lookup_edge {
        *edge = -random.eighths(24);
    }
    tables
}

/// A target whose next token is a function of the last three. Over a small vocabulary its text runs into a circle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) seed: u64,
    pub(crate) vocab: u32,
}

impl Target {
    pub(crate) fn next(&self, text: &[TokenId]) -> TokenId {
        let last = text.iter().rev().take(3);
        let hash = last.fold(self.seed, |hash, token| mix(hash ^ u64::from(token.0).wrapping_add(1)));
        TokenId(u32::try_from(hash % u64::from(self.vocab)).unwrap())
    }
}

/// A drafter that puts the target's token first in some share of the rows, and elsewhere or nowhere in the others.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) target: Target,
    /// The text so far, the root last.
    pub(crate) ids: Vec<TokenId>,
    /// Percent of first passes that are right.
    pub(crate) first: u32,
    /// Percent of second passes that are right.
    pub(crate) second: u32,
    /// Percent of rows with fewer than four candidates, or none.
    pub(crate) silent: u32,
    pub(crate) random: Random,
}

impl Drafter for Script {
    type Error = DraftError;

    fn evaluate(&mut self, step: Step<'_>, outputs: &mut [Output]) -> Result<(), DraftError> {
        for row in step.rows {
            let mut path: Vec<u32> = step.pool.upward(row.node).collect();
            path.reverse();
            let mut text = self.ids.clone();
            text.extend(path[1..].iter().map(|&node| step.pool.node(node).token));
            let right = self.target.next(&text);
            let percent = if row.pass == Pass::First { self.first } else { self.second };
            outputs[row.slot()] = self.say(right, percent);
        }
        Ok(())
    }
}

impl Script {
    fn say(&mut self, right: TokenId, percent: u32) -> Output {
        let random = &mut self.random;
        // Some tokens from a random one on, all different; fewer than eight now and then, or none.
        let start = random.below(self.target.vocab);
        let mut tokens: Vec<u32> =
            (0..self.target.vocab.min(8)).map(|i| (start + i) % self.target.vocab).collect();
        let place = if random.chance(percent) { 0 } else { random.below(12) as usize };
        let now = tokens.iter().position(|&token| token == right.0);
        match (now, tokens.get_mut(place)) {
            (Some(now), Some(_)) => tokens.swap(now, place),
            (None, Some(slot)) => *slot = right.0,
            _ => {}
        }
        if random.chance(self.silent) {
            tokens.truncate(random.below(4) as usize);
        }
        let mut output = Output { unsure: random.eighths(9), ..Output::EMPTY };
        let mut log_q = 0.0;
        for (top, token) in output.tops.iter_mut().zip(tokens) {
            log_q -= random.eighths(9);
            *top = Top { token: TokenId(token), log_q };
        }
        output
    }
}
