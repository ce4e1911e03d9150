//! Compiling kernels and binding buffers to them.

use crate::{Dispatch, Gpu, GpuError, Slice, unchecked};
use redraft_shaders::{Binding, BindingKind, Kernel, Target};
use std::sync::{Arc, PoisonError};

/// A compiled kernel variant.
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) inner: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    pub(crate) kernel: &'static Kernel,
}

impl Pipeline {
    /// The kernel variant.
    #[must_use]
    pub fn kernel(&self) -> &'static Kernel {
        self.kernel
    }
}

impl Gpu {
    /// Compiles the variant of the kernel `name` with `flags`, or returns it from memory.
    ///
    /// # Errors
    /// [`GpuError::NoKernel`] if no such variant was built, [`GpuError::Kernel`] if the driver refuses it. There is
    /// no fallback to another variant.
    pub async fn kernel(&self, name: &str, flags: &[&str]) -> Result<Arc<Pipeline>, GpuError> {
        let kernel = redraft_shaders::kernel(name, flags)
            .ok_or_else(|| GpuError::NoKernel { label: format!("{name}.{}", flags.join(".")) })?;
        if let Some(pipeline) =
            self.pipelines.lock().unwrap_or_else(PoisonError::into_inner).get(kernel.label)
        {
            return Ok(Arc::clone(pipeline));
        }
        let pipeline = Arc::new(self.compile(kernel).await?);
        self.pipelines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(kernel.label, Arc::clone(&pipeline));
        Ok(pipeline)
    }

    async fn compile(&self, kernel: &'static Kernel) -> Result<Pipeline, GpuError> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let target = if cfg!(target_arch = "wasm32") { Target::Browser } else { Target::Native };
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.label),
            source: wgpu::ShaderSource::Wgsl(kernel.source(target).into()),
        };
        let module = if self.options.checked {
            self.device.create_shader_module(descriptor)
        } else {
            unchecked::kernel(&self.device, descriptor)
        };
        let entries: Vec<_> = kernel.bindings.iter().map(layout_entry).collect();
        let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(kernel.label),
            entries: &entries,
        });
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.label),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let inner = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.label),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Every kernel writes its workgroup memory before it reads it.
                zero_initialize_workgroup_memory: self.options.checked,
                ..Default::default()
            },
            cache: self.cache.as_ref(),
        });
        let internal = internal.pop();
        let scope = scope.pop();
        if let Some(error) = internal.await.or(scope.await) {
            return Err(GpuError::Kernel { label: kernel.label.to_owned(), message: error.to_string() });
        }
        Ok(Pipeline { inner, layout, kernel })
    }

    /// Binds buffers, in the order of the kernel's bindings, ready to be recorded any number of times.
    ///
    /// # Errors
    /// [`GpuError::Binding`] if number or sizes do not fit the kernel.
    pub async fn bind(&self, pipeline: &Arc<Pipeline>, slices: &[Slice<'_>]) -> Result<Dispatch, GpuError> {
        let kernel = pipeline.kernel;
        let wrong = |message: String| GpuError::Binding { label: kernel.label.to_owned(), message };
        if slices.len() != kernel.bindings.len() {
            return Err(wrong(format!("{} buffers for {} bindings", slices.len(), kernel.bindings.len())));
        }
        for (binding, slice) in kernel.bindings.iter().zip(slices) {
            if slice.size < binding.min_size {
                let name = slice.buffer.label();
                let (needs, has) = (binding.min_size, slice.size);
                return Err(wrong(format!("{} needs {needs} bytes, {name} binds {has}", binding.name)));
            }
        }
        let entries: Vec<_> = kernel
            .bindings
            .iter()
            .zip(slices)
            .map(|(binding, slice)| wgpu::BindGroupEntry {
                binding: binding.index,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &slice.buffer.inner,
                    offset: slice.offset,
                    size: std::num::NonZeroU64::new(slice.size),
                }),
            })
            .collect();
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let bind_group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.label),
            layout: &pipeline.layout,
            entries: &entries,
        });
        match scope.pop().await {
            Some(error) => Err(wrong(error.to_string())),
            None => Ok(Dispatch { pipeline: Arc::clone(pipeline), bind_group }),
        }
    }
}

fn layout_entry(binding: &Binding) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding: binding.index,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: match binding.kind {
                BindingKind::Uniform => wgpu::BufferBindingType::Uniform,
                BindingKind::ReadOnly => wgpu::BufferBindingType::Storage { read_only: true },
                BindingKind::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
            },
            has_dynamic_offset: binding.dynamic,
            min_binding_size: std::num::NonZeroU64::new(binding.min_size),
        },
        count: None,
    }
}
