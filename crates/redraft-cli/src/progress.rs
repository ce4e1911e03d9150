//! Progress on standard error: bars on a terminal, nothing elsewhere.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts bytes. `total` 0 means not known yet.
pub(crate) fn bytes(what: impl Into<Cow<'static, str>>, total: u64) -> ProgressBar {
    bar(what, total, "{msg:<22} {wide_bar} {bytes:>10}/{total_bytes:<10} {bytes_per_sec:>12} {eta:>4}")
}

/// A bar that counts things.
pub(crate) fn items(what: impl Into<Cow<'static, str>>, total: u64) -> ProgressBar {
    bar(what, total, "{msg:<22} {wide_bar} {pos:>4}/{len:<4} {eta:>4}")
}

/// A spinner, for work whose length nobody knows.
pub(crate) fn spinner(what: impl Into<Cow<'static, str>>) -> ProgressBar {
    let spinner = bar(what, 0, "{spinner} {msg} {elapsed}");
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

fn bar(what: impl Into<Cow<'static, str>>, total: u64, template: &str) -> ProgressBar {
    // indicatif draws nothing when standard error is not a terminal.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.set_style(style.progress_chars("=> ")),
        Err(error) => log::warn!("progress template: {error}"),
    }
    bar.with_message(what)
}
