//! Text from files, for a terminal.

/// A text without control characters other than line feeds, which would steer a terminal.
///
/// ```
/// assert_eq!(ferrane_diag::printable("a\u{1b}[2Jb\n"), "a\u{FFFD}[2Jb\n");
/// ```
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{FFFD}' } else { c }).collect()
}
