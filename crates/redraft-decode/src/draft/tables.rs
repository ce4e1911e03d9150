//! Fitted tables: what an edge of the tree is worth, and what a second pass may gain.

use super::Gate;

/// Words of [`Tables::to_words`] that hold [`Tables::edges`].
pub const EDGE_WORDS: usize = 2 * 8 * 4 * 32;
/// Words of [`Tables::to_words`] that hold [`Tables::log_gain`], behind the edges.
pub const GAIN_WORDS: usize = 8 * 64;
/// Words of [`Tables::to_words`] that hold [`Tables::lookup_edge`], behind the gains.
pub const LOOKUP_WORDS: usize = 17;
/// Length of [`Tables::to_words`], padding included.
pub const TABLE_WORDS: usize = 2592;

/// The tables of a drafter, from its checkpoint or by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// Whether [`Tables::edges`] is fitted; otherwise an edge is worth its log-probability.
    pub calibrated: bool,
    /// `[pass][depth][rank][bin]`, 2 × 8 × 4 × 32: log of the chance that a child is right, at most 0. Pass 1 for
    /// refined nodes, depth 0 for children of the root, the last rank for all behind, bins of ¼ of `-ln q`.
    pub edges: [[[[f32; 32]; 4]; 8]; 2],
    /// `[depth][bin]`, 8 × 64: log of what a second pass gains, by depth of the node (root 0) and bins of unsure.
    pub log_gain: [[f32; 64]; 8],
    /// `[length]`, 17: log of the chance that the continuation of a match of this length is right, at most 0.
    pub lookup_edge: [f32; 17],
    /// Added to the log-probability of a refined node where not calibrated.
    pub refined_offset: f32,
    /// Least unsure value of a row that is reconsidered.
    pub gate_threshold: f32,
}

/// Why tables were refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TablesError {
    /// An entry is NaN or infinite.
    #[error("entry {index} of {table} is {found}; expected a finite number")]
    NotFinite {
        /// The table.
        table: &'static str,
        /// Index into the table, flattened.
        index: usize,
        /// The entry.
        found: f32,
    },
    /// An edge would make a child likelier than its parent.
    #[error("entry {index} of {table} is {found}; expected the log of a chance, at most 0")]
    Positive {
        /// The table.
        table: &'static str,
        /// Index into the table, flattened.
        index: usize,
        /// The entry.
        found: f32,
    },
}

impl Default for Tables {
    /// Not calibrated: an edge is worth its log-probability, a gain is unsure itself, and a match of `n` tokens
    /// continues with chance n / (n + 1).
    fn default() -> Self {
        let mut edges = [[[[0.0; 32]; 4]; 8]; 2];
        for bins in edges.iter_mut().flatten().flatten() {
            for (bin, edge) in (0u8..).zip(bins) {
                *edge = -(f32::from(bin) + 0.5) / 4.0;
            }
        }
        let mut lookup_edge = [-30.0; 17];
        for (length, edge) in (0u8..).zip(&mut lookup_edge).skip(1) {
            *edge = ln(f64::from(length) / (f64::from(length) + 1.0));
        }
        Self {
            calibrated: false,
            edges,
            log_gain: unsure_gain(),
            lookup_edge,
            refined_offset: 0.0,
            gate_threshold: 0.3,
        }
    }
}

impl Tables {
    /// Checks that all entries are finite and that no edge is positive: a child never scores above its parent.
    ///
    /// # Errors
    /// [`TablesError`], naming the first entry that does not fit.
    pub fn validate(&self) -> Result<(), TablesError> {
        let edges = self.edges.as_flattened().as_flattened().as_flattened();
        let scalars = [("refined_offset", self.refined_offset), ("gate_threshold", self.gate_threshold)];
        check("edges", edges, true)?;
        check("log_gain", self.log_gain.as_flattened(), false)?;
        check("lookup_edge", &self.lookup_edge, true)?;
        for (name, value) in scalars {
            check(name, &[value], false)?;
        }
        Ok(())
    }

    /// What an edge adds to the score of the parent: at most 0.
    ///
    /// - `log_q`: log-probability of the child under the drafter.
    /// - `rank`: place of the child among the candidates of its row, from 0.
    /// - `depth`: depth of the child, from 1.
    /// - `refined`: whether a second pass proposed it.
    #[must_use]
    pub fn edge(&self, log_q: f32, rank: u32, depth: u32, refined: bool) -> f32 {
        if self.calibrated {
            let bin = truncate(-log_q.min(0.0) * 4.0).min(31);
            let depth = depth.clamp(1, 8) - 1;
            self.edges[usize::from(refined)][depth as usize][rank.min(3) as usize][bin as usize]
        } else {
            (log_q + if refined { self.refined_offset } else { 0.0 }).min(0.0)
        }
    }

    /// Log of what a second pass gains at a node of `depth` (root 0) whose first pass was `unsure`.
    #[must_use]
    pub fn gain(&self, depth: u32, unsure: f32) -> f32 {
        self.log_gain[depth.min(7) as usize][truncate(unsure * 64.0).min(63) as usize]
    }

    /// What a looked-up edge adds to the score of the parent, for a match of `length` tokens.
    #[must_use]
    pub fn lookup(&self, length: u32) -> f32 {
        self.lookup_edge[length.min(16) as usize]
    }

    /// The tables that `gate` reads: those fitted for [`Gate::Calibrated`], otherwise with the gain of an unsure row
    /// put back to ln unsure.
    #[must_use]
    pub fn for_gate(mut self, gate: Gate) -> Self {
        if gate != Gate::Calibrated {
            self.log_gain = unsure_gain();
        }
        self
    }

