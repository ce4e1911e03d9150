//! `redraft devices`: what adapters there are, and whether they compute correctly.

use std::fmt::Write as _;

use clap::Args;
use pollster::block_on;
use redraft::{AdapterChoice, AdapterReport, CheckReport, GpuError, Outcome, Precision};
use serde_json::{Value, json};

use crate::args::parse_adapter;
use crate::error::CliError;
use crate::{output, progress};

/// Flags of `devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Run every kernel on each usable adapter, with and without subgroups and f16, and compare; exit status 1 if any
    /// differs
    #[arg(long)]
    pub(crate) check: bool,
    /// Only this adapter: a number of the list, or part of a name; auto is the one that other commands take
    #[arg(long, value_name = "ADAPTER", value_parser = parse_adapter)]
    pub(crate) adapter: Option<AdapterChoice>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An adapter and, with --check, how it did.
struct Entry {
    /// Place in the list of all adapters.
    index: usize,
    adapter: AdapterReport,
    checks: Option<Vec<Check>>,
}

/// A tier of an adapter, and how it did; no report for drivers that no browser would use.
struct Check {
    /// Name in JSON; without `check_` also in text.
    key: &'static str,
    report: Option<Result<CheckReport, String>>,
}

/// The tiers: with all that the adapter offers, and as every browser has it (no subgroups); each again in f16.
const TIERS: [(&str, bool, Precision); 4] = [
    ("check", false, Precision::F32),
    ("check_strict", true, Precision::F32),
    ("check_f16", false, Precision::F16),
    ("check_strict_f16", true, Precision::F16),
];

fn passed(checks: &[Check]) -> bool {
    checks.iter().filter_map(|check| check.report.as_ref()).all(|r| r.as_ref().is_ok_and(CheckReport::passed))
}

/// Checks a tier, with a bar.
fn check(index: usize, strict: bool, precision: Precision) -> Result<CheckReport, redraft::Error> {
    let bar = progress::items("starting", 1);
    let report = block_on(redraft::check_adapter(&AdapterChoice::Index(index), strict, precision, |at| {
        bar.set_length(at.total as u64);
        bar.set_position(at.done as u64);
        bar.set_message(at.now.clone());
    }));
    bar.finish_and_clear();
    report
}

/// Every tier that the adapter has.
fn check_all(index: usize, adapter: &AdapterReport) -> Vec<Check> {
    let has = |precision| precision == Precision::F32 || adapter.features.f16;
    let tiers = TIERS.into_iter().filter(|(.., precision)| has(*precision));
    tiers
        .map(|(key, strict, precision)| Check {
            key,
            report: match check(index, strict, precision) {
                Err(redraft::Error::Gpu(GpuError::Unusable { .. })) if strict => None,
                other => Some(other.map_err(|error| error.to_string())),
            },
        })
        .collect()
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), CliError> {
    let all = block_on(redraft::adapters());
    let wanted = |index: usize, adapter: &AdapterReport| {
        args.adapter.as_ref().is_none_or(|choice| choice.matches(index, adapter))
    };
    let mut chosen: Vec<_> =
        all.iter().cloned().enumerate().filter(|(index, adapter)| wanted(*index, adapter)).collect();
    if args.adapter == Some(AdapterChoice::Auto) {
        chosen.truncate(1);
    }
    if let (Some(choice), true) = (&args.adapter, chosen.is_empty()) {
        let found = all.iter().map(|adapter| adapter.name.clone()).collect::<Vec<_>>().join(", ");
        return Err(CliError::NoAdapter { wanted: choice.to_string(), found });
    }
    let mut entries = Vec::new();
    for (index, adapter) in chosen {
        let checks = (args.check && adapter.unusable.is_none()).then(|| {
            output::note(format_args!("checking {} ({})", adapter.name, adapter.backend));
            check_all(index, &adapter)
        });
        entries.push(Entry { index, adapter, checks });
    }
    if args.json {
        output::emit_json(&entries.iter().map(to_json).collect::<Vec<_>>())?;
    } else if entries.is_empty() {
        output::note(
            "no adapter found; install a Vulkan driver (software: mesa-vulkan-drivers on Debian and Ubuntu)",
        );
    } else {
        output::emit(&entries.iter().map(to_text).collect::<String>())?;
    }
    // Asked to check, an answer without a single adapter checked is a failure, not a success.
    let passed = |entry: &Entry| entry.checks.as_deref().is_some_and(passed);
    let failed = |entry: &Entry| entry.checks.is_some() && !passed(entry);
    if args.check && (entries.iter().any(failed) || !entries.iter().any(passed)) {
        return Err(CliError::CheckFailed);
    }
    Ok(())
}

