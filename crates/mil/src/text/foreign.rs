//! Detection of files in other formats. One diagnostic that names the format is more useful than a
//! list of syntax errors.

use ferrane_diag::{Diagnostic, Span};

use super::lex::{Lexer, TokenKind};
use crate::codes;

/// The diagnostic for bytes that are recognized as another format.
pub(super) fn recognize(bytes: &[u8]) -> Option<Diagnostic> {
    // Offset of the first byte that is not blank.
    let first = bytes.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
    let diagnostic = |what: &str, remedy: &str| {
        Diagnostic::error(codes::FOREIGN_FORMAT, Span::new(first, first + 1), format!("this is not MIL text: {what}"))
            .note(None, remedy)
    };
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        let mark = Span::new(0, 3);
        let d = Diagnostic::error(codes::NOT_TEXT, mark, "the text begins with a byte order mark");
        return Some(d.suggest(mark, ""));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Some(diagnostic("it is UTF-16", "MIL text is UTF-8: convert the file"));
    }
    // A protobuf `Model` starts with its first field, the specification version, which is a small
    // number.
    if let [0x08, version, field, ..] = bytes
        && *version < 0x80
        && matches!(field, 0x12 | 0x50)
    {
        return Some(diagnostic("it looks like a Core ML model in protobuf", "open it as a package or an `.mlmodel`"));
    }
    if bytes.starts_with(b"<?xml") || bytes.starts_with(b"bplist") {
        return Some(diagnostic(
            "it is a property list",
            "`net.plist` belongs to the engine's older compiler, not to MIL",
        ));
    }
    debug_print(bytes).then(|| {
        diagnostic(
            "it is the debug print that coremltools shows for a program, which nothing reads back",
            "convert the model package it was printed from",
        )
    })
}

/// `main[CoreML8](%x: (1, 16, fp16)(Tensor)) {`, with or without the opset.
fn debug_print(bytes: &[u8]) -> bool {
    // The first line that is not blank decides; a partial character at the cut does not matter.
    let head = &bytes[..bytes.len().min(4096)];
    let head = String::from_utf8_lossy(head);
    let mut lexer = Lexer::new(&head);
    let mut next = || lexer.next();
    if next().kind != TokenKind::Ident {
        return false;
    }
    let mut token = next();
    if token.kind == TokenKind::Punct(b'[') {
        if next().kind != TokenKind::Ident || next().kind != TokenKind::Punct(b']') {
            return false;
        }
        token = next();
    }
    let open = token.kind == TokenKind::Punct(b'(');
    token = next();
    let named = token.kind == TokenKind::Unknown && token.span.of(&head) == "%";
    let empty = token.kind == TokenKind::Punct(b')') && next().kind == TokenKind::Punct(b'{');
    open && (named || empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_it_is_not() {
        let cases: &[(&[u8], Option<&str>)] = &[
            (b"program(1.3)\n{\n}\n", None),
            (b"", None),
            (b"main[CoreML8](%x: (1, 16, fp16)(Tensor)) {\n  block0() {", Some("debug print")),
            (b"\nmain(%x: (1, fp32)(Tensor)) {", Some("debug print")),
            (b"main[CoreML7]() {", Some("debug print")),
            (b"\x08\x07\x12\x93", Some("protobuf")),
            (b"<?xml version=\"1.0\"?>", Some("property list")),
            (b"\xff\xfep\x00", Some("UTF-16")),
            (b"\xef\xbb\xbfprogram(1.3)", Some("byte order mark")),
            // A function without its program is a mistake in MIL, not another format.
            (b"func main<ios18>(tensor<fp16, [1]> x) {", None),
        ];
        for (bytes, expected) in cases {
            let diagnostic = recognize(bytes).map(|d| d.message);
            let fits = diagnostic.as_deref().is_some_and(|m| expected.is_some_and(|e| m.contains(e)));
            assert!(fits || (diagnostic.is_none() && expected.is_none()), "{bytes:?}: {diagnostic:?}");
        }
    }
}
