//! The state of the reader: tokens, diagnostics, and the names in scope.
//!
//! Text is untrusted. Depth, extents, the number of diagnostics and the memory of literals are
//! bounded, and every loop consumes a token; so the reader terminates and does not panic. Recovery
//! follows one rule: a mistake is reported once, and its consequences are not reported. A value
//! whose type could not be read is *lost*: its name is known, and its uses are silent. A value
//! whose statement has an error has the type that the text declares.

use std::collections::{HashMap, HashSet};

use ferrane_diag::{Code, Diagnostic, Diagnostics, Span, nearest};

use super::lex::{Lexer, Token, TokenKind};
use super::options::Options;
use crate::codes;
use crate::opset::Opset;
use crate::program::{Function, Type, Value, ValueDef, ValueId};
use crate::weights::Weights;

/// The longest message in bytes: messages contain names and types, which may be long.
const LONGEST_MESSAGE: usize = 2000;
/// The most names that an unknown one is compared with, for a suggestion.
const COMPARED: usize = 1000;

/// Reading cannot continue at this level; the diagnostic has been reported.
pub(super) struct Stop;

pub(super) type Read<T> = Result<T, Stop>;

/// What a name refers to at this point.
#[derive(Clone, Copy)]
enum Meaning {
    Value(ValueId),
    /// It was defined by something that could not be read.
    Lost,
    /// It was defined in a nested block that has ended.
    Ended,
}

/// A use of a name that was not defined yet.
struct Unbound<'a> {
    name: &'a str,
    span: Span,
    suggestion: Option<String>,
}

/// Results that are declared wider than their op computes them, with the diagnostic for it.
pub(super) struct Doubt {
    pub(super) types: Vec<(ValueId, Type)>,
    pub(super) diagnostic: Diagnostic,
}

