//! Surveys of scripted adapters: what is timed, what it costs, and what is made of it.

use redraft_decode::draft::{Costs, Extent, Plan, Policy, Probe, Survey, automatic_plans, standard_plans};

/// Seconds of a plain step where measuring is something to wait for, and where it is not.
const SLOW: f64 = 0.07;
const FAST: f64 = 0.002;

/// An adapter by what things cost there, in plain steps.
struct Adapter {
    verify: [f64; 6],
    drafter: f64,
    overhead: f64,
    /// Seconds of a plain step.
    unit: f64,
}

/// An adapter that is limited by arithmetic, as software adapters are.
const STEEP: Adapter =
    Adapter { verify: [1.0, 1.15, 1.5, 2.6, 4.4, 8.5], drafter: 0.06, overhead: 0.03, unit: SLOW };

impl Adapter {
    fn verify(&self, rows: u32) -> f64 {
        self.verify[rows.next_power_of_two().trailing_zeros() as usize]
    }

    fn steps(&self, probe: &Probe) -> f64 {
        match probe {
            Probe::Verify(rows) => self.verify(*rows),
            Probe::Draft(rows) => self.drafter * (1.0 + f64::from(*rows) / 8.0),
            Probe::Extend => 2.0 * self.drafter,
            Probe::Round(plan) => {
                let drafter = if plan.drafter { 2.0 * self.drafter } else { 0.0 };
                self.verify(plan.verified_rows()) + drafter + self.overhead
            }
        }
    }
}

/// What a survey timed.
struct Surveyed {
    survey: Survey,
    probes: Vec<Probe>,
    costs: Costs,
}

impl Surveyed {
    /// Runs of steps of so many rows.
    fn runs(&self, probe: &Probe) -> usize {
        self.probes.iter().filter(|timed| *timed == probe).count()
    }

    /// Undisturbed plain steps.
    fn nominal(&self, adapter: &Adapter) -> f64 {
        self.probes.iter().map(|probe| adapter.steps(probe)).sum()
    }

    fn sizes(&self) -> Vec<u32> {
        let rows = [1, 2, 4, 8, 16, 32];
        rows.into_iter().filter(|rows| self.runs(&Probe::Verify(*rows)) > 0).collect()
    }
}

/// A survey; `slower` says how many times as long as usual a run takes, by its number among those of its probe.
fn survey(
    extent: Extent,
    adapter: &Adapter,
    plans: &[Plan],
    mut slower: impl FnMut(&Probe, usize) -> f64,
) -> Surveyed {
    let drafts = plans.iter().any(|plan| plan.drafter);
    let round = if drafts { Plan::chain(1) } else { Plan::lookup(1) };
    let mut survey = Survey::new(extent, plans, round, drafts);
    let mut probes: Vec<Probe> = Vec::new();
    while let Some(probe) = survey.next_probe() {
        let before = probes.iter().filter(|timed| **timed == probe).count();
        survey.take(&probe, adapter.unit * adapter.steps(&probe) * slower(&probe, before));
        probes.push(probe);
        assert!(probes.len() < 200, "a survey ends");
    }
    let costs = survey.costs(48).expect("it measured");
    costs.check_measured(drafts).expect("costs that can be measured");
    Surveyed { survey, probes, costs }
}

fn even(_: &Probe, _: usize) -> f64 {
    1.0
}

fn plans() -> Vec<Plan> {
    automatic_plans(&Plan::tree(15, 5, 4, 4))
}

