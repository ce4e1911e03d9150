//! Tests of the built kernels, and of the pipeline that builds them, on small fixtures.

#[path = "../../build/mod.rs"]
#[expect(dead_code, reason = "the tests do not call all of the pipeline")]
mod pipeline;

mod checks;
mod drift;
mod every_kernel;
mod lints;
mod manifest;
mod reflection;
mod sharing;
