//! Reader of statements: an op with its arguments, attributes and nested blocks.

use std::collections::HashMap;

use ferrane_diag::{Diagnostic, Span};

use super::function::Named;
use super::lex::TokenKind;
use super::reader::{Read, Reader, Stop};
use crate::codes;
use crate::ops::{self, OpDef};
use crate::program::{Arg, Block, BlockId, Op, OpId, Type, ValueDef};
use crate::verify::MAX_DEPTH;

/// Positions of the parts of an op, for diagnostics.
pub(super) struct Places<'a> {
    pub op: Span,
    /// The arguments with their parentheses.
    pub call: Span,
    /// Name and value of each argument.
    pub arguments: HashMap<&'a str, (Span, Span)>,
}

struct Argument<'a> {
    name: &'a str,
    /// Of the name and of the value.
    places: (Span, Span),
    value: Arg,
}

impl<'a> Reader<'a> {
    pub(super) fn statement(&mut self, depth: usize) -> Read<OpId> {
        let start = self.token.span;
        let mark = self.mark();
        let results = self.results()?;
        let id = OpId(self.function.ops.len() as u32);
        let read = self.call(id, depth);
        let clean = self.mark() == mark && read.is_ok();
        let untyped = results.iter().any(|r| r.ty.is_none());
        let inferred = match &read {
            Ok((op, _)) if untyped => self.untyped(op, &results, clean),
            _ if untyped => self.untyped_call(&results),
            _ => Vec::new(),
        };
        // Results are defined even if the call has errors, so that their uses are not reported.
        let mut outputs = Vec::with_capacity(results.len());
        for (i, result) in results.iter().enumerate() {
            match result.ty.as_ref().map(|(ty, _)| ty).or(inferred.get(i)) {
                Some(ty) => outputs.push(self.define(result.name, result.span, ty.clone(), ValueDef::Op(id, i as u32))),
                None => self.lose(result.name),
            }
        }
        let (mut op, places) = read?;
        op.outputs = outputs;
        op.span = Some(start.to(self.last));
        if clean && !untyped {
            self.check(&op, &places, &results);
        }
        self.function.ops[id.index()] = op;
        Ok(id)
    }

