//! The policy against a simulated clock: costs that were measured wrongly, a machine that drifts, noise, and answers one
//! behind the other. What is asserted is time: that of the clock, not of the estimates.

use redraft_decode::draft::{
    Costs, Curve, Extent, LONGEST_PATIENCE, OPENING, Observation, Plan, Policy, Probe, Survey,
    automatic_plans, patience,
};

/// The `SplitMix64` generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 9_007_199_254_740_992.0
    }
}

fn costs(scale: f64) -> Costs {
    let verify = [(1, 1.0), (2, 1.05), (4, 1.1), (8, 1.25), (16, 1.6), (32, 2.6)];
    let verify = verify.map(|(rows, cost)| (rows, 1.0 + (cost - 1.0) * scale)).to_vec();
    Costs {
        verify: Curve::new(verify).unwrap(),
        draft: Curve::new(vec![(1, 0.08 * scale), (16, 0.1 * scale)]).unwrap(),
        extend: 0.12 * scale,
        overhead: 0.05 * scale,
        catch_up: 0.01 * scale,
        catch_up_most: LONGEST_PATIENCE,
    }
}

/// Chance that a depth is accepted. Trees offer more at each depth, the more rows they have; a lookup less.
fn chance(text: f64, plan: &Plan) -> f64 {
    let spare = f64::from(plan.nodes) / f64::from(plan.depth);
    let chance = 1.0 - (1.0 - text).powf(1.0 + 0.25 * spare.ln());
    if plan.drafter { chance } else { 0.5 * chance }
}

/// What the machine does.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// Rounds cost this many times what was measured before, plain steps aside.
    wrong: f64,
    /// A step takes up to this share more or less.
    noise: f64,
    /// Share of the steps that take eight times as long. What is beyond three times is nobody's fault and not counted.
    disturbed: f64,
    /// Seconds of a plain step rise and fall by this share, once in `period` steps.
    drift: f64,
    period: f64,
    /// At every `period` the machine becomes this many times as slow, and fast again.
    jump: f64,
    /// Tokens of an answer, and what keeping the drafter up to date adds to its prompt, in plain steps.
    answer: u32,
    extra: f64,
    /// What keeping features adds to a plain step, in plain steps.
    keeping: f64,
    /// Seconds of a plain step, on average.
    pace: f64,
}

/// Nothing is wrong.
const EVEN: Machine = Machine {
    wrong: 1.0,
    noise: 0.0,
    disturbed: 0.0,
    drift: 0.0,
    period: 1500.0,
    jump: 1.0,
    answer: 120,
    extra: 0.5,
    keeping: 0.0,
    pace: 0.05,
};

struct World {
    machine: Machine,
    policy: Policy,
    /// What rounds cost.
    costs: Costs,
    random: Random,
    /// Seconds so far, and seconds that plain decoding would have taken on average.
    time: f64,
    plain: f64,
    /// The slowest plain step so far.
    slowest: f64,
    steps: f64,
    tokens: f64,
    rounds: u32,
    missed: u32,
    /// Tokens left of the answer.
    left: u32,
    engaged: u32,
    answers: u32,
    /// Whether plain steps keep features, and how many there were in a row.
    keeps: bool,
    streak: u32,
    /// Plain steps that kept none, and tokens before there were four.
    bare: u32,
    untold: f64,
}

impl World {
    fn new(machine: Machine, scale: f64, seed: u64) -> Self {
        Self::promised(machine, &costs(scale), seed)
    }

    /// A machine of which a survey was made, with its noise and disturbances; it knows what rounds cost as far as that says.
    fn surveyed(machine: Machine, scale: f64, seed: u64) -> Self {
        let mut world = Self::new(machine, scale, seed);
        let plans = automatic_plans(&Plan::default());
        let mut survey = Survey::new(Extent::Bounded, &plans, Plan::chain(1), true);
        while let Some(probe) = survey.next_probe() {
            let steps = match probe {
                Probe::Verify(rows) => world.costs.verify.at(rows),
                Probe::Draft(rows) => world.costs.draft.at(rows),
                Probe::Extend => world.costs.extend,
                Probe::Round(plan) => world.costs.round(&plan),
            };
            let seconds = world.seconds(steps);
            survey.take(&probe, seconds);
        }
        let known = survey.costs(LONGEST_PATIENCE).expect("it measured");
        Self { policy: Policy::timed(&plans, &known).unwrap(), ..world }
    }

