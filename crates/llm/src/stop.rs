//! Stop strings: text that ends an answer, wherever the boundaries of tokens are.
//!
//! [`StopText`] takes an answer piece by piece and returns what may be shown. Text that might begin
//! a stop string is held back until the next pieces decide, so no part of one is ever shown.

/// A filter of generated text that ends before the first stop string: the one that is complete
/// first, and of several that end there the longest. Where the pieces are cut has no influence.
#[derive(Debug, Clone, Default)]
pub struct StopText {
    stops: Vec<String>,
    /// Text that may begin a stop string.
    held: String,
    stopped: Option<usize>,
}

impl StopText {
    /// A filter for these stop strings. Empty ones have no effect.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> StopText {
        let stops = stops.into_iter().map(Into::into).collect();
        StopText { stops, ..StopText::default() }
    }

    /// Begins a new answer.
    pub fn clear(&mut self) {
        self.held.clear();
        self.stopped = None;
    }

    /// Takes the next piece and returns the text that is certain not to belong to a stop string.
    /// After a stop string it is always empty.
    pub fn push(&mut self, piece: &str) -> String {
        if self.stopped.is_some() {
            return String::new();
        }
        self.held.push_str(piece);
        if let Some((at, which)) = self.first() {
            self.stopped = Some(which);
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let kept = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, rest)
    }

    /// The text that is held back when the answer ends without a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The stop string that ended the answer.
    pub fn stopped(&self) -> Option<&str> {
        Some(&self.stops[self.stopped?])
    }

    /// The stop string of the held text that ends first, as its byte and its index. The order of
    /// ends is the one in which an answer that grows character by character completes them; the
    /// order of beginnings would depend on how much of the answer is known.
    fn first(&self) -> Option<(usize, usize)> {
        let found = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let places = found.filter_map(|(which, stop)| Some((self.held.find(stop.as_str())?, which)));
        places.min_by_key(|&(at, which)| (at + self.stops[which].len(), at, which))
    }
}

/// Bytes of the longest end of `text` that begins `stop` without being all of it.
fn overlap(text: &str, stop: &str) -> usize {
    let most = text.len().min(stop.len().saturating_sub(1));
    let begins = |n: &usize| stop.is_char_boundary(*n) && text.as_bytes().ends_with(&stop.as_bytes()[..*n]);
    (1..=most).rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut filter = StopText::new(stops.iter().copied());
        let mut text: String = pieces.iter().map(|piece| filter.push(piece)).collect();
        text += &filter.finish();
        (text, filter.stopped().map(str::to_string))
    }

    #[test]
    fn nothing_of_a_stop_string_is_shown() {
        assert_eq!(shown(&["END"], &["a E", "N", "D b"]), ("a ".into(), Some("END".into())));
        assert_eq!(shown(&["END"], &["a E", "N", "d"]), ("a ENd".into(), None));
        assert_eq!(shown(&["END"], &["EN"]), ("EN".into(), None));
        assert_eq!(shown(&["\n\n", "\nUser:"], &["x\n", "User", ": y\n\n"]), ("x".into(), Some("\nUser:".into())));
        assert_eq!(shown(&["aab"], &["a", "a", "a", "b"]), ("a".into(), Some("aab".into())));
        assert_eq!(shown(&["é!"], &["né", "!"]), ("n".into(), Some("é!".into())));
        assert_eq!(shown(&[""], &["a", "b"]), ("ab".into(), None));
        assert_eq!(shown(&["abb", "b"], &["abb"]), ("a".into(), Some("b".into())));
        assert_eq!(shown(&["b", "ab"], &["a", "b"]), ("".into(), Some("ab".into())));
        let mut filter = StopText::new(["stop"]);
        assert_eq!(
            (filter.push("a st").as_str(), filter.push("op").as_str(), filter.push("b").as_str()),
            ("a ", "", "")
        );
        filter.clear();
        assert_eq!((filter.push("b"), filter.stopped()), ("b".into(), None));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[abé]{0,24}", stops in prop::collection::vec("[abé]{1,4}", 0..3), cuts in prop::collection::vec(0..25usize, 0..8)) {
            // The shortest beginning of the text that ends in a stop string, without that string.
            let complete = (0..=text.len()).filter(|&end| text.is_char_boundary(end)).find_map(|end| {
                let ends = stops.iter().filter(|stop| text[..end].ends_with(stop.as_str()));
                Some(end - ends.map(String::len).max()?)
            });
            let end = complete.unwrap_or(text.len());
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut filter = StopText::new(stops);
            let mut shown = String::new();
            for cut in cuts.windows(2) {
                shown += &filter.push(&text[cut[0]..cut[1]]);
                // What was shown stays.
                prop_assert!(text[..end].starts_with(&shown));
            }
            shown += &filter.finish();
            prop_assert_eq!(shown, &text[..end]);
        }
    }
}
