//! Statements: an op with its arguments, attributes and nested blocks, checked against the registry.

use std::collections::HashMap;

use ferrane_diag::{Code, Diagnostic, Span};

use super::lex::Kind;
use super::parse::{Read, Reader, Types};
use crate::error::MilError;
use crate::ops;
use crate::program::{Arg, Block, BlockId, Op, OpId, Type, ValueDef};
use crate::verify::{MAX_DEPTH, check_op};

/// Where an op's parts stand, for diagnostics.
struct Places {
    op: Span,
    /// Name and value of each argument.
    arguments: HashMap<String, (Span, Span)>,
}

struct Argument {
    name: String,
    /// Of the name and of the value.
    places: (Span, Span),
    value: Arg,
}

impl<'a> Reader<'a> {
    /// `None` for one that was read but is wrong.
    pub(super) fn statement(&mut self, depth: usize) -> Read<Option<OpId>> {
        let start = self.token.span;
        let results = self.results()?;
        let id = OpId(self.function.ops.len() as u32);
        let errors = self.errors();
        let read = self.call(id, depth);
        // Results are defined whatever the call was like, so that their uses are not told again.
        let mut outputs = Vec::with_capacity(results.len());
        for (i, (name, span, ty)) in results.iter().enumerate() {
            outputs.push(self.define(name, *span, ty.clone(), ValueDef::Op(id, i as u32)));
        }
        let (mut op, places) = read?;
        op.outputs = outputs;
        op.span = Some(start.to(self.last));
        if self.errors() == errors && self.options.types == Types::Check {
            self.check(&op, &places, &results);
        }
        self.function.ops[id.index()] = op;
        Ok(Some(id))
    }

    fn errors(&self) -> usize {
        self.diagnostics.len() + self.diagnostics.left_out()
    }

    /// `type name, … =`; nothing for an op without results.
    fn results(&mut self) -> Read<Vec<(String, Span, Type)>> {
        if self.token.kind != Kind::Ident {
            return self.unexpected("a statement");
        }
        if !self.at_type() || self.following() == Kind::Punct(b'(') {
            // An op without results: its name is read by `call`.
            return Ok(Vec::new());
        }
        let results = self.parameters()?;
        self.expect(b'=')?;
        Ok(results)
    }

