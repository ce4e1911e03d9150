//! Tests of redraft-text: real vocabularies, streaming, templates, hostile input.
//!
//! Real files are named by `REDRAFT_MODEL` (a SmolLM2 GGUF) and `REDRAFT_VOCABS` (a folder of llama.cpp's
//! vocabulary-only GGUFs with `.inp` and `.out`); without them the tests that need them say so and are skipped.

mod fixtures;
mod hostile;
mod hostile_templates;
mod real;
mod streaming;
mod templates;
mod tokenizer_json;
mod vocabulary;
