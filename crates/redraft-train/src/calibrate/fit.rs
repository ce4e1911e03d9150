//! From counts to chances, smoothed.

use redraft_decode::draft::Tables;
use serde::{Deserialize, Serialize};

use super::samples::{Cell, LookupSamples, Samples};
use crate::error::TrainError;

/// Bins of unsure that are averaged with their neighbours on each side.
const NEIGHBOURS: usize = 3;
/// Least chance of a gain: its log must be finite.
const LEAST_GAIN: f64 = 1e-4;

/// How counts are smoothed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitOptions {
    /// Samples that what is known of the wider class counts for.
    pub strength: f64,
    /// Share of the positions on the true way that the gate takes for hesitant.
    pub hesitant: f64,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self { strength: 16.0, hesitant: 0.2 }
    }
}

impl FitOptions {
    /// Checks both numbers.
    ///
    /// # Errors
    /// [`TrainError::Setting`] names the one that is out of range.
    pub fn check(&self) -> Result<(), TrainError> {
        if !(self.strength > 0.0 && self.strength.is_finite()) {
            return Err(TrainError::setting("--strength", "a number above 0", self.strength));
        }
        if !(0.0..=1.0).contains(&self.hesitant) {
            return Err(TrainError::setting("--hesitant", "0 to 1", self.hesitant));
        }
        Ok(())
    }
}

/// Tables of edges, gains, offset and threshold; the lookup's are left at their defaults.
///
/// An edge is the log of the chance that a child is right: counted by depth, rank and bin of −ln q where there are
/// samples, backing off to (rank, bin), to the bin, and to q itself, falling with the bin. A gain is the log of the
/// chance that a second pass has the token where the first pass's children do not.
#[must_use]
pub fn fit(samples: &Samples, options: &FitOptions) -> Tables {
    let mut tables = Tables { calibrated: true, ..Tables::default() };
    for (edges, cells) in tables.edges.iter_mut().zip(samples.edges.iter()) {
        let by_q: Vec<f64> = (0..32_u8).map(|bin| (-(f64::from(bin) + 0.5) / 4.0).exp()).collect();
        let by_bin = falling(&sum(cells.as_flattened().iter()), &by_q, options.strength);
        for rank in 0..4 {
            let by_rank = falling(&sum(cells.iter().map(|ranks| &ranks[rank])), &by_bin, options.strength);
            for (edges, ranks) in edges.iter_mut().zip(cells) {
                let chances = falling(&ranks[rank], &by_rank, options.strength);
                edges[rank].iter_mut().zip(chances).for_each(|(edge, chance)| *edge = ln(chance));
            }
        }
    }
    fit_gains(samples, options, &mut tables);
    if samples.refined.all > 0.0 {
        // As many right as the probabilities promise; half a sample keeps the logarithm finite.
        let offset = ((samples.refined.right + 0.5) / (samples.refined.all + 0.5)).ln();
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the precision of the file")]
        let offset = offset as f32;
        tables.refined_offset = offset;
    }
    let mut unsure = samples.unsure.clone();
    unsure.sort_by(|a, b| b.total_cmp(a));
    #[expect(clippy::cast_possible_truncation, reason = "an index")]
    let place = (unsure.len() as f64 * options.hesitant) as usize;
    if let Some(&threshold) = unsure.get(place.min(unsure.len().saturating_sub(1))) {
        tables.gate_threshold = threshold.clamp(0.0, 1.0);
    }
    tables
}

fn fit_gains(samples: &Samples, options: &FitOptions, tables: &mut Tables) {
    let middle = |bin: usize| (bin as f64 + 0.5) / 64.0;
    let pooled: Vec<Cell> = sum(samples.gains.iter());
    // Before any sample of a bin: as much as it is unsure, times what that has been worth over all.
    let hoped: f64 = pooled.iter().enumerate().map(|(bin, cell)| middle(bin) * cell.all).sum();
    let right: f64 = pooled.iter().map(|cell| cell.right).sum();
    let worth = (right + 0.5) / (hoped + 1.0);
    let smooth = |cells: &[Cell], prior: &[f64]| -> Vec<f64> {
        (0..cells.len())
            .map(|bin| {
                let (mut all, mut right) = (options.strength, options.strength * prior[bin]);
                for (near, cell) in cells.iter().enumerate() {
                    let distance = near.abs_diff(bin);
                    if distance <= NEIGHBOURS {
                        let share = 1.0 - distance as f64 / (NEIGHBOURS + 1) as f64;
                        all += share * cell.all;
                        right += share * cell.right;
                    }
                }
                right / all
            })
            .collect()
    };
    let prior: Vec<f64> = (0..64).map(|bin| (worth * middle(bin)).min(1.0)).collect();
    let by_bin = smooth(&pooled, &prior);
    for (gains, cells) in tables.log_gain.iter_mut().zip(&samples.gains) {
        let chances = smooth(cells, &by_bin);
        gains.iter_mut().zip(chances).for_each(|(gain, chance)| *gain = ln(chance.max(LEAST_GAIN)));
    }
}

