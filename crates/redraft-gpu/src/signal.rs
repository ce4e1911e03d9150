//! A value that a callback of the driver hands to a future.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Set once by a callback, awaited once by a future.
#[derive(Debug)]
pub(crate) struct Signal<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self(Mutex::new(State { value: None, waker: None }))
    }
}

impl<T> Signal<T> {
    /// Wakes who waits.
    pub(crate) fn set(&self, value: T) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.value = Some(value);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// The value, as soon as it is there.
    pub(crate) async fn wait(&self) -> T {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match state.value.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::Signal;
    use std::sync::Arc;

    #[test]
    fn a_value_set_before_or_after_the_wait_arrives() {
        let signal = Arc::new(Signal::default());
        signal.set(1);
        assert_eq!(pollster::block_on(signal.wait()), 1, "set before");
        let other = Arc::clone(&signal);
        let thread = std::thread::spawn(move || other.set(2));
        assert_eq!(pollster::block_on(signal.wait()), 2, "set by another thread");
        thread.join().unwrap();
    }
}
