//! Phases of a check: each is announced, timed, and listed in a summary.

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::checks::OnFailure;

/// Runs phases one after another and remembers how each ended.
pub(crate) struct Phases {
    on_failure: OnFailure,
    done: Vec<Done>,
}

struct Done {
    name: &'static str,
    took: Duration,
    outcome: Outcome,
}

impl Phases {
    pub(crate) fn new(on_failure: OnFailure) -> Self {
        Self { on_failure, done: Vec::new() }
    }

    /// Runs `phase` unless an earlier one failed and that is the end.
    pub(crate) fn run(&mut self, name: &'static str, phase: impl FnOnce() -> Outcome) {
        if self.on_failure == OnFailure::Stop && self.failed() > 0 {
            return;
        }
        eprintln!("\n== {name}");
        let start = Instant::now();
        let outcome = phase();
        let took = start.elapsed();
        match &outcome {
            Ok(()) => eprintln!("== {name}: ok, {:.1} s", took.as_secs_f64()),
            Err(why) => eprintln!("== {name}: FAILED, {:.1} s: {why}", took.as_secs_f64()),
        }
        self.done.push(Done { name, took, outcome });
    }

    /// Prints a line for each phase; an error when one failed.
    pub(crate) fn finish(self) -> Outcome {
        eprintln!("\n== summary");
        for Done { name, took, outcome } in &self.done {
            let word = if outcome.is_ok() { "ok" } else { "FAILED" };
            eprintln!("{word:>6}  {:>7.1} s  {name}", took.as_secs_f64());
            if let Err(why) = outcome {
                eprintln!("{:>19}{why}", "");
            }
        }
        let total: Duration = self.done.iter().map(|phase| phase.took).sum();
        eprintln!("{:>6}  {:>7.1} s", "", total.as_secs_f64());
        match self.failed() {
            0 => Ok(()),
            1 => Err("1 phase failed".to_owned()),
            n => Err(format!("{n} phases failed")),
        }
    }

    fn failed(&self) -> usize {
        self.done.iter().filter(|phase| phase.outcome.is_err()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_or_keeps_going() {
        for (on_failure, expected) in [(OnFailure::Stop, 1), (OnFailure::KeepGoing, 2)] {
            let mut phases = Phases::new(on_failure);
            phases.run("first", || Err("broken".to_owned()));
            phases.run("second", || Ok(()));
            assert_eq!(phases.done.len(), expected, "{on_failure:?}");
            assert_eq!(phases.finish(), Err("1 phase failed".to_owned()));
        }
    }
}
