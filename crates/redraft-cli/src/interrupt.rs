//! Ctrl-C: stops the answer in progress if there is one, else the program.

use std::sync::{Mutex, PoisonError};

use redraft::CancelToken;

use crate::error::INTERRUPTED;
use crate::output;

/// The token of the answer in progress.
static ANSWER: Mutex<Option<CancelToken>> = Mutex::new(None);

/// Installs the handler. It runs on its own thread, so locks and exit are allowed in it.
pub(crate) fn install() {
    let handler = || {
        let answer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match answer {
            Some(token) if !token.is_cancelled() => token.cancel(),
            _ => {
                // A download keeps its `.part` file; nothing else needs cleaning.
                output::note("\ninterrupted");
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        log::warn!("Ctrl-C cannot be caught and will end the program at once: {error}");
    }
}

/// While this lives, the first Ctrl-C cancels the token it was made with.
#[derive(Debug)]
pub(crate) struct Guard;

impl Guard {
    /// Makes Ctrl-C cancel `token`.
    pub(crate) fn new(token: CancelToken) -> Self {
        *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Self
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
