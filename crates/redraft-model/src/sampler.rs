//! placeholder until the sampling kernels land
/// x
pub struct Sampler;
/// x
pub struct SamplerRow;