    /// `[TABLE_WORDS]`: the tables as the kernels read them, one behind the other, padded with zeros.
    ///
    /// [`EDGE_WORDS`] of edges, [`GAIN_WORDS`] of gains, [`LOOKUP_WORDS`] of lookup edges, each row-major.
    #[must_use]
    pub fn to_words(&self) -> Vec<f32> {
        let mut words = Vec::with_capacity(TABLE_WORDS);
        words.extend_from_slice(self.edges.as_flattened().as_flattened().as_flattened());
        words.extend_from_slice(self.log_gain.as_flattened());
        words.extend_from_slice(&self.lookup_edge);
        words.resize(TABLE_WORDS, 0.0);
        words
    }
}

/// The gain where none is fitted: the log of unsure, at the middle of its bin.
fn unsure_gain() -> [[f32; 64]; 8] {
    let mut bins = [0.0; 64];
    for (bin, gain) in (0u8..).zip(&mut bins) {
        *gain = ln((f64::from(bin) + 0.5) / 64.0);
    }
    [bins; 8]
}

#[expect(clippy::cast_possible_truncation, reason = "rounded to the precision of the table")]
fn ln(x: f64) -> f32 {
    x.ln() as f32
}

/// `u32(x)` of WGSL: towards zero, saturating.
#[expect(clippy::cast_possible_truncation, reason = "the bin is wanted, not the fraction")]
fn truncate(x: f32) -> u32 {
    x as u32
}

fn check(table: &'static str, entries: &[f32], edges: bool) -> Result<(), TablesError> {
    for (index, &found) in entries.iter().enumerate() {
        if !found.is_finite() {
            return Err(TablesError::NotFinite { table, index, found });
        }
        if edges && found > 0.0 {
            return Err(TablesError::Positive { table, index, found });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_edges_are_clamped_log_probabilities() {
        let tables = Tables { refined_offset: 0.5, ..Tables::default() };
        assert_eq!(tables.edge(-2.0, 3, 4, false), -2.0, "as it is");
        assert_eq!(tables.edge(-2.0, 3, 4, true), -1.5, "offset");
        assert_eq!(tables.edge(-0.25, 0, 1, true), 0.0, "never above the parent");
        assert_eq!(tables.edge(f32::NEG_INFINITY, 0, 1, true), f32::NEG_INFINITY, "impossible");
    }

    #[test]
    fn each_index_of_the_tables_is_read() {
        let mut tables = Tables { calibrated: true, ..Tables::default() };
        tables.edges[0][0][0][0] = -0.1;
        tables.edges[1][7][3][31] = -0.2;
        tables.edges[1][2][1][9] = -0.3;
        tables.log_gain[7][63] = 3.0;
        tables.log_gain[0][0] = 4.0;
        assert_eq!(tables.edge(0.5, 0, 1, false), -0.1, "positive log-probabilities are clamped");
        assert_eq!(tables.edge(-0.249, 0, 1, false), -0.1, "the first bin ends at a quarter");
        assert_ne!(tables.edge(-0.25, 0, 1, false), -0.1, "and not behind");
        assert_eq!(tables.edge(f32::NEG_INFINITY, 99, 99, true), -0.2, "the last of each");
        assert_eq!(tables.edge(-2.3, 1, 3, true), -0.3, "in the middle");
        assert_eq!(tables.edge(-2.3, 1, 0, true), tables.edge(-2.3, 1, 1, true), "depths start at 1");
        assert_eq!((tables.gain(99, 1.0), tables.gain(0, 0.015)), (3.0, 4.0), "gains");
        let plain = tables.clone().for_gate(Gate::Top1);
        assert_eq!(plain.log_gain, Tables::default().log_gain, "other gates read ln unsure");
        assert_eq!(tables.clone().for_gate(Gate::Calibrated), tables, "the fitted gate reads the fit");
    }

    #[test]
    fn words_are_the_tables_in_order() {
        let mut tables = Tables::default();
        tables.edges[1][6][2][5] = -7.0;
        tables.log_gain[3][11] = 8.0;
        tables.lookup_edge[16] = -9.0;
        let words = tables.to_words();
        assert_eq!(words.len(), 2592, "padded");
        assert_eq!(words[((8 + 6) * 4 + 2) * 32 + 5], -7.0, "edges");
        assert_eq!(words[2048 + 3 * 64 + 11], 8.0, "gains");
        assert_eq!(words[2048 + 512 + 16], -9.0, "lookup edges");
        assert!(words[2577..].iter().all(|&word| word == 0.0), "padding");
        assert_eq!(words[2048], (0.5f32 / 64.0).ln(), "default gain of the first bin");
        assert_eq!(words[2560], -30.0, "default edge of no match");
        assert!((words[2562] - (2.0f32 / 3.0).ln()).abs() < 1e-6, "default lookup edge of two tokens");
    }

    #[test]
    fn bad_tables_are_errors() {
        assert_eq!(Tables::default().validate(), Ok(()), "the default");
        let mut tables = Tables::default();
        tables.edges[0][0][1][2] = 0.5;
        let expected = TablesError::Positive { table: "edges", index: 34, found: 0.5 };
        assert_eq!(tables.validate(), Err(expected), "a gain on an edge");
        let mut tables = Tables::default();
        tables.log_gain[1][1] = f32::INFINITY;
        let expected = TablesError::NotFinite { table: "log_gain", index: 65, found: f32::INFINITY };
        assert_eq!(tables.validate(), Err(expected), "an infinite gain");
        let mut tables = Tables::default();
        tables.lookup_edge[16] = 1.0;
        assert!(tables.validate().is_err(), "a gain on a lookup");
        assert!(Tables { refined_offset: f32::NAN, ..Tables::default() }.validate().is_err(), "offset");
        assert!(Tables { gate_threshold: f32::NAN, ..Tables::default() }.validate().is_err(), "threshold");
    }
}
