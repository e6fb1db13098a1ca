//! The reader: recursive descent with recovery, so that one pass tells all that is wrong.
//!
//! Text comes from anywhere. Depth, extents and the number of diagnostics are bounded, memory is bounded by the length of the
//! text, and every loop takes a token; so the reader ends, and it does not panic. After an error in a statement it goes on at
//! the next one; a value whose statement was wrong still has the type that the text gives it, so one mistake is told once.
//!
//! Statements are in `statement`, types and literals in `literal`. Codes: 0101 bytes that are no text, 0102 unexpected token, 0103 program header, 0104 nesting or size, 0105 string, 0106 an
//! argument without its name, 0107 a literal without its type, 0108 number; 0201 name, 0202 undefined value, 0203 type, 0204
//! (warning) an op that the registry does not have, 0205 to 0211 arguments and results; 0301 missing file, 0302 record, 0303 (warning) odd record.

use std::collections::{HashMap, HashSet};

use ferrane_diag::{Code, Diagnostic, Diagnostics, Span, nearest};

use super::lex::{Kind, Lexer, Token};
use crate::build::is_identifier;
use crate::ops::Opset;
use crate::program::{Arg, Block, BlockId, Constant, Dialect, Function, OpId, Program, Type, Value, ValueDef, ValueId};
use crate::weights::{Strictness, Weights};

/// The largest text that is read: spans are 32 bits.
const MAX_TEXT: usize = 1 << 31;

/// What to do about a blob file that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Missing {
    /// An error.
    #[default]
    Refuse,
    /// The program gets the record's name without bytes: for formatting and checking.
    Keep,
}

/// What to do about ops that disagree with the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Types {
    /// Errors.
    #[default]
    Check,
    /// Nothing: the declared types stand. For formatting; published files exist whose types are wrong.
    Trust,
}

/// How to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Blob files that are not there.
    pub missing: Missing,
    /// How blob files are read.
    pub strictness: Strictness,
    /// Signatures and shapes of ops.
    pub types: Types,
}

/// What was read, and what was found on the way.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The program, if there was no error.
    pub program: Option<Program>,
    /// Errors and warnings.
    pub diagnostics: Diagnostics,
}

/// Reads a program. Blob files are looked up in `weights`, which the program's own store starts from; they are read strictly.
///
/// # Errors
/// Everything that is wrong with the text, its types and its weights. Warnings alone are no error; [`parse_with`] gives them.
pub fn parse(text: impl AsRef<[u8]>, weights: &Weights) -> Result<Program, Diagnostics> {
    let parsed = parse_with(text, weights, Options::default());
    parsed.program.ok_or(parsed.diagnostics)
}

/// Reads a program, with options, and tells warnings too.
pub fn parse_with(text: impl AsRef<[u8]>, weights: &Weights, options: Options) -> Parsed {
    let bytes = text.as_ref();
    let refuse = |code, span, message: String| Parsed {
        program: None,
        diagnostics: Diagnostic::error(Code(code), span, message).into(),
    };
    if bytes.len() > MAX_TEXT {
        return refuse(104, None, format!("the text has {} bytes, more than {MAX_TEXT}", bytes.len()));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let at = e.valid_up_to();
            return refuse(101, Some(Span::new(at, at + 1)), "the text is no UTF-8".into());
        }
    };
    let mut reader = Reader::new(text, weights, options);
    let program = reader.program();
    let mut diagnostics = reader.diagnostics;
    let mut program = program.filter(|_| !diagnostics.has_errors());
    // What the reader lets through holds the invariants; this is the promise made checkable.
    if let Some(Err(e)) = program.as_ref().map(crate::verify::verify) {
        diagnostics.push(Diagnostic::error(e.code(), None, e.to_string()));
        program = None;
    }
    Parsed { program, diagnostics }
}

/// A statement that cannot be read further; the diagnostic has been told.
pub(super) struct Stop;

pub(super) type Read<T> = Result<T, Stop>;

