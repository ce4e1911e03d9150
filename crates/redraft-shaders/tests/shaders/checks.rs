//! What must hold for every variant, for the real kernels and for the fixtures.

use crate::pipeline::reflect::validate;
use naga::back::pipeline_constants::process_overrides;
use naga::back::{hlsl, msl, spv};
use naga::{Module, ShaderStage, valid::ModuleInfo};
use redraft_shaders::{Kernel, Target};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Labels are unique and made of the name and the flags, and the look-up finds each by its flags in any order.
pub(crate) fn labels_and_flags(kernels: &[Kernel]) {
    let mut seen = BTreeSet::new();
    for kernel in kernels {
        assert!(seen.insert(kernel.label), "label {} occurs twice", kernel.label);
        let mut parts = vec![kernel.name];
        parts.extend(kernel.flags);
        assert_eq!(kernel.label, parts.join("."), "label of {}", kernel.name);
    }
}

/// Native text is accepted by naga, its overrides resolve, and all three back ends write it.
pub(crate) fn compiles_natively(kernel: &Kernel) {
    let label = kernel.label;
    let text = kernel.source(Target::Native);
    assert!(!text.contains("enable subgroups"), "{label}: naga refuses the directive");
    let module = naga::front::wgsl::parse_str(&text)
        .unwrap_or_else(|e| panic!("{label}: {}", e.emit_to_string(&text)));
    let enables: Vec<String> = kernel.enables.iter().map(|&e| e.to_owned()).collect();
    let (_, info) = validate(&kernel.text.to_string(), &enables).unwrap_or_else(|e| panic!("{label}: {e}"));
    let (module, info) =
        process_overrides(&module, &info, Some((ShaderStage::Compute, "main")), &Default::default())
            .unwrap_or_else(|e| panic!("{label}: overrides: {e}"));
    assert_eq!(
        module.entry_points[0].workgroup_size, kernel.workgroup_size,
        "{label}: reflected workgroup size"
    );
    let invocations: u32 = kernel.workgroup_size.iter().product();
    assert!(
        (1..=256).contains(&invocations),
        "{label}: {invocations} invocations, WebGPU promises at most 256"
    );
    write_spirv(label, &module, &info);
    write_metal(label, &module, &info);
    write_hlsl(label, &module, &info);
}

fn write_spirv(label: &str, module: &Module, info: &ModuleInfo) {
    // Vulkan 1.1, the oldest with subgroups.
    let options = spv::Options { lang_version: (1, 3), ..Default::default() };
    let pipeline =
        spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".to_owned() };
    let words = spv::write_vec(module, info, &options, Some(&pipeline))
        .unwrap_or_else(|e| panic!("{label}: SPIR-V: {e}"));
    assert_eq!(words.first(), Some(&0x0723_0203), "{label}: SPIR-V magic number");
}

fn write_metal(label: &str, module: &Module, info: &ModuleInfo) {
    let options = msl::Options { lang_version: (2, 4), ..Default::default() };
    let (text, written) = msl::write_string(module, info, &options, &Default::default())
        .unwrap_or_else(|e| panic!("{label}: MSL: {e}"));
    for entry in written.entry_point_names {
        let name = entry.unwrap_or_else(|e| panic!("{label}: MSL entry point: {e}"));
        assert!(text.contains(&name), "{label}: MSL lacks {name}");
    }
}

fn write_hlsl(label: &str, module: &Module, info: &ModuleInfo) {
    // 16-bit types came with 6.2; wgpu's DXC path asks for at least that.
    let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, ..Default::default() };
    let pipeline = hlsl::PipelineOptions::default();
    let mut text = String::new();
    let written = hlsl::Writer::new(&mut text, &options, &pipeline)
        .write(module, info, None)
        .unwrap_or_else(|e| panic!("{label}: HLSL: {e}"));
    for entry in written.entry_point_names {
        let name = entry.unwrap_or_else(|e| panic!("{label}: HLSL entry point: {e}"));
        assert!(text.contains(&name), "{label}: HLSL lacks {name}");
    }
}

/// Texts for natives and browsers are the same but for `enable` lines, which come first.
pub(crate) fn targets_differ_in_enables(kernel: &Kernel) {
    let label = kernel.label;
    let split = |target| {
        let text = kernel.source(target);
        let (enables, rest): (Vec<_>, Vec<_>) =
            text.lines().map(str::to_owned).partition(|line| line.starts_with("enable "));
        let leading = text.lines().take_while(|l| l.starts_with("enable "));
        assert_eq!(leading.count(), enables.len(), "{label}: enable lines lead the text");
        (enables, rest)
    };
    let (native, native_rest) = split(Target::Native);
    let (browser, browser_rest) = split(Target::Browser);
    assert_eq!(native_rest, browser_rest, "{label}: text");
    let lines = |skip: &str| -> Vec<String> {
        let kept = kernel.enables.iter().filter(|e| **e != skip);
        kept.map(|e| format!("enable {e};")).collect()
    };
    assert_eq!(native, lines("subgroups"), "{label}: native enables");
    assert_eq!(browser, lines(""), "{label}: browser enables");
    assert!(!browser_rest.iter().any(|l| l.contains("requires ")), "{label}: a `requires` directive");
}

/// Bindings are reflected in the order and the number that the house rules ask for.
pub(crate) fn bindings_in_order(kernel: &Kernel) {
    for (expected, binding) in kernel.bindings.iter().enumerate() {
        let label = kernel.label;
        assert_eq!(binding.index as usize, expected, "{label}: index of {}", binding.name);
        assert!(binding.min_size > 0, "{label}: size of {}", binding.name);
        assert_eq!(kernel.binding(binding.name), Some(binding), "{label}");
    }
}

/// The WGSL compiler of Chromium, where it is on the PATH.
pub(crate) fn find_tint() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join("tint"))
        .find(|path| path.is_file())
}

/// Runs `tint` on a text; its complaints, or `None` where it accepts the text. The output format is WGSL, as some
/// builds of `tint` have no format `none`.
pub(crate) fn run_tint(tint: &Path, label: &str, text: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{label}.wgsl"));
    std::fs::write(&path, text).unwrap();
    let run = Command::new(tint).args(["--format", "wgsl"]).arg(&path).output().unwrap();
    (!run.status.success()).then(|| String::from_utf8_lossy(&run.stderr).into_owned())
}

/// Browser texts are accepted by `tint`. Returns how many texts it read, or `None` for a declared skip.
pub(crate) fn tint_accepts(test: &str, kernels: &[Kernel]) -> Option<usize> {
    let Some(tint) = find_tint() else {
        let count = kernels.len();
        let why = format!("no `tint` on the PATH, browser text of {count} variants not checked");
        redraft_testing::declared_skip(test, &why);
        return None;
    };
    let mut seen = BTreeSet::new();
    let mut refused = Vec::new();
    for kernel in kernels {
        let text = kernel.source(Target::Browser);
        if seen.insert(text.clone())
            && let Some(errors) = run_tint(&tint, kernel.label, &text)
        {
            refused.push((kernel, errors));
        }
    }
    let labels: Vec<_> = refused.iter().map(|(kernel, _)| kernel.label).collect();
    // One full message a kernel file: its variants mostly share the cause.
    refused.dedup_by_key(|(kernel, _)| kernel.name);
    let first: String = refused.into_iter().map(|(_, errors)| errors).collect();
    assert!(labels.is_empty(), "tint refuses {} of {}: {labels:?}\n{first}", labels.len(), seen.len());
    Some(seen.len())
}
