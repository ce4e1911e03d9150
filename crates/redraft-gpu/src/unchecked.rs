//! The two calls of wgpu that need `unsafe`, each with its argument.
#![expect(unsafe_code, reason = "wgpu offers these only as unsafe; the arguments stand beside them")]

/// Compiles a kernel without bounds checks and loop guards.
///
/// Every index of our kernels is bounded by parameters that the host derives from the sizes of the very buffers it
/// binds, or, in the kernels of a draft round, by what an earlier kernel of the round wrote within such bounds; every loop
/// has a finite bound. The single-kernel tests of redraft-model run with checks (`GpuOptions::checked`); of a draft round's
/// kernels there are none yet, they are compared with their twins instead.
pub(crate) fn kernel(
    device: &wgpu::Device,
    descriptor: wgpu::ShaderModuleDescriptor<'_>,
) -> wgpu::ShaderModule {
    // SAFETY: the text is one of ours, linked and validated at build time, never a user's. Its accesses stay inside
    // the bound buffers and its loops end, see above.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}

/// A pipeline cache, filled from what an earlier run stored.
///
/// With `fallback`, wgpu checks the header against driver and device and starts empty when it does not fit.
pub(crate) fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("pipelines"), data, fallback: true };
    // SAFETY: `data` is what `PipelineCache::get_data` returned in an earlier run, kept by the caller in its own
    // cache folder; wgpu compares its header, which names driver, device and version, before the driver sees it.
    unsafe { device.create_pipeline_cache(&descriptor) }
}
