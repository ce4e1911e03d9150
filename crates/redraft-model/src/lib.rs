//! Model weights on the GPU and the forward pass as recorded dispatches
