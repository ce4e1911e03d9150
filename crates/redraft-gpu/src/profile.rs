//! Time per kernel and per phase, from timestamps at pass boundaries.

use crate::{Gpu, GpuError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Passes of one submission that are timed; further ones run untimed.
const MOST: u32 = 2048;

/// Time that a kernel variant, or a phase, took on the device.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// Label of the kernel variant, or name of the phase.
    pub label: &'static str,
    /// Dispatches, or passes of the phase.
    pub calls: u64,
    /// Their time together, in microseconds.
    pub total_us: f64,
}

#[derive(Debug)]
pub(crate) struct Profile {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    host: wgpu::Buffer,
    period_ns: f64,
    /// Every dispatch is timed, not only the phases.
    each: bool,
    /// Kernel and phase of each pair of timestamps; no kernel where a whole phase was timed.
    labels: Vec<(Option<&'static str>, &'static str)>,
    totals: BTreeMap<&'static str, (u64, f64)>,
    phases: BTreeMap<&'static str, (u64, f64)>,
}

impl Profile {
    pub(crate) fn new(device: &wgpu::Device, queue: &wgpu::Queue, each: bool) -> Self {
        let size = u64::from(MOST) * 16;
        let buffer = |label, usage| {
            let descriptor =
                wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
            device.create_buffer(&descriptor)
        };
        Self {
            set: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("profile"),
                ty: wgpu::QueryType::Timestamp,
                count: MOST * 2,
            }),
            resolved: buffer(
                "profile.resolved",
                wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            ),
            host: buffer("profile.host", wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
            period_ns: f64::from(queue.get_timestamp_period()),
            each,
            labels: Vec::new(),
            totals: BTreeMap::new(),
            phases: BTreeMap::new(),
        }
    }

    /// Whether every dispatch is timed.
    pub(crate) fn each(&self) -> bool {
        self.each
    }

    /// The query set and the first of the two queries for the next pass: of one kernel, or of a whole phase.
    pub(crate) fn begin(
        &mut self,
        kernel: Option<&'static str>,
        phase: &'static str,
    ) -> Option<(wgpu::QuerySet, u32)> {
        let index = u32::try_from(self.labels.len()).ok().filter(|index| *index < MOST)?;
        self.labels.push((kernel, phase));
        Some((self.set.clone(), index * 2))
    }

    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let count = u32::try_from(self.labels.len() * 2).unwrap_or(0);
        if count > 0 {
            encoder.resolve_query_set(&self.set, 0..count, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.host, 0, u64::from(count) * 8);
        }
    }

    /// Waits for the submission and adds its times up: profiling trades throughput for knowledge.
    pub(crate) fn collect(&mut self, device: &wgpu::Device) -> Result<(), GpuError> {
        if self.labels.is_empty() {
            return Ok(());
        }
        let bytes = self.labels.len() as u64 * 16;
        let outcome = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&outcome);
        self.host.slice(0..bytes).map_async(wgpu::MapMode::Read, move |result| {
            if let Ok(mut outcome) = shared.lock() {
                *outcome = Some(result);
            }
        });
        let device_error = |message: String| GpuError::Device { message };
        device.poll(wgpu::PollType::wait_indefinitely()).map_err(|e| device_error(e.to_string()))?;
        let mapped = outcome.lock().ok().and_then(|outcome| outcome.as_ref().map(Result::is_ok));
        if mapped != Some(true) {
            return Err(device_error("timestamps could not be read".to_owned()));
        }
        let view = self.host.get_mapped_range(0..bytes).map_err(|e| device_error(e.to_string()))?;
        for ((kernel, phase), pair) in self.labels.drain(..).zip(view.chunks_exact(16)) {
            let tick = |at: usize| {
                pair.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
            };
            #[expect(clippy::cast_precision_loss, reason = "a duration in ticks is far below 2^53")]
            let ticks = tick(8).saturating_sub(tick(0)) as f64;
            let kernel = kernel.map(|kernel| self.totals.entry(kernel).or_default());
            for total in kernel.into_iter().chain([self.phases.entry(phase).or_default()]) {
                total.0 += 1;
                total.1 += ticks * self.period_ns / 1000.0;
            }
        }
        drop(view);
        self.host.unmap();
        Ok(())
    }
}

impl Gpu {
    /// Time per kernel variant since the device was opened, longest first; `None` without
    /// [`GpuOptions::profile`](crate::GpuOptions) or timestamps.
    #[must_use]
    pub fn profile(&self) -> Option<Vec<KernelTime>> {
        let profile = self.profile.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        profile.each.then(|| times(&profile.totals))
    }

    /// Time per phase ([`Pass::phase`](crate::Pass)) since the device was opened, longest first; `None` without
    /// [`GpuOptions::profile`](crate::GpuOptions) or [`GpuOptions::phases`](crate::GpuOptions), or without timestamps.
    #[must_use]
    pub fn phases(&self) -> Option<Vec<KernelTime>> {
        let profile = self.profile.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(times(&profile.phases))
    }
}

fn times(totals: &BTreeMap<&'static str, (u64, f64)>) -> Vec<KernelTime> {
    let time = |(label, (calls, total_us)): (&&'static str, &(u64, f64))| KernelTime {
        label,
        calls: *calls,
        total_us: *total_us,
    };
    let mut times: Vec<_> = totals.iter().map(time).collect();
    times.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    times
}
