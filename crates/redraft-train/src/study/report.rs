//! From runs to a report: tables, pictures and figures.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::costs::Bench;
use super::plans::Experiment;
use super::plot;
use super::reasons::reasons;
use super::select::{Budget, Choices, Chosen, Tried};
use super::spec::Spec;
use super::tables::{Part, plain, signed, verdict};
use crate::corpus::write_atomically;
use crate::error::TrainError;
use crate::replay::Interval;

/// What all tables have in common.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) target: String,
    pub(super) drafter: String,
    pub(super) training_tokens: u64,
    pub(super) held_out: usize,
    /// How sampled answers were drawn; `None` where there are none.
    pub(super) drawn: Option<String>,
    /// The flags that the study ran with, without files.
    pub(super) flags: String,
}

/// A drafter of an earlier stage of training.
#[derive(Clone, Debug)]
pub(super) struct Earlier {
    pub(super) tokens: u64,
    pub(super) drafter: String,
    pub(super) tau: Interval,
}

/// Everything that was run.
pub(super) struct Report {
    pub(super) facts: Facts,
    pub(super) chosen: Choices,
    pub(super) budget: Option<Budget>,
    pub(super) sweep: Vec<Tried>,
    /// The arms on all evaluation texts.
    pub(super) main: Part,
    /// What explains them, on some.
    pub(super) ablations: Part,
    /// The arms on sampled answers.
    pub(super) drawn: Option<Part>,
    /// The baseline by training tokens, on the texts of the ablations, this drafter last.
    pub(super) growth: Vec<Earlier>,
    pub(super) bench: Option<Bench>,
}

