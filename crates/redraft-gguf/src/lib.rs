//! GGUF files: container, metadata, tensor types, and lossless repacking into the planar GPU formats.
//!
//! Nothing here knows a GPU. [`Gguf::read`] reads the header of a file through [`ReadAt`] (a byte slice, a
//! [`FileSource`], or the caller's own source of bytes) and never the tensors. [`ModelConfig::from_gguf`] turns
//! the metadata and the tensor list into the shape of a model and checks that the file really holds one. Tensor
//! bytes are then read in pieces by the caller, and [`pack_rows`] rewrites them in one of the [`GpuFormat`]s
//! without losing a bit; [`dequantize`] and [`unpack_rows`] are the reference for both sides of that.
//! [`quantize`] goes the other way for the few types that this project writes, and [`GgufWriter`] makes a file of them.
//!
//! Every size, count and offset of a file is checked before it is used, and what does not fit is a
//! [`GgufError`] that names the field.
//!
//! ```
//! use redraft_gguf::{Gguf, GgufError};
//!
//! // A file with no metadata and no tensors: magic, version 3, two zero counts.
//! let mut file = b"GGUF".to_vec();
//! file.extend(3u32.to_le_bytes());
//! file.extend([0; 16]);
//! let gguf = pollster::block_on(Gguf::read(&file))?;
//! assert_eq!(gguf.version, 3);
//! assert!(gguf.tensor("token_embd.weight").is_none());
//! # Ok::<(), GgufError>(())
//! ```

mod config;
mod container;
mod cursor;
mod dequant;
mod error;
#[cfg(not(target_arch = "wasm32"))]
mod file_source;
mod metadata;
mod pack;
mod quantize;
mod source;
mod types;
mod write;

pub use config::{Architecture, ModelConfig, Rope, RopeLayout, RopeScaling};
pub use container::{Gguf, TensorInfo};
pub use dequant::dequantize;
pub use error::{GgufError, PackError, ReadError};
#[cfg(not(target_arch = "wasm32"))]
pub use file_source::FileSource;
pub use metadata::{Array, Metadata, Value};
pub use pack::{GpuFormat, PANEL, pack_rows, unpack_rows};
pub use quantize::{QuantizeError, quantize};
pub use source::ReadAt;
pub use types::GgmlType;
pub use write::GgufWriter;
