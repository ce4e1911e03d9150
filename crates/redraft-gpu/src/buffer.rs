//! Buffers.

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferUse {
    /// Read or written by kernels, written and read back by the host.
    Storage,
    /// Parameters: written by the host, read by kernels.
    Uniform,
    /// Parameters that kernels write too.
    SharedUniform,
}

/// A buffer on the device. Clones share it.
#[derive(Debug, Clone)]
pub struct Buffer {
    pub(crate) inner: wgpu::Buffer,
    pub(crate) label: std::sync::Arc<str>,
}

impl Buffer {
    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.size()
    }

    /// The name it was made with.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// All of it, as a binding.
    #[must_use]
    pub fn whole(&self) -> Slice<'_> {
        Slice { buffer: self, offset: 0, size: self.size() }
    }

    /// `size` bytes from `offset`, which must keep the adapter's storage alignment (256 bytes always does).
    #[must_use]
    pub fn slice(&self, offset: u64, size: u64) -> Slice<'_> {
        Slice { buffer: self, offset, size }
    }
}

/// A part of a buffer, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}
