//! What rounds cost on an adapter: what `redraft bench --speculate … --json` measured.

use std::path::Path;

use redraft_decode::draft::{Costs, Curve};
use serde::Deserialize;

use crate::error::TrainError;

#[derive(Deserialize)]
struct File {
    adapter: Adapter,
    speculation: Option<Speculation>,
}

#[derive(Deserialize)]
struct Adapter {
    name: String,
    backend: String,
}

#[derive(Deserialize)]
struct Speculation {
    prompts: usize,
    tokens: u32,
    costs: Numbers,
    proposers: Vec<Proposer>,
}

#[derive(Deserialize)]
struct Numbers {
    verify: Vec<Point>,
    draft: Vec<Point>,
    extend: f64,
    overhead: f64,
}

#[derive(Deserialize)]
struct Point {
    m: u32,
    relative: f64,
}

/// What one proposer did there.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Proposer {
    pub(super) proposer: String,
    pub(super) ratio: Spread,
    pub(super) tau: Option<f64>,
    pub(super) identical: bool,
}

/// Over repetitions.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// A measurement.
#[derive(Clone, Debug)]
pub(super) struct Bench {
    /// Where, and how much.
    pub(super) what: String,
    pub(super) costs: Costs,
    pub(super) proposers: Vec<Proposer>,
}

impl Bench {
    /// Reads the output of `redraft bench --json` with `--speculate`.
    pub(super) fn read(path: &Path) -> Result<Self, TrainError> {
        let bytes = std::fs::read(path).map_err(TrainError::io(path))?;
        let wrong = |problem: String| TrainError::State {
            path: path.to_owned(),
            problem,
            hint: "give what `redraft bench --speculate tree,reconsider --json` prints",
        };
        let file: File = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let found = file.speculation.ok_or_else(|| wrong("says nothing of speculation".to_owned()))?;
        let curve = |points: &[Point]| Curve::new(points.iter().map(|p| (p.m, p.relative)).collect());
        let numbers = &found.costs;
        let costs = Costs {
            verify: curve(&numbers.verify).map_err(|error| wrong(error.to_string()))?,
            draft: curve(&numbers.draft).map_err(|error| wrong(error.to_string()))?,
            extend: numbers.extend,
            overhead: numbers.overhead,
            catch_up: 0.0,
            catch_up_most: 0,
        };
        costs.validate().map_err(|error| wrong(error.to_string()))?;
        if found.proposers.is_empty() {
            return Err(wrong("measured no proposer".to_owned()));
        }
        let Adapter { name, backend } = file.adapter;
        let what =
            format!("{name} ({backend}), {} prompts, at most {} tokens each", found.prompts, found.tokens);
        Ok(Self { what, costs, proposers: found.proposers })
    }

    /// How much faster than plain decoding, as measured.
    pub(super) fn measured(&self, proposer: &str) -> Option<f64> {
        self.proposers.iter().find(|found| found.proposer == proposer).map(|found| found.ratio.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_read_or_refused() {
        let text = r#"{"adapter": {"name": "a", "backend": "vulkan"}, "speculation": {"prompts": 2, "tokens": 9,
            "costs": {"verify": [{"m": 1, "relative": 1.0}, {"m": 16, "relative": 2.0}],
            "draft": [{"m": 1, "relative": 0.125}], "extend": 0.25, "overhead": 0.0},
            "proposers": [{"proposer": "reconsider", "ratio": {"median": 1.5, "min": 1.25, "max": 1.75}, "tau": 2.5,
            "identical": true}]}}"#;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bench.json");
        std::fs::write(&path, text).unwrap();
        let bench = Bench::read(&path).unwrap();
        assert_eq!((bench.measured("reconsider"), bench.measured("tree")), (Some(1.5), None), "measured");
        let plan = redraft_decode::draft::Plan::tree(15, 5, 4, 4);
        assert_eq!(bench.costs.round(&plan), 2.0 + 0.25 + 4.0 * 0.5, "costs");
        for bad in ["{}", &text.replace("\"m\": 16", "\"m\": 1"), &text.replace("0.25,", "-1,")] {
            std::fs::write(&path, bad).unwrap();
            let error = Bench::read(&path).unwrap_err().to_string();
            assert!(error.contains("bench.json"), "{error}");
        }
    }
}