pub(super) struct Reader<'a> {
    lexer: Lexer<'a>,
    /// The token that is read next.
    pub(super) token: Token,
    /// The end of the token read last.
    pub(super) last: Span,
    pub(super) diagnostics: Diagnostics,
    pub(super) weights: Weights,
    pub(super) options: Options,
    /// A scalar was spelled as a tensor.
    pub(super) verbose: bool,
    pub(super) function: Function,
    pub(super) opset: Opset,
    scope: HashMap<String, ValueId>,
    /// Unknown ops that have been told.
    pub(super) unknown: HashSet<String>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, weights: &Weights, options: Options) -> Reader<'a> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next();
        Reader {
            lexer,
            token,
            last: Span { start: 0, end: 0 },
            diagnostics: Diagnostics::new(),
            weights: weights.clone(),
            options,
            verbose: false,
            function: Function::default(),
            opset: Opset(0),
            scope: HashMap::new(),
            unknown: HashSet::new(),
        }
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
        self.last = token.span;
        self.token = self.lexer.next();
        token
    }

    /// What follows the token that is read next.
    pub(super) fn following(&self) -> Kind {
        self.lexer.following()
    }

    pub(super) fn at(&self, punct: u8) -> bool {
        self.token.kind == Kind::Punct(punct)
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

    pub(super) fn ident(&mut self, what: &str) -> Read<(&'a str, Span)> {
        if self.token.kind == Kind::Ident {
            let token = self.advance();
            return Ok((self.text(token), token.span));
        }
        self.unexpected(what)
    }

    fn word(&mut self, word: &str) -> Read<Span> {
        if self.token.kind == Kind::Ident && self.text(self.token) == word {
            return Ok(self.advance().span);
        }
        self.unexpected(&format!("`{word}`"))
    }

    pub(super) fn tell(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn fail<T>(&mut self, code: u16, span: Span, message: impl Into<String>) -> Read<T> {
        self.tell(Diagnostic::error(Code(code), span, message));
        Err(Stop)
    }

    pub(super) fn unexpected<T>(&mut self, wanted: &str) -> Read<T> {
        let found = match self.token.kind {
            Kind::End => "the end of the text".to_string(),
            Kind::OpenString => "a string without end".to_string(),
            _ => {
                let text = self.text(self.token);
                let short: String = text.chars().take(30).collect();
                format!("`{short}{}`", if short.len() < text.len() { "…" } else { "" })
            }
        };
        self.fail(102, self.token.span, format!("expected {wanted}, found {found}"))
    }

    // Program and functions.

    fn program(&mut self) -> Option<Program> {
        let version = self.header().ok()?;
        let mut attributes = Vec::new();
        if self.at(b'[') {
            attributes = self.attributes().ok()?;
        }
        self.expect(b'{').ok()?;
        let mut functions: Vec<Function> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut bodies: HashSet<(usize, String)> = HashSet::new();
        while self.token.kind == Kind::Ident {
            let start = self.token.span;
            let read = self.function();
            let function = std::mem::take(&mut self.function);
            if read.is_err() {
                // Without its body nothing tells where a function ends.
                return None;
            }
            let place = *places.entry(function.name.clone()).or_insert(functions.len());
            let new = bodies.insert((place, function.opset().to_string()));
            match functions.get_mut(place) {
                None => functions.push(function),
                // Further bodies of a function stand as functions of its name and signature in other opsets.
                Some(first) if new && same_signature(first, &function) => add_body(first, function),
                Some(_) => {
                    let message = format!("two functions are named `{}`", function.name);
                    self.tell(Diagnostic::error(Code(201), start.to(self.last), message));
                }
            }
        }
        self.expect(b'}').ok()?;
        if self.token.kind != Kind::End {
            let _: Read<()> = self.unexpected("the end of the text");
        }
        let dialect = if self.verbose { Dialect::Verbose } else { Dialect::Shorthand };
        Some(Program { version, dialect, attributes, functions, weights: std::mem::take(&mut self.weights) })
    }

    fn header(&mut self) -> Read<(u32, u32)> {
        self.word("program")?;
        self.expect(b'(')?;
        let token = self.token;
        let version = match self.text(token).split_once('.') {
            Some((major, minor)) => major.parse().ok().zip(minor.parse().ok()),
            None => None,
        };
        let Some(version) = version else { return self.fail(103, token.span, "expected a version like 1.3") };
        self.advance();
        self.expect(b')')?;
        Ok(version)
    }

    pub(super) fn attributes(&mut self) -> Read<Vec<(String, Constant)>> {
        self.expect(b'[')?;
        let mut attributes = Vec::new();
        let mut names = HashSet::new();
        while !self.at(b']') {
            let (name, span) = self.ident("an attribute's name")?;
            if !names.insert(name) {
                self.tell(Diagnostic::error(Code(201), span, format!("the attribute `{name}` is given twice")));
            }
            self.expect(b'=')?;
            attributes.push((name.to_string(), self.literal()?));
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b']')?;
        Ok(attributes)
    }

    fn function(&mut self) -> Read<()> {
        self.function = Function::default();
        self.scope.clear();
        self.word("func")?;
        self.function.name = self.ident("the function's name")?.0.to_string();
        self.expect(b'<')?;
        let opset = self.ident("an opset like ios18")?.0.to_string();
        self.expect(b'>')?;
        self.opset = Opset::from_name(&opset).unwrap_or(Opset(0));
        self.function.blocks.push(Block::default());
        self.function.bodies.push((opset, BlockId(0)));
        self.expect(b'(')?;
        for (i, (name, span, ty)) in self.parameters()?.into_iter().enumerate() {
            let id = self.define(&name, span, ty, ValueDef::Input(i as u32));
            self.function.inputs.push(id);
        }
        self.expect(b')')?;
        if self.at(b'[') {
            self.function.attributes = self.attributes()?;
        }
        self.expect(b'{')?;
        self.body(BlockId(0), 0)?;
        self.expect(b';')?;
        Ok(())
    }

    /// `type name, type name`, up to a closing parenthesis or `=`.
    pub(super) fn parameters(&mut self) -> Read<Vec<(String, Span, Type)>> {
        let mut found = Vec::new();
        while self.token.kind == Kind::Ident {
            let ty = self.ty()?;
            let (name, span) = self.ident("a name")?;
            found.push((name.to_string(), span, ty));
            if !self.eat(b',') {
                break;
            }
        }
        Ok(found)
    }

    pub(super) fn define(&mut self, name: &str, span: Span, ty: Type, def: ValueDef) -> ValueId {
        debug_assert!(is_identifier(name));
        let id = ValueId(self.function.values.len() as u32);
        if self.scope.insert(name.to_string(), id).is_some() {
            self.tell(Diagnostic::error(Code(201), span, format!("two values are named `{name}`")));
        }
        self.function.values.push(Value { name: name.to_string(), ty, def });
        id
    }

    /// Statements, `}`, `->` and the results.
    pub(super) fn body(&mut self, block: BlockId, depth: usize) -> Read<()> {
        let first = self.function.values.len();
        while !self.at(b'}') && self.token.kind != Kind::End {
            if self.diagnostics.is_full() && self.diagnostics.has_errors() {
                return Err(Stop);
            }
            let start = self.token.span;
            match self.statement(depth) {
                Ok(Some(op)) => self.function.blocks[block.index()].ops.push(op),
                Ok(None) => {}
                Err(Stop) => self.recover(start),
            }
        }
        self.expect(b'}')?;
        if self.token.kind != Kind::Arrow {
            return self.unexpected("`->`");
        }
        self.advance();
        self.expect(b'(')?;
        let outputs = self.names()?;
        self.expect(b')')?;
        self.function.blocks[block.index()].outputs = outputs;
        if depth > 0 {
            // What a nested block defines ends with it; its names stay taken.
            for i in first..self.function.values.len() {
                self.scope.insert(self.function.values[i].name.clone(), ValueId(u32::MAX));
            }
        }
        Ok(())
    }

    /// To the next statement: behind a `;`, or before a `}` that closes the body.
    fn recover(&mut self, start: Span) {
        let mut depth = 0usize;
        // A statement that failed at its first token must not be tried again.
        if self.token.span == start && self.token.kind != Kind::End {
            self.advance();
        }
        loop {
            match self.token.kind {
                Kind::End => return,
                Kind::Punct(b';') => {
                    self.advance();
                    return;
                }
                Kind::Punct(b'{') => depth += 1,
                Kind::Punct(b'}') if depth == 0 => return,
                Kind::Punct(b'}') => depth -= 1,
                _ => {}
            }
            self.advance();
        }
    }

    pub(super) fn names(&mut self) -> Read<Vec<ValueId>> {
        let mut found = Vec::new();
        while self.token.kind == Kind::Ident {
            let (name, span) = self.ident("a value")?;
            found.extend(self.lookup(name, span));
            if !self.eat(b',') {
                break;
            }
        }
        Ok(found)
    }

    pub(super) fn lookup(&mut self, name: &str, span: Span) -> Option<ValueId> {
        let found = self.scope.get(name).copied();
        if let Some(id) = found.filter(|id| id.index() < self.function.values.len()) {
            return Some(id);
        }
        let mut d = Diagnostic::error(Code(202), span, format!("`{name}` is not defined here"));
        if name == "true" || name == "false" {
            d = d.suggest(span, format!("bool({name})"));
        } else if !self.diagnostics.is_full()
            && self.scope.len() <= 1000
            && let Some(near) = nearest(name, self.scope.keys().map(String::as_str))
        {
            d = d.suggest(span, near);
        }
        self.tell(d);
        None
    }
}

/// Inputs of the same names and types, and the same attributes.
fn same_signature(a: &Function, b: &Function) -> bool {
    let input = |f: &Function, i: usize| f.inputs.get(i).map(|v| (f.value(*v).name.clone(), f.value(*v).ty.clone()));
    a.inputs.len() == b.inputs.len()
        && (0..a.inputs.len()).all(|i| input(a, i) == input(b, i))
        && a.attributes == b.attributes
}

/// Moves the body of `other`, a function of the same signature, behind those of `first`. The reader puts the inputs first among
/// a function's values, so they keep their ids and all others are shifted.
fn add_body(first: &mut Function, other: Function) {
    let inputs = other.inputs.len();
    let (values, ops, blocks) = (first.values.len(), first.ops.len(), first.blocks.len());
    let value = |v: ValueId| if v.index() < inputs { v } else { ValueId((v.index() - inputs + values) as u32) };
    let op = |o: OpId| OpId((o.index() + ops) as u32);
    let block = |b: BlockId| BlockId((b.index() + blocks) as u32);
    let shift = |list: &mut Vec<ValueId>| list.iter_mut().for_each(|v| *v = value(*v));
    first.values.extend(other.values.into_iter().skip(inputs).map(|mut v| {
        v.def = match v.def {
            ValueDef::Input(n) => ValueDef::Input(n),
            ValueDef::Op(o, n) => ValueDef::Op(op(o), n),
            ValueDef::BlockInput(b, n) => ValueDef::BlockInput(block(b), n),
        };
        v
    }));
    first.ops.extend(other.ops.into_iter().map(|mut o| {
        for (_, arg) in &mut o.args {
            match arg {
                Arg::Value(v) => *v = value(*v),
                Arg::List(vs) => shift(vs),
                Arg::Const(_) => {}
            }
        }
        shift(&mut o.outputs);
        o.blocks.iter_mut().for_each(|b| *b = block(*b));
        o
    }));
    first.blocks.extend(other.blocks.into_iter().map(|mut b| {
        shift(&mut b.inputs);
        shift(&mut b.outputs);
        b.ops.iter_mut().for_each(|o| *o = op(*o));
        b
    }));
    first.bodies.extend(other.bodies.into_iter().map(|(opset, b)| (opset, block(b))));
}
