//! Reader of everything but statements: header, attribute dictionaries, functions, blocks.

use std::collections::{HashMap, HashSet};

use ferrane_diag::{Diagnostic, Span};

use super::bodies::{add_body, same_signature};
use super::lex::TokenKind;
use super::reader::{Read, Reader, Stop};
use crate::codes;
use crate::opset::{self, Opset, OpsetTag};
use crate::program::{Block, BlockId, Constant, Dialect, Function, Program, Type, ValueDef, ValueId};

/// The versions of the language that published programs use (mil-text §1, §2).
const VERSIONS: std::ops::RangeInclusive<(u32, u32)> = (1, 0)..=(1, 5);
/// The first opset that a `program(1.0)` must not have (mil-text §2).
const NEW_OPSET: Opset = Opset::IOS18;

/// A result or parameter with its position.
pub(super) struct Named<'a> {
    pub name: &'a str,
    pub span: Span,
    /// Type and its position; `None` if the text has none.
    pub ty: Option<(Type, Span)>,
}

impl<'a> Reader<'a> {
    /// `None` if nothing of it could be read.
    pub(super) fn program(&mut self) -> Option<Program> {
        let (version, place) = self.header().ok()?;
        let attributes = if self.at(b'[') { self.attributes().unwrap_or_default() } else { Vec::new() };
        if !self.eat(b'{') {
            let _: Read<()> = self.unexpected("`{`");
            while self.token.kind != TokenKind::End && !self.at_function() {
                self.advance();
            }
        }
        let functions = self.functions();
        if !self.eat(b'}') {
            let _: Read<()> = self.unexpected(if functions.is_empty() { "a function or `}`" } else { "`}`" });
        } else if self.token.kind != TokenKind::End {
            let _: Read<()> = self.unexpected("the end of the text");
        }
        self.mixed(version, place, &functions);
        // A text without scalars has the usual dialect of its version.
        let verbose = self.verbose || (version == (1, 0) && self.shorthand.is_none());
        let dialect = if verbose { Dialect::Verbose } else { Dialect::Shorthand };
        Some(Program { version, dialect, attributes, functions, weights: std::mem::take(&mut self.weights) })
    }

    /// `program(1.3)`: the version and its place. After a mistake the version is 1.3, so that the
    /// rest can be read.
    fn header(&mut self) -> Read<((u32, u32), Span)> {
        let usual = (1, 3);
        if !self.at_word("program") {
            let first = self.token;
            let function = self.at_function();
            let _: Read<()> = self.unexpected_word("`program(1.3)`", &["program"]);
            match first.kind {
                TokenKind::Ident if !function && self.following() == TokenKind::Punct(b'(') => {}
                // The header alone is missing.
                TokenKind::Punct(b'[' | b'{') => return Ok((usual, first.span)),
                TokenKind::Ident if function => return Ok((usual, first.span)),
                _ => return Err(Stop),
            }
        }
        let word = self.advance().span;
        let Ok(_) = self.expect(b'(') else { return Ok((usual, word)) };
        let token = self.token;
        let parts = self.text(token).split_once('.');
        let version = parts.and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
        match version {
            Some(v) if VERSIONS.contains(&v) => {
                self.advance();
                self.expect(b')').map(|_| (v, token.span)).or(Ok((v, token.span)))
            }
            Some((major, minor)) => {
                let (first, last) = (VERSIONS.start(), VERSIONS.end());
                let why = if (major, minor) > *last { "newer" } else { "older" };
                let known = format!("{}.{} to {}.{}", first.0, first.1, last.0, last.1);
                let message = format!("program({major}.{minor}) is {why} than the versions that are known: {known}");
                self.report(Diagnostic::error(codes::PROGRAM_HEADER, token.span, message).suggest(token.span, "1.3"));
                self.advance();
                let _ = self.expect(b')');
                Ok((usual, token.span))
            }
            None => {
                let mut d = Diagnostic::error(codes::PROGRAM_HEADER, token.span, "expected a version like 1.3");
                if token.kind == TokenKind::Number
                    && self.text(token) == "1"
                    && self.following() == TokenKind::Punct(b')')
                {
                    d = d.suggest(token.span, "1.3");
                }
                self.report(d);
                while !matches!(self.token.kind, TokenKind::End | TokenKind::Punct(b')' | b'[' | b'{')) {
                    self.advance();
                }
                self.eat(b')');
                Ok((usual, token.span))
            }
        }
    }

