//! Decoding logic without a GPU: token trees, sampling parameters, CPU twins of the sampling kernels, stop logic
