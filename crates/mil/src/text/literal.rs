//! Types and literals.

use std::sync::Arc;

use ferrane_diag::{Code, Diagnostic, Span};

use super::lex::{Kind, unquote};
use super::number;
use super::parse::{Missing, Read, Reader};
use crate::program::{Constant, DataType, Dim, Payload, Type};
use crate::weights::{Strictness, pack};

/// Types and values nest no deeper.
const MAX_DEPTH: usize = 32;
/// MIL itself allows rank 5; a little more, so that the check can say so.
const MAX_RANK: usize = 16;
/// Sizes are products of extents; below this they are far from any overflow.
const MAX_EXTENT: usize = i32::MAX as usize;

impl Reader<'_> {
    /// True before a word that names a type. A value or an op may have such a name too; what follows the word decides then.
    pub(super) fn at_type(&self) -> bool {
        let text = self.text(self.token);
        self.token.kind == Kind::Ident
            && (matches!(text, "tensor" | "list" | "tuple" | "dict" | "state") || DataType::from_name(text).is_some())
    }

    pub(super) fn ty(&mut self) -> Read<Type> {
        self.ty_within(0)
    }

    fn ty_within(&mut self, depth: usize) -> Read<Type> {
        let (name, span) = self.ident("a type")?;
        if depth > MAX_DEPTH {
            return self.fail(104, span, format!("types nest deeper than {MAX_DEPTH}"));
        }
        if let Some(dtype) = DataType::from_name(name) {
            return Ok(Type::scalar(dtype));
        }
        let known = matches!(name, "tensor" | "list" | "tuple" | "dict" | "state");
        if !known {
            let names = DataType::ALL.iter().map(|(_, n)| *n).chain(["tensor", "list", "tuple", "dict", "state"]);
            let mut d = Diagnostic::error(Code(203), span, format!("`{name}` is no type"));
            if let Some(near) = ferrane_diag::nearest(name, names) {
                d = d.suggest(span, near);
            }
            self.tell(d);
            return Err(super::parse::Stop);
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
            let mut d = Diagnostic::error(Code(203), span, format!("`{name}` is no element type"));
            if let Some(near) = ferrane_diag::nearest(name, DataType::ALL.iter().map(|(_, n)| *n)) {
                d = d.suggest(span, near);
            }
            self.tell(d);
            return Err(super::parse::Stop);
        };
        self.expect(b',')?;
        let open = self.expect(b'[')?;
        let mut shape = Vec::new();
        while !self.at(b']') {
            shape.push(self.dim()?);
            if shape.len() > MAX_RANK {
                return self.fail(104, open.to(self.last), format!("a rank above {MAX_RANK}"));
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
        if self.token.kind != Kind::Number {
            return self.unexpected("an extent");
        }
        let token = self.advance();
        match self.text(token).parse::<usize>() {
            Ok(n) if n <= MAX_EXTENT && self.text(token).as_bytes()[0].is_ascii_digit() => Ok(Dim::Fixed(n)),
            _ => self.fail(104, token.span, format!("an extent must be a number from 0 to {MAX_EXTENT}, or `?`")),
        }
    }

    /// `type(value)`.
    pub(super) fn literal(&mut self) -> Read<Constant> {
        let ty = self.ty()?;
        self.expect(b'(')?;
        let constant = self.value(&ty, 0)?;
        self.expect(b')')?;
        Ok(constant)
    }

    fn value(&mut self, ty: &Type, depth: usize) -> Read<Constant> {
        if depth > MAX_DEPTH {
            return self.fail(104, self.token.span, format!("values nest deeper than {MAX_DEPTH}"));
        }
        match ty {
            Type::Tensor { dtype, shape } => self.tensor(*dtype, shape),
            Type::Tuple(types) => {
                self.expect(b'(')?;
                let mut items = Vec::with_capacity(types.len());
                for (i, ty) in types.iter().enumerate() {
                    if i > 0 {
                        self.expect(b',')?;
                    }
                    items.push(self.value(ty, depth + 1)?);
                }
                self.expect(b')')?;
                Ok(Constant::Tuple(items))
            }
            Type::Dict(key, value) => {
                self.expect(b'{')?;
                let mut entries = Vec::new();
                while self.eat(b'{') {
                    let k = self.value(key, depth + 1)?;
                    self.expect(b',')?;
                    entries.push((k, self.value(value, depth + 1)?));
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
                    items.push(self.value(element, depth + 1)?);
                    if !self.eat(b',') {
                        break;
                    }
                }
                self.expect(b']')?;
                if let Dim::Fixed(n) = length
                    && *n != items.len()
                {
                    let message = format!("{} elements for a list of {n}", items.len());
                    return self.fail(203, open.to(self.last), message);
                }
                Ok(Constant::List(ty.clone(), items))
            }
            Type::State(_) => self.fail(203, self.token.span, "a state has no literal"),
        }
    }

    fn tensor(&mut self, dtype: DataType, shape: &[Dim]) -> Read<Constant> {
        let start = self.token.span;
        if self.at_blob() {
            return self.blob(dtype, shape);
        }
        let mut elements = Elements::new(dtype);
        if shape.is_empty() {
            self.element(&mut elements)?;
        } else {
            self.list(&mut elements)?;
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
            return self.fail(203, start.to(self.last), format!("{} elements for {ty}", elements.count));
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
                    return self.fail(104, self.last, format!("lists nest deeper than {MAX_DEPTH}"));
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
        match (dtype, token.kind) {
            (DataType::String, Kind::String) => {
                let Some(s) = unquote(text) else { return self.fail(105, token.span, "an unknown escape in a string") };
                self.advance();
                elements.strings.push(s);
                Ok(())
            }
            (DataType::Bool, Kind::Ident | Kind::Number) if matches!(text, "true" | "false" | "0" | "1") => {
                self.advance();
                elements.bytes.push(u8::from(matches!(text, "true" | "1")));
                Ok(())
            }
            (DataType::String | DataType::Bool, _) => self.unexpected(&format!("a {dtype}")),
            (_, Kind::Ident) if text == "nan" && dtype.is_float() => {
                self.advance();
                if !self.eat(b'(') {
                    // Every float type reads `nan`.
                    let _ = number::append(dtype, "nan", &mut elements.bytes);
                    return Ok(());
                }
                let bits = self.advance();
                if number::append_nan(dtype, self.text(bits), &mut elements.bytes).is_none() {
                    return self.fail(108, bits.span, format!("expected the bits of a NaN of {dtype}"));
                }
                self.expect(b')').map(|_| ())
            }
            (_, Kind::Number | Kind::Ident) => {
                let read = match dtype.bytes() {
                    Some(_) => number::append(dtype, text, &mut elements.bytes),
                    None => number::small(dtype, text).map(|v| elements.small.push(v)),
                };
                if read.is_none() {
                    return self.fail(108, token.span, format!("`{text}` is no {dtype}"));
                }
                self.advance();
                Ok(())
            }
            _ => self.unexpected(&format!("a number of {dtype}")),
        }
    }

    /// A literal of a tensor that is spelled out: what names a blob must not lie in a blob, or text could nest without end.
    fn plain(&mut self) -> Read<Constant> {
        let start = self.token.span;
        let Type::Tensor { dtype, shape } = self.ty()? else {
            return self.fail(302, start.to(self.last), "BLOBFILE needs a string and a uint64");
        };
        self.expect(b'(')?;
        if self.at_blob() {
            return self.fail(302, self.token.span, "a BLOBFILE is not named by another one");
        }
        let constant = self.tensor(dtype, &shape)?;
        self.expect(b')')?;
        Ok(constant)
    }

    fn at_blob(&self) -> bool {
        self.token.kind == Kind::Ident && self.text(self.token) == "BLOBFILE"
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
                _ => return self.fail(102, span, format!("BLOBFILE has no `{name}`, only `path` and `offset`")),
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')')?;
        let span = start.to(self.last);
        let (Some(path), Some(offset)) = (path, offset) else {
            return self.fail(302, span, "BLOBFILE needs `path`, a string, and `offset`, a uint64");
        };
        let ty = Type::Tensor { dtype, shape: shape.to_vec() };
        let (Some(elements), Some(_)) = (ty.elements(), ty.bytes()) else {
            return self.fail(203, span, format!("a weight needs a type of known size, not {ty}"));
        };
        let id = self.record(&path, offset, dtype, elements, span)?;
        Ok(Constant::Tensor { ty, payload: Payload::Weight(id) })
    }

    fn record(
        &mut self,
        path: &str,
        offset: u64,
        dtype: DataType,
        elements: usize,
        span: Span,
    ) -> Read<crate::weights::WeightId> {
        match self.weights.find(path, offset, dtype, elements, self.options.strictness) {
            Ok(Some((id, odd))) => {
                for what in odd {
                    self.tell(Diagnostic::warning(Code(303), span, format!("\"{path}\" at {offset}: {what}")));
                }
                Ok(id)
            }
            Ok(None) if self.options.missing == Missing::Keep => {
                Ok(self.weights.add_absent(path, offset, dtype, elements))
            }
            Ok(None) => self.fail(301, span, format!("there is no blob file \"{path}\"")),
            Err(e) => {
                let mut d = Diagnostic::error(Code(302), span, format!("\"{path}\" at {offset}: {e}"));
                if self.options.strictness == Strictness::Strict {
                    d = d.note(None, "the record is read strictly");
                }
                self.tell(d);
                Err(super::parse::Stop)
            }
        }
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