/// Edges of looked-up tokens by the length of the match: rising with it, backing off to n / (n + 1).
#[must_use]
pub fn fit_lookup(samples: &LookupSamples, options: &FitOptions) -> [f32; 17] {
    let mut edges = Tables::default().lookup_edge;
    // Shorter matches are not followed.
    let lengths = redraft_decode::draft::MIN_MATCH as usize..17;
    let cells: Vec<Cell> = lengths.clone().rev().map(|length| samples.cells[length]).collect();
    let prior: Vec<f64> = lengths.clone().rev().map(|n| n as f64 / (n as f64 + 1.0)).collect();
    for (length, chance) in lengths.rev().zip(falling(&cells, &prior, options.strength)) {
        edges[length] = ln(chance);
    }
    edges
}

/// Chances of cells in a row, each drawn to its prior as by `strength` samples, and made to fall: neighbours that rise
/// are pooled (isotonic regression).
fn falling(cells: &[Cell], prior: &[f64], strength: f64) -> Vec<f64> {
    // Blocks of (right, all, cells).
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    for (cell, prior) in cells.iter().zip(prior) {
        let mut block = (cell.right + strength * prior, cell.all + strength, 1);
        while let Some(&(right, all, count)) =
            blocks.last().filter(|last| last.0 * block.1 < block.0 * last.1)
        {
            blocks.pop();
            block = (block.0 + right, block.1 + all, block.2 + count);
        }
        blocks.push(block);
    }
    blocks.into_iter().flat_map(|(right, all, count)| std::iter::repeat_n(right / all, count)).collect()
}

/// Cells of rows of one length, added up.
fn sum<R: AsRef<[Cell]>>(rows: impl Iterator<Item = R>) -> Vec<Cell> {
    rows.fold(Vec::new(), |mut sum, row| {
        let row = row.as_ref();
        sum.resize(row.len(), Cell::default());
        for (sum, cell) in sum.iter_mut().zip(row) {
            sum.all += cell.all;
            sum.right += cell.right;
        }
        sum
    })
}

