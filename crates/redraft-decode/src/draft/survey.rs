//! Measuring what steps and rounds cost: what is timed, in which order, and when that is enough.
//!
//! A survey times nothing itself. It says what is to be timed next, is told how long that took, and makes [`Costs`] of
//! it; so it can be run against a scripted clock as well as on an adapter.
//!
//! Prices are where an automatic choice begins, and rounds correct them. So on an adapter where a plain step takes long
//! little is measured before the first token: [`Extent::Bounded`] goes up in rows only as far as a plan of as many rows
//! could win, repeats only what is in doubt, and costs about [`Survey::BUDGET`] plain steps at most.

use super::policy::{CostError, Costs, Curve};
use super::{Plan, WIDTH};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// What a choice of a plan needs, in about [`Survey::BUDGET`] plain steps; more runs where that takes no time.
    Bounded,
    /// Both curves to their ends, with at least three runs of each point: for reports.
    Whole,
}

/// Something to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A step of the target of so many rows, a token drawn from each.
    Verify(u32),
    /// A step of the drafter of so many rows.
    Draft(u32),
    /// An extend pass of the drafter.
    Extend,
    /// A whole round.
    Round(Plan),
}

/// Rows of the steps that are timed. A batch in between costs what the next larger one costs.
const SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Two times that differ by less than this factor agree.
const AGREE: f64 = 1.15;
/// Runs of what is in doubt, and the fewest of a whole survey.
const RUNS: u32 = 3;
/// The most runs of anything.
const MOST_RUNS: u32 = 5;
/// More runs than are needed are made only until so many seconds have passed, in a bounded and in a whole survey.
const SPARE: [f64; 2] = [0.5, 2.0];
/// Plain steps of the budget that going up in rows leaves for drafter and round.
const RESERVE: f64 = 4.0;
/// Plain steps that a step of a drafter counts for at most against the budget: it is one layer of many, and what it takes
/// beyond is compiling a kernel.
const SMALL: f64 = 0.5;

/// The runs of a probe.
#[derive(Clone, Copy, Debug)]
struct Timing {
    probe: Probe,
    runs: u32,
    /// The least seconds of a run, the least but one, and those of all runs.
    least: f64,
    second: f64,
    total: f64,
}

impl Timing {
    fn new(probe: Probe) -> Self {
        Self { probe, runs: 0, least: f64::INFINITY, second: f64::INFINITY, total: 0.0 }
    }

    fn push(&mut self, seconds: f64) {
        // A time of nothing is that of a clock too coarse.
        let seconds = seconds.max(1e-9);
        self.runs += 1;
        self.total += seconds;
        self.second = self.second.min(seconds.max(self.least));
        self.least = self.least.min(seconds);
    }
}

/// A measurement under way.
#[derive(Clone, Debug)]
pub struct Survey {
    extent: Extent,
    plans: Vec<Plan>,
    verify: Vec<Timing>,
    /// Of the drafter; nothing without one.
    draft: Vec<Timing>,
    extend: Option<Timing>,
    round: Timing,
}

impl Survey {
    /// Plain steps that a bounded survey takes at most where nothing disturbs it.
    pub const BUDGET: f64 = 20.0;

    /// A survey for a choice among `plans`. `round` is the plan whose rounds are timed for what they add to their
    /// forwards; `drafts` says whether there is a drafter to time.
    #[must_use]
    pub fn new(extent: Extent, plans: &[Plan], round: Plan, drafts: bool) -> Self {
        let rows = plans.iter().filter(|plan| plan.drafter).map(Plan::step_rows).max().unwrap_or(1);
        // No step of the plans is wider than the first of these sizes that holds it.
        let needed = match extent {
            Extent::Bounded => rows.next_power_of_two().min(WIDTH),
            Extent::Whole => WIDTH,
        };
        let sizes = SIZES.iter().filter(|rows| drafts && **rows <= needed);
        Self {
            extent,
            plans: plans.to_vec(),
            verify: SIZES.map(|rows| Timing::new(Probe::Verify(rows))).to_vec(),
            draft: sizes.map(|rows| Timing::new(Probe::Draft(*rows))).collect(),
            extend: drafts.then(|| Timing::new(Probe::Extend)),
            round: Timing::new(Probe::Round(round)),
        }
    }