impl Report {
    /// Writes `README.md`, `sweep.md`, `results.json`, `headline.json` and the pictures into `directory`.
    pub(super) fn write(&self, directory: &Path) -> Result<(), TrainError> {
        std::fs::create_dir_all(directory).map_err(TrainError::io(directory))?;
        let put = |name: &str, text: &str| write_atomically(&directory.join(name), text.as_bytes());
        let pretty = |value: &Value| {
            serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| {
                TrainError::Framework { what: "writing figures", message: error.to_string() }
            })
        };
        put("headline.json", &pretty(&self.headline()?)?)?;
        put("results.json", &pretty(&self.results())?)?;
        put("sweep.md", &self.sweep_text())?;
        for (name, part, experiment) in self.pictures() {
            let title = format!("{}: {}", experiment.id, experiment.title);
            let figures = part.figures(experiment)?;
            put(&name, &plot::whiskers(&title, "tokens a round, 95 %", &figures))?;
        }
        put("sizes.svg", &self.sizes()?)?;
        put("README.md", &self.readme()?)
    }

    /// Parts in the order of the report.
    fn parts(&self) -> impl Iterator<Item = &Part> {
        [Some(&self.main), Some(&self.ablations), self.drawn.as_ref()].into_iter().flatten()
    }

    /// Experiments with a picture, and its file.
    fn pictures(&self) -> Vec<(String, &Part, &Experiment)> {
        let all = self.parts().flat_map(|part| part.experiments.iter().map(move |e| (part, e)));
        all.filter(|(_, experiment)| !experiment.rejections)
            .enumerate()
            .map(|(at, (part, experiment))| {
                (format!("{}-{at}.svg", experiment.id.to_lowercase()), part, experiment)
            })
            .collect()
    }

    fn headline_size(&self) -> Result<((u32, u32), Chosen), TrainError> {
        self.chosen
            .first()
            .copied()
            .ok_or_else(|| TrainError::setting("the study", "a size to report", "none"))
    }

    fn headline(&self) -> Result<Value, TrainError> {
        let ((n, d), chosen) = self.headline_size()?;
        let gain = self.main.gain(&chosen.reconsider, &chosen.baseline)?;
        let plan = chosen.reconsider.plan;
        Ok(json!({
            "tau_baseline": self.main.tau(&chosen.baseline)?.value,
            "tau_reconsider": self.main.tau(&chosen.reconsider)?.value,
            "tau_topk_control": self.main.tau(&chosen.control)?.value,
            "tau_equal_rows_baseline": self.main.tau(&chosen.equal_rows)?.value,
            "gain_percent": gain.value,
            "gain_ci95": [gain.low, gain.high],
            "n": n,
            "d": d,
            "k": plan.width,
            "r": plan.reconsider,
            "training_tokens": self.facts.training_tokens,
            "speedup_measured": self.bench.as_ref().and_then(|bench| bench.measured("reconsider")),
        }))
    }

    fn results(&self) -> Value {
        let experiments: Vec<Value> =
            self.parts().flat_map(|part| part.experiments.iter().map(|e| part.json(e))).collect();
        let growth = |earlier: &Earlier| json!({"training_tokens": earlier.tokens, "tau": earlier.tau});
        let budget = |budget: &Budget| {
            let plan = budget.spec.plan;
            json!({"n": plan.nodes, "d": plan.depth, "plan": budget.spec.to_string(), "speedup": budget.speedup})
        };
        json!({
            "target": self.facts.target,
            "drafter": self.facts.drafter,
            "training_tokens": self.facts.training_tokens,
            "texts": self.main.texts,
            "held_out_texts": self.facts.held_out,
            "budget": self.budget.as_ref().map(budget),
            "baseline_by_training_tokens": self.growth.iter().map(growth).collect::<Vec<_>>(),
            "experiments": experiments,
        })
    }

    fn sweep_text(&self) -> String {
        let mut text = format!(
            "# What was tried on held-out text\n\n{} held-out texts in two halves, each replayed with the tables that \
             were fitted on the other; tokens a round, temperature 0. The best of each table was kept, the first of \
             equals.\n",
            self.facts.held_out
        );
        for Tried { what, results } in &self.sweep {
            // Writing to a string cannot fail.
            _ = write!(text, "\n## {what}\n\n| plan | tokens a round |\n|---|---|\n");
            for (spec, tau) in results {
                _ = writeln!(text, "| {spec} | {tau:.4} |");
            }
        }
        text
    }

    fn sizes(&self) -> Result<String, TrainError> {
        let mut chosen = self.chosen.clone();
        chosen.sort_by_key(|((nodes, _), _)| *nodes);
        let places: Vec<String> = chosen.iter().map(|((n, d), _)| format!("N = {n}, D = {d}")).collect();
        type Arm = fn(&Chosen) -> Spec;
        let arms: [(&str, Arm); 4] = [
            ("baseline", |chosen| chosen.baseline),
            ("baseline with k + R rows", |chosen| chosen.equal_rows),
            ("top-k control", |chosen| chosen.control),
            ("reconsideration", |chosen| chosen.reconsider),
        ];
        let mut series = Vec::new();
        for (name, of) in arms {
            let figures: Result<Vec<Interval>, TrainError> =
                chosen.iter().map(|(_, chosen)| self.main.tau(&of(chosen))).collect();
            series.push((name.to_owned(), figures?));
        }
        Ok(plot::lines("Acceptance length by size of the tree", "tokens a round, 95 %", &places, &series))
    }

    fn readme(&self) -> Result<String, TrainError> {
        let facts = &self.facts;
        let mut text = format!(
            "# Does reconsideration pay?\n\nMade by `redraft-train study {}`; `headline.json` and `results.json` hold all \
             figures, `sweep.md` what was tried on held-out text.\n\n\
             - Target: {}. Drafter: {}, trained on {} answer tokens, evaluated as it is served.\n\
             - Texts: {} evaluation prompts ({}), the target's greedy answers; {} of them for the ablations.\n\
             - Choices were made on {} held-out texts in two halves, each replayed with the tables that were fitted on the \
             other half. Every arm had its own sweep. The evaluation prompts were then replayed with tables of all held-out \
             texts.\n\
             - By replay: accepted is what equals the target's text. N nodes verified, D levels, k rows of \
             first passes and R of second passes in a step, c children kept of a first pass, E candidates of a second.\n\
             - In brackets: 95 % of 10,000 resamples of the prompts, of one comparison each and of one training run: of \
             twenty comparisons without a difference one may show a gain or a loss.\n\n",
            facts.flags,
            facts.target,
            facts.drafter,
            facts.training_tokens,
            self.main.texts,
            self.main.sets.join(", "),
            self.ablations.texts,
            facts.held_out,
        );
        self.verdicts(&mut text)?;
        reasons(&self.main, &self.ablations, self.headline_size()?.0.0, &mut text)?;
        text.push_str("\n![by size](sizes.svg)\n");
        let costs = self.bench.as_ref().map(|bench| &bench.costs);
        let pictures = self.pictures();
        for part in self.parts().filter(|part| part.temperature == 0.0) {
            experiments(part, &pictures, costs, &mut text)?;
        }
        self.rounds(&mut text);
        text.push_str("\n## M9: Sampled answers\n\n");
        match (&self.drawn, &facts.drawn) {
            (Some(part), Some(how)) => {
                _ = writeln!(
                    text,
                    "{} answers, {how}. Plans and tables are those of temperature 0.",
                    part.texts
                );
                experiments(part, &pictures, None, &mut text)?;
            }
            _ => text.push_str("Not part of this report: it was run with `--drawn-texts 0`.\n"),
        }
        self.growth(&mut text);
        Ok(text)
    }

    /// What the arms come to at each size.
    fn verdicts(&self, text: &mut String) -> Result<(), TrainError> {
        for ((n, d), chosen) in &self.chosen {
            _ = write!(text, "## Verdict at N = {n}, D = {d}\n\n");
            if let Some(budget) = self.budget.filter(|b| (b.spec.plan.nodes, b.spec.plan.depth) == (*n, *d)) {
                _ = writeln!(
                    text,
                    "- This is the size that the budget policy picks by the measured costs: {}, expected to be {:.3} times \
                     as fast as plain decoding{}.",
                    budget.spec,
                    budget.speedup,
                    if budget.speedup > 1.0 { "" } else { ", so that it would not speculate at all" }
                );
            }
            for (name, against) in [
                ("the baseline", chosen.baseline),
                ("the baseline with k + R rows", chosen.equal_rows),
                ("the top-k control", chosen.control),
            ] {
                let found = self.main.gain(&chosen.reconsider, &against)?;
                let (new, old) = (self.main.tau(&chosen.reconsider)?, self.main.tau(&against)?);
                _ = writeln!(
                    text,
                    "- Against {name}: {} %, {}; tokens a round {:.3} and {:.3}.",
                    signed(&found),
                    verdict(&found),
                    new.value,
                    old.value
                );
            }
            let found = self.main.gain(&chosen.reconsider, &chosen.baseline)?;
            let goal = match found.value {
                value if value >= 10.2 => "at or above the paper's high end (+10.2 %)",
                value if value >= 5.3 => "between the paper's low end (+5.3 %) and its high end (+10.2 %)",
                _ => "below the paper's low end (+5.3 %)",
            };
            _ = write!(text, "- The gain over the baseline is {goal}.\n\n");
        }
        if self.budget.is_none() {
            text.push_str("Which size the budget policy picks is not known without `--bench`.\n\n");
        }
        Ok(())
    }

    /// M8, and what is missing.
    fn rounds(&self, text: &mut String) {
        _ = write!(text, "\n## M8: What rounds cost\n\n");
        let Some(bench) = &self.bench else {
            text.push_str(
                "Not measured: give `--bench` what `redraft bench --speculate tree,reconsider --json` prints.\n",
            );
            return;
        };
        _ = write!(
            text,
            "{}. In plain decode steps; predicted speedups above are tokens a round over the round's cost.\n\n\
             | proposer | measured speedup | tokens a round | answers equal |\n|---|---|---|---|\n",
            bench.what
        );
        for found in &bench.proposers {
            let tau = found.tau.map_or("–".to_owned(), |tau| format!("{tau:.3}"));
            let equal = if found.identical { "yes" } else { "no" };
            let ratio = &found.ratio;
            _ = writeln!(
                text,
                "| {} | {:.3} ({:.3} to {:.3}) | {tau} | {equal} |",
                found.proposer, ratio.median, ratio.min, ratio.max
            );
        }
        let Some((_, chosen)) = self.chosen.first() else { return };
        _ = write!(text, "\n| R | cost of a round | against none, % |\n|---|---|---|\n");
        let plan = |reconsider| redraft_decode::draft::Plan { reconsider, ..chosen.reconsider.plan };
        let none = bench.costs.round(&plan(0));
        for reconsider in [0, 2, 4, 8] {
            let cost = bench.costs.round(&plan(reconsider));
            _ = writeln!(text, "| {reconsider} | {cost:.3} | {:+.1} |", 100.0 * (cost / none - 1.0));
        }
    }

    fn growth(&self, text: &mut String) {
        let Some((_, chosen)) = self.chosen.first() else { return };
        _ = write!(
            text,
            "\n## Baseline by training tokens\n\n{}, on the {} texts of the ablations, each drafter with tables of its own; \
             earlier ones by `--earlier TOKENS=FILE`.\n\n| answer tokens | drafter | tokens a round |\n|---|---|---|\n",
            chosen.baseline, self.ablations.texts
        );
        for Earlier { tokens, drafter, tau } in &self.growth {
            _ = writeln!(text, "| {tokens} | {drafter} | {} |", plain(tau));
        }
    }
}

