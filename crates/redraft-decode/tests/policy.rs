//! The policy against simulated texts: a text accepts each depth of a draft with a chance of its own.

use redraft_decode::draft::{Costs, Curve, MOST_SLOWER, OPENING, Observation, Plan, Policy, standard_plans};

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

/// Chance that a depth is accepted. Trees offer more at each depth, the more rows they have.
fn chance(text: f64, plan: &Plan) -> f64 {
    let spare = f64::from(plan.nodes) / f64::from(plan.depth);
    1.0 - (1.0 - text).powf(1.0 + 0.25 * spare.ln())
}

/// Tokens a round, on average.
fn tau(text: f64, plan: &Plan) -> f64 {
    (0..=plan.depth).map(|depth| chance(text, plan).powf(f64::from(depth))).sum()
}

/// A cost curve that rises slowly; `scale` multiplies all that speculation costs.
fn costs(scale: f64) -> Costs {
    let verify = [(1, 1.0), (2, 1.05), (4, 1.1), (8, 1.25), (16, 1.6), (32, 2.6)];
    let verify = verify.map(|(rows, cost)| (rows, 1.0 + (cost - 1.0) * scale)).to_vec();
    Costs {
        verify: Curve::new(verify).unwrap(),
        draft: Curve::new(vec![(1, 0.08 * scale), (16, 0.1 * scale)]).unwrap(),
        extend: 0.12 * scale,
        overhead: 0.05 * scale,
        catch_up: 0.0,
        catch_up_most: 0,
    }
}

fn plans() -> Vec<Plan> {
    standard_plans(&Plan::default())
}

/// The fastest choice for a text, and its speed.
fn best(text: f64, costs: &Costs) -> (Option<Plan>, f64) {
    let speeds = plans().into_iter().map(|plan| (Some(plan), tau(text, &plan) / costs.round(&plan)));
    speeds.fold((None, 1.0), |best, next| if next.1 > best.1 { next } else { best })
}

struct World {
    policy: Policy,
    costs: Costs,
    random: Random,
    /// Tokens decoded plainly since the drafter ran.
    missed: u32,
    tokens: f64,
    cost: f64,
}

impl World {
    fn new(costs: Costs, seed: u64) -> Self {
        let policy = Policy::new(&plans(), &costs).unwrap();
        Self { policy, costs, random: Random(seed), missed: 0, tokens: 0.0, cost: 0.0 }
    }

    /// One round over `text`.
    fn round(&mut self, text: f64) {
        let mut random = Random(self.random.next());
        self.act(|_, plan| {
            let tries = (0..plan.depth.min(plan.nodes)).take_while(|_| random.unit() < chance(text, plan));
            u32::try_from(tries.count()).unwrap()
        });
    }

    /// One round of which `accepted` says how many nodes are.
    fn act(&mut self, accepted: impl FnOnce(&Policy, &Plan) -> u32) {
        let Some(plan) = self.policy.choose() else {
            self.policy.observe_plain(1);
            self.missed += 1;
            self.tokens += 1.0;
            self.cost += 1.0;
            return;
        };
        let path: Vec<u32> = (0..=accepted(&self.policy, &plan)).collect();
        self.policy.observe(&plan, &Observation { path: &path, stopped: false });
        self.tokens += path.len() as f64;
        self.cost += self.costs.round(&plan);
        self.cost += self.costs.catch_up * f64::from(self.missed.min(self.costs.catch_up_most));
        self.missed = 0;
    }

    /// Rounds until `tokens` more tokens are written. Returns the speed over them and the share of rounds that
    /// preferred a choice less than a twentieth slower than the best.
    fn write(&mut self, text: f64, tokens: f64) -> (f64, f64) {
        let (tokens0, cost0) = (self.tokens, self.cost);
        let (_, fastest) = best(text, &self.costs);
        let (mut good, mut rounds) = (0.0, 0.0);
        while self.tokens < tokens0 + tokens {
            let preferred = self.policy.preferred();
            let speed = preferred.map_or(1.0, |plan| tau(text, &plan) / self.costs.round(&plan));
            good += f64::from(speed > fastest * 0.95);
            rounds += 1.0;
            self.round(text);
        }
        ((self.tokens - tokens0) / (self.cost - cost0), good / rounds)
    }
}

const SCALES: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
const TEXTS: [f64; 9] = [0.05, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97];

