//! The whole pipeline on the fixture kernels.

use crate::checks;
use crate::pipeline::{self, Compiled};
use redraft_shaders::{Binding, BindingKind, Kernel, Override, OverrideKind, Target, Text};
use std::path::{Path, PathBuf};

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub(crate) fn good() -> Vec<Compiled> {
    pipeline::compile(&fixture("good")).unwrap().kernels
}

/// The table entry that the generated code would hold. Leaks, as that one is static.
fn publish(compiled: &Compiled) -> Kernel {
    let text = |s: &str| -> &'static str { s.to_owned().leak() };
    let texts = |items: &[String]| -> &'static [&'static str] {
        items.iter().map(|s| text(s)).collect::<Vec<_>>().leak()
    };
    let bindings = compiled.reflection.bindings.iter().map(|b| Binding {
        index: b.index,
        name: text(&b.name),
        kind: match b.kind {
            "Uniform" => BindingKind::Uniform,
            "ReadOnly" => BindingKind::ReadOnly,
            "ReadWrite" => BindingKind::ReadWrite,
            other => panic!("no such kind: {other}"),
        },
        min_size: b.min_size.into(),
        dynamic: b.dynamic,
    });
    let overrides = compiled.reflection.overrides.iter().map(|o| Override {
        name: text(&o.name),
        kind: match o.kind {
            "Bool" => OverrideKind::Bool,
            "I32" => OverrideKind::I32,
            "U32" => OverrideKind::U32,
            "F32" => OverrideKind::F32,
            other => panic!("no such kind: {other}"),
        },
        default: o.default,
    });
    Kernel {
        name: text(&compiled.name),
        label: text(&compiled.label),
        flags: texts(&compiled.flags),
        text: Text { pieces: texts(std::slice::from_ref(&compiled.wgsl)), order: &[0] },
        enables: texts(&compiled.enables),
        bindings: bindings.collect::<Vec<_>>().leak(),
        workgroup_size: compiled.reflection.workgroup_size,
        overrides: overrides.collect::<Vec<_>>().leak(),
    }
}

fn published() -> Vec<Kernel> {
    good().iter().map(publish).collect()
}

fn find(label: &str) -> Kernel {
    let kernels = published();
    *kernels.iter().find(|k| k.label == label).unwrap()
}

#[test]
fn axes_multiply_and_exclude_removes() {
    let labels: Vec<_> = published().iter().map(|k| k.label).collect();
    let expected = [
        "scale.q4.f32.plain",
        "scale.q4.f32.subgroups",
        "scale.q4.f16.plain",
        "scale.q4.f16.subgroups",
        "scale.q8.f32.plain",
        "scale.q8.f32.subgroups",
        "total",
    ];
    assert_eq!(labels, expected, "labels in order");
}

#[test]
fn fixtures_pass_every_check_of_the_real_kernels() {
    let kernels = published();
    checks::labels_and_flags(&kernels);
    for kernel in &kernels {
        checks::compiles_natively(kernel);
        checks::bindings_in_order(kernel);
        checks::targets_differ_in_enables(kernel);
    }
    if let Some(texts) =
        checks::tint_accepts("shaders: fixtures_pass_every_check_of_the_real_kernels", &kernels)
    {
        assert_eq!(texts, 7, "distinct texts");
    }
}

#[test]
fn tint_refuses_what_browsers_refuse() {
    let Some(tint) = checks::find_tint() else {
        redraft_testing::declared_skip("shaders: tint_refuses_what_browsers_refuse", "no `tint` on the PATH");
        return;
    };
    let kernel = find("scale.q8.f32.subgroups");
    let native = kernel.source(Target::Native);
    let errors = checks::run_tint(&tint, kernel.label, &native).unwrap_or_default();
    assert!(errors.contains("subgroups"), "without the enable line: {errors}");
}

#[test]
fn bindings_are_reflected() {
    let kernel = find("scale.q4.f16.plain");
    let found: Vec<_> =
        kernel.bindings.iter().map(|b| (b.index, b.name, b.kind, b.min_size, b.dynamic)).collect();
    let expected = [
        (0, "params", BindingKind::Uniform, 64, false),
        (1, "packed", BindingKind::ReadOnly, 4, true),
        (2, "output", BindingKind::ReadWrite, 2, false),
    ];
    assert_eq!(found, expected, "index, name, kind, size, dynamic");
}

#[test]
fn overrides_and_workgroup_size_are_resolved() {
    let kernel = find("scale.q8.f32.subgroups");
    let found: Vec<_> = kernel.overrides.iter().map(|o| (o.name, o.kind, o.default)).collect();
    let expected = [
        ("WG", OverrideKind::U32, 64.0),
        ("SPAN", OverrideKind::U32, 128.0),
        ("FAST", OverrideKind::Bool, 1.0),
        ("BIAS", OverrideKind::F32, -0.5),
        ("STEP", OverrideKind::I32, -3.0),
    ];
    assert_eq!(found, expected, "name, kind, default");
    assert_eq!(kernel.workgroup_size, [64, 1, 1], "from the override");
}

#[test]
fn flags_choose_text_and_extensions() {
    let plain = find("scale.q8.f32.plain");
    assert!(plain.enables.is_empty(), "{:?}", plain.enables);
    let plain = plain.text.to_string();
    assert!(plain.contains("lane * 8u"), "the q8 module");
    assert!(!plain.contains("lane * 4u"), "not the q4 module");
    assert!(!plain.contains("unused"), "stripped");
    assert!(!plain.contains("subgroupAdd"), "not chosen");
    let full = find("scale.q4.f16.subgroups");
    assert_eq!(full.enables, ["f16", "subgroups"], "from text and manifest");
    let full = full.text.to_string();
    assert!(!full.contains("enable "), "taken out of the text");
    assert!(full.contains("subgroupAdd"), "chosen");
}

#[test]
fn every_file_and_folder_is_watched() {
    let folder = fixture("good");
    let watched = pipeline::compile(&folder).unwrap().watched;
    for path in ["", "kernels.toml", "scale.wgsl", "lib", "lib/quant/q4.wgsl"] {
        let path = folder.join(path);
        assert!(
            watched.iter().any(|w| w.components().eq(path.components())),
            "{} is not watched",
            path.display()
        );
    }
}
