//! Exact, fast language model inference on any WebGPU adapter
