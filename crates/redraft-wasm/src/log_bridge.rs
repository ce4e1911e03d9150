//! Log lines and panics go to the browser's console.

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(text: &str);
    #[wasm_bindgen(js_namespace = console, js_name = warn)]
    fn console_warn(text: &str);
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
    }));
    if log::set_logger(&Console).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}
