//! GGUF files: container, metadata, tensor types, and lossless repacking into the planar GPU formats
