//! The syntax tree of a text: statements without their meaning.

use ferrane_diag::{Code, Diagnostic, Diagnostics, Span};

/// The largest nesting depth of blocks.
const DEPTH: usize = 8;

/// A token of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A name, or a path with dots and indices.
    Word(String),
    /// A whole number of at most 64 bits.
    Number(u64),
    /// A number with a decimal point or an exponent.
    Float(f64),
    /// The bytes of a quoted string.
    Text(Vec<u8>),
}

/// A statement: `word word = value word { … }`.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The tokens before the `=` or before the block.
    pub words: Vec<(Value, Span)>,
    /// The tokens after the `=`.
    pub values: Vec<(Value, Span)>,
    /// The statements of its block, if it has one.
    pub block: Option<Vec<Item>>,
    /// The span of the statement without its block.
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Value(Value),
    Open,
    Close,
    Equals,
    End,
}

/// Parses a text. Errors are added to `problems` and parsing continues.
pub(super) fn parse(text: &str, problems: &mut Diagnostics) -> Vec<Item> {
    let mut parser = Parser { lexer: Lexer { text, at: 0 }, problems };
    parser.block(0)
}

struct Parser<'a, 'p> {
    lexer: Lexer<'a>,
    problems: &'p mut Diagnostics,
}

impl Parser<'_, '_> {
    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.problems.push(Diagnostic::error(Code(710), span, message));
    }

    /// Parses statements up to the end of the block or of the text.
    fn block(&mut self, depth: usize) -> Vec<Item> {
        let (mut items, mut item) = (Vec::new(), None::<Item>);
        let mut assigned = false;
        while !self.problems.is_full() {
            let Some((token, span)) = self.lexer.next() else { break };
            let token = match token {
                Ok(token) => token,
                Err(message) => {
                    self.error(span, message);
                    continue;
                }
            };
            match token {
                Token::Value(value) => {
                    let item =
                        item.get_or_insert_with(|| Item { words: Vec::new(), values: Vec::new(), block: None, span });
                    item.span = item.span.to(span);
                    if assigned { &mut item.values } else { &mut item.words }.push((value, span));
                }
                Token::Equals => match &item {
                    Some(_) if !assigned => assigned = true,
                    _ => self.error(span, "`=` must be between a name and its value"),
                },
                Token::Open => {
                    if depth == DEPTH {
                        self.error(span, format!("blocks nest at most {DEPTH} deep"));
                        return items;
                    }
                    let mut open =
                        item.take().unwrap_or(Item { words: Vec::new(), values: Vec::new(), block: None, span });
                    if open.words.is_empty() || assigned {
                        self.error(span, "`{` must follow the words of a statement");
                    }
                    open.block = Some(self.block(depth + 1));
                    items.push(open);
                    assigned = false;
                }
                Token::End | Token::Close => {
                    if let Some(done) = item.take() {
                        if assigned && done.values.is_empty() {
                            self.error(done.span, "a value is missing after `=`");
                        }
                        items.push(done);
                    }
                    assigned = false;
                    if token == Token::Close {
                        if depth > 0 {
                            return items;
                        }
                        self.error(span, "`}` closes nothing");
                    }
                }
            }
        }
        items.extend(item);
        if depth > 0 && !self.problems.is_full() {
            let end = self.lexer.text.len();
            self.error(Span::new(end, end), "a block has no end, `}`");
        }
        items
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    /// The next token, or a message about an invalid one; `None` at the end.
    fn next(&mut self) -> Option<(Result<Token, String>, Span)> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at)? {
                b' ' | b'\t' | b'\r' | b',' => self.at += 1,
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => {
                    let rest = &bytes[self.at..];
                    self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                }
                _ => break,
            }
        }
        let start = self.at;
        let token = match bytes[start] {
            b'\n' | b';' => self.one(Token::End),
            b'{' => self.one(Token::Open),
            b'}' => self.one(Token::Close),
            b'=' => self.one(Token::Equals),
            b'"' => self.string(),
            _ => self.word(),
        };
        Some((token, Span::new(start, self.at)))
    }

    fn one(&mut self, token: Token) -> Result<Token, String> {
        self.at += 1;
        Ok(token)
    }

    fn word(&mut self) -> Result<Token, String> {
        let start = self.at;
        let rest = &self.text[start..];
        let part = |c: char| c.is_ascii_alphanumeric() || "_.[]+-".contains(c);
        let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
        if length == 0 {
            let c = rest.chars().next().unwrap_or(' ');
            self.at += c.len_utf8();
            return Err(format!("`{}` does not begin a token", c.escape_debug()));
        }
        self.at += length;
        let word = &rest[..length];
        if !word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
            return Ok(Token::Value(Value::Word(word.to_string())));
        }
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        let float = || word.parse::<f64>().ok().map(Value::Float);
        let value = number.map(Value::Number).or_else(float);
        value.map(Token::Value).ok_or_else(|| format!("`{word}` does not fit into 64 bits"))
    }

    fn string(&mut self) -> Result<Token, String> {
        let bytes = self.text.as_bytes();
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let byte = bytes.get(self.at).copied();
            match byte {
                None | Some(b'\n') => return Err("a string must end on its line, with `\"`".to_string()),
                Some(b'"') => break,
                Some(b'\\') => {
                    let digit = |i: usize| bytes.get(self.at + i).and_then(|b| (*b as char).to_digit(16));
                    let (byte, length) = match bytes.get(self.at + 1) {
                        Some(b'n') => (b'\n', 2),
                        Some(b't') => (b'\t', 2),
                        Some(c @ (b'"' | b'\\')) => (*c, 2),
                        Some(b'x') if digit(2).is_some() && digit(3).is_some() => {
                            ((digit(2).unwrap_or(0) * 16 + digit(3).unwrap_or(0)) as u8, 4)
                        }
                        _ => {
                            self.at += 1;
                            return Err(r#"`\` must precede n, t, ", \ or x and two hexadecimal digits"#.to_string());
                        }
                    };
                    out.push(byte);
                    self.at += length;
                }
                Some(byte) => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Ok(Token::Value(Value::Text(out)))
    }
}