#[expect(clippy::cast_possible_truncation, reason = "rounded to the precision of the file")]
fn ln(chance: f64) -> f32 {
    chance.ln().min(0.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use redraft_testing::Prng;

    /// Samples whose chances are known: a child of a bin is right with 0.9 · (1 − bin / 32) / (1 + rank), at depth 2 with
    /// half of that, refined with a third.
    fn chance(refined: bool, depth: u32, rank: u32, bin: u32) -> f64 {
        let base = 0.9 * (1.0 - f64::from(bin) / 32.0) / f64::from(1 + rank);
        base * if depth == 2 { 0.5 } else { 1.0 } / if refined { 3.0 } else { 1.0 }
    }

    fn samples(each: usize) -> Samples {
        let (mut samples, mut prng) = (Samples::default(), Prng::new(4));
        for refined in [false, true] {
            for depth in 1..=3 {
                for rank in 0..3 {
                    for bin in 0..32 {
                        let log_q = -(bin as f32 + 0.3) / 4.0;
                        for _ in 0..each {
                            let drawn = prng.below(1 << 20) as f64 / f64::from(1 << 20);
                            let right = drawn < chance(refined, depth, rank, bin);
                            samples.add_edge(refined, depth, rank, log_q, right);
                        }
                    }
                }
            }
        }
        samples
    }

    #[test]
    fn known_chances_are_found() {
        let tables = fit(&samples(4000), &FitOptions::default());
        tables.validate().unwrap();
        assert!(tables.calibrated, "says so");
        for (refined, depth, rank, bin) in [
            (false, 1, 0, 0),
            (false, 1, 2, 9),
            (false, 2, 0, 4),
            (false, 3, 1, 20),
            (true, 1, 0, 3),
            (true, 2, 1, 8),
        ] {
            let log_q = -(bin as f32 + 0.5) / 4.0;
            let (found, wanted) =
                (tables.edge(log_q, rank, depth, refined).exp(), chance(refined, depth, rank, bin));
            let error = (wanted * (1.0 - wanted) / 4000.0).sqrt();
            let off = (f64::from(found) - wanted).abs();
            assert!(off < 5.0 * error + 0.005, "{refined} {depth} {rank} {bin}: {found}, not {wanted}");
        }
    }

    #[test]
    fn what_was_never_seen_is_that_of_the_wider_class() {
        let tables = fit(&samples(4000), &FitOptions::default());
        // Depth 7 has no samples: the mean over depths. Rank 3 has none: the mean over ranks.
        let mean = |rank, bin| (1..=3).map(|depth| chance(false, depth, rank, bin)).sum::<f64>() / 3.0;
        let found = f64::from(tables.edge(-1.125, 1, 7, false).exp());
        assert!((found - mean(1, 4)).abs() < 0.01, "depth 7: {found}, not {}", mean(1, 4));
        let found = f64::from(tables.edge(-1.125, 3, 7, false).exp());
        let wanted = (0..3).map(|rank| mean(rank, 4)).sum::<f64>() / 3.0;
        assert!((found - wanted).abs() < 0.01, "rank 3: {found}, not {wanted}");
        let nothing = fit(&Samples::default(), &FitOptions::default());
        for (bin, edge) in nothing.edges[0][0][0].iter().enumerate() {
            assert!(
                (edge + (bin as f32 + 0.5) / 4.0).abs() < 1e-5,
                "without samples q itself: bin {bin}, {edge}"
            );
        }
    }

    #[test]
    fn edges_fall_with_the_bin_however_few_the_samples() {
        for each in [0, 1, 3, 20] {
            let tables = fit(&samples(each), &FitOptions { strength: 1.0, ..FitOptions::default() });
            tables.validate().unwrap();
            for bins in tables.edges.as_flattened().as_flattened() {
                assert!(bins.is_sorted_by(|a, b| a >= b), "{each} samples: {bins:?}");
                assert!(bins.iter().all(|edge| *edge < 0.0), "no certainty from {each} samples");
            }
        }
    }

    #[test]
    fn gains_follow_the_rescues() {
        let (mut samples, mut prng) = (Samples::default(), Prng::new(9));
        // Rescues grow with unsure, and are twice as likely at the root.
        let chance = |depth: u32, unsure: f64| 0.3 * unsure / if depth == 0 { 1.0 } else { 2.0 };
        for _ in 0..200_000 {
            let depth = u32::from(prng.below(2) == 1);
            let unsure = prng.below(1000) as f32 / 1000.0;
            let drawn = prng.below(1 << 20) as f64 / f64::from(1 << 20);
            samples.add_gain(depth, unsure, drawn < chance(depth, f64::from(unsure)));
        }
        let tables = fit(&samples, &FitOptions::default());
        for depth in [0, 1] {
            for unsure in [0.1_f32, 0.4, 0.9] {
                let found = f64::from(tables.gain(depth, unsure).exp());
                let wanted = chance(depth, f64::from(unsure));
                assert!((found / wanted - 1.0).abs() < 0.25, "{depth}, {unsure}: {found}, not {wanted}");
            }
        }
        let unseen = f64::from(tables.gain(5, 0.4).exp());
        assert!((unseen / 0.09 - 1.0).abs() < 0.15, "the mean over depths: {unseen}");
    }

    #[test]
    fn thresholds_and_offsets_by_hand() {
        let mut samples = Samples::default();
        (0..1000_u16).for_each(|at| samples.add_unsure(f32::from(at) / 1000.0));
        // A thousand candidates of a tenth each, of which 20 are right: five times fewer.
        (0..1000).for_each(|at| samples.add_edge(true, 1, 0, 0.1_f32.ln(), at % 50 == 0));
        let tables = fit(&samples, &FitOptions { hesitant: 0.2, ..FitOptions::default() });
        assert!((tables.gate_threshold - 0.8).abs() < 0.002, "a fifth is above: {}", tables.gate_threshold);
        let above = samples.unsure.iter().filter(|&&unsure| unsure >= tables.gate_threshold).count();
        assert!((195..=205).contains(&above), "{above} of 1000");
        assert!((tables.refined_offset - 0.2_f32.ln()).abs() < 0.03, "offset {}", tables.refined_offset);
        for bad in [-0.1, 1.1, f64::NAN] {
            assert!(FitOptions { hesitant: bad, ..FitOptions::default() }.check().is_err(), "{bad}");
        }
        assert!(FitOptions { strength: 0.0, ..FitOptions::default() }.check().is_err(), "no strength");
    }

    #[test]
    fn longer_matches_are_worth_no_less() {
        let mut samples = LookupSamples::default();
        let options = FitOptions::default();
        assert_eq!(fit_lookup(&samples, &options)[0], Tables::default().lookup_edge[0], "not followed");
        let prior = fit_lookup(&samples, &options);
        assert!((prior[4].exp() - 0.8).abs() < 1e-5, "without samples n / (n + 1)");
        samples.cells[2] = Cell { all: 1000.0, right: 300.0 };
        samples.cells[3] = Cell { all: 1000.0, right: 200.0 };
        samples.cells[8] = Cell { all: 1000.0, right: 700.0 };
        let edges = fit_lookup(&samples, &options);
        assert!((edges[2].exp() - 0.25).abs() < 0.02, "pooled with three: {}", edges[2].exp());
        assert!((edges[8].exp() - 0.7).abs() < 0.02, "eight: {}", edges[8].exp());
        assert!(edges[2..].is_sorted(), "{edges:?}");
    }
}