    /// `type name, … =`; nothing for an op without results.
    fn results(&mut self) -> Read<Vec<Named<'a>>> {
        if self.token.kind != TokenKind::Ident {
            return self.unexpected("a statement");
        }
        let mut results = Vec::new();
        match self.following() {
            // An op without results: its name is read by `call`.
            TokenKind::Punct(b'(') => return Ok(results),
            TokenKind::Punct(b'=' | b',') => {
                while self.token.kind == TokenKind::Ident {
                    let (name, span) = self.ident("a name")?;
                    results.push(Named { name, span, ty: None });
                    if !self.eat(b',') {
                        break;
                    }
                }
            }
            TokenKind::Punct(b'<') | TokenKind::Ident => loop {
                match self.parameter() {
                    Ok(result) => results.push(result),
                    Err(Stop) => {
                        self.lost_results()?;
                        break;
                    }
                }
                if !self.eat(b',') {
                    break;
                }
            },
            _ => {
                self.advance();
                return self.unexpected("`(`, or the name and type of a result");
            }
        }
        self.expect(b'=')?;
        Ok(results)
    }

    /// Skips from a result that cannot be read to the `=`; the names before it are lost.
    fn lost_results(&mut self) -> Read<()> {
        loop {
            match self.token.kind {
                TokenKind::Punct(b'=') => {
                    self.lose_last();
                    self.silence();
                    return Ok(());
                }
                TokenKind::Punct(b',') => self.lose_last(),
                TokenKind::End | TokenKind::OpenString | TokenKind::Punct(b';' | b'{' | b'}' | b'(') => {
                    return Err(Stop);
                }
                _ => {}
            }
            self.advance();
        }
    }

    fn lose_last(&mut self) {
        let name = self.last.of(self.whole());
        if crate::build::is_identifier(name) {
            self.lose(name);
        }
    }

    /// Results without types: what the op gives, as a suggestion.
    fn untyped(&mut self, op: &Op, results: &[Named<'a>], clean: bool) -> Vec<Type> {
        let types = self.opset.filter(|_| clean).and_then(|opset| {
            let def = ops::find(&op.name, opset)?;
            let (function, weights) = (&self.function, &self.weights);
            let context = ops::InferContext::of(function, weights, def, op);
            ops::infer(&context).ok().filter(|types| types.len() == results.len())
        });
        let Some(types) = types else { return self.untyped_call(results) };
        for (result, ty) in results.iter().zip(&types) {
            let message = format!("the result `{}` needs its type", result.name);
            let typed = format!("{} {}", self.spelled(ty), result.name);
            self.report(Diagnostic::error(codes::UNEXPECTED_TOKEN, result.span, message).suggest(result.span, typed));
        }
        types
    }

    fn untyped_call(&mut self, results: &[Named<'a>]) -> Vec<Type> {
        for result in results.iter().filter(|r| r.ty.is_none()) {
            let message = format!("the result `{}` needs its type", result.name);
            self.report(Diagnostic::error(codes::UNEXPECTED_TOKEN, result.span, message));
        }
        Vec::new()
    }

    /// `op(args)[attributes] blocks;` The op is placed in the arena before the ops of its nested
    /// blocks.
    fn call(&mut self, id: OpId, depth: usize) -> Read<(Op, Places<'a>)> {
        // Reserves the id of the op, even if reading it fails.
        self.function.ops.push(Op {
            name: String::new(),
            args: Vec::new(),
            attributes: Vec::new(),
            outputs: Vec::new(),
            blocks: Vec::new(),
            span: None,
        });
        debug_assert_eq!(id.index() + 1, self.function.ops.len());
        let (name, name_span) = self.ident("an op")?;
        let open = self.expect(b'(')?;
        let mut places = Places { op: name_span, call: open, arguments: HashMap::new() };
        let args = self.arguments(name, &mut places)?;
        places.call = open.to(self.last);
        let attributes = if self.at(b'[') { self.attributes()? } else { Vec::new() };
        let mut blocks = Vec::new();
        while self.at(b'(') {
            blocks.push(self.nested(depth + 1)?);
        }
        self.semicolon()?;
        Ok((Op { name: name.to_string(), args, attributes, outputs: Vec::new(), blocks, span: None }, places))
    }

    /// `name = value, …)`. After a mistake it continues with the next argument.
    fn arguments(&mut self, op: &'a str, places: &mut Places<'a>) -> Read<Vec<(String, Arg)>> {
        // Shortened for messages, of which one op can cause many.
        let shown = op.get(..100).unwrap_or(op);
        let def = self.opset.and_then(|opset| ops::find(op, opset));
        let nest = self.nest;
        let mut args = Vec::new();
        while !self.at(b')') {
            match self.argument(def, shown) {
                Ok(Some(a)) if places.arguments.contains_key(a.name) => {
                    let message = format!("op `{shown}` is given the argument `{}` twice", a.name);
                    let first = places.arguments.get(a.name).map(|(name, _)| *name);
                    self.report(
                        Diagnostic::error(codes::DUPLICATE_ARGUMENT, a.places.0, message).note(first, "the first one"),
                    );
                }
                Ok(Some(a)) => {
                    places.arguments.insert(a.name, a.places);
                    args.push((a.name.to_string(), a.value));
                }
                Ok(None) => {}
                Err(Stop) => self.skip_item(nest, b')', |_, after| after == TokenKind::Punct(b'='))?,
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')')?;
        Ok(args)
    }

    /// `(parameters) { … } -> (…)`.
    fn nested(&mut self, depth: usize) -> Read<BlockId> {
        let open = self.expect(b'(')?;
        if depth > MAX_DEPTH {
            return self.fail(codes::TOO_LARGE, open, format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        let id = BlockId(self.function.blocks.len() as u32);
        self.function.blocks.push(Block::default());
        let names = self.begin_names();
        let read = self.nested_body(id, depth);
        self.end_names(names);
        read.map(|()| id)
    }

    fn nested_body(&mut self, id: BlockId, depth: usize) -> Read<()> {
        for (i, parameter) in self.signature(b')')?.into_iter().enumerate() {
            let Some((ty, _)) = parameter.ty else { continue };
            let value = self.define(parameter.name, parameter.span, ty, ValueDef::BlockInput(id, i as u32));
            self.function.blocks[id.index()].inputs.push(value);
        }
        self.expect(b'{')?;
        self.body(id, depth)
    }

    /// `name = value`. `None` for an argument that has an error but a known end.
    fn argument(&mut self, def: Option<&'static OpDef>, shown: &str) -> Read<Option<Argument<'a>>> {
        let loose = match self.token.kind {
            TokenKind::Number | TokenKind::String => true,
            TokenKind::Ident => !matches!(self.following(), TokenKind::Punct(b'=' | b':')),
            _ => false,
        };
        if loose {
            return self.positional(def, shown);
        }
        let (name, span) = self.ident("an argument")?;
        if self.at(b':') {
            let d = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.token.span, "an argument's value follows `=`");
            self.report(d.suggest(self.token.span, " ="));
            self.advance();
        } else {
            self.expect(b'=')?;
        }
        let start = self.token.span;
        let arg = self.argument_value(def, shown, name)?;
        Ok(arg.map(|arg| Argument { name, places: (span, start.to(self.last)), value: arg }))
    }

    /// A value without its argument's name.
    fn positional(&mut self, def: Option<&'static OpDef>, shown: &str) -> Read<Option<Argument<'a>>> {
        let start = self.token.span;
        if self.token.kind == TokenKind::Ident && self.at_literal() {
            self.literal(shown)?;
        } else {
            let (name, span) = (self.text(self.token), self.token.span);
            self.advance();
            self.nested_call(name, span)?;
        }
        let span = start.to(self.last);
        if !self.at(b',') && !self.at(b')') {
            return self.unexpected("`=`");
        }
        let mut d = Diagnostic::error(
            codes::POSITIONAL_ARGUMENT,
            span,
            format!("the arguments of `{shown}` are given by name"),
        );
        if let Some(first) = def.and_then(|def| def.params.first())
            && span.of(self.whole()).len() < 200
        {
            d = d.suggest(span, format!("{} = {}", first.name, span.of(self.whole())));
        }
        self.report(d);
        Ok(None)
    }

    fn argument_value(&mut self, def: Option<&'static OpDef>, shown: &str, name: &'a str) -> Read<Option<Arg>> {
        match self.token.kind {
            TokenKind::Punct(b'(') => {
                self.advance();
                let (open, before) = (self.last, self.mark());
                let values = self.names()?;
                self.expect(b')')?;
                if values.is_empty() && self.mark() == before {
                    let message = format!("the list `{name}` of `{shown}` is empty");
                    self.report(Diagnostic::error(codes::ARGUMENT_TYPE, open.to(self.last), message));
                    return Ok(None);
                }
                Ok(Some(Arg::List(values)))
            }
            // A value may be named like a type; a literal continues with `<` or `(`.
            TokenKind::Ident if self.at_literal() => Ok(Some(Arg::Const(self.literal(name)?))),
            TokenKind::Ident => {
                let (value, span) = self.ident("a value")?;
                self.nested_call(value, span)?;
                if self.at(b'(') || self.at(b'<') {
                    return self.no_type(value, span);
                }
                Ok(self.lookup(value, span).map(Arg::Value))
            }
            TokenKind::Punct(b'[') | TokenKind::Number | TokenKind::String => self.bare(def, name),
            _ => self.unexpected("a value"),
        }
    }

    /// Reports a call in the position of a value.
    fn nested_call(&mut self, name: &str, span: Span) -> Read<()> {
        if !self.at(b'(') || !ops::all().any(|def| def.name == name) {
            return Ok(());
        }
        let message = format!("calls do not nest: the result of `{name}` needs a name, in a statement before this one");
        self.fail(codes::UNEXPECTED_TOKEN, span, message)
    }

    /// A literal without its type.
    fn bare(&mut self, def: Option<&'static OpDef>, name: &str) -> Read<Option<Arg>> {
        let start = self.token.span;
        let count = self.skip_bare()?;
        let span = start.to(self.last);
        let message = format!("the literal `{name}` needs its type");
        let written = span.of(self.whole());
        let values = written.strip_prefix('[').and_then(|w| w.strip_suffix(']')).filter(|w| {
            let mut words = w.split(',').map(str::trim);
            words.all(|w| crate::build::is_identifier(w) && !matches!(w, "true" | "false"))
        });
        if let Some(values) = values {
            let message = format!("the values of the list `{name}` stand in parentheses");
            let d = Diagnostic::error(codes::UNEXPECTED_TOKEN, span, message);
            self.report(if values.len() < 200 { d.suggest(span, format!("({values})")) } else { d });
            return Ok(None);
        }
        let accepted = def.and_then(|def| def.param(name)?.accepts.first());
        let guess = match written.as_bytes().first() {
            Some(b'"') => "string",
            _ if written.contains('"') => "string",
            _ if written.contains("true") || written.contains("false") => "bool",
            _ if written.contains('.') => "fp16",
            _ => "int32",
        };
        let dtype = accepted.map_or(guess, |d| d.name());
        let typed = match written.as_bytes().first() {
            Some(b'[') => format!("tensor<{dtype}, [{count}]>({written})"),
            _ if self.verbose => format!("tensor<{dtype}, []>({written})"),
            _ => format!("{dtype}({written})"),
        };
        let d = Diagnostic::error(codes::UNTYPED_LITERAL, span, message);
        self.report(if written.len() < 200 { d.suggest(span, typed) } else { d });
        Ok(None)
    }

    /// Skips a literal without type; returns the number of its elements.
    fn skip_bare(&mut self) -> Read<usize> {
        let (mut depth, mut count) = (0usize, 0usize);
        loop {
            match self.token.kind {
                TokenKind::Punct(b'[') => depth += 1,
                TokenKind::Punct(b']') => depth = depth.saturating_sub(1),
                TokenKind::Punct(b',') => {}
                TokenKind::Number | TokenKind::String | TokenKind::Ident => count += 1,
                _ => return self.unexpected("an element"),
            }
            self.advance();
            if depth == 0 {
                return Ok(count);
            }
        }
    }
}