    /// What to time next; `None` when nothing is left.
    #[must_use]
    pub fn next_probe(&self) -> Option<Probe> {
        match self.extent {
            Extent::Bounded => self.climb().or_else(|| self.again()).or_else(|| self.spare(1, MOST_RUNS)),
            Extent::Whole => self.spare(0, RUNS).or_else(|| self.spare(0, MOST_RUNS)),
        }
    }

    /// Takes note that a run of `probe` took so many seconds.
    pub fn take(&mut self, probe: &Probe, seconds: f64) {
        let all = self.verify.iter_mut().chain(&mut self.draft).chain(&mut self.extend);
        if let Some(timing) = all.chain([&mut self.round]).find(|timing| timing.probe == *probe) {
            timing.push(seconds);
        }
    }

    /// Seconds of all runs so far.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.timings().map(|timing| timing.total).sum()
    }

    /// The same in plain steps, of the fastest one so far.
    #[must_use]
    pub fn steps(&self) -> f64 {
        self.seconds() / self.unit()
    }

    /// The costs, by the fastest run of each probe. `catch_up_most`: tokens that a drafter catches up on at most.
    ///
    /// Sizes that were not measured have prices that are upper estimates: the last two points go on in a straight line,
    /// or in proportion to the rows, whichever is dearer. A step whose price grows by a constant for each row, or less
    /// and less, costs no more than in proportion; one where it grows faster and faster is what the line is for.
    ///
    /// # Errors
    /// [`CostError`] if nothing was measured.
    pub fn costs(&self, catch_up_most: u32) -> Result<Costs, CostError> {
        let unit = self.unit();
        let verify = self.points();
        let beyond = SIZES.iter().skip(verify.len()).map(|rows| (*rows, beyond(&verify, *rows)));
        let whole = whole_tiles(verify.iter().copied().chain(beyond), unit);
        let draft = match self.draft.is_empty() {
            true => vec![(1, 0.0)],
            false => whole_tiles(self.draft_points().into_iter(), unit),
        };
        let extend = self.extend.map_or(0.0, |timing| timing.least / unit);
        let mut costs = Costs {
            verify: Curve::new(whole)?,
            draft: Curve::new(draft)?,
            extend,
            overhead: 0.0,
            // An extend pass was measured at four rows.
            catch_up: extend / 4.0,
            catch_up_most,
        };
        if let (Probe::Round(plan), true) = (self.round.probe, self.round.runs > 0) {
            costs.overhead = (self.round.least / unit - costs.round(&plan)).clamp(0.0, 1.0);
        }
        costs.validate()?;
        Ok(costs)
    }

    fn timings(&self) -> impl Iterator<Item = &Timing> {
        // What is cheap comes first.
        self.draft.iter().chain(&self.extend).chain(&self.verify).chain([&self.round])
    }

    /// Seconds of a plain step.
    fn unit(&self) -> f64 {
        self.verify.first().map_or(f64::INFINITY, |timing| timing.least)
    }

    /// Rows and seconds of the steps of the target that were measured. More rows never cost less; where they seem to, the
    /// smaller step was disturbed, but the larger one is no proof that it is cheap.
    fn points(&self) -> Vec<(u32, f64)> {
        let mut most = 0.0f64;
        let raised = |(rows, seconds): (u32, f64)| {
            most = most.max(seconds);
            (rows, most)
        };
        self.verify.iter().take_while(|timing| timing.runs > 0).filter_map(point).map(raised).collect()
    }

    /// Rows and seconds of the steps of the drafter. More rows never cost less: what took longer than a larger step was
    /// disturbed, and costs no more than that one.
    fn draft_points(&self) -> Vec<(u32, f64)> {
        let mut least = f64::INFINITY;
        let lowered = |(rows, seconds): (u32, f64)| {
            least = least.min(seconds);
            (rows, least)
        };
        let measured = self.draft.iter().rev().filter(|timing| timing.runs > 0);
        let mut points: Vec<(u32, f64)> = measured.filter_map(point).map(lowered).collect();
        points.reverse();
        points
    }

    /// Whether `steps` more plain steps fit the budget, or are nothing to wait for.
    fn affords(&self, steps: f64, reserve: f64) -> bool {
        let spent: f64 = self.timings().map(|timing| f64::from(timing.runs) * self.usual(timing)).sum();
        spent + steps <= Self::BUDGET - reserve || self.seconds() + steps * self.unit() <= SPARE[0]
    }

    /// Plain steps that a run of a probe takes where nothing disturbs it: the least so far, or less where that alone can
    /// be no more than a first run that compiled a kernel.
    fn usual(&self, timing: &Timing) -> f64 {
        let most = match timing.probe {
            Probe::Verify(rows) => beyond(&self.below(rows), rows).min(f64::from(rows) * self.unit()),
            Probe::Draft(_) | Probe::Extend => SMALL * self.unit(),
            Probe::Round(plan) => f64::from(plan.verified_rows() + 1) * self.unit(),
        };
        if timing.runs == 0 { 0.0 } else { timing.least.min(most) / self.unit() }
    }

    /// The points of fewer rows.
    fn below(&self, rows: u32) -> Vec<(u32, f64)> {
        self.points().into_iter().filter(|point| point.0 < rows).collect()
    }

    /// The first runs: up in rows as long as plans of that size could win, then drafter and round.
    fn climb(&self) -> Option<Probe> {
        let points = self.points();
        let top = points.len().checked_sub(1).and_then(|top| self.verify.get(top));
        // Everything is compared with a plain step, so nothing else is believed before that is.
        if let Some(plain) = self.verify.first().filter(|plain| plain.runs < 2 || !self.settled(plain)) {
            return Some(plain.probe);
        }
        if let Some((next, &rows)) = self.verify.get(points.len()).zip(SIZES.get(points.len())) {
            let worth = points.len() < 2 || self.may_win(&points, rows);
            if worth && (points.len() < 2 || self.affords(beyond(&points, rows) / self.unit(), RESERVE)) {
                return Some(next.probe);
            }
            // A first run may have compiled something: one run alone is no reason to stop.
            let doubted = top.filter(|top| !worth && !self.settled(top) && self.affords_again(top, RESERVE));
            if let Some(top) = doubted {
                return Some(top.probe);
            }
        }
        self.timings()
            .filter(|timing| !matches!(timing.probe, Probe::Verify(_)))
            .find_map(|timing| (timing.runs == 0).then_some(timing.probe))
    }

    /// Whether a plan of at least `rows` verified rows would win if all that it drafts were accepted.
    fn may_win(&self, points: &[(u32, f64)], rows: u32) -> bool {
        self.plans
            .iter()
            .filter(|plan| plan.verified_rows() >= rows)
            .any(|plan| beyond(points, plan.verified_rows()) < self.unit() * f64::from(plan.depth + 1))
    }

    /// Another run of what is in doubt, what is cheap first, as far as the budget goes.
    fn again(&self) -> Option<Probe> {
        let doubted = self.timings().filter(|t| t.runs > 0 && !self.settled(t));
        let affordable = doubted.filter(|timing| self.affords_again(timing, 0.0));
        affordable.min_by_key(|timing| timing.runs).map(|timing| timing.probe)
    }

    fn affords_again(&self, timing: &Timing, reserve: f64) -> bool {
        // The first run of a drafter step may be thousands of times what it costs, and the second is cheap: it is made
        // even where others have used the budget up.
        let first = timing.runs == 1 && matches!(timing.probe, Probe::Draft(_) | Probe::Extend);
        first || self.affords(self.usual(timing), reserve)
    }

    /// Another run of what has fewer than `most`, of those that have `least` at all: as many as are due in a whole
    /// survey, and more only while nobody has to wait for them.
    fn spare(&self, least: u32, most: u32) -> Option<Probe> {
        let limit = SPARE[usize::from(self.extent == Extent::Whole)];
        let due = self.extent == Extent::Whole && most == RUNS;
        let open = due || self.seconds() < limit;
        let wanted = self.timings().filter(|timing| open && (least..most).contains(&timing.runs));
        wanted.min_by_key(|timing| timing.runs).map(|timing| timing.probe)
    }

    /// Whether the runs of a probe are believed: two of them agree, or one takes no longer than what is known promises
    /// (a run is never faster than the adapter). Three are believed anyway.
    fn settled(&self, timing: &Timing) -> bool {
        if timing.runs >= RUNS {
            return true;
        }
        let agrees = timing.runs > 1 && timing.second <= AGREE * timing.least;
        match timing.probe {
            Probe::Draft(_) | Probe::Extend => agrees,
            Probe::Verify(rows) => {
                let below = self.below(rows);
                let promised = if let [.., a, b] = below.as_slice() { line(*a, *b, rows) } else { 0.0 };
                // One that took longer than a larger one was disturbed.
                let larger = self.verify.iter().filter(|t| matches!(t.probe, Probe::Verify(m) if m > rows));
                let disturbed =
                    larger.fold(f64::INFINITY, |least, t| least.min(t.least)) * AGREE < timing.least;
                !disturbed && (agrees || timing.least <= AGREE * promised)
            }
            Probe::Round(plan) => {
                let promised = self
                    .costs(0)
                    .map_or(0.0, |costs| Costs { overhead: 0.0, ..costs }.round(&plan) * self.unit());
                agrees || timing.least <= AGREE * promised
            }
        }
    }
}

