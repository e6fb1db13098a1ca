//! Reader of types and literals.

use std::sync::Arc;

use ferrane_diag::{Diagnostic, Span};

use super::lex::{TokenKind, unquote};
use super::number;
use super::options::Missing;
use super::reader::{Read, Reader, Stop};
use crate::codes;
use crate::program::{Constant, DataType, Dialect, Dim, Payload, Type};
use crate::weights::{Strictness, WeightId, pack};

/// The deepest nesting of types and values.
const MAX_DEPTH: usize = 32;
/// The highest rank that is read. MIL allows rank 5; a little more is read, so that the check can
/// report it.
const MAX_RANK: usize = 16;
/// The largest extent, so that products of extents do not overflow.
const MAX_EXTENT: usize = i32::MAX as usize;

/// Types other than element types.
const COMPOUND: [&str; 5] = ["tensor", "list", "tuple", "dict", "state"];

/// Names of element types in other languages, for suggestions.
const ALIASES: [(&str, DataType); 24] = [
    ("half", DataType::Fp16),
    ("float16", DataType::Fp16),
    ("f16", DataType::Fp16),
    ("float", DataType::Fp32),
    ("float32", DataType::Fp32),
    ("f32", DataType::Fp32),
    ("single", DataType::Fp32),
    ("double", DataType::Fp64),
    ("float64", DataType::Fp64),
    ("f64", DataType::Fp64),
    ("bfloat16", DataType::Bf16),
    ("float8_e4m3fn", DataType::Fp8E4M3Fn),
    ("float8_e5m2", DataType::Fp8E5M2),
    ("boolean", DataType::Bool),
    ("i1", DataType::Bool),
    ("str", DataType::String),
    ("int", DataType::Int32),
    ("i8", DataType::Int8),
    ("i16", DataType::Int16),
    ("i32", DataType::Int32),
    ("i64", DataType::Int64),
    ("u8", DataType::UInt8),
    ("uint", DataType::UInt32),
    ("u32", DataType::UInt32),
];

/// The type that a wrong name may mean.
fn meant(name: &str, compound: bool) -> Option<&'static str> {
    if let Some((_, dtype)) = ALIASES.iter().find(|(alias, _)| *alias == name.to_ascii_lowercase()) {
        return Some(dtype.name());
    }
    let more: &[&str] = if compound { &COMPOUND } else { &[] };
    ferrane_diag::nearest(name, DataType::ALL.iter().map(|(_, n)| *n).chain(more.iter().copied()))
}

