//! Loss curves, as JSON and as a picture.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use crate::corpus::write_atomically;
use crate::error::TrainError;

/// An evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    /// Optimizer steps so far.
    pub(super) step: u64,
    /// Learning rate of the last.
    pub(super) rate: f64,
    /// Seconds of training so far.
    pub(super) seconds: f64,
    /// Over the batches since the last evaluation.
    pub(super) train: Metrics,
    /// On held-out samples.
    pub(super) held_out: Metrics,
}

/// Writes `curves.json` and `curves.svg`.
pub(super) fn write(directory: &Path, points: &[Point]) -> Result<(), TrainError> {
    let json = serde_json::to_vec_pretty(points)
        .map_err(|error| TrainError::Framework { what: "writing curves.json", message: error.to_string() })?;
    write_atomically(&directory.join("curves.json"), &json)?;
    write_atomically(&directory.join("curves.svg"), picture(points).as_bytes())
}

/// Two panels over optimizer steps: loss, and accuracy by step of the unrolling.
fn picture(points: &[Point]) -> String {
    const COLOURS: [&str; 8] =
        ["#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#ad6b3a", "#337ea9", "#787774"];
    let last = points.last().map_or(1, |point| point.step).max(1) as f64;
    let steps = points.last().map_or(0, |point| point.held_out.steps.len());
    let highest = points.iter().flat_map(|p| [p.train.loss, p.held_out.loss]).fold(1.0, f64::max);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"320\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"860\" height=\"320\" fill=\"#fff\"/>\n",
    );
    let mut line = |left: f64, top: f64, dashed: bool, colour: &str, of: &dyn Fn(&Point) -> f64| {
        let dots: Vec<String> = points
            .iter()
            .map(|point| {
                let (x, y) = (point.step as f64 / last, of(point) / top);
                format!("{:.1},{:.1}", left + 360.0 * x, 270.0 - 230.0 * y.clamp(0.0, 1.0))
            })
            .collect();
        let dash = if dashed { " stroke-dasharray=\"4 3\"" } else { "" };
        // Writing to a string cannot fail.
        _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash} points=\"{}\"/>",
            dots.join(" ")
        );
    };
    line(50.0, highest, true, "#787774", &|point| point.train.loss);
    line(50.0, highest, false, COLOURS[0], &|point| point.held_out.loss);
    for step in 0..steps {
        let accuracy = move |point: &Point| point.held_out.steps.get(step).map_or(0.0, |s| s.accuracy());
        line(480.0, 1.0, false, COLOURS[step % COLOURS.len()], &accuracy);
    }
    for (left, title, top) in [
        (50, "loss: held out, training dashed", highest),
        (480, "held-out accuracy by step of the unrolling", 1.0),
    ] {
        _ = writeln!(
            svg,
            "<text x=\"{left}\" y=\"24\">{title}</text><text x=\"{}\" y=\"44\" text-anchor=\"end\">{top:.1}</text>\
             <path d=\"M{left} 40V270H{}\" fill=\"none\" stroke=\"#333\"/><text x=\"{}\" y=\"290\" \
             text-anchor=\"end\">{last} steps</text>",
            left - 6,
            left + 360,
            left + 360
        );
    }
    svg.push_str("</svg>\n");
    svg
}