    /// Warns about combinations that no known reader accepts.
    fn mixed(&mut self, version: (u32, u32), place: Span, functions: &[Function]) {
        if version != (1, 0) {
            return;
        }
        let new = |tag: &&OpsetTag| tag.known().is_some_and(|o| o >= NEW_OPSET);
        let mut tags = functions.iter().flat_map(|f| f.bodies.iter().map(|(tag, _)| tag));
        if let Some(tag) = tags.find(new) {
            let message = format!("program(1.0) and {tag} do not go together: Apple's reader refuses the program");
            self.report(Diagnostic::warning(codes::MIXED_DIALECTS, place, message).suggest(place, "1.3"));
        } else if let Some(scalar) = self.shorthand {
            let short = scalar.of(self.whole());
            let message = format!("program(1.0) spells scalars as tensors; `{short}` is the spelling of program(1.3)");
            self.report(
                Diagnostic::warning(codes::MIXED_DIALECTS, scalar, message)
                    .suggest(scalar, format!("tensor<{short}, []>")),
            );
        }
    }

    /// `[name = literal, …]`. After a mistake it continues with the next attribute.
    pub(super) fn attributes(&mut self) -> Read<Vec<(String, Constant)>> {
        self.advance();
        let nest = self.nest;
        let mut attributes = Vec::new();
        let mut names = HashSet::new();
        while !self.at(b']') {
            match self.attribute(&mut names) {
                Ok(attribute) => attributes.push(attribute),
                Err(Stop) => {
                    let next = |_: &Self, after| after == TokenKind::Punct(b'=');
                    self.skip_item(nest, b']', next)?;
                }
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b']')?;
        Ok(attributes)
    }

    fn attribute(&mut self, names: &mut HashSet<&'a str>) -> Read<(String, Constant)> {
        let (name, span) = self.ident("an attribute's name")?;
        if !names.insert(name) {
            self.report(Diagnostic::error(codes::INVALID_NAME, span, format!("the attribute `{name}` is given twice")));
        }
        self.expect(b'=')?;
        Ok((name.to_string(), self.literal(name)?))
    }

    fn functions(&mut self) -> Vec<Function> {
        let mut functions: Vec<Function> = Vec::new();
        let mut places: HashMap<String, (usize, Span)> = HashMap::new();
        let mut bodies: HashSet<(usize, OpsetTag)> = HashSet::new();
        while matches!(self.token.kind, TokenKind::Ident) && !self.gives_up() {
            let start = self.token.span;
            let read = self.function();
            self.end_function();
            let function = std::mem::take(&mut self.function);
            if read.is_err() {
                // Only the start of the next function shows where this one ends.
                while self.token.kind != TokenKind::End && !self.at_function() {
                    self.advance();
                }
                continue;
            }
            let (place, first) = *places.entry(function.name.clone()).or_insert((functions.len(), start));
            let new = bodies.insert((place, function.opset_tag().clone()));
            match functions.get_mut(place) {
                None => functions.push(function),
                // Further bodies of a function are functions of its name and signature in other
                // opsets.
                Some(first) if new && same_signature(first, &function) => add_body(first, function),
                Some(_) => {
                    let message = format!("two functions are named `{}`", function.name);
                    let why = if new { "bodies for several opsets have the same parameters" } else { "the first one" };
                    self.report(Diagnostic::error(codes::INVALID_NAME, start, message).note(first, why));
                }
            }
        }
        functions
    }

    fn function(&mut self) -> Read<()> {
        self.reset();
        if !self.at_word("func") {
            let _: Read<()> = self.unexpected_word("`func`", &["func"]);
            if self.following() != TokenKind::Ident {
                return Err(Stop);
            }
        }
        self.advance();
        self.function.name = self.ident("the function's name")?.0.to_string();
        self.function.blocks.push(Block::default());
        let tag = self.opset_tag()?;
        self.function.bodies.push((tag, BlockId(0)));
        self.expect(b'(')?;
        self.signature(b')')?.into_iter().enumerate().for_each(|(i, p)| {
            if let Some((ty, _)) = p.ty {
                let id = self.define(p.name, p.span, ty, ValueDef::Input(i as u32));
                self.function.inputs.push(id);
            }
        });
        if self.at(b'[') {
            self.function.attributes = self.attributes().unwrap_or_default();
        }
        self.expect(b'{')?;
        self.body(BlockId(0), 0)?;
        self.semicolon()
    }

    /// `<ios18>`. Another tag is kept; its ops cannot be checked then.
    fn opset_tag(&mut self) -> Read<OpsetTag> {
        if self.at(b'(') {
            // The tag alone is missing.
            let d = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.last, "a function needs an opset like <ios18>");
            let name = self.last.of(self.whole());
            self.report(d.suggest(self.last, format!("{name}<ios18>")));
            self.opset = None;
            return Ok(OpsetTag::NONE.clone());
        }
        self.expect(b'<')?;
        let (tag, span) = self.ident("an opset like ios18")?;
        self.expect(b'>')?;
        let tag = OpsetTag::from(tag);
        self.opset = tag.known();
        if let OpsetTag::Unknown(name) = &tag {
            let message = format!("`{name}` is not a known opset; its ops are kept unchecked");
            let mut d = Diagnostic::warning(codes::UNKNOWN_OPSET, span, message);
            if let Some(near) = opset::suggestion(name) {
                d = d.suggest(span, near);
            }
            self.report(d);
        }
        Ok(tag)
    }

