//! From runs to tables, pictures and figures.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::costs::Bench;
use super::plans::Experiment;
use super::plot;
use super::select::{Choices, Chosen, Tried};
use super::spec::Spec;
use crate::corpus::write_atomically;
use crate::error::TrainError;
use crate::replay::{Counts, DECISIVE, Interval, Run, gain, tau};

/// What all tables have in common.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) target: String,
    pub(super) drafter: String,
    pub(super) training_tokens: u64,
    pub(super) held_out: usize,
    pub(super) texts: usize,
    pub(super) sets: Vec<String>,
    pub(super) seed: u64,
}

/// Everything that was run.
pub(super) struct Report {
    pub(super) facts: Facts,
    pub(super) chosen: Choices,
    pub(super) sweep: Vec<Tried>,
    pub(super) experiments: Vec<Experiment>,
    pub(super) runs: HashMap<Spec, Run>,
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
        for (at, experiment) in self.experiments.iter().enumerate().filter(|(_, e)| !e.rejections) {
            let figures: Vec<_> = experiment
                .entries
                .iter()
                .filter_map(|(name, spec)| Some((name.clone(), tau(self.run(spec), self.facts.seed)?)))
                .collect();
            let title = format!("{}: {}", experiment.id, experiment.title);
            put(&picture(at, experiment), &plot::whiskers(&title, "tokens a round, 95 %", &figures))?;
        }
        put("sizes.svg", &self.sizes())?;
        put("README.md", &self.readme()?)
    }

    fn run(&self, spec: &Spec) -> &Run {
        &self.runs[spec]
    }

    fn main(&self) -> Result<((u32, u32), Chosen), TrainError> {
        self.chosen
            .first()
            .copied()
            .ok_or_else(|| TrainError::setting("the study", "a size to report", "none"))
    }

    /// τ of an entry, or an error if there was no round.
    fn tau(&self, spec: &Spec) -> Result<Interval, TrainError> {
        tau(self.run(spec), self.facts.seed)
            .ok_or_else(|| TrainError::setting("--evaluation", "answers of at least two tokens", "none"))
    }

    fn gain(&self, new: &Spec, old: &Spec) -> Result<Interval, TrainError> {
        gain(self.run(new), self.run(old), self.facts.seed)
            .ok_or_else(|| TrainError::setting("--evaluation", "answers of at least two tokens", "none"))
    }

    fn headline(&self) -> Result<Value, TrainError> {
        let ((n, d), chosen) = self.main()?;
        let gain = self.gain(&chosen.reconsider, &chosen.baseline)?;
        let plan = chosen.reconsider.plan;
        Ok(json!({
            "tau_baseline": self.tau(&chosen.baseline)?.value,
            "tau_reconsider": self.tau(&chosen.reconsider)?.value,
            "tau_topk_control": self.tau(&chosen.control)?.value,
            "tau_equal_rows_baseline": self.tau(&chosen.equal_rows)?.value,
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
        let seed = self.facts.seed;
        let figure = |counts: &Counts, run: &Run, first: &Run| {
            json!({
                "rounds": counts.rounds,
                "emitted": counts.emitted,
                "tau": tau(run, seed),
                "gain_percent": gain(run, first, seed),
                "reconsidered": counts.reconsidered,
                "refined": counts.refined,
                "rescues": counts.rescues,
                "lookup_hits": counts.lookup_hits,
                "tried": counts.tried,
                "accepted": counts.accepted,
                "rejections": counts.rejections,
            })
        };
        let entry = |name: &str, spec: &Spec, first: &Spec| {
            let (run, first) = (self.run(spec), self.run(first));
            let by_set: serde_json::Map<String, Value> = (self.facts.sets.iter())
                .map(|set| {
                    let part = run.of_set(set);
                    (set.clone(), figure(&part.total(), &part, &first.of_set(set)))
                })
                .collect();
            json!({"name": name, "plan": spec.to_string(), "all": figure(&run.total(), run, first), "sets": by_set})
        };
        let experiments: Vec<Value> = (self.experiments.iter())
            .map(|experiment| {
                let first = experiment.entries.first().map(|(_, spec)| *spec);
                let entries =
                    experiment.entries.iter().filter_map(|(name, spec)| Some(entry(name, spec, &first?)));
                json!({
                    "id": experiment.id,
                    "title": experiment.title,
                    "why": experiment.why,
                    "entries": entries.collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "target": self.facts.target,
            "drafter": self.facts.drafter,
            "training_tokens": self.facts.training_tokens,
            "texts": self.facts.texts,
            "held_out_texts": self.facts.held_out,
            "temperature": 0,
            "experiments": experiments,
        })
    }

    fn sweep_text(&self) -> String {
        let mut text = format!(
            "# What was tried on held-out text\n\n{} held-out texts; tokens a round by replay, temperature 0. The best of \
             each table was kept.\n",
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

    fn sizes(&self) -> String {
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
        let series: Vec<_> = arms
            .iter()
            .map(|(name, of)| {
                let figures =
                    chosen.iter().filter_map(|(_, chosen)| tau(self.run(&of(chosen)), self.facts.seed));
                ((*name).to_owned(), figures.collect())
            })
            .collect();
        plot::lines("Acceptance length by size of the tree", "tokens a round, 95 %", &places, &series)
    }

    fn readme(&self) -> Result<String, TrainError> {
        let ((n, d), chosen) = self.main()?;
        let facts = &self.facts;
        let mut text = format!(
            "# Does reconsideration pay?\n\nMade by `redraft-train study`; `headline.json` and `results.json` hold all \
             figures, `sweep.md` what was tried on held-out text.\n\n\
             - Target: {}. Drafter: {}, trained on {} answer tokens, evaluated as it is served.\n\
             - Texts: {} evaluation prompts ({}), the target's greedy answers; choices were made on {} held-out texts.\n\
             - Temperature 0, by replay: accepted is what equals the target's text. N nodes verified, D levels, k rows of \
             first passes and R of second passes in a step, c children kept of a first pass, E candidates of a second.\n\
             - In brackets: 95 % of 10,000 resamples of the prompts.\n\n",
            facts.target,
            facts.drafter,
            facts.training_tokens,
            facts.texts,
            facts.sets.join(", "),
            facts.held_out,
        );
        _ = write!(text, "## Verdict at N = {n}, D = {d}\n\n");
        for (name, against) in [
            ("the baseline", chosen.baseline),
            ("the baseline with k + R rows", chosen.equal_rows),
            ("the top-k control", chosen.control),
        ] {
            let found = self.gain(&chosen.reconsider, &against)?;
            _ = writeln!(text, "- Against {name}: {} %, {}.", signed(&found), verdict(&found));
        }
        let found = self.gain(&chosen.reconsider, &chosen.baseline)?;
        let goal = match found.value {
            value if value >= 10.2 => "at or above the paper's high end (+10.2 %)",
            value if value >= 5.3 => "between the paper's low end (+5.3 %) and its high end (+10.2 %)",
            _ => "below the paper's low end (+5.3 %)",
        };
        _ = write!(text, "- The gain over the baseline is {goal}.\n\n![by size](sizes.svg)\n");
        for (at, experiment) in self.experiments.iter().enumerate() {
            _ = write!(text, "\n## {}: {}\n\n{}\n\n", experiment.id, experiment.title, experiment.why);
            match experiment.rejections {
                true => self.rejections(experiment, &mut text),
                false => {
                    self.table(experiment, &mut text)?;
                    _ = write!(text, "\n![{}]({})\n", experiment.id, picture(at, experiment));
                }
            }
        }
        self.rounds(&mut text);
        Ok(text)
    }

    fn table(&self, experiment: &Experiment, text: &mut String) -> Result<(), TrainError> {
        let Some((_, first)) = experiment.entries.first() else { return Ok(()) };
        let sets = self.facts.sets.join(" | ");
        let lines = "|---".repeat(self.facts.sets.len());
        let costs = self.bench.as_ref().map(|bench| &bench.costs);
        let (head, rule) = if costs.is_some() { (" predicted speedup |", "---|") } else { ("", "") };
        _ = write!(
            text,
            "| | plan | tokens a round | against the first, % | {sets} | rounds | second passes a round | rescues in 100 \
             rounds |{head}\n|---|---|---|---{lines}|---|---|---|{rule}\n"
        );
        for (name, spec) in &experiment.entries {
            let (run, total) = (self.run(spec), self.run(spec).total());
            let figure = self.tau(spec)?;
            let against = if spec == first { "–".to_owned() } else { signed(&self.gain(spec, first)?) };
            let by_set: Vec<String> = (self.facts.sets.iter())
                .map(|set| run.of_set(set).total().tau().map_or("–".to_owned(), |tau| format!("{tau:.3}")))
                .collect();
            let rounds = total.rounds.max(1) as f64;
            _ = write!(
                text,
                "| {name} | {spec} | {:.3} ({:.3} to {:.3}) | {against} | {} | {} | {:.2} | {:.2} |",
                figure.value,
                figure.low,
                figure.high,
                by_set.join(" | "),
                total.rounds,
                total.reconsidered as f64 / rounds,
                100.0 * total.rescues as f64 / rounds,
            );
            if let Some(costs) = costs {
                _ = write!(text, " {:.3} |", figure.value / costs.round(&spec.plan));
            }
            text.push('\n');
        }
        Ok(())
    }

    fn rejections(&self, experiment: &Experiment, text: &mut String) {
        _ = writeln!(
            text,
            "Decisive: the target's likeliest token has at least {DECISIVE}. Unsure: one minus the drafter's first \
             probability is at least the fitted threshold. The share of a node that the drafter did not look at is in none \
             but the second column."
        );
        for (name, spec) in &experiment.entries {
            _ = write!(
                text,
                "\n{name}, {spec}\n\n| depth of the last right node | rejections | not looked at | unsure | decisive | \
                 unsure and decisive | outside the draft vocabulary |\n|---|---|---|---|---|---|---|\n"
            );
            let total = self.run(spec).total();
            let mut sum = crate::replay::Rejections::default();
            let line = |label: &str, at: &crate::replay::Rejections| {
                let share = |part: u64| format!("{:.1} %", 100.0 * part as f64 / at.all.max(1) as f64);
                format!(
                    "| {label} | {} | {} | {} | {} | {} | {} |\n",
                    at.all,
                    share(at.all - at.evaluated),
                    share(at.unsure),
                    share(at.decisive),
                    share(at.both),
                    share(at.outside)
                )
            };
            for (depth, at) in total.rejections.iter().enumerate() {
                text.push_str(&line(&depth.to_string(), at));
                sum.all += at.all;
                sum.evaluated += at.evaluated;
                sum.unsure += at.unsure;
                sum.decisive += at.decisive;
                sum.both += at.both;
                sum.outside += at.outside;
            }
            text.push_str(&line("all", &sum));
        }
    }

    /// M8, M9, and what is missing.
    fn rounds(&self, text: &mut String) {
        _ = write!(text, "\n## M8: What rounds cost\n\n");
        match &self.bench {
            None => text.push_str("Not measured: give `--bench` what `redraft bench --speculate tree,reconsider --json` prints.\n"),
            Some(bench) => {
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
                if let Some((_, chosen)) = self.chosen.first() {
                    let plan = chosen.reconsider.plan;
                    let (with, without) = (bench.costs.round(&plan), {
                        let plan = redraft_decode::draft::Plan { reconsider: 0, refined: 0, ..plan };
                        bench.costs.round(&plan)
                    });
                    _ = write!(
                        text,
                        "\nA round with R = {} costs {with:.3} plain steps, without second passes {without:.3}: {:+.1} %.\n",
                        plan.reconsider,
                        100.0 * (with / without - 1.0)
                    );
                }
            }
        }
        text.push_str(
            "\n## M9: Temperature 1\n\nNot part of this report: replay at a temperature above 0 needs the text of a keyed \
             sample.\n",
        );
    }
}

fn picture(at: usize, experiment: &Experiment) -> String {
    format!("{}-{at}.svg", experiment.id.to_lowercase())
}

fn signed(found: &Interval) -> String {
    format!("{:+.2} ({:+.2} to {:+.2})", found.value, found.low, found.high)
}

fn verdict(found: &Interval) -> &'static str {
    if found.low > 0.0 {
        "a gain"
    } else if found.high < 0.0 {
        "a loss"
    } else {
        "no difference that these texts show"
    }
}

#[cfg(test)]
mod tests {
    use redraft_decode::draft::Plan;

    use super::*;
    use crate::replay::TextId;

    fn report(tokens: [u64; 4]) -> Report {
        let plan = Plan { expand_refined: true, ..Plan::reconsider(15, 5, 4, 4, 2, 2) };
        let chosen = Chosen {
            baseline: Spec::new(Plan::tree(15, 5, 4, 4)),
            reconsider: Spec::new(plan),
            control: Spec::new(Plan { control: true, ..plan }),
            equal_rows: Spec::new(Plan::tree(15, 5, 6, 4)),
        };
        let chosen = vec![((15, 5), chosen)];
        let experiments = super::super::plans::experiments(&chosen);
        let run = |emitted: u64| {
            let text = |prompt_id: u64| {
                let set = if prompt_id.is_multiple_of(2) { "even" } else { "odd" }.to_owned();
                let spread = emitted + 5 * (prompt_id % 4);
                (TextId { set, prompt_id }, Counts { rounds: 50, emitted: spread, ..Counts::default() })
            };
            Run { texts: (0..40).map(text).collect() }
        };
        let mut runs: HashMap<Spec, Run> =
            experiments.iter().flat_map(|e| &e.entries).map(|(_, spec)| (*spec, run(100))).collect();
        let arms =
            [chosen[0].1.baseline, chosen[0].1.reconsider, chosen[0].1.control, chosen[0].1.equal_rows];
        arms.into_iter().zip(tokens).for_each(|(spec, emitted)| _ = runs.insert(spec, run(emitted)));
        let facts = Facts {
            target: "target".to_owned(),
            drafter: "drafter".to_owned(),
            training_tokens: 123,
            held_out: 7,
            texts: 40,
            sets: vec!["even".to_owned(), "odd".to_owned()],
            seed: 1,
        };
        Report { facts, chosen, sweep: Vec::new(), experiments, runs, bench: None }
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
        assert_eq!(text.matches(", a gain.").count(), 3, "{text}");
        let text = report([120, 100, 100, 120]).readme().unwrap();
        assert_eq!(
            (text.matches(", a loss.").count(), text.matches("no difference").count()),
            (2, 1),
            "{text}"
        );
        assert!(text.contains("below the paper's low end"), "{text}");
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
        assert_eq!(count, report.experiments.len(), "all experiments");
        assert!(results["experiments"][1]["entries"][1]["sets"]["odd"]["tau"]["low"].is_f64(), "by set");
    }
}
