//! Opening a device and allocating on it.

use crate::adapter::{AdapterChoice, AdapterReport, choose};
use crate::profile::Profile;
use crate::signal::Signal;
use crate::{Buffer, BufferUse, GpuError, Slice, unchecked};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How to open a device.
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    /// Only what WebGPU has: no subgroups. A native run then takes the kernels that a browser takes.
    pub strict: bool,
    /// With `shader-f16`, which kernels of the f16 families need; an adapter without it is an error.
    pub f16: bool,
    /// Compile kernels with bounds checks and loop guards: slower, for tests.
    pub checked: bool,
    /// Time every dispatch, where the adapter has timestamps; not in browsers.
    pub profile: bool,
    /// Time the phases of each submission ([`Pass::phase`](crate::Pass)), where the adapter has timestamps; not in
    /// browsers. Costs little, but each submission is waited for.
    pub phases: bool,
    /// Bind no more than this many bytes of storage at once, though the adapter may offer more; for tests of what must
    /// be split.
    pub max_binding: Option<u64>,
    /// What [`Gpu::pipeline_cache`] gave in an earlier run.
    pub pipeline_cache: Option<Vec<u8>>,
}

/// What decides which kernel variants an adapter runs. A property of the adapter, never of timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The adapter computes on the CPU, where workgroup memory and barriers are slow.
    pub cpu: bool,
    /// Least number of lanes of a subgroup, if subgroups can be used.
    pub subgroup: Option<u32>,
    /// The device was opened with `shader-f16` ([`GpuOptions::f16`]).
    pub f16: bool,
}

/// How often the host turned to a device since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Submissions to the queue.
    pub submissions: u64,
    /// Readback buffers that were mapped, each of which waits for the device.
    pub maps: u64,
    /// Bytes that were read from them.
    pub bytes: u64,
}

/// An open device.
#[derive(Debug)]
pub struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) options: GpuOptions,
    pub(crate) pipelines: Mutex<HashMap<&'static str, Arc<crate::Pipeline>>>,
    pub(crate) cache: Option<wgpu::PipelineCache>,
    pub(crate) profile: Option<Mutex<Profile>>,
    report: AdapterReport,
    limits: wgpu::Limits,
    fault: Arc<Mutex<Option<GpuError>>>,
    /// Nanoseconds of [`Gpu::last_recording`].
    pub(crate) recording: AtomicU64,
    /// Of [`Gpu::traffic`].
    pub(crate) submissions: AtomicU64,
    pub(crate) maps: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Bytes of [`Gpu::storage_made`].
    storage: AtomicU64,
}

impl Gpu {
    /// Opens the chosen adapter with all of its limits.
    ///
    /// # Errors
    /// [`GpuError::NoAdapter`], [`GpuError::Unusable`], [`GpuError::NoF16`], [`GpuError::Open`].
    pub async fn open(choice: &AdapterChoice, options: &GpuOptions) -> Result<Self, GpuError> {
        let (adapter, report) = choose(choice, options.strict).await?;
        has_f16(&report, options.f16)?;
        let mut wanted =
            wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::PIPELINE_CACHE;
        wanted.set(wgpu::Features::SHADER_F16, options.f16);
        let mut limits = adapter.limits();
        if let Some(most) = options.max_binding {
            limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(most);
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("redraft"),
            required_features: adapter.features() & wanted,
            required_limits: limits.clone(),
            ..Default::default()
        };
        let (device, queue) = adapter
            .request_device(&descriptor)
            .await
            .map_err(|error| GpuError::Open { adapter: report.name.clone(), message: error.to_string() })?;
        let fault = Arc::new(Mutex::new(None));
        watch(&device, &fault);
        let features = device.features();
        let cache = features
            .contains(wgpu::Features::PIPELINE_CACHE)
            .then(|| unchecked::pipeline_cache(&device, options.pipeline_cache.as_deref()));
        // Collecting waits for each submission, which a browser does not allow.
        let timed = features.contains(wgpu::Features::TIMESTAMP_QUERY) && !cfg!(target_arch = "wasm32");
        let profile = ((options.profile || options.phases) && timed)
            .then(|| Mutex::new(Profile::new(&device, &queue, options.profile)));
        Ok(Self {
            device,
            queue,
            options: options.clone(),
            pipelines: Mutex::default(),
            cache,
            profile,
            report,
            limits,
            fault,
            recording: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
            maps: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            storage: AtomicU64::new(0),
        })
    }

    /// The adapter.
    #[must_use]
    pub fn report(&self) -> &AdapterReport {
        &self.report
    }