    fn promised(machine: Machine, promised: &Costs, seed: u64) -> Self {
        let policy = Policy::timed(&automatic_plans(&Plan::default()), promised).unwrap();
        let wrong = |curve: &Curve, base: f64| {
            let points = curve.points().iter();
            Curve::new(points.map(|&(rows, cost)| (rows, base + (cost - base) * machine.wrong)).collect())
                .unwrap()
        };
        // Of the verification what goes beyond a plain step; else all of it.
        let costs = Costs {
            verify: wrong(&promised.verify, 1.0),
            draft: wrong(&promised.draft, 0.0),
            extend: promised.extend * machine.wrong,
            overhead: promised.overhead * machine.wrong,
            catch_up: promised.catch_up * machine.wrong,
            ..*promised
        };
        let random = Random(seed);
        Self {
            machine,
            policy,
            costs,
            random,
            time: 0.0,
            plain: 0.0,
            slowest: 0.0,
            steps: 0.0,
            tokens: 0.0,
            rounds: 0,
            missed: 0,
            left: 0,
            engaged: 0,
            answers: 0,
            keeps: false,
            streak: 0,
            bare: 0,
            untold: 0.0,
        }
    }

    /// Seconds of a plain step now, on average.
    fn pace(&self) -> f64 {
        let phase = self.steps / self.machine.period;
        let slow = if phase.rem_euclid(2.0) >= 1.0 { self.machine.jump } else { 1.0 };
        self.machine.pace * slow * (1.0 + self.machine.drift * (phase * std::f64::consts::TAU).sin())
    }

    fn seconds(&mut self, steps: f64) -> f64 {
        let machine = self.machine;
        let noise = 1.0 + machine.noise * (2.0 * self.random.unit() - 1.0);
        let disturbed = if self.random.unit() < machine.disturbed { 8.0 } else { 1.0 };
        steps * self.pace() * noise * disturbed
    }

    /// One step of the policy; `accepted` says how many nodes are accepted.
    fn step(&mut self, accepted: impl FnOnce(&mut Random, &Policy, &Plan) -> u32) {
        if self.left == 0 {
            self.left = self.machine.answer;
            self.answers += 1;
            self.missed = 0;
            // What it adds to a prompt is known when it has been seen.
            let expected = if self.engaged > 0 { self.machine.wrong } else { 1.0 } * self.machine.extra;
            (self.keeps, self.streak) = (false, 0);
            if self.policy.engage(expected, f64::from(self.machine.answer)) {
                self.keeps = true;
                self.engaged += 1;
                let extra = self.seconds(self.machine.extra * self.machine.wrong);
                self.time += extra;
                self.policy.book_extra(extra);
            }
        }
        let found = self.random.unit() < 0.4;
        self.policy.set_found(found);
        self.steps += 1.0;
        let pace = self.pace();
        // Disturbances fall on plain decoding alike.
        let mean = pace * (1.0 + 2.0 * self.machine.disturbed);
        self.slowest = self.slowest.max(pace);
        let (emitted, plain) = match self.policy.choose() {
            None => {
                let steps = 1.0 + if self.keeps { self.machine.keeping } else { 0.0 };
                let seconds = self.seconds(steps);
                self.time += seconds.min(3.0 * steps * pace);
                self.policy.observe_plain_timed(seconds, self.keeps);
                self.missed += 1;
                self.streak += 1;
                self.bare += u32::from(!self.keeps);
                if self.keeps
                    && (self.streak >= patience(f64::from(self.machine.answer)) || self.policy.is_exhausted())
                {
                    self.keeps = false;
                    self.policy.disengage();
                }
                // Plain decoding would have taken this step as well, with what disturbed it.
                (1, (seconds / steps).min(3.0 * pace))
            }
            Some(plan) => {
                assert!(plan.drafter || found, "a lookup of nothing");
                let count = accepted(&mut self.random, &self.policy, &plan);
                let path: Vec<u32> = (0..=count).collect();
                let mut cost = self.costs.round(&plan);
                if plan.drafter {
                    cost += self.costs.catch_up * f64::from(self.missed.min(self.costs.catch_up_most));
                    self.missed = 0;
                } else {
                    self.missed += count + 1;
                }
                let seconds = self.seconds(cost);
                self.time += seconds.min(3.0 * cost * pace);
                self.rounds += 1;
                self.streak = 0;
                self.policy.observe_timed(&plan, &Observation { path: &path, stopped: false }, seconds);
                (count + 1, f64::from(count + 1) * mean)
            }
        };
        self.tokens += f64::from(emitted);
        self.plain += plain;
        self.untold += if self.bare < 4 { f64::from(emitted) } else { 0.0 };
        self.left = self.left.saturating_sub(emitted);
    }

