//! Device, buffers, pipelines and recorded dispatches; the only user of wgpu
