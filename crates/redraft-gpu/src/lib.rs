//! Device, buffers, pipelines and recorded dispatches; the only user of wgpu.
//!
//! - [`adapters`] lists what the machine has, [`AdapterChoice`] names one, [`Gpu::open`] opens it with the adapter's
//!   own limits. [`Capabilities`] says which kernel variants it can run.
//! - [`Gpu::buffer`] allocates, [`Gpu::kernel`] compiles a variant of `redraft-shaders`, [`Gpu::bind`] joins the two
//!   to a [`Dispatch`]. All of this happens at load time.
//! - [`Gpu::submit`] records prebuilt dispatches into one compute pass and submits it; [`Gpu::read`] brings bytes
//!   back. A decode loop calls only these two and [`Gpu::write`], and creates no GPU object.
//!
//! Running out of memory and losing the device are typed errors ([`GpuError`]).
//!
//! ```no_run
//! # async fn example() -> Result<(), redraft_gpu::GpuError> {
//! use redraft_gpu::{AdapterChoice, Gpu, GpuOptions};
//!
//! let gpu = Gpu::open(&AdapterChoice::Auto, &GpuOptions::default()).await?;
//! println!("{}", gpu.report().name);
//! # Ok(()) }
//! ```
#![forbid(unsafe_op_in_unsafe_fn)]

mod adapter;
mod buffer;
mod device;
mod error;
mod pass;
mod pipeline;
mod profile;
mod readback;
mod signal;
mod unchecked;

pub use adapter::{AdapterChoice, AdapterFeatures, AdapterLimits, AdapterReport, adapters};
pub use buffer::{Buffer, BufferUse, Slice};
pub use device::{Capabilities, Gpu, GpuOptions, Traffic};
pub use error::GpuError;
pub use pass::{Dispatch, Pass};
pub use pipeline::Pipeline;
pub use profile::KernelTime;
pub use readback::Readback;