#[test]
fn a_slow_adapter_is_measured_in_twenty_steps() {
    let found = survey(Extent::Bounded, &STEEP, &plans(), even);
    assert!(found.survey.steps() <= Survey::BUDGET, "{} steps", found.survey.steps());
    assert!((found.survey.steps() - found.nominal(&STEEP)).abs() < 1e-9, "and they are counted");
    // A tree of 31 nodes emits seven tokens at most, and 32 rows would cost more.
    assert_eq!(found.sizes(), [1, 2, 4, 8, 16]);
    assert_eq!(found.runs(&Probe::Verify(16)), 1, "as dear as the smaller ones promise: {:?}", found.probes);
    assert_eq!(found.runs(&Probe::Verify(8)), 2, "dearer than promised, so looked at again");
    assert_eq!(found.runs(&Probe::Draft(4)), 2, "twice the same is enough");
    assert_eq!(found.runs(&Probe::Draft(16)), 0, "no plan has steps of so many rows");
    for rows in [1, 2, 4, 8, 16] {
        let (price, truth) = (found.costs.verify.at(rows), STEEP.verify(rows));
        assert!((price - truth).abs() < 1e-9, "{rows} rows: {price}, not {truth}");
    }
    assert!((found.costs.overhead - STEEP.overhead).abs() < 1e-9, "{}", found.costs.overhead);
    assert!(
        (found.costs.draft.at(4) - 0.09).abs() < 1e-9 && found.costs.draft.at(5) > found.costs.draft.at(4)
    );

    let whole = survey(Extent::Whole, &STEEP, &plans(), even);
    assert!(whole.survey.steps() > 3.0 * found.survey.steps(), "{} steps", whole.survey.steps());
    for probe in &whole.probes {
        assert_eq!(whole.runs(probe), 3, "{probe:?}");
    }
    assert_eq!(whole.sizes().len(), 6);
    assert_eq!(whole.costs.verify.at(32), 8.5, "to its end");
}

/// Large batches and plain steps of which no two take the same time use the budget up, and the first run of each drafter step
/// compiles a kernel.
#[test]
fn compiling_a_kernel_is_no_price_of_a_drafter_step() {
    let unsteady = |probe: &Probe, before: usize| match probe {
        Probe::Verify(_) => [1.0, 1.45, 1.9][before % 3],
        Probe::Draft(_) | Probe::Extend if before == 0 => 3000.0,
        _ => 1.0,
    };
    // As of a tiny model, whose steps all cost what their dispatches do.
    let tiny = Adapter { verify: [1.0, 1.1, 1.25, 1.8, 2.9, 5.0], drafter: 0.8, ..STEEP };
    let found = survey(Extent::Bounded, &tiny, &plans(), unsteady);
    for rows in [1, 2, 4] {
        let (price, truth) = (found.costs.draft.at(rows), 0.8 * (1.0 + f64::from(rows) / 8.0));
        assert!((price - truth).abs() < 1e-9, "{rows} rows: {price}, not {truth}");
        assert!(found.runs(&Probe::Draft(rows)) > 1, "{rows} rows");
    }
    assert!((found.costs.extend - 1.6).abs() < 1e-9, "{}", found.costs.extend);

    // A step that was disturbed in all its runs costs no more than a larger one.
    let disturbed = |probe: &Probe, _: usize| if *probe == Probe::Draft(2) { 50.0 } else { 1.0 };
    let found = survey(Extent::Bounded, &STEEP, &plans(), disturbed);
    assert_eq!(found.costs.draft.at(2), found.costs.draft.at(4), "{:?}", found.costs.draft);
}

#[test]
fn prices_beyond_the_last_size_are_upper_estimates() {
    let found = survey(Extent::Bounded, &STEEP, &plans(), even);
    // Twice what sixteen rows cost is more than the line: 4.4 + 16 · (4.4 − 2.6) / 8.
    assert!((found.costs.verify.at(32) - 8.8).abs() < 1e-9, "{:?}", found.costs.verify);
    assert!((found.costs.verify.at(24) - 6.6).abs() < 1e-9, "a tile of eight less: {:?}", found.costs.verify);
    // Of curves that bend up the line is dearer.
    let bent = Adapter { verify: [1.0, 1.2, 3.9, 12.0, 40.0, 90.0], ..STEEP };
    let found = survey(Extent::Bounded, &bent, &plans(), even);
    assert_eq!(found.sizes(), [1, 2, 4], "no plan wins eight steps back");
    assert!((found.costs.verify.at(8) - (3.9 + 4.0 * 2.7 / 2.0)).abs() < 1e-9, "{:?}", found.costs.verify);
}

