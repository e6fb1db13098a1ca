//! The text as a tree of statements, before anything is known of their meaning.

use ferrane_diag::{Code, Diagnostic, Diagnostics, Span};

/// Blocks in blocks.
const DEPTH: usize = 8;

/// A word of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A name, or a path with dots and indices.
    Word(String),
    /// A whole number.
    Number(u64),
    /// A number with a point or an exponent.
    Float(f64),
    /// Bytes between quotes.
    Text(Vec<u8>),
}

/// A statement: `word word = value word { … }`.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its words before the `=`, or before the block.
    pub words: Vec<(Value, Span)>,
    /// Its words behind the `=`.
    pub values: Vec<(Value, Span)>,
    /// Its block.
    pub block: Option<Vec<Item>>,
    /// All of it but the block.
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

/// Reads a text; what is wrong goes into `problems`, and the rest is read all the same.
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

    /// Statements up to the end of the block, or of the text.
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
                    _ => self.error(span, "`=` stands between a name and its value"),
                },
                Token::Open => {
                    if depth == DEPTH {
                        self.error(span, format!("blocks lie in each other {DEPTH} deep at most"));
                        return items;
                    }
                    let mut open =
                        item.take().unwrap_or(Item { words: Vec::new(), values: Vec::new(), block: None, span });
                    if open.words.is_empty() || assigned {
                        self.error(span, "`{` follows the words of a statement");
                    }
                    open.block = Some(self.block(depth + 1));
                    items.push(open);
                    assigned = false;
                }
                Token::End | Token::Close => {
                    if let Some(done) = item.take() {
                        if assigned && done.values.is_empty() {
                            self.error(done.span, "a value is missing behind `=`");
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
    /// The next token; `None` at the end. An error is what is wrong with it.
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
            return Err(format!("`{}` begins nothing", c.escape_debug()));
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
        value.map(Token::Value).ok_or_else(|| format!("`{word}` is no number of 64 bits"))
    }

    fn string(&mut self) -> Result<Token, String> {
        let bytes = self.text.as_bytes();
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let byte = bytes.get(self.at).copied();
            match byte {
                None | Some(b'\n') => return Err("a string ends on its line, with `\"`".to_string()),
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
                            return Err(r#"`\` stands before n, t, ", \ or x and two hexadecimal digits"#.to_string());
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
