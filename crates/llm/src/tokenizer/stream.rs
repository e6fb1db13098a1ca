//! Streaming decoder: one id at a time.
//!
//! Every kind of tokenizer decodes by one rule: the bytes of the pieces are concatenated, and
//! invalid UTF-8 becomes U+FFFD as in `String::from_utf8_lossy`. A stream holds back the bytes of
//! an incomplete character, so it returns only whole characters, and the concatenation of its
//! results equals [`Tokenizer::decode`](super::Tokenizer::decode).

use super::Tokenizer;

/// The state of a streaming decoder; see [`Tokenizer::stream`].
#[derive(Debug, Clone)]
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    held: Vec<u8>,
    at_start: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Stream<'a> {
        Stream { tokenizer, held: Vec::new(), at_start: true }
    }

    /// The same decoder for ids that continue a text: a space at their beginning belongs to them.
    #[must_use]
    pub fn continuing(mut self) -> Stream<'a> {
        self.at_start = false;
        self
    }

    /// Appends an id and returns the text that is now complete, which may be empty. Control pieces
    /// and ids outside the vocabulary have no text. After the id [`Tokenizer::bos`] a new text
    /// starts.
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = self.tokenizer;
        if Some(id) == tokenizer.bos() {
            self.at_start = true;
        }
        let Some(mut bytes) = tokenizer.piece(id) else { return String::new() };
        if bytes.is_empty() {
            return String::new();
        }
        // The space that encoding prepends is not part of the text.
        if std::mem::take(&mut self.at_start) && tokenizer.strips_space() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.held.utf8_chunks() {
            let invalid = chunk.invalid();
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            if invalid.is_empty() || (done + invalid.len() == self.held.len() && unfinished(invalid)) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
        self.held.drain(..done);
        text
    }

    /// Ends the stream: the bytes of an incomplete character become U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}

/// Whether `bytes` are the beginning of a valid character.
fn unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}
