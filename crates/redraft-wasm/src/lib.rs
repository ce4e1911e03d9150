//! The engine for JavaScript: what the npm package `@redraft/web` is built on, and no interface of its own.
//!
//! Everything structured crosses the border as JSON text: a request goes in, a report comes out, and each token of an
//! answer is handed to a callback. Errors are JavaScript `Error`s with a `code` (`src/error.rs` lists the codes). The
//! TypeScript around it (`web/package/`) checks arguments, keeps files, and knows OpenAI's shapes.
//!
//! Files are read through a function that JavaScript provides, at most about a megabyte at a time, so that the heap of
//! the module holds a piece of the model and never the model.

mod costs;
mod engine;
mod error;
mod log_bridge;
mod report;
mod request;
mod source;

pub use engine::{WasmEngine, check_path, load_engine};
pub use log_bridge::on_panic;

use wasm_bindgen::prelude::wasm_bindgen;

/// Runs when the module is instantiated.
#[wasm_bindgen(start)]
pub fn start() {
    log_bridge::install();
}

/// Bytes of the module's heap. It never shrinks, so this is also the most that was needed so far.
#[wasm_bindgen(js_name = heapBytes)]
#[must_use]
pub fn heap_bytes() -> f64 {
    use wasm_bindgen::JsCast as _;
    let memory: js_sys::WebAssembly::Memory = wasm_bindgen::memory().unchecked_into();
    let buffer: js_sys::ArrayBuffer = memory.buffer().unchecked_into();
    f64::from(buffer.byte_length())
}
