//! What the tests leave behind for a summary: which of them ran on a GPU adapter, and which declared a skip.
//!
//! A run in which no test reached an adapter proves nothing about the kernels, so it counts as a failure. Skips are
//! fine, but they are always named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::process::Cmd;

/// Names the file to which a test on a GPU appends `TEST<tab>ADAPTER<tab>TIER`.
const GPU_VARIABLE: &str = "REDRAFT_GPU_TEST_LOG";
/// How skips end that tests declare where the adapter has no f16.
const WITHOUT_F16: &str = "the adapter has no shader-f16";
/// Names the file to which a test that cannot run appends `WHAT<tab>WHY`.
const SKIP_VARIABLE: &str = "REDRAFT_SKIP_LOG";

/// The two files of one run of the tests.
pub(crate) struct TestLog {
    gpu: PathBuf,
    skips: PathBuf,
}

impl TestLog {
    /// Starts empty logs in `folder`.
    pub(crate) fn start(folder: &Path) -> Outcome<Self> {
        let log = Self { gpu: folder.join("tests-on-gpu.tsv"), skips: folder.join("tests-skipped.tsv") };
        let write = || {
            fs::create_dir_all(folder)?;
            fs::write(&log.gpu, "")?;
            fs::write(&log.skips, "")
        };
        write()
            .map_err(|error| format!("cannot write logs of the tests to {}: {error}", folder.display()))?;
        Ok(log)
    }

    /// The command with the logs named in its environment.
    pub(crate) fn given_to(&self, command: Cmd) -> Cmd {
        command.env(GPU_VARIABLE, &self.gpu).env(SKIP_VARIABLE, &self.skips)
    }

    /// Prints how many tests ran on which adapter, and each declared skip; an error when no test ran on an adapter, or
    /// none in one of `tiers`, or of `f16_tiers` unless a test has said that the adapter has no f16.
    pub(crate) fn report(&self, tiers: &[&str], f16_tiers: &[&str]) -> Outcome {
        let read = |file: &Path| {
            fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
        };
        let skips = read(&self.skips)?;
        let without_f16 = skips.lines().any(|line| line.ends_with(WITHOUT_F16));
        for line in skips.lines().collect::<BTreeSet<_>>() {
            eprintln!("skipped: {}", line.replace('\t', ": "));
        }
        let text = read(&self.gpu)?;
        let counts = count(&text)?;
        for ((adapter, tier), tests) in &counts {
            eprintln!("GPU tests: {} on {adapter}, tier {tier}", tests.len());
        }
        let all: BTreeSet<_> = counts.values().flatten().collect();
        eprintln!("GPU tests: {} in all", all.len());
        if all.is_empty() {
            return Err("no test ran on a GPU adapter (`cargo xtask setup` installs one that needs no GPU)"
                .to_owned());
        }
        let f16_tiers = if without_f16 { &[] } else { f16_tiers };
        match tiers.iter().chain(f16_tiers).find(|tier| !counts.keys().any(|(_, found)| found == *tier)) {
            Some(tier) => Err(format!("no test ran on a GPU adapter in tier {tier}")),
            None => Ok(()),
        }
    }
}

type Counts<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>>;

/// The names of the tests by adapter and tier; a test that logs twice counts once.
fn count(text: &str) -> Outcome<Counts<'_>> {
    let mut counts = Counts::new();
    for line in text.lines() {
        let [test, adapter, tier] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("{GPU_VARIABLE}: a line is not TEST<tab>ADAPTER<tab>TIER: {line:?}"));
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
        let folder = std::env::temp_dir().join(format!("redraft-xtask-logs-{}", std::process::id()));
        let log = TestLog::start(&folder).unwrap();
        assert!(log.report(&[], &[]).unwrap_err().contains("no test ran"), "an empty log must fail");
        fs::write(&log.gpu, "a\tllvmpipe\tstrict\n").unwrap();
        assert_eq!(log.report(&["strict"], &[]), Ok(()));
        let missing = |tiers: &[&str], f16: &[&str]| log.report(tiers, f16).unwrap_err();
        assert!(missing(&["strict", "default"], &[]).ends_with("tier default"), "a tier is missing");
        assert!(missing(&["strict"], &["strict-f16"]).ends_with("tier strict-f16"), "one in f16 is missing");
        fs::write(&log.skips, format!("a\t{WITHOUT_F16}\n")).unwrap();
        assert_eq!(log.report(&["strict"], &["strict-f16"]), Ok(()), "an adapter without f16");
        fs::remove_dir_all(&folder).unwrap();
    }
}