    /// One step over `text`.
    fn read(&mut self, text: f64) {
        self.step(|random, _, plan| {
            let tries = (0..plan.depth.min(plan.nodes)).take_while(|_| random.unit() < chance(text, plan));
            u32::try_from(tries.count()).unwrap()
        });
    }

    /// Seconds that may be lost in the life of a policy beyond two in a hundred: the opening allowance; the dearest round
    /// twice, because it may take longer than expected when it comes last, and three times as long where rounds are
    /// disturbed; what the drafter adds to one prompt; and what a plain step may be misjudged by while few were timed, which
    /// is nothing without noise; what features add to a plain step, for each token before a few steps without them were
    /// timed, because until then nothing tells. Each time that the machine jumps to another speed it is a dear round more.
    fn allowance(&self) -> f64 {
        let plans = automatic_plans(&Plan::default());
        let dearest = plans.iter().map(|plan| self.costs.round(plan)).fold(0.0, f64::max);
        let Machine { jump, period, extra, wrong, noise, disturbed, keeping, .. } = self.machine;
        let jumps = if jump == 1.0 { 0.0 } else { (self.steps / period).floor() };
        let rounds = if disturbed > 0.0 { 4.0 } else { 2.0 } + jumps;
        let features = keeping * self.untold;
        self.slowest * (OPENING + rounds * dearest + extra * wrong + 10.0 * noise + features)
    }

    /// How many seconds more than 1.02 times plain decoding it took.
    fn over(&self) -> f64 {
        self.time - 1.02 * self.plain
    }
}

fn machines() -> Vec<Machine> {
    let noisy = Machine { noise: 0.3, ..EVEN };
    vec![
        EVEN,
        Machine { wrong: 2.0, ..EVEN },
        Machine { wrong: 2.0, ..noisy },
        Machine { wrong: 0.5, ..noisy },
        Machine { drift: 0.3, ..noisy },
        Machine { wrong: 2.0, drift: 0.3, disturbed: 0.01, ..noisy },
        Machine { wrong: 1.5, jump: 2.0, ..noisy },
        Machine { wrong: 1.5, jump: 0.5, disturbed: 0.01, ..noisy },
        Machine { answer: 12, extra: 1.0, ..noisy },
        Machine { answer: 12, extra: 1.0, wrong: 2.0, ..noisy },
        Machine { answer: 400, extra: 20.0, wrong: 2.0, ..noisy },
        Machine { answer: 40, keeping: 0.05, ..noisy },
        Machine { answer: 120, keeping: 0.08, wrong: 1.5, drift: 0.3, ..noisy },
    ]
}

/// Texts, from one where nothing is accepted to one where nearly everything is.
const TEXTS: [f64; 7] = [0.0, 0.2, 0.4, 0.5, 0.6, 0.75, 0.9];

