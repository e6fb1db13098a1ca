//! What tests look for in pictures of screens.

/// Fails at the caller if a picture lacks one of these words.
#[track_caller]
pub fn has(picture: &str, words: &[&str]) {
    for word in words {
        assert!(picture.contains(word), "no `{word}` in\n{picture}");
    }
}

/// The number of braille characters that have a dot.
pub fn braille(text: &str) -> usize {
    text.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count()
}