#[test]
fn where_steps_take_no_time_everything_is_measured_well() {
    let flat = Adapter { verify: [1.0, 1.0, 1.05, 1.1, 1.3, 1.7], unit: FAST, ..STEEP };
    let found = survey(Extent::Bounded, &flat, &plans(), even);
    assert_eq!(found.sizes().len(), 6);
    for probe in &found.probes {
        assert_eq!(found.runs(probe), 5, "{probe:?}");
    }
    assert!(found.survey.seconds() < 0.5, "{} s", found.survey.seconds());
    // Without a drafter there is nothing of it to time, and sixteen rows are the most that a lookup has.
    let found = survey(Extent::Bounded, &flat, &standard_plans(&Plan::lookup(3)), even);
    assert!(found.probes.iter().all(|probe| matches!(probe, Probe::Verify(_) | Probe::Round(_))));
    assert_eq!(found.sizes(), [1, 2, 4, 8, 16]);
    assert_eq!((found.costs.extend, found.costs.draft.at(8)), (0.0, 0.0));
}

#[test]
fn where_nothing_can_win_nothing_more_is_measured() {
    // A row costs what a step costs: every plan loses whatever is accepted.
    let linear = Adapter { verify: [1.0, 2.05, 4.2, 8.5, 17.0, 34.0], ..STEEP };
    let found = survey(Extent::Bounded, &linear, &plans(), even);
    assert_eq!(found.sizes(), [1, 2]);
    assert_eq!(found.runs(&Probe::Verify(2)), 2, "one run alone is no reason to stop");
    assert!(found.survey.steps() < 12.0, "{} steps", found.survey.steps());
    for plan in plans() {
        let most = f64::from(plan.depth + 1);
        assert!(found.costs.round(&plan) > most, "{plan:?} for {}", found.costs.round(&plan));
    }
    let policy = Policy::new(&plans(), &found.costs).expect("good costs");
    assert_eq!(policy.preferred(), None, "plain decoding");
}

#[test]
fn first_runs_that_compile_kernels_change_nothing() {
    let expected = survey(Extent::Bounded, &STEEP, &plans(), even);
    let found = survey(Extent::Bounded, &STEEP, &plans(), |_, before| if before == 0 { 40.0 } else { 1.0 });
    // Sixteen rows may be left with one run, which the budget does not repeat; what matters first is right.
    for rows in [1, 2, 4, 8] {
        let (price, truth) = (found.costs.verify.at(rows), expected.costs.verify.at(rows));
        assert!((price - truth).abs() < 1e-9, "{rows} rows: {price}, not {truth}: {:?}", found.probes);
    }
    assert!((found.costs.extend - expected.costs.extend).abs() < 1e-9);
    assert!((found.costs.draft.at(4) - expected.costs.draft.at(4)).abs() < 1e-9);
    assert!(found.nominal(&STEEP) <= Survey::BUDGET + 1.5, "{} steps", found.nominal(&STEEP));
}

