//! Recording prebuilt dispatches and submitting them.

use crate::{Gpu, GpuError, Pipeline, Readback, Slice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use web_time::Instant;

/// A kernel with its buffers bound: what a step is made of. Built at load time, recorded any number of times.
#[derive(Debug)]
pub struct Dispatch {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) bind_group: wgpu::BindGroup,
}

impl Dispatch {
    /// Label of the kernel variant.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.pipeline.kernel.label
    }
}

/// One compute pass being recorded.
#[derive(Debug)]
pub struct Pass<'a> {
    gpu: &'a Gpu,
    mode: Mode<'a>,
    dispatches: u32,
    phase: &'static str,
}

#[derive(Debug)]
enum Mode<'a> {
    /// All dispatches in one pass.
    One(wgpu::ComputePass<'a>),
    /// A pass for each dispatch, because timestamps are taken at pass boundaries.
    Timed(&'a mut wgpu::CommandEncoder),
    /// A pass for each phase, of which the open one is of the phase that it is named by.
    Phased(&'a mut wgpu::CommandEncoder, Option<(&'static str, wgpu::ComputePass<'static>)>),
}

/// The phase of what no phase was named for.
const STEP: &str = "step";

impl Pass<'_> {
    /// Records `dispatch` over `groups` workgroups in x, y and z. A dispatch of nothing is left out.
    ///
    /// # Errors
    /// [`GpuError::Binding`] if a dimension exceeds the adapter's limit.
    pub fn run(&mut self, dispatch: &Dispatch, groups: [u32; 3]) -> Result<(), GpuError> {
        let limit = self.gpu.max_groups();
        if let Some(count) = groups.iter().find(|count| **count > limit) {
            return Err(GpuError::Binding {
                label: dispatch.label().to_owned(),
                message: format!("{count} workgroups in one dimension, the adapter allows {limit}"),
            });
        }
        if groups.contains(&0) {
            return Ok(());
        }
        self.dispatches += 1;
        let record = |pass: &mut wgpu::ComputePass<'_>| {
            pass.set_pipeline(&dispatch.pipeline.inner);
            pass.set_bind_group(0, &dispatch.bind_group, &[]);
            pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
        };
        match &mut self.mode {
            Mode::One(pass) => record(pass),
            Mode::Timed(encoder) => record(&mut timed(self.gpu, encoder, Some(dispatch.label()), self.phase)),
            Mode::Phased(encoder, open) => {
                if open.as_ref().is_none_or(|(phase, _)| *phase != self.phase) {
                    // The one before ends first.
                    drop(open.take());
                    *open = Some((self.phase, timed(self.gpu, encoder, None, self.phase).forget_lifetime()));
                }
                if let Some((_, pass)) = open {
                    record(pass);
                }
            }
        }
        Ok(())
    }

    /// What is recorded from here on belongs to `phase`, whose time is counted where phases are timed.
    pub fn phase(&mut self, phase: &'static str) {
        self.phase = phase;
    }

    /// Number of dispatches recorded so far.
    #[must_use]
    pub fn dispatches(&self) -> u32 {
        self.dispatches
    }
}

/// A compute pass between two timestamps, if there are any left.
fn timed<'a>(
    gpu: &Gpu,
    encoder: &'a mut wgpu::CommandEncoder,
    kernel: Option<&'static str>,
    phase: &'static str,
) -> wgpu::ComputePass<'a> {
    let profile = gpu.profile.as_ref().map(|profile| profile.lock().unwrap_or_else(PoisonError::into_inner));
    let writes = profile.and_then(|mut profile| profile.begin(kernel, phase));
    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
        label: kernel.or(Some(phase)),
        timestamp_writes: writes.as_ref().map(|(set, index)| wgpu::ComputePassTimestampWrites {
            query_set: set,
            beginning_of_pass_write_index: Some(*index),
            end_of_pass_write_index: Some(*index + 1),
        }),
    })
}

impl Gpu {
    /// Records one compute pass through `record`, copies each slice to the beginning of its readback buffer, and
    /// submits. Returns the number of dispatches.
    ///
    /// # Errors
    /// Those of `record` (nothing is submitted then), [`GpuError::DeviceLost`], [`GpuError::Device`].
    pub fn submit<E: From<GpuError>>(
        &self,
        record: impl FnOnce(&mut Pass<'_>) -> Result<(), E>,
        copies: &[(Slice<'_>, &Readback)],
    ) -> Result<u32, E> {
        self.healthy()?;
        let started = Instant::now();
        let mut encoder =
            self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("step") });
        let each = self
            .profile
            .as_ref()
            .map(|profile| profile.lock().unwrap_or_else(PoisonError::into_inner).each());
        let mode = match each {
            Some(true) => Mode::Timed(&mut encoder),
            Some(false) => Mode::Phased(&mut encoder, None),
            None => {
                let descriptor = wgpu::ComputePassDescriptor { label: Some(STEP), timestamp_writes: None };
                Mode::One(encoder.begin_compute_pass(&descriptor))
            }
        };
        let mut pass = Pass { gpu: self, mode, dispatches: 0, phase: STEP };
        record(&mut pass)?;
        let dispatches = pass.dispatches;
        drop(pass);
        for (slice, readback) in copies {
            let bytes = slice.size.next_multiple_of(4);
            encoder.copy_buffer_to_buffer(&slice.buffer.inner, slice.offset, readback.buffer(), 0, bytes);
        }
        if let Some(profile) = &self.profile {
            profile.lock().unwrap_or_else(PoisonError::into_inner).resolve(&mut encoder);
        }
        let commands = encoder.finish();
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.recording.store(nanos, Ordering::Relaxed);
        self.submissions.fetch_add(1, Ordering::Relaxed);
        let submission = self.queue.submit([commands]);
        for (_, readback) in copies {
            readback.filled_by(&submission);
        }
        if let Some(profile) = &self.profile {
            profile.lock().unwrap_or_else(PoisonError::into_inner).collect(&self.device)?;
        }
        self.healthy()?;
        Ok(dispatches)
    }
}
