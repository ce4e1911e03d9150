//! `redraft devices`: what adapters there are, and whether they compute correctly.

use std::fmt::Write as _;

use clap::Args;
use pollster::block_on;
use redraft::{AdapterChoice, AdapterReport, CheckReport, Outcome};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output;

/// Flags of `devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Run every kernel on each usable adapter and compare with the CPU; exit status 1 if any differs
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An adapter and, with --check, how it did: the report, or why there is none.
struct Entry {
    adapter: AdapterReport,
    check: Option<Result<CheckReport, String>>,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), CliError> {
    let mut entries = Vec::new();
    for (index, adapter) in block_on(redraft::adapters()).into_iter().enumerate() {
        let check = (args.check && adapter.unusable.is_none()).then(|| {
            output::note(format_args!("checking {} ({})", adapter.name, adapter.backend));
            block_on(redraft::check_adapter(&AdapterChoice::Index(index))).map_err(|e| e.to_string())
        });
        entries.push(Entry { adapter, check });
    }
    if args.json {
        output::emit_json(&entries.iter().enumerate().map(|(i, e)| to_json(i, e)).collect::<Vec<_>>())?;
    } else if entries.is_empty() {
        output::note(
            "no adapter found; install a Vulkan driver (software: mesa-vulkan-drivers on Debian and Ubuntu)",
        );
    } else {
        output::emit(&entries.iter().enumerate().map(|(i, e)| to_text(i, e)).collect::<String>())?;
    }
    // Asked to check, an answer without a single adapter checked is a failure, not a success.
    let passed = |entry: &Entry| matches!(&entry.check, Some(Ok(report)) if report.passed());
    let failed = |entry: &Entry| entry.check.is_some() && !passed(entry);
    if args.check && (entries.iter().any(failed) || !entries.iter().any(passed)) {
        return Err(CliError::CheckFailed);
    }
    Ok(())
}

fn to_text(index: usize, entry: &Entry) -> String {
    let Entry { adapter, check } = entry;
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
    match check {
        None => {}
        Some(Err(reason)) => line("check", format!("FAILED: {reason}")),
        Some(Ok(report)) => {
            let good = report.items.iter().filter(|i| matches!(i.outcome, Outcome::Pass)).count();
            line("check", format!("{good} of {} pass ({} kernels)", report.items.len(), report.path));
            for item in &report.items {
                if let Some(problem) = problem(&item.outcome) {
                    line("", format!("{}: {problem}", item.kernel));
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

fn to_json(index: usize, entry: &Entry) -> Value {
    let Entry { adapter, check } = entry;
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
    let checked = match check {
        None => return value,
        Some(Err(reason)) => json!({ "passed": false, "error": reason, "items": [] }),
        Some(Ok(report)) => {
            let item = |i: &redraft::CheckItem| json!({ "kernel": i.kernel, "passed": matches!(i.outcome, Outcome::Pass), "problem": problem(&i.outcome) });
            json!({
                "passed": report.passed(),
                "error": null,
                "items": report.items.iter().map(item).collect::<Vec<_>>(),
            })
        }
    };
    if let Some(object) = value.as_object_mut() {
        object.insert("check".into(), checked);
    }
    value
}
