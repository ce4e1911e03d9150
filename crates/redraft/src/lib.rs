//! Exact, fast language model inference on any WebGPU adapter.
//!
//! [`Engine::load`] opens an adapter and puts a GGUF model on it; [`Engine::generate`] streams an answer as a
//! [`TokenStream`]; [`Chat`] keeps the turns of a conversation. [`Engine::forward`] gives logits and captures to those
//! who sample or study by themselves. Everything that touches the GPU is async; natively, block on it with whatever
//! executor you like (`pollster::block_on` will do).
//!
//! ```no_run
//! use redraft::{Engine, EngineOptions, FileSource, GenerateOptions, Message};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let file = FileSource::open("SmolLM2-135M-Instruct.Q4_1.gguf")?;
//! let mut engine = Engine::load(&file, EngineOptions::default(), |_| {}).await?;
//! let prompt = engine.encode_chat(&[Message::user("What is the capital of France?")])?;
//! let mut answer = engine.generate(&prompt, GenerateOptions::default())?;
//! while let Some(step) = answer.next().await? {
//!     print!("{}", step.text);
//! }
//! # Ok(()) }
//! ```
//!
//! Output is a function of prompt, seed, parameters and adapter: a row of a batch is computed by the same operations
//! in the same order whatever else is in the batch, see `redraft_model::Path`.

mod answer;
mod chat;
mod costs;
mod drafters;
mod engine;
mod error;
mod generate;
mod speculation;

pub use answer::{CancelToken, GenerateOptions, Generation, Stage, Step, Timings};
pub use chat::Chat;
pub use costs::Measured;
pub use drafters::{DrafterSearch, FoundDrafter};
pub use engine::{
    Engine, EngineOptions, ForwardOutput, HostStep, Rows, Want, check_adapter, check_adapter_on,
};
pub use error::Error;
pub use generate::TokenStream;
pub use redraft_decode::draft::{
    Costs, Curve, DepthStats, Extent, Gate, Origin, Plan, PlanError, PlanRun, SpeculationStats, Tables,
};
pub use redraft_decode::sampling::MAX_VOCAB;
pub use redraft_decode::{LogProb, LogProbs, SamplingParams, StopReason, TokenId};
pub use redraft_drafter::{
    DrafterConfig, DrafterError, DrafterFile, Eagle3Gguf, EagleCheckpoint, FloatType, GgufOptions,
    Quantization, Reconsider, TargetFingerprint, Warning,
};
#[cfg(not(target_arch = "wasm32"))]
pub use redraft_gguf::FileSource;
pub use redraft_gguf::{
    Architecture, Array, GgmlType, Gguf, GgufError, Metadata, ModelConfig, ReadAt, ReadError, TensorInfo,
    Value,
};
pub use redraft_gpu::{
    AdapterChoice, AdapterFeatures, AdapterLimits, AdapterReport, GpuError, KernelTime, adapters,
};
pub use redraft_model::check::{CheckItem, CheckProgress, CheckReport, Outcome};
pub use redraft_model::{
    CaptureLayers, KvType, MemoryPlan, ModelError, OracleEntry, Path, Phase, Planned, Precision, Progress,
    RoundTrace, TileReport, Tiles, TraceNode, TreeKernel, phase,
};
pub use redraft_text::{ChatTemplate, Message, RenderOptions, Special, TemplateError, Tokenizer};
pub use speculation::{LEAST_CONTEXT, Speculation};