#[test]
fn what_is_disturbed_is_looked_at_again() {
    // The first run of one size takes twice as long.
    for rows in [1, 2, 4, 8] {
        let slower = |probe: &Probe, before: usize| match probe {
            Probe::Verify(m) if *m == rows && before == 0 => 2.0,
            _ => 1.0,
        };
        let found = survey(Extent::Bounded, &STEEP, &plans(), slower);
        assert!(found.runs(&Probe::Verify(rows)) > 1, "{rows} rows: {:?}", found.probes);
        let price = found.costs.verify.at(rows);
        assert!((price - STEEP.verify(rows)).abs() < 1e-9, "{rows} rows: {price}");
    }
    // Both runs of a plain step: that two rows take less gives it away.
    let slower = |probe: &Probe, before: usize| match probe {
        Probe::Verify(1) if before < 2 => 1.6,
        _ => 1.0,
    };
    let found = survey(Extent::Bounded, &STEEP, &plans(), slower);
    assert!(found.runs(&Probe::Verify(1)) == 3, "{:?}", found.probes);
    assert!((found.costs.verify.at(8) - 2.6).abs() < 1e-9, "{:?}", found.costs.verify);
}

/// The `SplitMix64` generator.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / 9_007_199_254_740_992.0
    }
}

/// Adapters of all kinds on which twice the rows cost at most twice as much, some runs disturbed: the bound holds, no
/// unmeasured price is too low, and every size below the last that was measured, too.
#[test]
fn the_bound_holds_on_any_adapter() {
    let mut random = Random(5);
    let (mut measured, mut most, mut over) = ([0; 7], 0.0f64, 0);
    for _ in 0..3000 {
        let mut adapter = Adapter { drafter: 0.01 + 0.1 * random.unit(), ..STEEP };
        let bend = random.unit();
        for at in 1..6 {
            adapter.verify[at] = adapter.verify[at - 1] * (1.0 + random.unit() * bend);
        }
        let even = survey(Extent::Bounded, &adapter, &plans(), even);
        let sizes = even.sizes();
        measured[sizes.len()] += 1;
        most = most.max(even.survey.steps());
        assert!(even.survey.steps() <= Survey::BUDGET, "{} steps: {:?}", even.survey.steps(), adapter.verify);
        for rows in [1, 2, 4, 8, 16, 32] {
            let (price, truth) = (even.costs.verify.at(rows), adapter.verify(rows));
            let known = sizes.contains(&rows);
            assert!(price > truth - 1e-9, "{rows} rows for {price}: {:?}", adapter.verify);
            assert!(!known || price < truth + 1e-9, "{rows} rows for {price}: {:?}", adapter.verify);
        }
        // Plans that are left out for their size lose even where they are right throughout, or the budget was spent.
        for plan in plans().iter().filter(|plan| !sizes.contains(&plan.verified_rows())) {
            let loses = even.costs.verify.at(plan.verified_rows()) >= f64::from(plan.depth + 1);
            assert!(loses || even.survey.steps() > 8.0, "{plan:?}: {:?}", adapter.verify);
        }
        let noise = |_: &Probe, _: usize| {
            let disturbed = if random.unit() < 0.1 { 3.0 } else { 1.0 };
            disturbed * (1.0 + 0.2 * random.unit())
        };
        let noisy = survey(Extent::Bounded, &adapter, &plans(), noise);
        // In the plain steps that the survey saw: it cannot know better.
        let steps = noisy.nominal(&adapter) * adapter.unit * noisy.survey.steps() / noisy.survey.seconds();
        over += u32::from(steps > 1.1 * Survey::BUDGET);
        assert!(steps <= 2.0 * Survey::BUDGET, "{steps} steps: {:?}", adapter.verify);
    }
    assert!(measured[4..].iter().all(|count| *count > 20), "adapters of all kinds: {measured:?}");
    assert!(most > 15.0, "{most} steps at most");
    // Where plain and larger steps were disturbed alike, it learns late what a plain step is.
    assert!(over <= 30, "{over} of 3000 noisy surveys went over the budget");
}

#[test]
fn a_survey_of_nothing_has_no_costs() {
    let survey = Survey::new(Extent::Bounded, &plans(), Plan::chain(1), true);
    assert_eq!((survey.seconds(), survey.steps()), (0.0, 0.0));
    assert_eq!(survey.next_probe(), Some(Probe::Verify(1)));
    assert!(survey.costs(48).is_err(), "nothing was measured");
}