/// The experiments of a part, each with its table and picture.
fn experiments(
    part: &Part,
    pictures: &[(String, &Part, &Experiment)],
    costs: Option<&redraft_decode::draft::Costs>,
    text: &mut String,
) -> Result<(), TrainError> {
    for experiment in &part.experiments {
        _ = write!(
            text,
            "\n## {}: {}\n\n{} {} texts, temperature {}.\n\n",
            experiment.id, experiment.title, experiment.why, part.texts, part.temperature
        );
        part.table(experiment, costs, text)?;
        let picture = pictures.iter().find(|(_, _, other)| std::ptr::eq(*other, experiment));
        if let Some((name, _, _)) = picture {
            _ = write!(text, "\n![{}]({name})\n", experiment.id);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use redraft_decode::draft::Plan;

    use super::super::plans;
    use super::*;
    use crate::replay::{Counts, Run, TextId};

    fn report(tokens: [u64; 4]) -> Report {
        let plan = Plan { expand_refined: true, ..Plan::reconsider(15, 5, 4, 4, 2, 2) };
        let chosen = Chosen {
            baseline: Spec::new(Plan::tree(15, 5, 4, 4)),
            reconsider: Spec::new(plan),
            control: Spec::new(plan).controlled(),
            equal_rows: Spec::new(Plan::tree(15, 5, 6, 4)),
        };
        let chosen = vec![((15, 5), chosen)];
        let run = |emitted: u64| {
            let text = |prompt_id: u64| {
                let set = if prompt_id.is_multiple_of(2) { "even" } else { "odd" }.to_owned();
                let spread = emitted + 5 * (prompt_id % 4);
                (TextId { set, prompt_id }, Counts { rounds: 50, emitted: spread, ..Counts::default() })
            };
            Run { texts: (0..40).map(text).collect() }
        };
        let part = |experiments: Vec<Experiment>, temperature| {
            let specs = experiments.iter().flat_map(|e| &e.entries).map(|(_, spec)| *spec);
            let runs: HashMap<Spec, Run> = specs.map(|spec| (spec, run(100))).collect();
            let sets = vec!["even".to_owned(), "odd".to_owned()];
            Part { temperature, texts: 40, sets, experiments, runs, seed: 1 }
        };
        let mut main = part(plans::arms(&chosen), 0.0);
        let arms =
            [chosen[0].1.baseline, chosen[0].1.reconsider, chosen[0].1.control, chosen[0].1.equal_rows];
        arms.into_iter().zip(tokens).for_each(|(spec, emitted)| _ = main.runs.insert(spec, run(emitted)));
        let facts = Facts {
            target: "target".to_owned(),
            drafter: "drafter".to_owned(),
            training_tokens: 123,
            held_out: 7,
            drawn: Some("by hand".to_owned()),
            flags: String::new(),
        };
        let tau = main.tau(&chosen[0].1.baseline).unwrap();
        let growth = vec![Earlier { tokens: 123, drafter: "drafter".to_owned(), tau }];
        let (ablations, drawn) = (part(plans::ablations(&chosen), 0.0), part(plans::drawn(&chosen), 1.0));
        let budget = Some(Budget { spec: chosen[0].1.baseline, speedup: 1.25 });
        let sweep = Vec::new();
        Report { facts, chosen, budget, sweep, main, ablations, drawn: Some(drawn), growth, bench: None }
    }

    #[test]
    fn the_headline_has_what_was_agreed() {
        let headline = report([100, 120, 110, 105]).headline().unwrap();
        let keys: Vec<&str> = headline.as_object().unwrap().keys().map(String::as_str).collect();
        let wanted = [
            "tau_baseline",
            "tau_reconsider",
            "tau_topk_control",
            "tau_equal_rows_baseline",
            "gain_percent",
            "gain_ci95",
            "n",
            "d",
            "k",
            "r",
            "training_tokens",
            "speedup_measured",
        ];
        assert_eq!(keys, wanted, "exactly these");
        // Texts emit 7.5 more on average.
        let ratio = |emitted: f64| (emitted + 7.5) / 50.0;
        let near = |key: &str, wanted: f64| {
            let found = headline[key].as_f64().unwrap();
            assert!((found - wanted).abs() < 1e-9, "{key}: {found}, not {wanted}");
        };
        near("tau_baseline", ratio(100.0));
        near("tau_reconsider", ratio(120.0));
        near("tau_topk_control", ratio(110.0));
        near("tau_equal_rows_baseline", ratio(105.0));
        near("gain_percent", 100.0 * (127.5 / 107.5 - 1.0));
        let [low, high] = [0, 1].map(|end| headline["gain_ci95"][end].as_f64().unwrap());
        assert!(low < 100.0 * (127.5 / 107.5 - 1.0) && high > low, "{low} to {high}");
        assert_eq!((&headline["k"], &headline["r"]), (&json!(4), &json!(2)), "the plan");
        assert_eq!(headline["speedup_measured"], Value::Null, "not measured");
    }

    #[test]
    fn verdicts_follow_the_intervals() {
        let text = report([100, 120, 110, 105]).readme().unwrap();
        assert_eq!(text.matches(", a gain;").count(), 3, "{text}");
        let text = report([120, 100, 100, 120]).readme().unwrap();
        assert_eq!(
            (text.matches(", a loss;").count(), text.matches(", the same rounds;").count()),
            (2, 1),
            "{text}"
        );
        assert!(text.contains("below the paper's low end"), "{text}");
        for reason in ["(M1)", "(M2)", "(M5)", "(M3)"] {
            assert_eq!(text.matches(reason).count(), 1, "{reason}: {text}");
        }
        assert!(text.contains("both with lookup, against baseline: +0.00"), "{text}");
    }

    #[test]
    fn files_are_written_and_linked() {
        let directory = tempfile::tempdir().unwrap();
        let report = report([100, 120, 110, 105]);
        report.write(directory.path()).unwrap();
        let text = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
        let links = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
        for link in links.map(|rest| rest.split(')').next().unwrap()) {
            assert!(directory.path().join(link).is_file(), "{link}");
        }
        let results = std::fs::read(directory.path().join("results.json")).unwrap();
        let results: Value = serde_json::from_slice(&results).unwrap();
        let count = results["experiments"].as_array().unwrap().len();
        let all: usize = report.parts().map(|part| part.experiments.len()).sum();
        assert_eq!(count, all, "all experiments");
        assert!(results["experiments"][1]["entries"][1]["sets"]["odd"]["tau"]["low"].is_f64(), "by set");
        assert!(text.contains("the budget policy picks"), "the size of the policy");
        let without = Report { drawn: None, budget: None, ..report };
        let text = without.readme().unwrap();
        assert!(text.contains("--drawn-texts 0") && text.contains("without `--bench`"), "{text}");
    }
}
