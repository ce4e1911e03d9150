//! Links, validates and reflects every kernel of `shaders/kernels.toml` into `$OUT_DIR/kernels.rs`.

#[path = "build/mod.rs"]
mod pipeline;

use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let shaders = shader_folder(&root);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    let result = pipeline::compile(&shaders).and_then(|compiled| {
        for path in &compiled.watched {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        pipeline::emit::write(&compiled.kernels, &out)
    });
    if let Err(problems) = result {
        println!("cargo:rerun-if-changed={}", shaders.display());
        for problem in &problems {
            eprintln!("error: {problem}\n");
        }
        eprintln!("{} problem(s) in the shaders", problems.len());
        std::process::exit(1);
    }
}

/// The `shaders` folder: beside the manifest (a link in the repository, a real folder in a package), or, where
/// the link was checked out as a plain file (Windows without symbolic links), at the repository root.
fn shader_folder(manifest_dir: &Path) -> PathBuf {
    let beside = manifest_dir.join("shaders");
    let folder = if beside.is_dir() { beside } else { manifest_dir.join("../../shaders") };
    folder.canonicalize().unwrap_or(folder)
}