impl Reader<'_> {
    /// True before a word that names a type. A value or an op may have such a name too; what
    /// follows the word decides then.
    fn at_type(&self) -> bool {
        let text = self.text(self.token);
        self.token.kind == TokenKind::Ident && (COMPOUND.contains(&text) || DataType::from_name(text).is_some())
    }

    /// True before a literal: a type with what follows one.
    pub(super) fn at_literal(&self) -> bool {
        self.at_type() && matches!(self.following(), TokenKind::Punct(b'<' | b'('))
    }

    /// A type as this text spells types.
    pub(super) fn spelled(&self, ty: &Type) -> String {
        super::print::spell(ty, if self.verbose { Dialect::Verbose } else { Dialect::Shorthand })
    }

    /// The name is no type.
    pub(super) fn no_type<T>(&mut self, name: &str, span: Span) -> Read<T> {
        let mut d = Diagnostic::error(codes::INVALID_TYPE, span, format!("`{name}` is not a type"));
        if let Some(near) = meant(name, true) {
            d = d.suggest(span, near);
        }
        self.report(d);
        Err(Stop)
    }

    pub(super) fn ty(&mut self) -> Read<Type> {
        self.ty_within(0)
    }

    fn ty_within(&mut self, depth: usize) -> Read<Type> {
        let (name, span) = self.ident("a type")?;
        if depth > MAX_DEPTH {
            return self.fail(codes::TOO_LARGE, span, format!("types nest deeper than {MAX_DEPTH}"));
        }
        if let Some(dtype) = DataType::from_name(name) {
            self.shorthand = self.shorthand.or(Some(span));
            return Ok(Type::scalar(dtype));
        }
        if !COMPOUND.contains(&name) {
            return self.no_type(name, span);
        }
        self.expect(b'<')?;
        let ty = match name {
            "tensor" => self.tensor_type()?,
            "list" => {
                let element = Box::new(self.ty_within(depth + 1)?);
                self.expect(b',')?;
                Type::List { element, length: self.dim()? }
            }
            "dict" => {
                let key = Box::new(self.ty_within(depth + 1)?);
                self.expect(b',')?;
                Type::Dict(key, Box::new(self.ty_within(depth + 1)?))
            }
            "state" => Type::State(Box::new(self.ty_within(depth + 1)?)),
            _ => {
                let mut types = Vec::new();
                while !self.at(b'>') {
                    types.push(self.ty_within(depth + 1)?);
                    if !self.eat(b',') {
                        break;
                    }
                }
                Type::Tuple(types)
            }
        };
        self.expect(b'>')?;
        Ok(ty)
    }

    fn tensor_type(&mut self) -> Read<Type> {
        let (name, span) = self.ident("an element type")?;
        let Some(dtype) = DataType::from_name(name) else {
            let mut d = Diagnostic::error(codes::INVALID_TYPE, span, format!("`{name}` is not an element type"));
            if let Some(near) = meant(name, false) {
                d = d.suggest(span, near);
            }
            self.report(d);
            return Err(Stop);
        };
        self.expect(b',')?;
        let open = self.expect(b'[')?;
        let mut shape = Vec::new();
        while !self.at(b']') {
            shape.push(self.dim()?);
            if shape.len() > MAX_RANK {
                return self.fail(codes::TOO_LARGE, open.to(self.last), format!("a rank above {MAX_RANK}"));
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b']')?;
        self.verbose |= shape.is_empty();
        Ok(Type::Tensor { dtype, shape })
    }

    fn dim(&mut self) -> Read<Dim> {
        if self.eat(b'?') {
            return Ok(Dim::Unknown);
        }
        if self.token.kind != TokenKind::Number {
            return self.unexpected("an extent");
        }
        let token = self.advance();
        let text = self.text(token);
        match text.parse::<usize>() {
            Ok(n) if n <= MAX_EXTENT && text.as_bytes()[0].is_ascii_digit() => Ok(Dim::Fixed(n)),
            _ => {
                let message = format!("an extent must be a number from 0 to {MAX_EXTENT}, or `?`");
                let d = Diagnostic::error(codes::TOO_LARGE, token.span, message);
                self.report(if text == "-1" { d.suggest(token.span, "?") } else { d });
                Err(Stop)
            }
        }
    }

    /// `type(value)`, the value of what is called `name`.
    pub(super) fn literal(&mut self, name: &str) -> Read<Constant> {
        let start = self.token.span;
        match self.token.kind {
            TokenKind::Number | TokenKind::String | TokenKind::Punct(b'[' | b'{') => {
                let message = format!("the literal `{name}` needs its type");
                let written = self.text(self.token);
                let mut d = Diagnostic::error(codes::UNTYPED_LITERAL, start, message);
                let dtype = match self.token.kind {
                    TokenKind::String => Some("string"),
                    TokenKind::Number if written.contains('.') => Some("fp16"),
                    TokenKind::Number => Some("int32"),
                    _ => None,
                };
                if let Some(dtype) = dtype.filter(|_| written.len() < 200) {
                    let ty = if self.verbose { format!("tensor<{dtype}, []>") } else { dtype.to_string() };
                    d = d.suggest(start, format!("{ty}({written})"));
                }
                self.report(d);
                return Err(Stop);
            }
            TokenKind::Ident if matches!(self.text(self.token), "true" | "false") => {
                let written = self.text(self.token);
                let d =
                    Diagnostic::error(codes::UNTYPED_LITERAL, start, format!("the literal `{name}` needs its type"));
                let dtype = self.spelled(&Type::scalar(DataType::Bool));
                self.report(d.suggest(start, format!("{dtype}({written})")));
                return Err(Stop);
            }
            _ => {}
        }
        let ty = self.ty()?;
        let place = start.to(self.last);
        self.expect(b'(')?;
        let constant = self.value(&ty, place, 0)?;
        self.expect(b')')?;
        Ok(constant)
    }

    /// `place` is that of the literal's type.
    fn value(&mut self, ty: &Type, place: Span, depth: usize) -> Read<Constant> {
        if depth > 0 {
            self.spend(nodes(ty), self.token.span)?;
        }
        if depth > MAX_DEPTH {
            return self.fail(codes::TOO_LARGE, self.token.span, format!("values nest deeper than {MAX_DEPTH}"));
        }
        match ty {
            Type::Tensor { dtype, shape } => self.tensor(*dtype, shape, Some(place).filter(|_| depth == 0)),
            Type::Tuple(types) => {
                self.expect(b'(')?;
                let mut items = Vec::with_capacity(types.len());
                for (i, ty) in types.iter().enumerate() {
                    if i > 0 {
                        self.expect(b',')?;
                    }
                    items.push(self.value(ty, place, depth + 1)?);
                }
                self.expect(b')')?;
                Ok(Constant::Tuple(items))
            }
            Type::Dict(key, value) => {
                self.expect(b'{')?;
                let mut entries = Vec::new();
                while self.eat(b'{') {
                    let k = self.value(key, place, depth + 1)?;
                    self.expect(b',')?;
                    entries.push((k, self.value(value, place, depth + 1)?));
                    self.expect(b'}')?;
                    if !self.eat(b',') {
                        break;
                    }
                }
                self.expect(b'}')?;
                Ok(Constant::Dict(ty.clone(), entries))
            }
            Type::List { element, length } => {
                let open = self.expect(b'[')?;
                let mut items = Vec::new();
                while !self.at(b']') {
                    items.push(self.value(element, place, depth + 1)?);
                    if !self.eat(b',') {
                        break;
                    }
                }
                self.expect(b']')?;
                if let Dim::Fixed(n) = length
                    && *n != items.len()
                {
                    let message = format!("{} elements for a list of {n}", items.len());
                    return self.fail(codes::INVALID_TYPE, open.to(self.last), message);
                }
                Ok(Constant::List(ty.clone(), items))
            }
            Type::State(_) => self.fail(codes::INVALID_TYPE, self.token.span, "a state has no literal"),
        }
    }

    /// `place` is that of the type, if it stands before this value alone.
    fn tensor(&mut self, dtype: DataType, shape: &[Dim], place: Option<Span>) -> Read<Constant> {
        let start = self.token.span;
        if self.at_blob() {
            return self.blob(dtype, shape);
        }
        let mut elements = Elements::new(dtype);
        match (shape, self.at(b'[')) {
            ([], false) => self.element(&mut elements)?,
            ([], true) => {
                let message = format!("a single value of {dtype} is written without brackets");
                return self.fail(codes::INVALID_TYPE, self.token.span, message);
            }
            (_, true) => self.list(&mut elements)?,
            _ => {
                let ty = Type::Tensor { dtype, shape: shape.to_vec() };
                let message = format!("the elements of {ty} stand in brackets, found {}", self.found());
                return self.fail(codes::INVALID_TYPE, self.token.span, message);
            }
        }
        // An unknown extent of a literal is what the elements make it.
        let known: usize = shape.iter().fold(1, |n, d| if let Dim::Fixed(e) = d { n.saturating_mul(*e) } else { n });
        let open = shape.iter().filter(|d| **d == Dim::Unknown).count();
        let rest = elements.count.checked_div(known).unwrap_or(0);
        let fits = match open {
            0 => elements.count == known,
            1 => known != 0 && elements.count.is_multiple_of(known),
            _ => false,
        };
        if !fits {
            let ty = Type::Tensor { dtype, shape: shape.to_vec() };
            let count = elements.count;
            let message = format!("{count} element{} for {ty}", if count == 1 { "" } else { "s" });
            let mut d = Diagnostic::error(codes::INVALID_TYPE, start.to(self.last), message);
            if let (Some(place), [_]) = (place, shape) {
                d = d.suggest(place, format!("tensor<{dtype}, [{count}]>"));
            }
            self.report(d);
            return Err(Stop);
        }
        let shape = shape.iter().map(|d| Dim::Fixed(if let Dim::Fixed(n) = d { *n } else { rest })).collect();
        Ok(Constant::Tensor { ty: Type::Tensor { dtype, shape }, payload: elements.payload() })
    }

    /// A flat or nested list; only the number of elements counts.
    fn list(&mut self, elements: &mut Elements) -> Read<()> {
        self.expect(b'[')?;
        let mut depth = 1usize;
        // True where an element or a list may start.
        let mut open = true;
        while depth > 0 {
            if self.at(b']') {
                self.advance();
                depth -= 1;
                open = false;
            } else if open && self.at(b'[') {
                self.advance();
                depth += 1;
                if depth > MAX_DEPTH {
                    return self.fail(codes::TOO_LARGE, self.last, format!("lists nest deeper than {MAX_DEPTH}"));
                }
            } else if open {
                self.element(elements)?;
                open = false;
            } else {
                self.expect(b',')?;
                open = true;
            }
        }
        Ok(())
    }

    fn element(&mut self, elements: &mut Elements) -> Read<()> {
        let token = self.token;
        let text = self.text(token);
        elements.count += 1;
        let dtype = elements.dtype;
        let read = match (dtype, token.kind) {
            (DataType::String, TokenKind::String) => match unquote(text) {
                Some(s) => {
                    elements.strings.push(s);
                    true
                }
                None => {
                    let message = "an unknown escape in a string; known are \\n \\r \\t \\0 \\\" \\\\ and \\x41";
                    self.report(Diagnostic::error(codes::MALFORMED_STRING, token.span, message));
                    true
                }
            },
            (DataType::Bool, TokenKind::Ident | TokenKind::Number) if matches!(text, "true" | "false" | "0" | "1") => {
                elements.bytes.push(u8::from(matches!(text, "true" | "1")));
                true
            }
            (DataType::String | DataType::Bool, _) => false,
            (_, TokenKind::Ident) if text == "nan" && dtype.is_float() => {
                self.advance();
                return self.nan(elements);
            }
            (_, TokenKind::Number | TokenKind::Ident) => match dtype.bytes() {
                Some(_) => number::append(dtype, text, &mut elements.bytes).is_some(),
                None => number::small(dtype, text).map(|v| elements.small.push(v)).is_some(),
            },
            _ => false,
        };
        if read {
            self.advance();
            return Ok(());
        }
        self.bad_element(dtype)
    }

    /// Reads the rest of a `nan`, whose bits may follow.
    fn nan(&mut self, elements: &mut Elements) -> Read<()> {
        let dtype = elements.dtype;
        if !self.eat(b'(') {
            // Every float type reads `nan`.
            let _ = number::append(dtype, "nan", &mut elements.bytes);
            return Ok(());
        }
        let bits = self.advance();
        if number::append_nan(dtype, self.text(bits), &mut elements.bytes).is_none() {
            return self.fail(codes::MALFORMED_NUMBER, bits.span, format!("expected the bits of a NaN of {dtype}"));
        }
        self.expect(b')').map(|_| ())
    }

    /// Reports a token that is not an element. Its end is known, so reading continues after it.
    fn bad_element(&mut self, dtype: DataType) -> Read<()> {
        let token = self.token;
        let text = self.text(token);
        let shown: String = text.chars().take(30).collect();
        if !matches!(token.kind, TokenKind::Ident | TokenKind::Number | TokenKind::String) || shown.len() < text.len() {
            return self.unexpected(&number::wanted(dtype));
        }
        let inner = text.trim_matches('"');
        let lower = text.to_ascii_lowercase();
        let (code, message) = match dtype {
            DataType::Bool | DataType::String => {
                (codes::UNEXPECTED_TOKEN, format!("expected {}, found `{text}`", number::wanted(dtype)))
            }
            _ => (codes::MALFORMED_NUMBER, format!("`{text}` is not of type {dtype}")),
        };
        let mut d = Diagnostic::error(code, token.span, message);
        if let Some(range) = number::limits(dtype) {
            d = d.note(None, format!("{dtype} goes from {} to {}", range.0, range.1));
        }
        let fits = |text: &str| match (dtype, dtype.bytes()) {
            (DataType::Bool, _) => matches!(text, "true" | "false"),
            (DataType::String, _) => false,
            (_, Some(_)) => number::append(dtype, text, &mut Vec::new()).is_some(),
            (_, None) => number::small(dtype, text).is_some(),
        };
        let whole = lower.strip_suffix(".0").or_else(|| lower.strip_suffix('.')).unwrap_or(&lower);
        let better = match token.kind {
            _ if dtype == DataType::String => Some(format!("\"{text}\"")).filter(|_| token.kind == TokenKind::Ident),
            TokenKind::String if fits(inner) => Some(inner.to_string()),
            _ if fits(&lower) => Some(lower.clone()),
            _ if fits(whole) => Some(whole.to_string()),
            _ => None,
        };
        if let Some(better) = better {
            d = d.suggest(token.span, better);
        }
        self.report(d);
        self.advance();
        Ok(())
    }

    /// A tensor literal that is written out: the path and offset of a blob must not be blobs
    /// themselves, or text could nest without bound.
    fn plain(&mut self) -> Read<Constant> {
        let start = self.token.span;
        let Type::Tensor { dtype, shape } = self.ty()? else {
            return self.fail(codes::INVALID_BLOB_RECORD, start.to(self.last), "BLOBFILE needs a string and a uint64");
        };
        self.expect(b'(')?;
        if self.at_blob() {
            return self.fail(codes::INVALID_BLOB_RECORD, self.token.span, "a BLOBFILE is not named by another one");
        }
        let constant = self.tensor(dtype, &shape, None)?;
        self.expect(b')')?;
        Ok(constant)
    }

    fn at_blob(&self) -> bool {
        self.token.kind == TokenKind::Ident && self.text(self.token) == "BLOBFILE"
    }

    /// `BLOBFILE(path = string("…"), offset = uint64(64))`.
    fn blob(&mut self, dtype: DataType, shape: &[Dim]) -> Read<Constant> {
        let start = self.advance().span;
        self.expect(b'(')?;
        let (mut path, mut offset) = (None, None);
        while !self.at(b')') {
            let (name, span) = self.ident("`path` or `offset`")?;
            self.expect(b'=')?;
            let value = self.plain()?;
            match name {
                "path" => path = value.as_str().map(str::to_string),
                "offset" => offset = value.as_int().map(|v| v as u64),
                _ => {
                    let message = format!("BLOBFILE has no `{name}`, only `path` and `offset`");
                    let mut d = Diagnostic::error(codes::UNEXPECTED_TOKEN, span, message);
                    if let Some(near) = ferrane_diag::nearest(name, ["path", "offset"]) {
                        d = d.suggest(span, near);
                    }
                    self.report(d);
                    return Err(Stop);
                }
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')')?;
        let span = start.to(self.last);
        let (Some(path), Some(offset)) = (path, offset) else {
            return self.fail(
                codes::INVALID_BLOB_RECORD,
                span,
                "BLOBFILE needs `path`, a string, and `offset`, a uint64",
            );
        };
        let ty = Type::Tensor { dtype, shape: shape.to_vec() };
        let (Some(elements), Some(_)) = (ty.elements(), ty.bytes()) else {
            return self.fail(codes::INVALID_TYPE, span, format!("a weight needs a type of known size, not {ty}"));
        };
        let id = self.record(&path, offset, dtype, elements, span)?;
        Ok(Constant::Tensor { ty, payload: Payload::Weight(id) })
    }

    fn record(&mut self, path: &str, offset: u64, dtype: DataType, elements: usize, span: Span) -> Read<WeightId> {
        match self.weights.find(path, offset, dtype, elements, self.options.strictness) {
            Ok(Some((id, odd))) => {
                for what in odd {
                    self.report(Diagnostic::warning(
                        codes::ODD_BLOB_RECORD,
                        span,
                        format!("\"{path}\" at {offset}: {what}"),
                    ));
                }
                Ok(id)
            }
            Ok(None) if self.options.missing == Missing::Keep => {
                Ok(self.weights.add_absent(path, offset, dtype, elements))
            }
            // Errors of the record are reported; after that the constant has no bytes, and its uses
            // are silent.
            Ok(None) => {
                self.report(Diagnostic::error(
                    codes::MISSING_BLOB_FILE,
                    span,
                    format!("there is no blob file \"{path}\""),
                ));
                Ok(self.weights.add_absent(path, offset, dtype, elements))
            }
            Err(e) => {
                let mut d = Diagnostic::error(codes::INVALID_BLOB_RECORD, span, format!("\"{path}\" at {offset}: {e}"));
                if self.options.strictness == Strictness::Strict {
                    d = d.note(None, "the record is read strictly");
                }
                self.report(d);
                Ok(self.weights.add_absent(path, offset, dtype, elements))
            }
        }
    }
}

/// The number of nodes of a type that each of its values repeats in memory.
fn nodes(ty: &Type) -> usize {
    match ty {
        // A tuple's value has no type of its own, only those of its parts.
        Type::Tuple(_) => 0,
        _ => size(ty),
    }
}

fn size(ty: &Type) -> usize {
    match ty {
        Type::Tensor { shape, .. } => shape.len(),
        Type::List { element, .. } => 1 + size(element),
        Type::Dict(key, value) => 1 + size(key) + size(value),
        Type::State(inner) => 1 + size(inner),
        Type::Tuple(types) => types.iter().map(|ty| 1 + size(ty)).sum(),
    }
}

/// The elements of a literal as they are read.
struct Elements {
    dtype: DataType,
    count: usize,
    bytes: Vec<u8>,
    strings: Vec<String>,
    small: Vec<i64>,
}

impl Elements {
    fn new(dtype: DataType) -> Elements {
        Elements { dtype, count: 0, bytes: Vec::new(), strings: Vec::new(), small: Vec::new() }
    }

    fn payload(self) -> Payload {
        match self.dtype {
            DataType::String => Payload::Strings(self.strings.into()),
            d if d.bytes().is_none() => Payload::Bytes(Arc::from(pack(d, &self.small))),
            _ => Payload::Bytes(self.bytes.into()),
        }
    }
}
