//! Counts the tests that ran on a GPU adapter.
//!
//! Each such test appends one line `TEST<tab>ADAPTER<tab>TIER` to the file named by [`VARIABLE`]. A run in which no
//! test reached an adapter proves nothing about the kernels, so it counts as a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::Outcome;

/// The environment variable that names the log to the tests.
pub(crate) const VARIABLE: &str = "REDRAFT_GPU_TEST_LOG";

/// Starts an empty log.
pub(crate) fn start(log: &Path) -> Outcome {
    let write = || {
        log.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(log, "")
    };
    write().map_err(|error| format!("cannot write {}: {error}", log.display()))
}

/// Prints how many tests ran on which adapter and tier; an error when there were none, or none on one of `tiers`.
pub(crate) fn report(log: &Path, tiers: &[&str]) -> Outcome {
    let text =
        std::fs::read_to_string(log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    let counts = count(&text)?;
    for ((adapter, tier), tests) in &counts {
        eprintln!("GPU tests: {:>4} on {adapter}, tier {tier}", tests.len());
    }
    if counts.is_empty() {
        return Err(
            "no test ran on a GPU adapter; `cargo xtask setup` installs a software one on Debian".to_owned()
        );
    }
    match tiers.iter().find(|tier| !counts.keys().any(|(_, found)| found == *tier)) {
        Some(tier) => Err(format!("no test ran on a GPU adapter in tier {tier}")),
        None => Ok(()),
    }
}

type Counts<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>>;

/// The names of the tests by adapter and tier; a test that logs twice counts once.
fn count(text: &str) -> Outcome<Counts<'_>> {
    let mut counts = Counts::new();
    for line in text.lines() {
        let [test, adapter, tier] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("line of the GPU test log is not TEST<tab>ADAPTER<tab>TIER: {line:?}"));
        };
        counts.entry((adapter, tier)).or_default().insert(test);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_tests_once_by_adapter_and_tier() {
        let counts =
            count("a\tllvmpipe\tstrict\nb\tllvmpipe\tstrict\na\tllvmpipe\tstrict\na\tllvmpipe\tdefault\n");
        let counts = counts.unwrap();
        assert_eq!(counts[&("llvmpipe", "strict")].len(), 2);
        assert_eq!(counts[&("llvmpipe", "default")].len(), 1);
        assert!(count("no tabs").unwrap_err().contains("no tabs"));
    }

    #[test]
    fn nothing_run_is_a_failure() {
        let log = std::env::temp_dir().join(format!("redraft-xtask-log-{}", std::process::id()));
        start(&log).unwrap();
        assert!(report(&log, &[]).unwrap_err().contains("no test ran"), "an empty log must fail");
        std::fs::write(&log, "a\tllvmpipe\tstrict\n").unwrap();
        assert_eq!(report(&log, &["strict"]), Ok(()));
        assert!(
            report(&log, &["strict", "default"]).unwrap_err().ends_with("tier default"),
            "a tier is missing"
        );
        std::fs::remove_file(&log).unwrap();
    }
}