    /// `op(args)[attributes] blocks;` The op is placed in the arena before its nested blocks, whose ops come behind it.
    fn call(&mut self, id: OpId, depth: usize) -> Read<(Op, Places)> {
        // A place for the op, also if reading it fails.
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
        // For messages, of which one op can cause many.
        let shown = name.get(..100).unwrap_or(name);
        let mut places = Places { op: name_span, arguments: HashMap::new() };
        self.expect(b'(')?;
        let mut args = Vec::new();
        while !self.at(b')') {
            if let Some(a) = self.argument(name, shown)? {
                if places.arguments.insert(a.name.clone(), a.places).is_some() {
                    let e = MilError::DuplicateArgument { op: shown.to_string(), argument: a.name };
                    self.tell(Diagnostic::error(e.code(), a.places.0, e.to_string()));
                } else {
                    args.push((a.name, a.value));
                }
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')')?;
        let attributes = if self.at(b'[') { self.attributes()? } else { Vec::new() };
        let mut blocks = Vec::new();
        while self.at(b'(') {
            blocks.push(self.nested(depth + 1)?);
        }
        self.expect(b';')?;
        Ok((Op { name: name.to_string(), args, attributes, outputs: Vec::new(), blocks, span: None }, places))
    }

    /// `(parameters) { … } -> (…)`.
    fn nested(&mut self, depth: usize) -> Read<BlockId> {
        let open = self.expect(b'(')?;
        if depth > MAX_DEPTH {
            return self.fail(104, open, format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        let id = BlockId(self.function.blocks.len() as u32);
        self.function.blocks.push(Block::default());
        for (i, (name, span, ty)) in self.parameters()?.into_iter().enumerate() {
            let value = self.define(&name, span, ty, ValueDef::BlockInput(id, i as u32));
            self.function.blocks[id.index()].inputs.push(value);
        }
        self.expect(b')')?;
        self.expect(b'{')?;
        self.body(id, depth)?;
        Ok(id)
    }

    /// `name = value`. `None` for an argument that is wrong but ends where it should.
    fn argument(&mut self, op: &str, shown: &str) -> Read<Option<Argument>> {
        let (name, span) = self.ident("an argument")?;
        if self.at(b',') || self.at(b')') {
            let message = format!("the arguments of `{shown}` are given by name");
            let mut d = Diagnostic::error(Code(106), span, message);
            if let Some(first) = ops::find(op, self.opset).and_then(|def| def.params.first()) {
                d = d.suggest(span, format!("{} = {name}", first.name));
            }
            self.tell(d);
            return Ok(None);
        }
        self.expect(b'=')?;
        let start = self.token.span;
        let arg = self.argument_value(shown, name)?;
        Ok(arg.map(|arg| Argument { name: name.to_string(), places: (span, start.to(self.last)), value: arg }))
    }

    fn argument_value(&mut self, op: &str, name: &str) -> Read<Option<Arg>> {
        match self.token.kind {
            Kind::Punct(b'(') => {
                self.advance();
                let (open, before) = (self.last, self.errors());
                let values = self.names()?;
                self.expect(b')')?;
                if values.is_empty() && self.errors() == before {
                    let message = format!("the list `{name}` of `{op}` is empty");
                    self.tell(Diagnostic::error(Code(208), open.to(self.last), message));
                    return Ok(None);
                }
                Ok(Some(Arg::List(values)))
            }
            // A value may be named like a type; a literal goes on with `<` or `(`.
            Kind::Ident if self.at_type() && matches!(self.following(), Kind::Punct(b'<' | b'(')) => {
                Ok(Some(Arg::Const(self.literal()?)))
            }
            Kind::Ident => {
                let (value, span) = self.ident("a value")?;
                if self.at(b'(') || self.at(b'<') {
                    return self.fail(203, span, format!("`{value}` is no type"));
                }
                Ok(self.lookup(value, span).map(Arg::Value))
            }
            Kind::Punct(b'[') | Kind::Number | Kind::String => {
                let start = self.token.span;
                let count = self.skip_bare()?;
                let span = start.to(self.last);
                let message = format!("the literal `{name}` needs its type");
                let written = span.of(self.whole());
                let typed = match written.as_bytes().first() {
                    Some(b'"') => format!("string({written})"),
                    Some(b'[') => format!("tensor<int32, [{count}]>({written})"),
                    _ if written.contains('.') => format!("fp16({written})"),
                    _ => format!("int32({written})"),
                };
                let mut d = Diagnostic::error(Code(107), span, message);
                if written.len() < 200 {
                    d = d.suggest(span, typed);
                }
                self.tell(d);
                Ok(None)
            }
            _ => self.unexpected("a value"),
        }
    }

    /// Over a literal without type; gives the number of its elements.
    fn skip_bare(&mut self) -> Read<usize> {
        let (mut depth, mut count) = (0usize, 0usize);
        loop {
            match self.token.kind {
                Kind::Punct(b'[') => depth += 1,
                Kind::Punct(b']') => depth -= 1,
                Kind::Punct(b',') => {}
                Kind::Number | Kind::String | Kind::Ident => count += 1,
                _ => return self.unexpected("an element"),
            }
            self.advance();
            if depth == 0 {
                return Ok(count);
            }
        }
    }

    /// Compares the op with the registry. Ops that are not in it are kept as they are.
    fn check(&mut self, op: &Op, places: &Places, results: &[(String, Span, Type)]) {
        if let Err(e) = ops::lookup(&op.name, self.opset) {
            if !self.diagnostics.is_full() && self.unknown.insert(op.name.clone()) {
                self.tell(Diagnostic::warning(e.code(), places.op, format!("{e}; it is kept unchecked")));
            }
            return;
        }
        let Err(e) = check_op(&self.function, op, self.opset, &self.weights) else { return };
        let value = |argument: &String| places.arguments.get(argument).map(|(_, value)| *value);
        let place = match &e {
            MilError::UnknownArgument { argument, .. } => places.arguments.get(argument).map(|(name, _)| *name),
            MilError::ArgumentType { argument, .. } | MilError::NotConstant { argument, .. } => value(argument),
            MilError::ResultType { .. } => results.first().map(|(_, span, _)| *span),
            _ => None,
        };
        let place = place.unwrap_or(places.op);
        let mut d = Diagnostic::error(e.code(), place, e.to_string());
        if let MilError::UnknownArgument { suggestion: Some(name), .. } = &e {
            d = d.suggest(place, name.as_str());
        }
        self.tell(d);
    }
}