/// Rows and least seconds of a step.
fn point(timing: &Timing) -> Option<(u32, f64)> {
    match timing.probe {
        Probe::Verify(rows) | Probe::Draft(rows) => Some((rows, timing.least)),
        Probe::Extend | Probe::Round(_) => None,
    }
}

/// The line through two points, never falling, at more rows.
fn line((r0, c0): (u32, f64), (r1, c1): (u32, f64), rows: u32) -> f64 {
    c1 + (c1 - c0).max(0.0) / f64::from(r1 - r0) * f64::from(rows - r1)
}

/// What `rows` rows, more than were measured, cost at most by the last points of a curve.
fn beyond(points: &[(u32, f64)], rows: u32) -> f64 {
    match points {
        [.., a, b] => line(*a, *b, rows).max(b.1 * f64::from(rows) / f64::from(b.0)),
        [one] => one.1 * f64::from(rows) / f64::from(one.0),
        [] => f64::INFINITY,
    }
}

/// A cost curve, in units of `unit` seconds, from seconds at 1, 2, 4, 8, 16, … rows. A batch is computed in whole tiles
/// of the smallest of these sizes that holds it, above eight rows in tiles of eight: rows in between cost what the next
/// larger batch costs.
fn whole_tiles(points: impl Iterator<Item = (u32, f64)>, unit: f64) -> Vec<(u32, f64)> {
    let mut curve: Vec<(u32, f64)> = Vec::new();
    for (rows, cost) in points.map(|(rows, seconds)| (rows, seconds / unit)) {
        match curve.last().copied() {
            // Between 16 and 32 there are 24 rows.
            Some((before, below)) if rows > 16 => {
                let middle = (before + rows) / 2;
                let half = f64::midpoint(below, cost);
                curve.extend([(before + 1, half), (middle, half), (middle + 1, cost), (rows, cost)]);
            }
            Some((before, _)) if rows > before + 1 => curve.extend([(before + 1, cost), (rows, cost)]),
            _ => curve.push((rows, cost)),
        }
    }
    curve
}
