//! What can go wrong between the host and the device.

/// An error of the GPU layer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// No adapter matches the choice.
    #[error(
        "no usable GPU adapter {wanted}; found: {found}. Install a Vulkan, Metal or DX12 driver (a software one such as Mesa lavapipe will do), or choose another adapter"
    )]
    NoAdapter {
        /// What was asked for.
        wanted: String,
        /// What the machine has, as one line.
        found: String,
    },
    /// The adapter lacks something that redraft needs.
    #[error("adapter {adapter} cannot be used: {reason}")]
    Unusable {
        /// Name of the adapter.
        adapter: String,
        /// The missing limit or feature.
        reason: String,
    },
    /// Kernels in f16 were asked for on an adapter that has no f16.
    #[error(
        "adapter {adapter} has no shader-f16, which precision f16 needs; use precision f32, which runs everywhere"
    )]
    NoF16 {
        /// Name of the adapter.
        adapter: String,
    },
    /// The driver refused to open the device.
    #[error("cannot open adapter {adapter}: {message}")]
    Open {
        /// Name of the adapter.
        adapter: String,
        /// The driver's message.
        message: String,
    },
    /// The device has not enough memory.
    #[error(
        "out of GPU memory while allocating {label} ({bytes} bytes); close other programs, choose a smaller model or context"
    )]
    OutOfMemory {
        /// The buffer.
        label: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A buffer is larger than the adapter allows.
    #[error("{label} needs {bytes} bytes, more than the adapter's limit of {limit} bytes")]
    TooLarge {
        /// The buffer.
        label: String,
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// No such kernel variant exists in this build.
    #[error("there is no kernel variant {label}; this is a bug")]
    NoKernel {
        /// The label that was looked up.
        label: String,
    },
    /// The driver refused a kernel.
    #[error("kernel {label} does not build on this adapter: {message}")]
    Kernel {
        /// Label of the kernel variant.
        label: String,
        /// The compiler's message.
        message: String,
    },
    /// Buffers were bound to a kernel wrongly.
    #[error("kernel {label}: {message}; this is a bug")]
    Binding {
        /// Label of the kernel variant.
        label: String,
        /// What is wrong.
        message: String,
    },
    /// The device is gone: driver reset, unplugged, or a submission that ran too long.
    #[error("the GPU device was lost ({reason}); load the model again")]
    DeviceLost {
        /// The driver's reason.
        reason: String,
    },
    /// The device reported an error outside any operation that expected one.
    #[error("the GPU reported an error: {message}")]
    Device {
        /// The driver's message.
        message: String,
    },
}