#[test]
fn never_slower_than_plain_decoding_by_the_clock() {
    let (mut greatest, mut rounds): (f64, u32) = (0.0, 0);
    for (number, machine) in machines().into_iter().enumerate() {
        for (scale, text) in
            [0.5, 1.0, 2.0, 4.0].into_iter().flat_map(|scale| TEXTS.map(|text| (scale, text)))
        {
            for seed in 0..3 {
                let mut world = World::new(machine, scale, seed);
                let mut most: f64 = 0.0;
                while world.tokens < 6000.0 {
                    world.read(text);
                    let over = world.over();
                    let what = format!("machine {number}, costs {scale}, text {text}, seed {seed}");
                    assert!(over < world.allowance(), "{what}: {} s for {} s plain", world.time, world.plain);
                    most = most.max(over / world.slowest);
                }
                greatest = greatest.max(most);
                rounds += world.rounds;
            }
        }
    }
    assert!(rounds > 200_000, "and drafts ran: {rounds}");
    assert!(greatest > 4.0, "and something was risked: at most {greatest} plain steps");
}

/// What a short survey says is enough: from machines where nothing is measured beyond a few rows to such where all is, the
/// bound holds, and what pays is used as with costs that are known.
#[test]
fn a_short_survey_is_enough() {
    let machines = [EVEN, Machine { noise: 0.3, ..EVEN }, Machine { noise: 0.3, disturbed: 0.05, ..EVEN }];
    let (mut rounds, mut shares) = (0, Vec::new());
    for (number, machine) in machines.into_iter().enumerate() {
        for (scale, text) in
            [0.5, 1.0, 4.0, 12.0, 30.0].into_iter().flat_map(|scale| TEXTS.map(|text| (scale, text)))
        {
            for seed in 0..3 {
                let what = format!("machine {number}, costs {scale}, text {text}, seed {seed}");
                let (mut known, mut surveyed) =
                    (World::new(machine, scale, seed), World::surveyed(machine, scale, seed));
                while known.tokens < 6000.0 {
                    known.read(text);
                }
                while surveyed.tokens < 6000.0 {
                    surveyed.read(text);
                    let (over, allowance) = (surveyed.over(), surveyed.allowance());
                    assert!(over < allowance, "{what}: {} s for {} s plain", surveyed.time, surveyed.plain);
                }
                let speed = |world: &World| world.plain / world.time;
                let (found, possible) = (speed(&surveyed), speed(&known));
                assert!(found > 0.75 * possible, "{what}: {found} times plain, {possible} with known costs");
                shares.push(found / possible);
                rounds += surveyed.rounds;
            }
        }
    }
    assert!(rounds > 50_000, "and drafts ran: {rounds}");
    shares.sort_by(f64::total_cmp);
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let bad = shares.iter().filter(|share| **share < 0.95).count();
    assert!(
        mean > 0.99 && bad * 20 < shares.len(),
        "{mean} of the speed on average, {bad} much slower: {shares:?}"
    );
}

#[test]
fn an_adversary_with_a_clock_cannot_make_it_slower() {
    let mut drafted = 0;
    for seed in 0..120 {
        let machines = machines();
        let machine = machines[usize::try_from(seed).unwrap() % machines.len()];
        let mut world = World::new(machine, [0.5, 1.0, 2.0][usize::try_from(seed % 3).unwrap()], seed);
        let kind = seed / 3 % 3;
        let mut mood = 0.0;
        for _ in 0..4000 {
            if world.random.unit() < 0.01 {
                mood = world.random.unit();
            }
            world.step(|random, policy, plan| match kind {
                // Trials shine, and what they lead to disappoints.
                0 if policy.preferred() == Some(*plan) => 0,
                0 => plan.depth,
                // Changing texts.
                1 if random.unit() < mood => plan.depth,
                1 => 0,
                _ => u32::try_from(random.next() % u64::from(plan.depth + 1)).unwrap(),
            });
            let left = world.allowance() - world.over();
            assert!(left > 0.0, "seed {seed}, kind {kind}: {} s for {} s plain", world.time, world.plain);
        }
        drafted += world.rounds;
    }
    assert!(drafted > 20_000, "drafts ran: {drafted}");
}

