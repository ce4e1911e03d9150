//! Tables of runs, as Markdown.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;

use redraft_decode::draft::Costs;
use serde_json::{Value, json};

use super::plans::{Experiment, LOOKUP_ALONE, LOOKUP_TOO, RECONSIDERATION};
use super::spec::Spec;
use crate::error::TrainError;
use crate::replay::{Counts, DECISIVE, Interval, Rejections, Run, gain, tau};

/// Experiments on the same texts.
pub(super) struct Part {
    pub(super) temperature: f32,
    /// How many texts.
    pub(super) texts: usize,
    pub(super) sets: Vec<String>,
    pub(super) experiments: Vec<Experiment>,
    pub(super) runs: HashMap<Spec, Run>,
    /// Of the bootstrap.
    pub(super) seed: u64,
}

impl Part {
    /// The run of a spec that an experiment of this part has.
    fn run(&self, spec: &Spec) -> &Run {
        &self.runs[spec]
    }

    /// What happened on all texts under a spec that an experiment of this part has.
    pub(super) fn total(&self, spec: &Spec) -> Counts {
        self.run(spec).total()
    }

    /// τ of a spec, or an error if there was no round.
    pub(super) fn tau(&self, spec: &Spec) -> Result<Interval, TrainError> {
        tau(self.run(spec), self.seed).ok_or_else(nothing)
    }

    /// What `new` gains over `old`, in percent.
    pub(super) fn gain(&self, new: &Spec, old: &Spec) -> Result<Interval, TrainError> {
        gain(self.run(new), self.run(old), self.seed).ok_or_else(nothing)
    }

    /// Shares of the texts, in percent, on which `new` takes fewer rounds than `old`, and more.
    fn by_text(&self, new: &Spec, old: &Spec) -> [f64; 2] {
        let (new, old) = (&self.run(new).texts, &self.run(old).texts);
        let pairs = || new.iter().zip(old).map(|((_, new), (_, old))| new.rounds.cmp(&old.rounds));
        [Ordering::Less, Ordering::Greater].map(|wanted| {
            100.0 * pairs().filter(|found| *found == wanted).count() as f64 / new.len().max(1) as f64
        })
    }

    /// τ of all entries of an experiment, by name.
    pub(super) fn figures(&self, experiment: &Experiment) -> Result<Vec<(String, Interval)>, TrainError> {
        experiment.entries.iter().map(|(name, spec)| Ok((name.clone(), self.tau(spec)?))).collect()
    }

    /// The table of an experiment. `costs`: of rounds, for a column of predicted speedups.
    pub(super) fn table(
        &self,
        experiment: &Experiment,
        costs: Option<&Costs>,
        text: &mut String,
    ) -> Result<(), TrainError> {
        if experiment.rejections {
            self.rejections(experiment, text);
            return Ok(());
        }
        let Some((_, first)) = experiment.entries.first() else { return Ok(()) };
        let sets = self.sets.join(" | ");
        let lines = "|---".repeat(self.sets.len());
        let (head, rule) = if costs.is_some() { (" predicted speedup |", "---|") } else { ("", "") };
        // Writing to a string cannot fail.
        _ = write!(
            text,
            "| | plan | tokens a round | against the first, % | {sets} | rounds | second passes a round | rescues in 100 \
             rounds |{head}\n|---|---|---|---{lines}|---|---|---|{rule}\n"
        );
        for (name, spec) in &experiment.entries {
            let (run, total) = (self.run(spec), self.run(spec).total());
            let figure = self.tau(spec)?;
            let against = if spec == first { "–".to_owned() } else { signed(&self.gain(spec, first)?) };
            let by_set: Vec<String> = (self.sets.iter())
                .map(|set| run.of_set(set).total().tau().map_or("–".to_owned(), |tau| format!("{tau:.3}")))
                .collect();
            let rounds = total.rounds.max(1) as f64;
            _ = write!(
                text,
                "| {name} | {spec} | {} | {against} | {} | {} | {:.2} | {:.2} |",
                plain(&figure),
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
        let compared = experiment.entries.iter().find(|(name, _)| name == RECONSIDERATION);
        if let Some((_, reconsider)) = compared.filter(|_| experiment.arms) {
            _ = write!(text, "\nReconsideration, in percent:\n\n");
            let looks_up = |name: &str| [LOOKUP_TOO, LOOKUP_ALONE].contains(&name);
            let others =
                experiment.entries.iter().filter(|(name, spec)| spec != reconsider && !looks_up(name));
            for (name, spec) in others {
                let [fewer, more] = self.by_text(reconsider, spec);
                _ = writeln!(
                    text,
                    "- against {name}: {}; fewer rounds on {fewer:.0} % of the texts, more on {more:.0} %",
                    signed(&self.gain(reconsider, spec)?)
                );
            }
            let of = |name: &str| experiment.entries.iter().find(|(found, _)| found == name);
            if let (Some((_, too)), Some((_, alone))) = (of(LOOKUP_TOO), of(LOOKUP_ALONE)) {
                _ = writeln!(
                    text,
                    "- both with lookup, against baseline: {}",
                    signed(&self.gain(too, alone)?)
                );
            }
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
            let line = |label: &str, at: &Rejections| {
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
            let mut sum = Rejections::default();
            for (depth, at) in total.rejections.iter().enumerate() {
                text.push_str(&line(&depth.to_string(), at));
                sum.add(at);
            }
            text.push_str(&line("all", &sum));
        }
    }

    /// All figures of an experiment.
    pub(super) fn json(&self, experiment: &Experiment) -> Value {
        let figure = |counts: &Counts, run: &Run, first: &Run| {
            json!({
                "rounds": counts.rounds,
                "emitted": counts.emitted,
                "tau": tau(run, self.seed),
                "gain_percent": gain(run, first, self.seed),
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
            let by_set: serde_json::Map<String, Value> = (self.sets.iter())
                .map(|set| {
                    let part = run.of_set(set);
                    (set.clone(), figure(&part.total(), &part, &first.of_set(set)))
                })
                .collect();
            json!({"name": name, "plan": spec.to_string(), "all": figure(&run.total(), run, first), "sets": by_set})
        };
        let first = experiment.entries.first().map(|(_, spec)| *spec);
        let entries = experiment.entries.iter().filter_map(|(name, spec)| Some(entry(name, spec, &first?)));
        json!({
            "id": experiment.id,
            "title": experiment.title,
            "why": experiment.why,
            "temperature": self.temperature,
            "texts": self.texts,
            "entries": entries.collect::<Vec<_>>(),
        })
    }
}

fn nothing() -> TrainError {
    TrainError::setting("--evaluation", "answers of at least two tokens", "none")
}

/// A figure and its interval.
pub(super) fn plain(found: &Interval) -> String {
    format!("{:.3} ({:.3} to {:.3})", found.value, found.low, found.high)
}

/// A difference and its interval.
pub(super) fn signed(found: &Interval) -> String {
    format!("{:+.2} ({:+.2} to {:+.2})", found.value, found.low, found.high)
}

/// What an interval says of a difference.
pub(super) fn verdict(found: &Interval) -> &'static str {
    if found.low > 0.0 {
        "a gain"
    } else if found.high < 0.0 {
        "a loss"
    } else if (found.low, found.high) == (0.0, 0.0) {
        "the same rounds"
    } else {
        "no difference that these texts show"
    }
}
