//! WGSL kernels of redraft, linked and validated at build time, with reflected bindings
