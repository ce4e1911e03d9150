//! Tokenizers, chat templates and streaming detokenisation