pub(super) struct Reader<'a> {
    lexer: Lexer<'a>,
    /// The token that is read next.
    pub(super) token: Token,
    /// The token read last.
    pub(super) last: Span,
    /// Brackets of any kind that are open.
    pub(super) nest: i64,
    diagnostics: Diagnostics,
    /// Uses of lost values: no errors, but nothing that depends on them can be checked.
    silent: usize,
    pub(super) weights: Weights,
    pub(super) options: Options,
    /// A scalar was spelled as a tensor.
    pub(super) verbose: bool,
    /// A scalar was spelled as its element type: the first place.
    pub(super) shorthand: Option<Span>,
    pub(super) function: Function,
    /// Where each value of the function is named.
    places: Vec<Span>,
    /// `None` for a tag that is not a known opset.
    pub(super) opset: Option<Opset>,
    scope: HashMap<&'a str, Meaning>,
    /// Values whose names were redefined, which is an error: they are visible again where the block
    /// of the other value ends.
    hidden: Vec<(&'a str, ValueId)>,
    unbound: Vec<Unbound<'a>>,
    /// Results whose wrong declared types may be harmless; see `settle`.
    pub(super) doubts: Vec<Doubt>,
    /// The early end of the text has been reported.
    ended: bool,
    /// Unknown ops that have been reported.
    pub(super) unknown: HashSet<&'a str>,
    /// Type nodes that literals may still take; see [`Reader::spend`].
    budget: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, weights: &Weights, options: Options) -> Reader<'a> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next();
        Reader {
            lexer,
            token,
            last: Span { start: 0, end: 0 },
            nest: 0,
            diagnostics: Diagnostics::new(),
            silent: 0,
            weights: weights.clone(),
            options,
            verbose: false,
            shorthand: None,
            function: Function::default(),
            places: Vec::new(),
            opset: None,
            scope: HashMap::new(),
            hidden: Vec::new(),
            unbound: Vec::new(),
            doubts: Vec::new(),
            ended: false,
            unknown: HashSet::new(),
            budget: text.len().saturating_add(1000),
        }
    }

    /// All diagnostics, in the order of the text.
    pub(super) fn finish(mut self) -> Diagnostics {
        self.diagnostics.sort();
        self.diagnostics
    }

    // Tokens.

    pub(super) fn text(&self, token: Token) -> &'a str {
        self.lexer.text(token)
    }

    /// The text that is read.
    pub(super) fn whole(&self) -> &'a str {
        self.lexer.whole()
    }

    pub(super) fn advance(&mut self) -> Token {
        let token = self.token;
        match token.kind {
            TokenKind::Punct(b'(' | b'[' | b'{') => self.nest += 1,
            TokenKind::Punct(b')' | b']' | b'}') => self.nest -= 1,
            _ => {}
        }
        self.last = token.span;
        self.token = self.lexer.next();
        token
    }

    /// The kind of the token after the next one.
    pub(super) fn following(&self) -> TokenKind {
        self.lexer.following()
    }

    pub(super) fn at(&self, punct: u8) -> bool {
        self.token.kind == TokenKind::Punct(punct)
    }

    pub(super) fn at_word(&self, word: &str) -> bool {
        self.token.kind == TokenKind::Ident && self.text(self.token) == word
    }

    /// A function starts here: `func name`.
    pub(super) fn at_function(&self) -> bool {
        self.at_word("func") && self.following() == TokenKind::Ident
    }

    pub(super) fn eat(&mut self, punct: u8) -> bool {
        let found = self.at(punct);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, punct: u8) -> Read<Span> {
        if self.at(punct) {
            return Ok(self.advance().span);
        }
        self.unexpected(&format!("`{}`", punct as char))
    }

    /// The `;` after a statement or a function. If a new line or block end follows instead, it is
    /// reported as missing and reading continues.
    pub(super) fn semicolon(&mut self) -> Read<()> {
        if self.eat(b';') {
            return Ok(());
        }
        let between = self.last.end as usize..self.token.span.start as usize;
        let new_line = self.whole().get(between).is_some_and(|blank| blank.contains('\n'));
        if new_line || self.at(b'}') || self.token.kind == TokenKind::End {
            self.ended |= self.token.kind == TokenKind::End;
            let last = self.last.of(self.whole());
            let shown: String = last.chars().take(30).collect();
            let mut d = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.last, format!("expected `;` after `{shown}`"));
            if shown.len() == last.len() {
                d = d.suggest(self.last, format!("{last};"));
            }
            self.report(d);
            return Ok(());
        }
        self.unexpected("`;`")
    }

    pub(super) fn ident(&mut self, what: &str) -> Read<(&'a str, Span)> {
        if self.token.kind == TokenKind::Ident {
            let token = self.advance();
            return Ok((self.text(token), token.span));
        }
        self.unexpected(what)
    }

    // Diagnostics.

    pub(super) fn report(&mut self, mut diagnostic: Diagnostic) {
        let notes = diagnostic.notes.iter_mut().map(|note| &mut note.message);
        for message in notes.chain([&mut diagnostic.message]).filter(|m| m.len() > LONGEST_MESSAGE) {
            let cut = (0..=LONGEST_MESSAGE).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
            message.truncate(cut);
            message.push('…');
            message.shrink_to_fit();
        }
        diagnostic.suggestion = diagnostic.suggestion.filter(|s| s.replacement.len() <= LONGEST_MESSAGE);
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn fail<T>(&mut self, code: Code, span: Span, message: impl Into<String>) -> Read<T> {
        self.report(Diagnostic::error(code, span, message));
        Err(Stop)
    }

    /// The next token, for a message.
    pub(super) fn found(&self) -> String {
        match self.token.kind {
            TokenKind::End => "the end of the text".to_string(),
            TokenKind::OpenString => "a string without end".to_string(),
            _ => {
                let text = self.text(self.token);
                let short: String = text.chars().take(30).collect();
                format!("`{short}{}`", if short.len() < text.len() { "…" } else { "" })
            }
        }
    }

    pub(super) fn unexpected<T>(&mut self, wanted: &str) -> Read<T> {
        if self.token.kind == TokenKind::End && std::mem::replace(&mut self.ended, true) {
            self.silence();
            return Err(Stop);
        }
        let message = format!("expected {wanted}, found {}", self.found());
        let mut d = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.token.span, message);
        if self.token.kind == TokenKind::Unknown && matches!(self.text(self.token), "'" | "“" | "”" | "‘" | "’")
        {
            d = d.note(None, "strings stand in straight double quotes");
        }
        self.report(d);
        Err(Stop)
    }

    /// Reports that one of `words` is expected, with the most similar one as a suggestion.
    pub(super) fn unexpected_word<T>(&mut self, wanted: &str, words: &[&str]) -> Read<T> {
        let message = format!("expected {wanted}, found {}", self.found());
        let mut d = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.token.span, message);
        if let Some(near) = nearest(self.text(self.token), words.iter().copied()) {
            d = d.suggest(self.token.span, near);
        }
        self.report(d);
        Err(Stop)
    }

    /// A count that grows with every diagnostic, including those that are silent because they are
    /// consequences of others.
    pub(super) fn mark(&self) -> usize {
        self.diagnostics.len() + self.diagnostics.left_out() + self.silent + self.unbound.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.diagnostics.is_full()
    }

    /// True if enough errors were reported to stop.
    pub(super) fn gives_up(&self) -> bool {
        self.diagnostics.is_full() && self.diagnostics.has_errors()
    }

    /// Counts a silent mistake for [`Reader::mark`]: a consequence of a reported one.
    pub(super) fn silence(&mut self) {
        self.silent += 1;
    }

    // Recovery.

    /// Skips to the end of one item of a list that is closed by `close`: before the `,` that
    /// precedes the next item, or before the closing bracket. `nest` is the nesting inside of the
    /// list; `item` decides whether an item can start at a token that is followed by this kind.
    /// Stops also where the list cannot continue.
    pub(super) fn skip_item(&mut self, nest: i64, close: u8, item: impl Fn(&Self, TokenKind) -> bool) -> Read<()> {
        loop {
            match self.token.kind {
                TokenKind::End | TokenKind::OpenString | TokenKind::Punct(b';') => return Err(Stop),
                // A list ends before these brackets, even if another bracket is missing in it.
                TokenKind::Punct(b)
                    if b == close
                        && (self.nest <= nest || matches!(self.following(), TokenKind::Punct(b'{' | b'[' | b';'))) =>
                {
                    self.nest = nest;
                    return Ok(());
                }
                TokenKind::Punct(b'{') if self.last.of(self.whole()) == ")" => return Err(Stop),
                TokenKind::Punct(b',') if self.nest <= nest => {
                    let (comma, before) = (self.lexer.clone(), (self.token, self.last, self.nest));
                    self.advance();
                    let starts = self.token.kind == TokenKind::Ident && item(self, self.following());
                    (self.lexer, (self.token, self.last, self.nest)) = (comma, before);
                    if starts {
                        return Ok(());
                    }
                    self.advance();
                }
                _ if self.at_function() => return Err(Stop),
                _ => drop(self.advance()),
            }
        }
    }

    /// Skips to the next statement: after a `;`, after a line with an unterminated string, or
    /// before the `}` that closes the body.
    pub(super) fn skip_statement(&mut self, start: Span) {
        let mut depth = 0usize;
        // A statement that failed at its first token must not be tried again.
        if self.token.span == start && self.token.kind != TokenKind::End {
            self.advance();
        }
        loop {
            match self.token.kind {
                TokenKind::End => return,
                TokenKind::OpenString if depth == 0 => {
                    self.advance();
                    return;
                }
                TokenKind::Punct(b';') if depth == 0 => {
                    self.advance();
                    return;
                }
                // After `)` a nested block opens; other braces belong to literals. The end of a
                // block is followed by its results.
                TokenKind::Punct(b'{') if self.last.of(self.whole()) == ")" => depth += 1,
                TokenKind::Punct(b'}')
                    if self.following() == TokenKind::Arrow || self.following() == TokenKind::End =>
                {
                    if depth == 0 {
                        return;
                    }
                    depth -= 1;
                }
                _ if self.at_function() => return,
                _ => {}
            }
            self.advance();
        }
    }

    // Names.

    /// A new function: no names, no values.
    pub(super) fn reset(&mut self) {
        self.function = Function::default();
        self.scope = HashMap::new();
        self.places = Vec::new();
        self.hidden = Vec::new();
    }

    pub(super) fn define(&mut self, name: &'a str, span: Span, ty: Type, def: ValueDef) -> ValueId {
        let id = ValueId(self.function.values.len() as u32);
        let twice = || Diagnostic::error(codes::INVALID_NAME, span, format!("two values are named `{name}`"));
        match self.scope.insert(name, Meaning::Value(id)) {
            Some(Meaning::Value(first)) => {
                self.hidden.push((name, first));
                self.report(twice().note(self.place(first), "the first one"));
            }
            Some(Meaning::Lost) => self.report(twice()),
            // A name is free again after the block in which it was defined.
            Some(Meaning::Ended) | None => {}
        }
        self.function.values.push(Value { name: name.to_string(), ty, def });
        self.places.push(span);
        id
    }

    /// Where a value is named.
    pub(super) fn place(&self, value: ValueId) -> Option<Span> {
        self.places.get(value.index()).copied()
    }

    /// Marks a name whose definition could not be read.
    pub(super) fn lose(&mut self, name: &'a str) {
        self.scope.entry(name).or_insert(Meaning::Lost);
    }

    /// Begins the names of a nested block.
    pub(super) fn begin_names(&self) -> (usize, usize) {
        (self.function.values.len(), self.hidden.len())
    }

    /// Ends the names that were defined since.
    pub(super) fn end_names(&mut self, (first, hidden): (usize, usize)) {
        for value in self.function.values[first..].iter().zip(&self.places[first..]) {
            // The name as it stands in the text, which lives longer than the function.
            let name = value.1.of(self.lexer.whole());
            debug_assert_eq!(name, value.0.name);
            self.scope.insert(name, Meaning::Ended);
        }
        for (name, value) in self.hidden.split_off(hidden) {
            if value.index() < first {
                self.scope.insert(name, Meaning::Value(value));
            }
        }
    }

    pub(super) fn lookup(&mut self, name: &'a str, span: Span) -> Option<ValueId> {
        match self.scope.get(name) {
            Some(Meaning::Value(id)) => return Some(*id),
            Some(Meaning::Lost) => {
                self.silent += 1;
                return None;
            }
            Some(Meaning::Ended) => {
                let message = format!("`{name}` is not defined here: it belongs to a nested block that has ended");
                self.report(Diagnostic::error(codes::UNDEFINED_VALUE, span, message));
                return None;
            }
            None => {}
        }
        let full = self.is_full() || self.unbound.len() >= Diagnostics::LIMIT;
        let mut suggestion = None;
        if name == "true" || name == "false" {
            suggestion = Some(format!("bool({name})"));
        } else if !full && self.scope.len() <= COMPARED {
            let defined = self.scope.iter().filter(|(_, m)| matches!(m, Meaning::Value(_)));
            let mut names: Vec<&str> = defined.map(|(n, _)| *n).collect();
            // Among equally near names the choice must not depend on the table's order.
            names.sort_unstable();
            suggestion = nearest(name, names).map(str::to_string);
        }
        let unbound = Unbound { name, span, suggestion };
        if full {
            self.report_unbound(unbound)
        } else {
            self.unbound.push(unbound)
        }
        None
    }

    /// Reports undefined names at the end of a function, when it is known which ones are defined
    /// later.
    pub(super) fn end_function(&mut self) {
        self.settle();
        for unbound in std::mem::take(&mut self.unbound) {
            self.report_unbound(unbound);
        }
    }

    fn report_unbound(&mut self, unbound: Unbound<'a>) {
        let Unbound { name, span, suggestion } = unbound;
        let later = match self.scope.get(name) {
            Some(Meaning::Value(id)) => self.places.get(id.index()).copied(),
            _ => None,
        };
        let d = match later {
            Some(place) => {
                Diagnostic::error(codes::UNDEFINED_VALUE, span, format!("`{name}` is not defined here, but later"))
                    .note(place, "ops run in the order of the text; this is its definition")
            }
            None => Diagnostic::error(codes::UNDEFINED_VALUE, span, format!("`{name}` is not defined here")),
        };
        self.report(match suggestion {
            Some(near) if later.is_none() => d.suggest(span, near),
            _ => d,
        });
    }

    // Memory.

    /// Literals repeat the types of their parts in memory, not in text; that must not grow faster
    /// than the text.
    pub(super) fn spend(&mut self, nodes: usize, span: Span) -> Read<()> {
        match self.budget.checked_sub(nodes) {
            Some(rest) => {
                self.budget = rest;
                Ok(())
            }
            None => self.fail(codes::TOO_LARGE, span, "the literals of this text have too many nested types"),
        }
    }
}