    /// What decides the kernel variants.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            cpu: self.report.device_type == "cpu",
            subgroup: self.report.features.subgroups.map(|(least, _)| least),
            f16: self.options.f16,
        }
    }

    /// How long the host took to record the last submission and to encode it for the driver. Handing it over is not
    /// counted: software adapters compute in that call.
    #[must_use]
    pub fn last_recording(&self) -> Duration {
        Duration::from_nanos(self.recording.load(Ordering::Relaxed))
    }

    /// How often the host turned to the device so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic {
            submissions: self.submissions.load(Ordering::Relaxed),
            maps: self.maps.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Bytes of all storage buffers made so far, those dropped since included: what a memory plan is compared with.
    #[must_use]
    pub fn storage_made(&self) -> u64 {
        self.storage.load(Ordering::Relaxed)
    }

    /// Largest storage binding, in bytes.
    #[must_use]
    pub fn max_binding(&self) -> u64 {
        self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size)
    }

    /// Largest number of workgroups in one dimension.
    #[must_use]
    pub fn max_groups(&self) -> u32 {
        self.limits.max_compute_workgroups_per_dimension
    }

    /// A buffer of at least `bytes` bytes (rounded up to 16), zero at first.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`], [`GpuError::OutOfMemory`]; the buffer is then not allocated.
    pub async fn buffer(&self, label: &str, bytes: u64, purpose: BufferUse) -> Result<Buffer, GpuError> {
        let usage = match purpose {
            BufferUse::Storage => wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            BufferUse::Uniform => wgpu::BufferUsages::UNIFORM,
            BufferUse::SharedUniform => {
                wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC
            }
        };
        let inner = self.allocate(label, bytes, usage | wgpu::BufferUsages::COPY_DST).await?;
        if purpose == BufferUse::Storage {
            self.storage.fetch_add(inner.size(), Ordering::Relaxed);
        }
        Ok(Buffer { inner, label: label.into() })
    }

    pub(crate) async fn allocate(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, GpuError> {
        let size = bytes.max(16).next_multiple_of(16);
        let limit = if usage.contains(wgpu::BufferUsages::UNIFORM) {
            self.limits.max_uniform_buffer_binding_size
        } else if usage.contains(wgpu::BufferUsages::STORAGE) {
            self.max_binding()
        } else {
            self.limits.max_buffer_size
        };
        if size > limit {
            return Err(GpuError::TooLarge { label: label.to_owned(), bytes: size, limit });
        }
        let invalid = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage,
            mapped_at_creation: false,
        });
        let memory = memory.pop();
        let invalid = invalid.pop();
        if memory.await.is_some() {
            return Err(GpuError::OutOfMemory { label: label.to_owned(), bytes: size });
        }
        if let Some(error) = invalid.await {
            return Err(GpuError::Device { message: error.to_string() });
        }
        Ok(buffer)
    }

    /// A uniform buffer that holds `contents`.
    ///
    /// # Errors
    /// As [`Gpu::buffer`].
    pub async fn uniform<T: bytemuck::Pod>(&self, label: &str, contents: &T) -> Result<Buffer, GpuError> {
        let bytes = bytemuck::bytes_of(contents);
        let buffer = self.buffer(label, bytes.len() as u64, BufferUse::Uniform).await?;
        self.write(buffer.whole(), bytes);
        Ok(buffer)
    }

    /// A uniform buffer that holds `contents` until a kernel writes others.
    ///
    /// # Errors
    /// As [`Gpu::buffer`].
    pub async fn shared_uniform<T: bytemuck::Pod>(
        &self,
        label: &str,
        contents: &T,
    ) -> Result<Buffer, GpuError> {
        let bytes = bytemuck::bytes_of(contents);
        let buffer = self.buffer(label, bytes.len() as u64, BufferUse::SharedUniform).await?;
        self.write(buffer.whole(), bytes);
        Ok(buffer)
    }

    /// A storage buffer that holds `contents`.
    ///
    /// # Errors
    /// As [`Gpu::buffer`].
    pub async fn storage<T: bytemuck::Pod>(&self, label: &str, contents: &[T]) -> Result<Buffer, GpuError> {
        let bytes: &[u8] = bytemuck::cast_slice(contents);
        let buffer = self.buffer(label, bytes.len() as u64, BufferUse::Storage).await?;
        self.write(buffer.whole(), bytes);
        Ok(buffer)
    }

    /// Writes `bytes`, a multiple of four of them, to the beginning of `slice`, before whatever is submitted next.
    pub fn write(&self, slice: Slice<'_>, bytes: &[u8]) {
        self.queue.write_buffer(&slice.buffer.inner, slice.offset, bytes);
    }

    /// Sends pending writes to the device and waits until it is done with all it was given, so that the staging memory
    /// of a long upload does not pile up.
    ///
    /// # Errors
    /// [`GpuError::DeviceLost`], [`GpuError::Device`].
    pub async fn flush(&self) -> Result<(), GpuError> {
        self.submissions.fetch_add(1, Ordering::Relaxed);
        self.queue.submit([]);
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|error| GpuError::Device { message: error.to_string() })?;
        // Natively that has waited; in a browser nothing waits but a callback.
        if cfg!(target_arch = "wasm32") {
            self.healthy()?;
            let done = Arc::new(Signal::default());
            let signal = Arc::clone(&done);
            self.queue.on_submitted_work_done(move || signal.set(()));
            done.wait().await;
        }
        self.healthy()
    }

    /// The first fault that the device reported, as an error.
    ///
    /// # Errors
    /// [`GpuError::DeviceLost`], [`GpuError::Device`], [`GpuError::OutOfMemory`].
    pub fn healthy(&self) -> Result<(), GpuError> {
        match self.fault.lock() {
            Ok(fault) => fault.clone().map_or(Ok(()), Err),
            Err(_) => Err(GpuError::Device { message: "a callback of the driver panicked".to_owned() }),
        }
    }

    /// Compiled pipelines, to be given to [`GpuOptions::pipeline_cache`] in a later run; `None` where the backend
    /// has no such cache.
    #[must_use]
    pub fn pipeline_cache(&self) -> Option<Vec<u8>> {
        self.cache.as_ref().and_then(wgpu::PipelineCache::get_data)
    }

    /// Gives the device up, as a driver reset would; for tests of the recovery.
    pub fn destroy(&self) {
        self.device.destroy();
    }
}

