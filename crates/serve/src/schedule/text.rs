//! The text of an output: tokens become characters, and stop strings end it.
//!
//! Text is held back while it may be the beginning of a stop string, so no part of one is ever
//! output.

use ferrane_llm::stop::StopText;
use ferrane_llm::tokenizer::Stream;

/// The text so far.
pub struct OutputText<'a> {
    stream: Option<Stream<'a>>,
    stop: StopText,
}

impl<'a> OutputText<'a> {
    /// An empty output whose tokens `stream` decodes, and that ends before one of `stops`.
    pub fn new(stream: Stream<'a>, stops: &[String]) -> OutputText<'a> {
        OutputText { stream: Some(stream), stop: StopText::new(stops) }
    }

    /// Appends a token. Returns the text that is certain now, whether a stop string ends it, and
    /// the number of characters of the token.
    pub fn push(&mut self, id: u32) -> (String, bool, usize) {
        let text = self.stream.as_mut().map(|stream| stream.push(id)).unwrap_or_default();
        let certain = self.stop.push(&text);
        (certain, self.stop.stopped().is_some(), text.chars().count())
    }

    /// Ends the output, and returns the rest of the text.
    pub fn finish(&mut self) -> String {
        let rest = self.stream.take().map(Stream::finish).unwrap_or_default();
        let certain = self.stop.push(&rest);
        if self.stop.stopped().is_some() { certain } else { certain + &self.stop.finish() }
    }
}

#[cfg(test)]
mod tests {
    use ferrane_llm::tokenizer::Tokenizer;

    use super::*;

    /// The output of pieces, as it is returned, and the token that ended it.
    fn output(text: &str, stops: &[&str]) -> (Vec<String>, Option<usize>) {
        let tokenizer = Tokenizer::train("abcdefg hello", 300).unwrap();
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        // One token for each character, so that stop strings begin anywhere.
        let ids = text.chars().map(|c| tokenizer.id_of(&c.to_string()).unwrap());
        let mut output = OutputText::new(tokenizer.stream(), &stops);
        let mut pieces = Vec::new();
        for (i, id) in ids.enumerate() {
            let (piece, stopped, _) = output.push(id);
            pieces.push(piece);
            if stopped {
                return (pieces, Some(i));
            }
        }
        pieces.push(output.finish());
        (pieces, None)
    }

    #[test]
    fn stop_strings_end_the_text_and_are_not_part_of_it() {
        assert_eq!(output("abcdef", &["cd"]), (vec!["a".into(), "b".into(), "".into(), "".into()], Some(3)));
        let (pieces, stopped) = output("abcabd", &["abd", "x"]);
        assert_eq!((pieces.concat(), stopped), ("abc".to_string(), Some(5)));
        let (pieces, stopped) = output("abab", &["abc"]);
        assert_eq!((pieces.concat(), stopped), ("abab".to_string(), None));
        // The earliest of several ends it.
        assert_eq!(output("abcdef", &["cdef", "bc"]).0.concat(), "a");
        assert_eq!(output("hello", &[]).0, ["h", "e", "l", "l", "o", ""]);
    }
}
