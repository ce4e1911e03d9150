//! Log lines and panics go to the browser's console, panics also to who listens.

use js_sys::Function;
use std::cell::RefCell;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(text: &str);
    #[wasm_bindgen(js_namespace = console, js_name = warn)]
    fn console_warn(text: &str);
}

thread_local! {
    static ON_PANIC: RefCell<Option<Function>> = const { RefCell::new(None) };
}

/// Has `listener` called with what a panic says, before the module ends: promises that it owes never settle then.
#[wasm_bindgen(js_name = onPanic)]
pub fn on_panic(listener: Function) {
    ON_PANIC.set(Some(listener));
}

struct Console;

impl log::Log for Console {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        // Of other crates only what went wrong.
        metadata.level() == log::Level::Error || metadata.target().starts_with("redraft")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = format!("{}: {}", record.target(), record.args());
            if record.level() == log::Level::Error { console_error(&line) } else { console_warn(&line) }
        }
    }

    fn flush(&self) {}
}

/// Once for each module; a second call changes nothing.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|info| {
        console_error(&format!("redraft panicked, which is a bug: {info}"));
        if let Some(listener) = ON_PANIC.take() {
            // What a listener throws is its own affair.
            let _ = listener.call1(&JsValue::NULL, &info.to_string().into());
        }
    }));
    if log::set_logger(&Console).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}