/// Whether the adapter has f16 where that is wanted.
fn has_f16(report: &AdapterReport, wanted: bool) -> Result<(), GpuError> {
    if wanted && !report.features.f16 {
        return Err(GpuError::NoF16 { adapter: report.name.clone() });
    }
    Ok(())
}

impl Drop for Gpu {
    /// A browser frees what nobody refers to any more when it pleases; a destroyed device is freed now.
    fn drop(&mut self) {
        if cfg!(target_arch = "wasm32") {
            self.device.destroy();
        }
    }
}

/// Remembers the first fault; later calls return it as an error instead of panicking inside wgpu.
fn watch(device: &wgpu::Device, fault: &Arc<Mutex<Option<GpuError>>>) {
    // Who gives a device up knows it: that is no news for a log.
    let keep = |fault: &Arc<Mutex<Option<GpuError>>>, error: GpuError, wanted: bool| {
        log::log!(if wanted { log::Level::Debug } else { log::Level::Error }, "{error}");
        if let Ok(mut fault) = fault.lock() {
            // A lost device also makes every later call invalid: that it was lost is the news.
            if fault.is_none() || matches!(error, GpuError::DeviceLost { .. }) {
                *fault = Some(error);
            }
        }
    };
    let lost = Arc::clone(fault);
    device.set_device_lost_callback(move |reason, message| {
        let error = GpuError::DeviceLost { reason: format!("{reason:?}: {message}") };
        keep(&lost, error, reason == wgpu::DeviceLostReason::Destroyed);
    });
    let uncaptured = Arc::clone(fault);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let error = match error {
            wgpu::Error::OutOfMemory { .. } => {
                GpuError::OutOfMemory { label: "a command".to_owned(), bytes: 0 }
            }
            other => GpuError::Device { message: other.to_string() },
        };
        keep(&uncaptured, error, false);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdapterFeatures, AdapterLimits};

    #[test]
    fn f16_is_an_error_where_there_is_none() {
        let limits = AdapterLimits {
            max_buffer: 0,
            max_binding: 0,
            max_uniform_binding: 0,
            max_workgroup_invocations: 0,
            max_storage_buffers: 0,
            max_workgroup_memory: 0,
        };
        let report = |f16| AdapterReport {
            name: "Some GPU".to_owned(),
            backend: "vulkan",
            device_type: "discrete",
            driver: String::new(),
            features: AdapterFeatures { f16, subgroups: None, timestamps: false, pipeline_cache: false },
            limits: limits.clone(),
            unusable: None,
        };
        for (f16, wanted) in [(true, true), (true, false), (false, false)] {
            assert!(has_f16(&report(f16), wanted).is_ok(), "{f16}, wanted: {wanted}");
        }
        let message = has_f16(&report(false), true).expect_err("there is none").to_string();
        for word in ["Some GPU", "shader-f16", "precision f32"] {
            assert!(message.contains(word), "{message}");
        }
    }
}
