//! The kernel table and look-ups in it.

use std::fmt;

/// One linked and validated variant of a kernel. The entry point is always `main`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    /// The kernel's name, which is the stem of its file.
    pub name: &'static str,
    /// `name` and `flags` joined by dots, unique: for labels, errors and profiles.
    pub label: &'static str,
    /// The value chosen on each axis, in the manifest's order.
    pub flags: &'static [&'static str],
    /// Plain WGSL without `enable` lines. To compile it, take [`Kernel::source`].
    pub text: Text,
    /// Extensions that the text uses: `f16`, `subgroups`, or none. The adapter must have the features of the same name.
    pub enables: &'static [&'static str],
    /// Bindings of group 0, sorted by index, which runs from 0 without gaps.
    pub bindings: &'static [Binding],
    /// Invocations of a workgroup in x, y and z, with every override at its default.
    pub workgroup_size: [u32; 3],
    /// Pipeline-overridable constants, set by name when a pipeline is made.
    pub overrides: &'static [Override],
}

/// A text in pieces. Variants have most of their declarations in common; each of those is kept once, as browsers download
/// them all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// What all texts are made of.
    pub pieces: &'static [&'static str],
    /// Which of them this text is made of, first to last, as indices.
    pub order: &'static [u16],
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.order.iter().try_for_each(|&piece| f.write_str(self.pieces[usize::from(piece)]))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// One buffer of bind group 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// `@binding` index.
    pub index: u32,
    /// The variable's name in WGSL.
    pub name: &'static str,
    /// How the kernel uses the buffer.
    pub kind: BindingKind,
    /// The least number of bytes that may be bound: the size of the type, where a runtime-sized array counts as one
    /// element.
    pub min_size: u64,
    /// Whether the bind group layout takes a dynamic offset here.
    pub dynamic: bool,
}

/// How a kernel uses a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BindingKind {
    /// `var<uniform>`.
    Uniform,
    /// `var<storage, read>`.
    ReadOnly,
    /// `var<storage, read_write>`.
    ReadWrite,
}

/// A pipeline-overridable constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Override {
    /// The constant's name in WGSL.
    pub name: &'static str,
    /// Its type.
    pub kind: OverrideKind,
    /// Its default; a boolean is 0 or 1.
    pub default: f64,
}

/// The type of a pipeline-overridable constant. Values are given to WebGPU as `f64` all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverrideKind {
    /// `bool`.
    Bool,
    /// `i32`.
    I32,
    /// `u32`.
    U32,
    /// `f32`.
    F32,
}

/// Who compiles the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// naga inside wgpu, which has subgroups without a directive and refuses `enable subgroups;`.
    Native,
    /// A browser, which demands an `enable` line for each extension.
    Browser,
}

impl Kernel {
    /// The complete WGSL text for `target`. Texts for different targets differ in `enable` lines only.
    #[must_use]
    pub fn source(&self, target: Target) -> String {
        let wanted = |extension: &&&str| target == Target::Browser || **extension != "subgroups";
        let enables = self.enables.iter().filter(wanted).map(|extension| format!("enable {extension};\n"));
        enables.chain([self.text.to_string()]).collect()
    }

    /// The binding of that name.
    #[must_use]
    pub fn binding(&self, name: &str) -> Option<&'static Binding> {
        self.bindings.iter().find(|binding| binding.name == name)
    }
}

/// All variants of all kernels, sorted by kernel name, then in the manifest's order.
#[must_use]
pub fn kernels() -> &'static [Kernel] {
    KERNELS
}

/// The variant of the kernel `name` that has exactly `flags`, in any order; `None` if there is no such variant.
#[must_use]
pub fn kernel(name: &str, flags: &[&str]) -> Option<&'static Kernel> {
    // A variant's flags are distinct, so equal counts and containment one way make the sets equal.
    kernels().iter().find(|kernel| {
        kernel.name == name
            && kernel.flags.len() == flags.len()
            && kernel.flags.iter().all(|flag| flags.contains(flag))
    })
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
