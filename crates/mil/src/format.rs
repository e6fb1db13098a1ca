//! Formatting of text: the printer's spelling, with the comments of the text that was read.
//!
//! A [`Program`](crate::Program) holds no comments. A text and its printed form have the same
//! sequence of marks: `{`, `}` and `;` outside of brackets. So a comment keeps its position in that
//! sequence: after the statement whose line it ends, otherwise on lines of its own before the next
//! statement. Formatting is idempotent.

use ferrane_diag::Diagnostics;

use crate::program::Dialect;
use crate::text::{Missing, Options, Types, parse_with, print};
use crate::weights::{Strictness, Weights};

/// The text in the printer's spelling, in its own dialect or in the given one.
///
/// Blob files are not opened and types are not checked, so a program with such errors can be
/// formatted.
///
/// # Errors
/// The diagnostics of the reader, if the text is not MIL.
pub fn format(text: impl AsRef<[u8]>, dialect: Option<Dialect>) -> Result<String, Diagnostics> {
    let text = text.as_ref();
    let options = Options { missing: Missing::Keep, strictness: Strictness::Lenient, types: Types::Trust };
    let parsed = parse_with(text, &Weights::new(), options);
    let Some(mut program) = parsed.program else { return Err(parsed.diagnostics) };
    if let Some(dialect) = dialect {
        program.dialect = dialect;
    }
    let printed = print(&program);
    // The reader accepted the text, so it is UTF-8.
    let text = std::str::from_utf8(text).unwrap_or_default();
    let comments: Vec<Comment<'_>> = marks(text).filter_map(|m| m.comment).collect();
    Ok(if comments.is_empty() { printed } else { carry(&comments, &printed) })
}

/// A comment of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Comment<'a> {
    /// From `//` to the end of the line.
    text: &'a str,
    /// Number of marks before it in the text.
    after: usize,
    /// It follows a mark on the same line.
    trails: bool,
}

/// A line's marks, and the comment that ends it.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    text: &'a str,
    /// Marks up to the end of the line.
    marks: usize,
    comment: Option<Comment<'a>>,
}

/// The lines of a text.
fn marks(text: &str) -> impl Iterator<Item = Line<'_>> {
    // Depth of the brackets of attributes and arguments, inside of which nothing is a mark. The
    // reader accepted the text, so brackets are balanced.
    let (mut open, mut marks) = (0usize, 0usize);
    text.lines().map(move |line| {
        let (mut string, mut escaped, mut trails, mut comment) = (false, false, false, None);
        for (i, byte) in line.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if string => escaped = true,
                b'"' => string = !string,
                _ if string => {}
                b'/' if line[i..].starts_with("//") => {
                    comment = Some(Comment { text: line[i..].trim_end(), after: marks, trails });
                    break;
                }
                b'(' | b'[' => open += 1,
                b')' | b']' => open = open.saturating_sub(1),
                b'{' | b'}' | b';' if open == 0 => {
                    marks += 1;
                    trails = true;
                }
                b' ' | b'\t' => {}
                _ => trails = false,
            }
        }
        Line { text: line, marks, comment }
    })
}

/// The printed text with the comments put in.
fn carry(comments: &[Comment<'_>], printed: &str) -> String {
    let mut out = String::with_capacity(printed.len() + comments.iter().map(|c| c.text.len() + 16).sum::<usize>());
    let mut comments = comments.iter().peekable();
    let mut passed = 0;
    for line in marks(printed) {
        // Comments before the first mark of this line. A comment that trails a mark of this line is
        // added at its end.
        let indent = &line.text[..line.text.len() - line.text.trim_start().len()];
        while let Some(comment) = comments.next_if(|c| c.after <= passed) {
            out.push_str(indent);
            out.push_str(comment.text);
            out.push('\n');
        }
        out.push_str(line.text);
        while let Some(comment) = comments.next_if(|c| c.trails && c.after > passed && c.after <= line.marks) {
            // A second trailing comment is put on the next line.
            let gap = if out.ends_with(line.text) { " ".to_string() } else { format!("\n{indent}") };
            out.push_str(&gap);
            out.push_str(comment.text);
        }
        out.push('\n');
        passed = line.marks;
    }
    for comment in comments {
        out.push_str(comment.text);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOSE: &str = r#"// what it is
program(1.3)
[buildInfo = dict<string, string>({{"a", "// no comment"}})] // header
{ // opens
  // before the function
  func main<ios18>(tensor<fp16, [2]> x) {   // its line
      // before y,
      // in two lines
      tensor<fp16, [2]> y =
          relu(x = x) // inside
          [name = string("y")]; // after y
      // at the end
  } -> (y); // result
  // after the function
}
// end
"#;

    #[test]
    fn comments_stay_with_their_statements() {
        let once = format(LOOSE, None).expect("reads");
        let expected = r#"// what it is
// header
program(1.3)
[buildInfo = dict<string, string>({{"a", "// no comment"}})]
{ // opens
    // before the function
    func main<ios18>(tensor<fp16, [2]> x) { // its line
        // before y,
        // in two lines
        // inside
        tensor<fp16, [2]> y = relu(x = x)[name = string("y")]; // after y
    // at the end
    } -> (y); // result
// after the function
}
// end
"#;
        assert_eq!(once, expected);
        assert_eq!(format(&once, None).expect("reads"), once);
    }

    #[test]
    fn the_dialect_changes_the_text_alone() {
        let verbose = format(LOOSE, Some(Dialect::Verbose)).expect("reads");
        assert!(verbose.contains(r#"[name = tensor<string, []>("y")]; // after y"#), "{verbose}");
        assert_eq!(format(&verbose, Some(Dialect::Shorthand)), format(LOOSE, None));
    }

    #[test]
    fn what_is_no_mil_is_told() {
        assert!(format("program(1.3)\n{ // }", None).expect_err("no end").has_errors());
    }
}
