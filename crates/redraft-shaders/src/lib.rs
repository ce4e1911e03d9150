//! WGSL kernels of redraft, linked and validated at build time, with reflected bindings.
//!
//! The kernels are the files directly inside `shaders/` at the repository root, one operation a file. The build
//! script links each with the modules of `shaders/lib/` into plain WGSL, once for every variant that
//! `shaders/kernels.toml` lists, has naga validate it, checks the house rules, and reflects what the host needs.
//! This crate holds the result: text and tables. It calls no GPU API and carries neither linker nor compiler.
//!
//! - [`kernel`] finds a variant by its name and flags, [`kernels`] lists all of them.
//! - [`Kernel`] has the text ([`Kernel::source`]), the bind group layout ([`Binding`]), the workgroup size and the
//!   [`Override`]s of one variant.
//! - [`params`] holds the host structs that mirror WGSL structs. They are written by hand and documented; the build
//!   turns naga's layout of the WGSL side into compile-time assertions on size, offsets and types, so the two
//!   cannot drift.
//!
//! ```
//! use redraft_shaders::{Target, kernel, kernels};
//!
//! for kernel in kernels() {
//!     println!("{}: {} bindings, {:?}", kernel.label, kernel.bindings.len(), kernel.workgroup_size);
//! }
//! // Flags come in any order, and all of a variant's flags must be named.
//! if let Some(matmul) = kernel("matmul", &["q4", "m8"]) {
//!     println!("{}", matmul.source(Target::Browser));
//! }
//! ```
//!
//! # Adding a kernel
//!
//! 1. Write `shaders/<op>.wgsl`: `import`s first, then bindings, then `@compute` entry point `main`. All bindings are
//!    in group 0, numbered from 0: the parameters (a uniform), then what is read, then what is written, at most eight
//!    storage buffers. A variant that does not use a binding loses it, so use all of them or guard them by `@if`.
//!    Names are not mangled: every top-level name is unique over the kernel and the modules it imports.
//! 2. List it in `shaders/kernels.toml`, whose head describes the fields. Every value of every axis is a flag for
//!    `@if(flag)`; a flag that no kernel has is an error. A kernel with barriers says `barriers = true`.
//! 3. Write its parameter struct in `src/params/`: `#[repr(C)]`, `Pod`, every member by its WGSL name, padding
//!    included; `vecN<T>` is `[T; N]`.
//! 4. `cargo test -p redraft-shaders` runs each variant through naga's SPIR-V, MSL and HLSL writers, and through
//!    `tint` where it is installed.

mod kernel;
pub mod params;

pub use kernel::{Binding, BindingKind, Kernel, Override, OverrideKind, Target, Text, kernel, kernels};