#[test]
fn the_best_plan_is_found_and_kept() {
    let (mut sum, mut count, mut kinds) = (0.0, 0.0, std::collections::BTreeSet::new());
    for (scale, text) in SCALES.into_iter().flat_map(|scale| TEXTS.map(|text| (scale, text))) {
        let (plan, fastest) = best(text, &costs(scale));
        kinds.insert(plan.map(|plan| plan.verified_rows()));
        for seed in 0..4 {
            let mut world = World::new(costs(scale), seed);
            let (early, _) = world.write(text, 1000.0);
            let (late, good) = world.write(text, 10_000.0);
            let what = format!("costs {scale}, text {text}, seed {seed}, best {plan:?}");
            assert!(early > 0.8 * fastest, "{what}: {early} of {fastest} at first");
            assert!(late > 0.93 * fastest, "{what}: {late} of {fastest} later");
            assert!(world.policy.history().len() <= 25, "{what}: flaps");
            sum += good;
            count += 1.0;
            if plan.is_none() {
                let all = world.tokens / world.cost;
                assert!(early > 0.98 && all > 0.98, "{what}: {early} and {all}, slower than plain");
            }
        }
    }
    assert!(kinds.len() >= 5, "plain decoding and batches of several sizes are best somewhere: {kinds:?}");
    assert!(sum / count > 0.8, "within a twentieth of the best in {} of the time", sum / count);
}

#[test]
fn nothing_pays() {
    for (scale, most) in [(0.5, 1), (2.0, 1), (30.0, 1), (2.0, 2)] {
        let mut world = World::new(costs(scale), 1);
        // A plan of one node at these costs may pay when it is always accepted; not when that is every other time.
        for round in 0..3000 {
            world.act(|_, _| if most == 2 { round % 2 } else { 0 });
            let allowed = world.tokens * 1.02 + OPENING;
            assert!(world.cost <= allowed, "costs {scale}: {} steps for {} tokens", world.cost, world.tokens);
        }
        assert_eq!(world.policy.preferred(), None, "costs {scale}, accepted below {most}");
        assert!(world.cost < world.tokens * 1.02, "costs {scale}: {} for {}", world.cost, world.tokens);
    }
}

#[test]
fn an_adversary_cannot_make_it_slower() {
    let (mut least, mut drafted) = (f64::INFINITY, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let scale = SCALES[(random.next() % 4) as usize];
        let catch_up = if seed % 2 == 0 { 0.0 } else { 0.02 };
        let mut world = World::new(Costs { catch_up, catch_up_most: 100, ..costs(scale) }, seed);
        let kind = random.next() % 4;
        let mut mood = 0.0;
        for _ in 0..4000 {
            if random.unit() < 0.01 {
                mood = random.unit();
            }
            drafted += u32::from(world.policy.choose().is_some());
            world.act(|policy, plan| match kind {
                // Trials shine, and what they lead to disappoints.
                0 => {
                    if policy.preferred() == Some(*plan) {
                        0
                    } else {
                        plan.depth
                    }
                }
                // Good until it is trusted.
                1 if policy.speeds().all(|(_, speed)| speed < 1.5) => plan.depth,
                1 => 0,
                // Changing texts.
                2 => {
                    if random.unit() < mood {
                        plan.depth
                    } else {
                        0
                    }
                }
                _ => u32::try_from(random.next() % u64::from(plan.depth + 1)).unwrap(),
            });
            let left = world.tokens * (1.0 + MOST_SLOWER) + OPENING - world.cost;
            assert!(left > -1e-6, "seed {seed}, kind {kind}: {} for {}", world.cost, world.tokens);
            least = least.min(left);
        }
    }
    assert!(least < 2.0, "the bound was tried: {least} steps left");
    assert!(drafted > 50_000, "and drafts ran: {drafted}");
}

#[test]
fn the_choice_follows_the_text() {
    for (scale, seed) in SCALES.into_iter().flat_map(|scale| [0, 1, 2].map(|seed| (scale, seed))) {
        let mut world = World::new(costs(scale), seed);
        for part in 0..6 {
            let text = if part % 2 == 0 { 0.93 } else { 0.05 };
            let (plan, fastest) = best(text, &costs(scale));
            let what = format!("costs {scale}, seed {seed}, part {part}");
            world.write(text, 600.0);
            assert_eq!(world.policy.preferred().is_some(), plan.is_some(), "{what}: settled");
            let (speed, _) = world.write(text, 2400.0);
            assert!(speed > 0.8 * fastest, "{what}: {speed} of {fastest}");
        }
        assert!(world.policy.history().len() >= 5, "a change for each: {:?}", world.policy.history());
        assert!(world.policy.history().len() < 64, "and few more: {:?}", world.policy.history());
    }
}

