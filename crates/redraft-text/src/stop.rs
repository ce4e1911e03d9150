//! Stop strings over streamed text.

use thiserror::Error;

/// A stop string cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopError {
    /// An empty string would stop before the first character.
    #[error("stop string {index}: expected at least one character, found none; leave it out")]
    Empty {
        /// Its position in the list.
        index: usize,
    },
}

/// What one step of a [`StopMatcher`] lets through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopOutput {
    /// Text that can be shown now. It never holds any part of a stop string that matched.
    pub text: String,
    /// Position in the list of the stop string that matched; generation ends here.
    pub stopped: Option<usize>,
}

/// Watches streamed text for stop strings.
///
/// Text that could still turn into a stop string is held back until it cannot. The first stop string to become
/// complete wins; of several that become complete with the same character, the longest; of equal ones the first
/// in the list. So the result does not depend on how the text was cut into pushes.
///
/// ```
/// use redraft_text::StopMatcher;
///
/// let mut matcher = StopMatcher::new(["\nUser:"])?;
/// assert_eq!(matcher.push("Yes.\nUs").text, "Yes.");
/// let end = matcher.push("er: more");
/// assert_eq!((end.text.as_str(), end.stopped), ("", Some(0)));
/// # Ok::<(), redraft_text::StopError>(())
/// ```
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

impl StopMatcher {
    /// A matcher for some stop strings; with none of them it lets everything through.
    ///
    /// # Errors
    ///
    /// [`StopError::Empty`] when one of them is empty.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, StopError> {
        let stops: Vec<String> = stops.into_iter().map(Into::into).collect();
        match stops.iter().position(String::is_empty) {
            Some(index) => Err(StopError::Empty { index }),
            None => Ok(Self { stops, held: String::new(), stopped: None }),
        }
    }

    /// Takes the next piece of text. After a stop everything is swallowed.
    pub fn push(&mut self, text: &str) -> StopOutput {
        if self.stopped.is_some() {
            return StopOutput { text: String::new(), stopped: self.stopped };
        }
        // What is held is no complete stop, so a match ends inside the new text.
        let old = self.held.len();
        self.held.push_str(text);
        let found = (old + 1..=self.held.len()).find_map(|end| self.match_ending_at(end));
        if let Some((start, index)) = found {
            self.stopped = Some(index);
            self.held.truncate(start);
            return StopOutput { text: std::mem::take(&mut self.held), stopped: self.stopped };
        }
        let rest = self.held.split_off(self.safe_length());
        StopOutput { text: std::mem::replace(&mut self.held, rest), stopped: None }
    }

    /// Ends the text: what was held back is text after all, unless a stop string matched.
    pub fn finish(&mut self) -> StopOutput {
        StopOutput { text: std::mem::take(&mut self.held), stopped: self.stopped }
    }

    /// Start and index of the longest stop string that ends at a byte of the held text.
    fn match_ending_at(&self, end: usize) -> Option<(usize, usize)> {
        let head = self.held.as_bytes().get(..end)?;
        self.stops
            .iter()
            .enumerate()
            .filter(|(_, stop)| head.ends_with(stop.as_bytes()))
            .map(|(index, stop)| (end - stop.len(), index))
            .min()
    }

    /// Length of the part of the held text that no stop string can reach back into.
    fn safe_length(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let first = self.held.len().saturating_sub(longest.saturating_sub(1));
        (first..self.held.len())
            .filter(|&start| self.held.is_char_boundary(start))
            .find(|&start| self.stops.iter().any(|stop| stop.starts_with(&self.held[start..])))
            .unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{StopError, StopMatcher};
    use proptest::prelude::*;

    /// Text before the stop and the stop's index, by looking at every prefix of the whole text.
    fn naive(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for end in 0..=text.len() {
            let best = stops
                .iter()
                .enumerate()
                .filter(|(_, stop)| text.as_bytes()[..end].ends_with(stop.as_bytes()))
                .max_by_key(|(index, stop)| (stop.len(), std::cmp::Reverse(*index)));
            if let Some((index, stop)) = best {
                return (text[..end - stop.len()].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #[test]
        fn any_cutting_equals_the_whole_string_search(
            pieces in prop::collection::vec("[abé]{0,4}", 0..12),
            stops in prop::collection::vec("[abé]{1,5}", 0..4),
        ) {
            let mut matcher = StopMatcher::new(stops.clone()).unwrap();
            let (mut shown, mut stopped) = (String::new(), None);
            for piece in &pieces {
                let out = matcher.push(piece);
                prop_assert!(stopped.is_none() || out.text.is_empty(), "nothing is shown after a stop");
                shown.push_str(&out.text);
                stopped = out.stopped;
            }
            let end = matcher.finish();
            shown.push_str(&end.text);
            prop_assert_eq!(end.stopped, stopped);
            prop_assert_eq!((shown, stopped), naive(&pieces.concat(), &stops));
        }

        #[test]
        fn no_more_is_held_back_than_needed(
            text in "[ab]{0,20}", stops in prop::collection::vec("[ab]{1,5}", 1..3),
        ) {
            let mut matcher = StopMatcher::new(stops.clone()).unwrap();
            let out = matcher.push(&text);
            if out.stopped.is_none() {
                let held = matcher.finish().text;
                let possible = |tail: &str| stops.iter().any(|stop| stop.starts_with(tail));
                let needed = (0..text.len()).map(|at| &text[at..]).find(|tail| possible(tail)).unwrap_or("");
                prop_assert_eq!(held, needed);
            }
        }
    }

    #[test]
    fn empty_stop_strings_are_refused() {
        let error = StopMatcher::new(["a", ""]).unwrap_err();
        assert_eq!(error, StopError::Empty { index: 1 }, "the second is empty");
        assert!(error.to_string().contains("stop string 1"), "the message names it: {error}");
    }

    #[test]
    fn the_first_to_be_complete_wins() {
        let mut matcher = StopMatcher::new(["abcd", "bc", "bc"]).unwrap();
        let out = matcher.push("xabcd");
        assert_eq!((out.text.as_str(), out.stopped), ("xa", Some(1)), "bc is complete before abcd");
        assert_eq!(matcher.push("more").stopped, Some(1), "it stays stopped");
        assert_eq!(matcher.finish().text, "", "and shows nothing more");
    }
}
