//! A host struct that differs from its WGSL struct does not compile.

use crate::pipeline::emit;
use crate::reflection::good;
use std::process::Command;

const MIRROR: &str = "
    pub rows: u32,
    pub cols: u32,
    pub factor: f32,
    pub shift: i32,
    pub tint: [f32; 4],
    pub window: [[u32; 4]; 2],
";

/// Compiles the generated assertions against a host struct with `members`; the error text, or `None`.
fn compile_against(members: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("host.rs");
    let code = format!(
        "pub mod params {{ #[repr(C)] pub struct ScaleParams {{ {members} }} }}\n{}",
        emit::assertions(&good())
    );
    std::fs::write(&source, code).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let run = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "lib"])
        .args(["--emit", "metadata", "--out-dir"])
        .arg(folder.path())
        .arg(&source)
        .output()
        .unwrap();
    (!run.status.success()).then(|| String::from_utf8_lossy(&run.stderr).into_owned())
}

#[test]
fn the_mirror_compiles() {
    assert_eq!(compile_against(MIRROR), None, "an exact mirror");
}

#[test]
fn every_kind_of_drift_is_a_compile_error() {
    let cases = [
        ("renamed", "pub factor: f32", "pub scale: f32", "factor"),
        (
            "moved",
            "pub rows: u32,\n    pub cols: u32",
            "pub cols: u32,\n    pub rows: u32",
            "ScaleParams.rows is at offset 0",
        ),
        ("retyped", "pub shift: i32", "pub shift: u32", "expected `&i32`"),
        ("last retyped", "[[u32; 4]; 2]", "[[f32; 4]; 2]", "mismatched"),
        ("missing", "pub window: [[u32; 4]; 2],", "", "window"),
        ("extra at the end", "2],", "2], pub more: [u32; 4],", "struct ScaleParams has 64 bytes"),
    ];
    for (name, from, to, message) in cases {
        let members = MIRROR.replace(from, to);
        assert_ne!(members, MIRROR, "{name}: the case changes something");
        let errors = compile_against(&members).unwrap_or_else(|| panic!("{name}: compiled"));
        assert!(errors.contains(message), "{name}: {errors}");
    }
}