fn to_text(entry: &Entry) -> String {
    let Entry { index, adapter, checks } = entry;
    let AdapterReport { name, backend, device_type, driver, features, limits, unusable } = adapter;
    let mut text = format!("{index}: {name}\n");
    let mut line = |label: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "   {label:<10} {value}");
    };
    line("backend", format!("{backend}, {device_type}"));
    line("driver", driver.clone());
    let subgroups =
        features.subgroups.map_or("no subgroups".into(), |(min, max)| format!("subgroups of {min} to {max}"));
    let has = |yes: bool, what: &str| if yes { what.to_owned() } else { format!("no {what}") };
    line(
        "features",
        [
            has(features.f16, "f16"),
            subgroups,
            has(features.timestamps, "timestamps"),
            has(features.pipeline_cache, "pipeline cache"),
        ]
        .join(", "),
    );
    line(
        "limits",
        format!(
            "buffer {}, binding {}, uniform {}, {} invocations a workgroup, {} storage buffers",
            output::bytes(limits.max_buffer),
            output::bytes(limits.max_binding),
            output::bytes(limits.max_uniform_binding),
            limits.max_workgroup_invocations,
            limits.max_storage_buffers
        ),
    );
    match unusable {
        None => line("usable", "yes".into()),
        Some(reason) => line("usable", format!("no: {reason}")),
    }
    for Check { key, report } in checks.iter().flatten() {
        let label = key.strip_prefix("check_").unwrap_or(key);
        let Some(check) = report else {
            line(label, "not run: no browser would use this driver".into());
            continue;
        };
        match check {
            Err(reason) => line(label, format!("FAILED: {reason}")),
            Ok(report) => {
                let good = report.items.iter().filter(|i| matches!(i.outcome, Outcome::Pass)).count();
                line(label, format!("{good} of {} pass ({} kernels)", report.items.len(), report.path));
                if let Some(tiles) = &report.tiles {
                    line("", tiles.to_string());
                }
                for item in &report.items {
                    if let Some(problem) = problem(&item.outcome) {
                        line("", format!("{}: {problem}", item.kernel));
                    }
                }
            }
        }
    }
    text
}

fn problem(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Pass => None,
        Outcome::Failed(reason) => Some(format!("FAILED: {reason}")),
        Outcome::Differs { values, of } => {
            Some(format!("DIFFERS: {values} of {of} values that must be equal are not"))
        }
        Outcome::Wrong { error } => Some(format!("WRONG: relative error {error:.1e} against the CPU")),
    }
}

fn to_json(entry: &Entry) -> Value {
    let Entry { index, adapter, checks } = entry;
    let AdapterReport { name, backend, device_type, driver, features, limits, unusable } = adapter;
    let mut value = json!({
        "index": index,
        "name": name,
        "backend": backend,
        "device_type": device_type,
        "driver": driver,
        "features": {
            "f16": features.f16,
            "subgroups": features.subgroups.map(|(min, max)| json!({ "min": min, "max": max })),
            "timestamps": features.timestamps,
            "pipeline_cache": features.pipeline_cache,
        },
        "limits": {
            "max_buffer": limits.max_buffer,
            "max_binding": limits.max_binding,
            "max_uniform_binding": limits.max_uniform_binding,
            "max_workgroup_invocations": limits.max_workgroup_invocations,
            "max_storage_buffers": limits.max_storage_buffers,
        },
        "usable": unusable.is_none(),
        "reason": unusable,
    });
    if let (Some(object), Some(checks)) = (value.as_object_mut(), checks) {
        for check in checks {
            object.insert(check.key.into(), check.report.as_ref().map_or(Value::Null, check_json));
        }
    }
    value
}

fn check_json(check: &Result<CheckReport, String>) -> Value {
    match check {
        Err(reason) => json!({ "passed": false, "error": reason, "items": [] }),
        Ok(report) => {
            let item = |i: &redraft::CheckItem| json!({ "kernel": i.kernel, "passed": matches!(i.outcome, Outcome::Pass), "problem": problem(&i.outcome) });
            json!({
                "passed": report.passed(),
                "error": null,
                "path": report.path,
                "tiles": report.tiles.map(|tiles| json!({
                    "used": tiles.used.sizes().collect::<Vec<_>>(),
                    "differing": tiles.differing().collect::<Vec<_>>(),
                })),
                "items": report.items.iter().map(item).collect::<Vec<_>>(),
            })
        }
    }
}