#[test]
fn what_nobody_hopes_for_is_tried_too() {
    for seed in 0..4 {
        let mut world = World::new(costs(4.0), seed);
        // Too dear by any guess; in this text it pays.
        let plan = Plan::chain(7);
        world.policy = Policy::new(&[plan], &costs(4.0)).unwrap();
        assert_eq!(world.policy.choose(), None, "not at first");
        assert!(tau(0.97, &plan) > 1.3 * costs(4.0).round(&plan), "it would pay");
        while world.tokens < 6000.0 && world.policy.preferred().is_none() {
            world.round(0.97);
        }
        assert_eq!(world.policy.preferred(), Some(plan), "seed {seed}: found after {} tokens", world.tokens);
    }
}

#[test]
fn a_trial_goes_on_while_it_gains() {
    for (accepted, rounds) in [(0, 1), (1, 8)] {
        let mut policy = Policy::new(&plans(), &costs(2.0)).unwrap();
        while let Some(plan) = policy.preferred() {
            policy.observe(&plan, &Observation { path: &[0], stopped: false });
        }
        // Enough is earned for many rounds.
        policy.observe_plain(5000);
        let plan = policy.choose().unwrap();
        assert_eq!(policy.preferred(), None, "{plan:?} is a trial");
        let mut count = 0;
        while policy.choose() == Some(plan) && policy.preferred().is_none() && count < 20 {
            count += 1;
            let path = if accepted == 0 { &[0][..] } else { &[0, 1, 2] };
            policy.observe(&plan, &Observation { path, stopped: false });
        }
        assert!(count >= 1 && count <= rounds, "{count} rounds of {plan:?}");
        assert_eq!(policy.preferred().is_some(), accepted > 0, "taken if it gained");
    }
}

#[test]
fn choices_are_a_function_of_what_was_observed() {
    let run = || {
        let mut world = World::new(costs(1.0), 5);
        let mut choices = Vec::new();
        for part in 0..40 {
            world.write([0.9, 0.1, 0.6][part % 3], 100.0);
            choices.push((world.policy.choose(), world.policy.preferred()));
        }
        (choices, world.policy.history().to_vec())
    };
    assert_eq!(run(), run(), "twice the same");
    let (choices, history) = run();
    assert!(choices.iter().any(|choice| choice.0 != choices[0].0), "choices change");
    for pair in history.windows(2) {
        assert_eq!(pair[0].to, pair[1].from, "changes follow one another: {pair:?}");
        assert!(pair[0].to != pair[0].from && pair[0].tokens <= pair[1].tokens, "in order: {pair:?}");
    }
}

#[test]
fn what_says_nothing_is_not_counted() {
    let mut policy = Policy::new(&plans(), &costs(1.0)).unwrap();
    let speeds = |policy: &Policy| policy.speeds().collect::<Vec<_>>();
    let before = speeds(&policy);
    policy.observe(&Plan::lookup(9), &Observation { path: &[0, 1, 2], stopped: false });
    assert_eq!(speeds(&policy), before, "an unknown plan");
    let chain = Plan::chain(3);
    policy.observe(&chain, &Observation { path: &[], stopped: false });
    assert_eq!(speeds(&policy), before, "nothing emitted");
    policy.observe(&chain, &Observation { path: &[0], stopped: true });
    assert_eq!(speeds(&policy), before, "the answer ended");
    policy.observe(&chain, &Observation { path: &[0], stopped: false });
    let slower = speeds(&policy).iter().zip(&before).filter(|(now, before)| now.1 < before.1).count();
    assert_eq!(slower, before.len(), "a bad round is bad news for all");
}

#[test]
fn new_costs_change_the_choice() {
    let mut world = World::new(costs(0.5), 2);
    world.write(0.6, 2000.0);
    assert!(world.policy.choose().is_some(), "cheap drafts pay");
    world.policy.set_costs(&costs(50.0)).unwrap();
    assert_eq!((world.policy.choose(), world.policy.preferred()), (None, None), "dear ones do not");
    assert!(Policy::new(&[Plan::chain(0)], &costs(1.0)).is_err(), "a bad plan");
    assert!(Policy::new(&plans(), &Costs { extend: f64::NAN, ..costs(1.0) }).is_err(), "bad costs");
    let known = world.policy.speeds().next().unwrap();
    world.policy.set_plans(&[known.0, Plan::lookup(5)], &costs(50.0)).unwrap();
    assert_eq!(world.policy.speeds().next().unwrap(), known, "what is known of a plan that stays");
    assert_eq!(world.policy.speeds().count(), 2, "two plans");
    assert!(world.policy.set_plans(&[Plan::chain(0)], &costs(1.0)).is_err(), "a bad plan");
    assert_eq!(world.policy.speeds().count(), 2, "changes nothing");
    let mut alone = Policy::new(&[], &costs(1.0)).unwrap();
    alone.observe_plain(100);
    assert_eq!(alone.choose(), None, "plain decoding alone");
}
