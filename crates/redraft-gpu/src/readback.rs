//! Bringing bytes back to the host.

use crate::signal::Signal;
use crate::{Gpu, GpuError, Slice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// A host-visible buffer that results are copied to; made once, used for every step.
#[derive(Debug)]
pub struct Readback {
    inner: wgpu::Buffer,
    /// The submission that copied to it last.
    filled: Mutex<Option<wgpu::SubmissionIndex>>,
}

impl Gpu {
    /// A readback buffer of at least `bytes` bytes.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::TooLarge`].
    pub async fn readback(&self, label: &str, bytes: u64) -> Result<Readback, GpuError> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        Ok(Readback { inner: self.allocate(label, bytes, usage).await?, filled: Mutex::default() })
    }

    /// Waits for the last submission that copied to it, not for later ones, and returns the first `bytes` bytes.
    ///
    /// # Errors
    /// [`GpuError::DeviceLost`], [`GpuError::Device`].
    pub async fn read(&self, readback: &Readback, bytes: u64) -> Result<Vec<u8>, GpuError> {
        self.healthy()?;
        self.maps.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mapped = Arc::new(Signal::default());
        let signal = Arc::clone(&mapped);
        readback.inner.slice(0..bytes.next_multiple_of(4)).map_async(wgpu::MapMode::Read, move |result| {
            signal.set(result);
        });
        // Natively this blocks until the device is done; in a browser it does nothing and the callback wakes us.
        let submission_index = readback.filled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A lost device knows the submission no more: then its callbacks, which say that it is lost, are waited for.
        let polled = self
            .device
            .poll(wgpu::PollType::Wait { submission_index, timeout: None })
            .or_else(|_| self.device.poll(wgpu::PollType::wait_indefinitely()));
        let result = mapped.wait().await;
        self.healthy()?;
        if let Err(error) = polled {
            return Err(GpuError::Device { message: error.to_string() });
        }
        let lost = |message: String| GpuError::DeviceLost { reason: message };
        result.map_err(|error| lost(error.to_string()))?;
        let view =
            readback.inner.get_mapped_range(0..bytes.next_multiple_of(4)).map_err(|e| lost(e.to_string()))?;
        let mut data = view.to_vec();
        drop(view);
        readback.inner.unmap();
        data.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(data)
    }

    /// One-off copy of a part of a buffer to the host; allocates, so not for the decode loop.
    ///
    /// # Errors
    /// As [`Gpu::read`].
    pub async fn fetch(&self, slice: Slice<'_>) -> Result<Vec<u8>, GpuError> {
        let readback = self.readback("fetch", slice.size.next_multiple_of(4)).await?;
        self.submit(|_| Ok(()), &[(slice, &readback)])?;
        self.read(&readback, slice.size).await
    }
}

impl Readback {
    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.inner
    }

    pub(crate) fn filled_by(&self, submission: &wgpu::SubmissionIndex) {
        *self.filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(submission.clone());
    }
}
