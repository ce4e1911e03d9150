//! How far a figure may be trusted: prompts are drawn again, with replacement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counts::Run;
use crate::random::Random;

/// Resamples of an interval.
const RESAMPLES: usize = 10_000;

/// A figure with the middle 95 % of its resamples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// On the texts as they are.
    pub value: f64,
    /// 2.5 % of the resamples are below.
    pub low: f64,
    /// 2.5 % of the resamples are above.
    pub high: f64,
}

/// A prompt's emitted tokens and rounds under each of some plans.
type Sums = Vec<[f64; 2]>;

/// τ, resampled by prompt; `None` without a round.
#[must_use]
pub fn tau(run: &Run, seed: u64) -> Option<Interval> {
    interval(&by_prompt(&[run]), seed, |sums| sums[0][0] / sums[0][1])
}

/// How much larger τ is under `new` than under `old`, in percent, both on the same resampled prompts; `None` unless both
/// ran on the same texts and had rounds.
#[must_use]
pub fn gain(new: &Run, old: &Run, seed: u64) -> Option<Interval> {
    let ids = |run: &Run| run.texts.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    if ids(new) != ids(old) {
        return None;
    }
    let percent = |sums: &Sums| 100.0 * (sums[0][0] / sums[0][1] * sums[1][1] / sums[1][0] - 1.0);
    interval(&by_prompt(&[new, old]), seed, percent)
}

fn by_prompt(runs: &[&Run]) -> Vec<Sums> {
    let mut prompts: BTreeMap<(String, u64), Sums> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        for (id, counts) in &run.texts {
            let sums =
                prompts.entry((id.set.clone(), id.prompt_id)).or_insert_with(|| vec![[0.0; 2]; runs.len()]);
            sums[index][0] += counts.emitted as f64;
            sums[index][1] += counts.rounds as f64;
        }
    }
    prompts.into_values().collect()
}

fn interval(prompts: &[Sums], seed: u64, figure: impl Fn(&Sums) -> f64) -> Option<Interval> {
    let plans = prompts.first()?.len();
    let total = |chosen: &mut dyn Iterator<Item = &Sums>| {
        chosen.fold(vec![[0.0; 2]; plans], |mut sum, prompt| {
            for (sum, part) in sum.iter_mut().zip(prompt) {
                sum[0] += part[0];
                sum[1] += part[1];
            }
            sum
        })
    };
    let value = figure(&total(&mut prompts.iter()));
    let mut random = Random::new(seed);
    let mut figures: Vec<f64> = (0..RESAMPLES)
        .map(|_| figure(&total(&mut (0..prompts.len()).map(|_| &prompts[random.below(prompts.len())]))))
        .filter(|figure| figure.is_finite())
        .collect();
    figures.sort_by(f64::total_cmp);
    let at = |numerator: usize| figures.get(figures.len().saturating_sub(1) * numerator / 1000).copied();
    value.is_finite().then_some(Interval { value, low: at(25)?, high: at(975)? })
}

#[cfg(test)]
mod tests {
    use super::super::{Counts, TextId};
    use super::*;

    fn run(texts: &[(u64, u64, u64)]) -> Run {
        let text = |&(prompt_id, emitted, rounds): &(u64, u64, u64)| {
            (TextId { set: "s".to_owned(), prompt_id }, Counts { emitted, rounds, ..Counts::default() })
        };
        Run { texts: texts.iter().map(text).collect() }
    }

    #[test]
    fn intervals_hold_the_figure_and_do_not_depend_on_chance() {
        let texts: Vec<_> = (0..50).map(|id| (id, 100 + 7 * (id % 11), 50 + 3 * (id % 5))).collect();
        let run = run(&texts);
        let found = tau(&run, 3).unwrap();
        assert_eq!(Some(found), tau(&run, 3), "seeded");
        assert!(found.low < found.value && found.value < found.high, "{found:?}");
        let total = run.total();
        assert_eq!(found.value, total.emitted as f64 / total.rounds as f64, "τ itself");
        // By the delta method, with ratios r_i = emitted − τ·rounds.
        let residuals = texts.iter().map(|&(_, e, r)| (e as f64 - found.value * r as f64).powi(2));
        let error = residuals.sum::<f64>().sqrt() / total.rounds as f64;
        let half = (found.high - found.low) / 2.0;
        assert!((half / (1.96 * error) - 1.0).abs() < 0.1, "{half} and {}", 1.96 * error);
    }

    #[test]
    fn paired_differences_are_narrower_than_the_figures() {
        let old: Vec<_> = (0..40).map(|id| (id, 100 + 20 * (id % 7), 50)).collect();
        let new: Vec<_> =
            old.iter().map(|&(id, emitted, rounds)| (id, emitted + emitted / 10, rounds)).collect();
        let found = gain(&run(&new), &run(&old), 1).unwrap();
        assert!((found.value - 10.0).abs() < 0.5, "{found:?}");
        assert!(found.high - found.low < 0.5, "the spread of prompts cancels: {found:?}");
        assert_eq!(gain(&run(&new[1..]), &run(&old), 1), None, "other texts");
        assert_eq!(tau(&run(&[]), 1), None, "no texts");
    }

    #[test]
    fn answers_to_one_prompt_are_drawn_together() {
        let spread: Vec<_> = (0..30).map(|id| (id, 60 + 40 * (id % 2), 40)).collect();
        let twice: Vec<_> = spread.iter().flat_map(|&text| [text, text]).collect();
        let (once, twice) = (tau(&run(&spread), 1).unwrap(), tau(&run(&twice), 1).unwrap());
        assert_eq!((once.low, once.high), (twice.low, twice.high), "a second answer is no second prompt");
    }
}