    /// `type name, type name` and the closing bracket. A parameter that cannot be read is lost.
    pub(super) fn signature(&mut self, close: u8) -> Read<Vec<Named<'a>>> {
        let nest = self.nest;
        let mut found = Vec::new();
        while !self.at(close) {
            match self.parameter() {
                Ok(parameter) => found.push(parameter),
                Err(Stop) => {
                    self.skip_item(nest, close, |_, after| matches!(after, TokenKind::Punct(b'<') | TokenKind::Ident))?;
                    // What stands before the comma or the bracket is its name.
                    let name = self.last.of(self.whole());
                    if crate::build::is_identifier(name) {
                        self.lose(name);
                    }
                }
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(close)?;
        Ok(found)
    }

    /// `type name`.
    pub(super) fn parameter(&mut self) -> Read<Named<'a>> {
        let start = self.token.span;
        let ty = self.ty()?;
        let place = start.to(self.last);
        let (name, span) = self.ident("a name")?;
        Ok(Named { name, span, ty: Some((ty, place)) })
    }

    /// Statements, `}`, `->` and the results.
    pub(super) fn body(&mut self, block: BlockId, depth: usize) -> Read<()> {
        // Recovery may have miscounted brackets; the count starts again with each body.
        while !self.at(b'}') && self.token.kind != TokenKind::End && !self.at_function() {
            if self.gives_up() {
                return Err(Stop);
            }
            let start = self.token.span;
            match self.statement(depth) {
                Ok(op) => self.function.blocks[block.index()].ops.push(op),
                Err(Stop) => self.skip_statement(start),
            }
        }
        self.expect(b'}')?;
        if self.token.kind != TokenKind::Arrow {
            return self.unexpected("`->` and the results");
        }
        self.advance();
        self.expect(b'(')?;
        let outputs = self.names()?;
        self.expect(b')')?;
        self.function.blocks[block.index()].outputs = outputs;
        Ok(())
    }

    /// `a, b`: values by name.
    pub(super) fn names(&mut self) -> Read<Vec<ValueId>> {
        let mut found = Vec::new();
        while self.token.kind == TokenKind::Ident {
            let (name, span) = self.ident("a value")?;
            found.extend(self.lookup(name, span));
            if !self.eat(b',') {
                break;
            }
        }
        Ok(found)
    }
}