#[test]
fn what_pays_is_used_whatever_was_measured() {
    for (number, machine) in machines().into_iter().enumerate() {
        for (scale, text) in [(0.5, 0.75), (1.0, 0.75), (1.0, 0.9), (2.0, 0.9)] {
            let mut world = World::new(machine, scale, 7);
            while world.tokens < 3000.0 {
                world.read(text);
            }
            let (time, plain) = (world.time, world.plain);
            while world.tokens < 15_000.0 {
                world.read(text);
            }
            let speed = (world.plain - plain) / (world.time - time);
            let tau = |plan: &Plan| -> f64 {
                (0..=plan.depth.min(plan.nodes)).map(|depth| chance(text, plan).powf(f64::from(depth))).sum()
            };
            // What the best plan would give in answers of this length with this much in front of them.
            let answer = f64::from(machine.answer);
            let best = automatic_plans(&Plan::default())
                .iter()
                .filter(|plan| plan.drafter)
                .map(|plan| {
                    let rounds = answer / tau(plan) * world.costs.round(plan);
                    answer / (rounds + machine.extra * machine.wrong)
                })
                .fold(1.0, f64::max);
            let what = format!("machine {number}, costs {scale}, text {text}");
            assert!(speed > 0.75 * best, "{what}: {speed} times plain, {best} is possible");
        }
    }
}

/// A machine that is faster by a power of two, so that every sum rounds alike: the policy chooses the same.
#[test]
fn choices_do_not_depend_on_the_unit_of_time() {
    for keeping in [0.0, 0.1] {
        let [slow, fast] = [EVEN.pace, EVEN.pace / 64.0].map(|pace| {
            let machine = Machine { noise: 0.3, answer: 40, keeping, pace, ..EVEN };
            let mut world = World::new(machine, 1.0, 5);
            while world.tokens < 2000.0 {
                world.read(0.6);
            }
            (world.rounds, world.engaged, world.time / pace)
        });
        assert!(slow.0 > 100 && slow.1 > 0, "drafts ran: {slow:?}");
        assert_eq!(slow, fast, "features that cost {keeping}");
    }
}

#[test]
fn the_opening_allowance_does_not_grow_with_the_number_of_answers() {
    // Nothing is ever accepted, in a thousand short answers.
    for machine in [EVEN, Machine { answer: 8, extra: 2.0, wrong: 2.0, noise: 0.2, ..EVEN }] {
        let machine = Machine { answer: 8, ..machine };
        let mut world = World::new(machine, 1.0, 3);
        let mut lost_early = 0.0;
        while world.answers < 1000 {
            world.read(0.0);
            if world.answers == 50 {
                lost_early = world.time - world.plain;
            }
        }
        let lost = (world.time - world.plain) / 0.05;
        let share = lost / world.tokens;
        assert!(share < 0.02, "{lost} plain steps lost in {} tokens, {lost_early} s early", world.tokens);
        assert!(f64::from(world.engaged) < 0.2 * f64::from(world.answers), "{} engaged", world.engaged);
    }
}

#[test]
fn prices_are_what_rounds_take() {
    let mut world = World::new(Machine { wrong: 2.0, noise: 0.2, ..EVEN }, 1.0, 11);
    assert_eq!((world.policy.choose(), world.policy.plain_seconds()), (None, None), "plain steps come first");
    while world.tokens < 5000.0 {
        world.read(0.9);
    }
    let unit = world.policy.plain_seconds().expect("timed");
    assert!((unit - 0.05).abs() < 0.01, "a plain step takes {unit} s");
    let preferred = world.policy.preferred().expect("it pays");
    let (_, price) = world.policy.costs().find(|(plan, _)| *plan == preferred).expect("a plan of it");
    let real = world.costs.round(&preferred);
    assert!((price / real - 1.0).abs() < 0.1, "{price} for a round of {real}: {preferred:?}");
    let promised = costs(1.0).round(&preferred);
    assert!(price > 1.2 * promised, "not the {promised} that were promised");
}
