//! Host structs that mirror WGSL structs, one file a group of kernels.
//!
//! The build asserts size, member offsets and member types of every struct that `shaders/kernels.toml` names against
//! naga's layout of the WGSL side: a member that is missing, renamed, moved or of another type does not compile.

mod draft;
mod forward;
mod sampling;

pub use draft::{
    AcceptParams, CompactParams, DraftParams, FeatureParams, GatherParams, Node, Round, SecondPassParams,
    StoreParams, TopParams,
};
pub use forward::{
    AttentionParams, CaptureParams, EmbedParams, GateUpParams, MatmulParams, QkvRopeParams, RmsNormParams,
    Step,
};
pub use sampling::SampleParams;
