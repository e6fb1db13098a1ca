//! Tokens of MIL text, read on demand.
//!
//! The lexer works on bytes and never fails: what it cannot read is a [`TokenKind::Unknown`] token
//! of at least one byte, so every loop over tokens ends. `//` starts a comment, which some
//! published files have.

use ferrane_diag::Span;

/// What a token is. Its text is that of its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Ident,
    /// Starts with a digit, a sign or a point; whether it is a number of some type is decided
    /// later.
    Number,
    /// A string; the span includes the quotes.
    String,
    /// A string without an end on its line.
    OpenString,
    /// One of `()[]{}<>,;=?:`.
    Punct(u8),
    /// `->`.
    Arrow,
    Unknown,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

#[derive(Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    pub(super) fn text(&self, token: Token) -> &'a str {
        token.span.of(self.text)
    }

    /// The whole text, of which spans are ranges.
    pub(super) fn whole(&self) -> &'a str {
        self.text
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    let rest = &self.text.as_bytes()[self.at..];
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    pub(super) fn next(&mut self) -> Token {
        self.skip_blank();
        let start = self.at;
        let first = self.peek(0);
        let kind = match first {
            0 if start >= self.text.len() => TokenKind::End,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'_');
                TokenKind::Ident
            }
            b'-' if self.peek(1) == b'>' => {
                self.at += 2;
                TokenKind::Arrow
            }
            b'0'..=b'9' | b'.' | b'+' | b'-' => {
                self.number();
                TokenKind::Number
            }
            b'"' => self.string(),
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b',' | b';' | b'=' | b'?' | b':' => {
                self.at += 1;
                TokenKind::Punct(first)
            }
            _ => {
                self.at += self.text[start..].chars().next().map_or(1, char::len_utf8);
                TokenKind::Unknown
            }
        };
        Token { kind, span: Span::new(start, self.at) }
    }

    /// The kind of the next token, without consuming it.
    pub(super) fn following(&self) -> TokenKind {
        Lexer { text: self.text, at: self.at }.next().kind
    }

    fn skip_while(&mut self, keep: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|&b| !keep(b)).unwrap_or(rest.len());
    }

    /// A sign, then letters, digits and points, and one sign after the letter of an exponent: `e`,
    /// or `p` after `0x`.
    fn number(&mut self) {
        let sign = usize::from(matches!(self.peek(0), b'+' | b'-'));
        let hex = self.peek(sign) == b'0' && matches!(self.peek(sign + 1), b'x' | b'X');
        self.at += 1;
        self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'.');
        let exponent = match self.text.as_bytes()[self.at - 1] {
            b'e' | b'E' => !hex,
            b'p' | b'P' => hex,
            _ => false,
        };
        if exponent && matches!(self.peek(0), b'+' | b'-') {
            self.at += 1;
            self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'.');
        }
    }

    fn string(&mut self) -> TokenKind {
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    return TokenKind::String;
                }
                b'\\' if self.at + 1 < self.text.len() && self.peek(1) != b'\n' => {
                    // Skips the escaped character, which may have several bytes.
                    self.at += 1;
                    self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
                }
                b'\n' => return TokenKind::OpenString,
                _ if self.at >= self.text.len() => return TokenKind::OpenString,
                _ => self.at += self.text[self.at..].chars().next().map_or(1, char::len_utf8),
            }
        }
    }
}

/// The value of a string token. `None` for an invalid escape.
pub(super) fn unquote(token: &str) -> Option<String> {
    let inner = token.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(inner.to_string());
    }
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '0' => '\0',
            c @ ('"' | '\\' | '\'' | '/') => c,
            'x' => {
                let (a, b) = (chars.next()?.to_digit(16)?, chars.next()?.to_digit(16)?);
                char::from_u32(a * 16 + b).filter(char::is_ascii)?
            }
            _ => return None,
        });
    }
    Some(out)
}
