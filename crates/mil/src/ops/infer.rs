//! The input of shape rules, [`InferContext`], and the helpers on shapes that rules share.
//!
//! Unknown extents (`?`) pass every check that some value would satisfy, and stay unknown in
//! results.

use super::signature::{OpDef, Presence};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, BlockId, Constant, DataType, Dim, Function, Op, Type, Value, ValueDef, ValueId};
use crate::weights::Weights;

/// The arguments of one op, as its shape rule reads them: their types, and the compile-time values
/// among them.
pub struct InferContext<'a> {
    /// The function that contains the arguments.
    pub function: &'a Function,
    /// The weights of the program.
    pub weights: &'a Weights,
    /// The signature of the op in the function's opset.
    pub def: &'static OpDef,
    /// The arguments by name, in the order of the text.
    pub args: &'a [(String, Arg)],
    /// The attributes; `const` and iOS 16 `constexpr_*` ops carry arguments here.
    pub attributes: &'a [(String, Constant)],
    /// The nested blocks of `cond` and `while_loop`.
    pub blocks: &'a [BlockId],
}

/// The highest rank that a rule accepts: far above MIL's limit (rank 5), and low enough that a
/// number in a hostile text costs nothing.
pub(super) const MAX_RANK: usize = 64;
/// The most results of one op.
pub(super) const MAX_RESULTS: usize = 4096;
/// The most values that are visited to decide whether one is constant.
const MAX_STEPS: usize = 256;
/// The largest extent, so that a sum or product of two fits into 64 bits.
pub(super) const MAX_EXTENT: usize = i32::MAX as usize;

impl<'a> InferContext<'a> {
    /// The context of an op of a function.
    pub fn of(function: &'a Function, weights: &'a Weights, def: &'static OpDef, op: &'a Op) -> InferContext<'a> {
        InferContext { function, weights, def, args: &op.args, attributes: &op.attributes, blocks: &op.blocks }
    }

    fn variadic(&self, name: &str) -> bool {
        self.def.param(name).is_some_and(|p| p.variadic)
    }

    fn arg(&self, name: &str) -> Option<&'a Arg> {
        self.args.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }

    fn attribute(&self, name: &str) -> Option<&'a Constant> {
        // `name` is every op's label, never an argument. Other attributes do not affect the op.
        let counts = match self.def.name {
            "const" => name == "val",
            op => op.starts_with("constexpr_") && name != "name",
        };
        self.attributes.iter().find(|(n, _)| counts && n == name).map(|(_, a)| a)
    }

    /// True if the argument is given.
    pub fn has(&self, name: &str) -> bool {
        self.arg(name).is_some() || self.attribute(name).is_some()
    }

    /// The types of an argument: none if absent, several for a list.
    pub fn types(&self, name: &str) -> Vec<Type> {
        match self.arg(name) {
            Some(Arg::Value(v)) => vec![self.value_type(*v)],
            Some(Arg::List(vs)) => vs.iter().map(|v| self.value_type(*v)).collect(),
            Some(Arg::Const(Constant::List(_, items) | Constant::Tuple(items))) if self.variadic(name) => {
                items.iter().map(Constant::ty).collect()
            }
            Some(Arg::Const(c)) => vec![c.ty()],
            None => self.attribute(name).map(Constant::ty).into_iter().collect(),
        }
    }

    pub(super) fn value_type(&self, id: ValueId) -> Type {
        self.function.values.get(id.index()).map_or(Type::Tuple(Vec::new()), |v| v.ty.clone())
    }

    /// The compile-time value of an argument, if it is given and is one.
    pub fn constant(&self, name: &str) -> Option<&'a Constant> {
        match self.arg(name) {
            Some(Arg::Const(c)) => Some(c),
            Some(Arg::Value(v)) => self.function.constant(*v),
            Some(Arg::List(_)) => None,
            None => self.attribute(name),
        }
    }

    /// Known at compile time: a literal, a `const`, the result of a `constexpr_*` op, or of an op
    /// of such values only.
    pub(super) fn is_constant(&self, name: &str) -> bool {
        match self.arg(name) {
            Some(Arg::Value(v)) => self.descends(std::slice::from_ref(v)),
            Some(Arg::List(vs)) => self.descends(vs),
            Some(Arg::Const(_)) | None => true,
        }
    }

    fn descends(&self, values: &[ValueId]) -> bool {
        let mut open: Vec<ValueId> = values.iter().copied().take(MAX_STEPS + 1).collect();
        let mut steps = 0;
        while let Some(value) = open.pop() {
            // Far above what remains after folding; a long chain in a hostile text is not walked
            // from each of its ops.
            steps += 1;
            if steps > MAX_STEPS {
                return false;
            }
            let Some(Value { def: ValueDef::Op(op, _), .. }) = self.function.values.get(value.index()) else {
                return false;
            };
            let Some(op) = self.function.ops.get(op.index()) else { return false };
            if op.name == op::CONST || op.name.starts_with("constexpr_") {
                continue;
            }
            if !op.blocks.is_empty() || op.args.is_empty() {
                return false;
            }
            open.extend(op.operands().take(MAX_STEPS + 1));
        }
        true
    }

    /// The values of a list argument that are known: of `const`s, or of the items of a literal.
    pub(super) fn items(&self, name: &str) -> Result<Vec<&'a Constant>, MilError> {
        let unknown = || MilError::NotConstant { op: self.def.name.to_string(), argument: name.to_string() };
        match self.arg(name) {
            Some(Arg::Const(Constant::List(_, items) | Constant::Tuple(items))) => Ok(items.iter().collect()),
            Some(Arg::Const(one)) => Ok(vec![one]),
            Some(Arg::Value(v)) => Ok(vec![self.function.constant(*v).ok_or_else(unknown)?]),
            Some(Arg::List(vs)) => vs.iter().map(|v| self.function.constant(*v).ok_or_else(unknown)).collect(),
            None => Err(self.missing(name)),
        }
    }

    /// The integers of a list of scalars, or of one vector.
    pub(super) fn item_ints(&self, name: &str) -> Result<Vec<i64>, MilError> {
        let mut values = Vec::new();
        for item in self.items(name)? {
            values.extend(item.as_ints().ok_or_else(|| self.fail(format!("`{name}` must hold integers")))?);
        }
        Ok(values)
    }

    /// An error of this op.
    pub fn fail(&self, reason: impl Into<String>) -> MilError {
        MilError::shape(self.def.name, reason)
    }

    fn missing(&self, name: &str) -> MilError {
        MilError::MissingArgument { op: self.def.name.to_string(), argument: name.to_string() }
    }

    /// Element type and extents of a tensor argument.
    ///
    /// # Errors
    /// It is absent or not a tensor.
    pub fn tensor(&self, name: &str) -> Result<(DataType, Vec<Dim>), MilError> {
        match self.types(name).into_iter().next() {
            Some(Type::Tensor { dtype, shape }) => Ok((dtype, shape)),
            Some(other) => Err(MilError::ArgumentType {
                op: self.def.name.to_string(),
                argument: name.to_string(),
                expected: "a tensor".into(),
                found: other.to_string(),
            }),
            None => Err(self.missing(name)),
        }
    }

    fn default(&self, name: &str) -> Option<Constant> {
        match self.def.param(name)?.presence {
            Presence::Default(literal) => Some(literal.constant(DataType::Fp32)),
            _ => None,
        }
    }

    fn known<T>(&self, name: &str, read: impl Fn(&Constant) -> Option<T>) -> Result<T, MilError> {
        if !self.has(name) {
            return self.default(name).as_ref().and_then(read).ok_or_else(|| self.missing(name));
        }
        let Some(constant) = self.constant(name) else {
            return Err(MilError::NotConstant { op: self.def.name.to_string(), argument: name.to_string() });
        };
        read(constant).ok_or_else(|| self.fail(format!("argument `{name}` has no usable value ({})", constant.ty())))
    }

    /// The integers of a compile-time argument, inline or in the weights.
    ///
    /// # Errors
    /// It is absent without default, or not known.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>, MilError> {
        self.known(name, |c| {
            c.as_ints().or_else(|| {
                let bytes = c.bytes(self.weights)?;
                let (ty, shape) = (c.ty().dtype()?, c.ty().shape()?);
                Constant::raw(ty, &shape, bytes).as_ints()
            })
        })
    }

    /// Like [`Self::ints`]; `None` if the argument is absent.
    ///
    /// # Errors
    /// It is given and not known.
    pub fn ints_if(&self, name: &str) -> Result<Option<Vec<i64>>, MilError> {
        if self.has(name) { self.ints(name).map(Some) } else { Ok(None) }
    }

    /// The integers of an argument, or its default; `None` if they are known at run time only.
    ///
    /// # Errors
    /// It is absent without default, or holds no integers.
    pub fn ints_known(&self, name: &str) -> Result<Option<Vec<i64>>, MilError> {
        if self.has(name) && self.constant(name).is_none() {
            return Ok(None);
        }
        self.ints(name).map(Some)
    }

    /// A scalar, or its default; `None` if it is known at run time only.
    ///
    /// # Errors
    /// It is absent without default, or is not a scalar number.
    pub fn number_known(&self, name: &str) -> Result<Option<f64>, MilError> {
        if self.has(name) && self.constant(name).is_none() {
            return Ok(None);
        }
        self.known(name, |c| match c.as_int() {
            Some(v) => Some(v as f64),
            None => c.as_f32().map(f64::from),
        })
        .map(Some)
    }

    /// The extents in a shape argument: unknown ones if it is known only at run time.
    ///
    /// # Errors
    /// It is not a vector, is too long, or holds a negative extent.
    pub(super) fn extents(&self, name: &str) -> Result<Vec<Dim>, MilError> {
        let (_, vector) = self.tensor(name)?;
        let [length] = vector.as_slice() else { return Err(self.fail(format!("`{name}` must be a vector"))) };
        let Some(values) = self.ints_known(name)? else {
            let Dim::Fixed(rank) = length else {
                return Err(self.fail(format!("the length of `{name}` must be known")));
            };
            if *rank > MAX_RANK {
                return Err(self.fail(format!("rank {rank} is too large")));
            }
            return Ok(vec![Dim::Unknown; *rank]);
        };
        if values.len() > MAX_RANK {
            return Err(self.fail(format!("rank {} is too large", values.len())));
        }
        values
            .iter()
            .map(|&n| {
                usize::try_from(n).map(Dim::Fixed).map_err(|_| self.fail(format!("`{name}` holds the extent {n}")))
            })
            .collect()
    }

    /// A compile-time integer that is at least `least`.
    ///
    /// # Errors
    /// It is absent without default, not known, or out of range.
    pub(super) fn count(&self, name: &str, least: usize) -> Result<usize, MilError> {
        let n = self.int(name)?;
        usize::try_from(n)
            .ok()
            .filter(|&n| n >= least && n <= MAX_EXTENT)
            .ok_or_else(|| self.fail(format!("`{name}` is {n}, must be at least {least}")))
    }

    /// The extents of a tensor argument, which must have this rank.
    ///
    /// # Errors
    /// It has another rank, is absent or is not a tensor.
    pub(super) fn ranked(&self, name: &str, rank: usize) -> Result<(DataType, Vec<Dim>), MilError> {
        let (dtype, shape) = self.tensor(name)?;
        if shape.len() != rank {
            return Err(self.fail(format!("`{name}` {} must have rank {rank}", show(&shape))));
        }
        Ok((dtype, shape))
    }

    /// `f` of a known extent; an unknown one stays unknown.
    ///
    /// # Errors
    /// The result leaves the range of extents.
    pub(super) fn map(&self, extent: &Dim, f: impl FnOnce(i64) -> Option<i64>) -> Result<Dim, MilError> {
        let Dim::Fixed(n) = extent else { return Ok(Dim::Unknown) };
        let found = i64::try_from(*n).ok().and_then(f).and_then(|n| usize::try_from(n).ok());
        match found.filter(|&n| n <= MAX_EXTENT) {
            Some(n) => Ok(Dim::Fixed(n)),
            None => Err(self.fail(format!("an extent of {n} does not give a valid extent"))),
        }
    }

    /// The number of elements, unknown if an extent is.
    ///
    /// # Errors
    /// It leaves the range of extents.
    pub(super) fn volume(&self, shape: &[Dim]) -> Result<Dim, MilError> {
        let mut total = Dim::Fixed(1);
        for extent in shape {
            let Dim::Fixed(n) = extent else { return Ok(Dim::Unknown) };
            total = self.map(&total, |t| t.checked_mul(i64::try_from(*n).ok()?))?;
        }
        Ok(total)
    }

    /// With `validate_indices`, indices known at compile time must lie below their bounds: one for
    /// all, or one for each entry of the last axis.
    ///
    /// # Errors
    /// An index is out of bounds.
    pub(super) fn check_indices(&self, bounds: &[Dim]) -> Result<(), MilError> {
        if self.def.param("validate_indices").is_none() || !self.flag("validate_indices")? || bounds.is_empty() {
            return Ok(());
        }
        let Some(indices) = self.ints_known("indices")? else { return Ok(()) };
        for (index, bound) in indices.iter().zip(bounds.iter().cycle()) {
            if let Dim::Fixed(n) = bound
                && !usize::try_from(*index).is_ok_and(|i| i < *n)
            {
                return Err(self.fail(format!("index {index} is outside of an axis of {n}")));
            }
        }
        Ok(())
    }

    /// The elements of a float argument, if they are known.
    pub(super) fn floats(&self, name: &str) -> Option<Vec<f32>> {
        let constant = self.constant(name)?;
        let bytes = constant.bytes(self.weights)?;
        match constant.ty().dtype()? {
            DataType::Fp16 => {
                Some(bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect())
            }
            DataType::Fp32 => {
                Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            }
            _ => None,
        }
    }

    /// The number of elements that are not zero, if the argument is known.
    pub(super) fn nonzero(&self, name: &str) -> Option<usize> {
        let constant = self.constant(name)?;
        let (ty, bytes) = (constant.ty(), constant.bytes(self.weights)?);
        let (dtype, count) = (ty.dtype()?, ty.elements()?);
        let Some(width) = dtype.bytes() else {
            let bits = dtype.bits()?;
            let set =
                |i: usize| (i * bits..(i + 1) * bits).any(|b| bytes.get(b / 8).is_some_and(|v| v >> (b % 8) & 1 == 1));
            return Some((0..count).filter(|&i| set(i)).count());
        };
        // The sign of a zero does not count.
        let last = if dtype.is_float() { 0x7f } else { 0xff };
        let zero = |e: &[u8]| e.split_last().is_none_or(|(l, rest)| l & last == 0 && rest.iter().all(|&b| b == 0));
        Some(bytes.chunks_exact(width).filter(|e| !zero(e)).count())
    }

    /// A compile-time integer, or its default.
    ///
    /// # Errors
    /// It is absent without default, or not known.
    pub fn int(&self, name: &str) -> Result<i64, MilError> {
        self.known(name, Constant::as_int)
    }

    /// A compile-time bool, or its default.
    ///
    /// # Errors
    /// It is absent without default, or not known.
    pub fn flag(&self, name: &str) -> Result<bool, MilError> {
        self.known(name, Constant::as_bool)
    }

    /// A compile-time string, or its default.
    ///
    /// # Errors
    /// It is absent without default, or not known.
    pub fn text(&self, name: &str) -> Result<String, MilError> {
        self.known(name, |c| c.as_str().map(str::to_string))
    }

    /// A string that must be one of a few.
    ///
    /// # Errors
    /// It is another one, or not known.
    pub fn one_of(&self, name: &str, choices: &[&str]) -> Result<String, MilError> {
        let text = self.text(name)?;
        if choices.contains(&text.as_str()) {
            return Ok(text);
        }
        Err(self.fail(format!("`{name}` is \"{text}\", must be one of {}", choices.join(", "))))
    }

    /// An axis argument, negative counted from the end, as an index below `rank`.
    ///
    /// # Errors
    /// It is out of range or not known.
    pub fn axis(&self, name: &str, rank: usize) -> Result<usize, MilError> {
        let axis = self.int(name)?;
        self.normal_axis(axis, rank)
    }

    /// An axis as an index below `rank`.
    ///
    /// # Errors
    /// It is out of range.
    pub fn normal_axis(&self, axis: i64, rank: usize) -> Result<usize, MilError> {
        let n = rank as i64;
        if axis < -n || axis >= n {
            return Err(self.fail(format!("axis {axis} is out of range for rank {rank}")));
        }
        Ok(if axis < 0 { axis + n } else { axis } as usize)
    }

    /// Distinct axes as indices below `rank`, in the order given.
    ///
    /// # Errors
    /// One is out of range or occurs twice.
    pub fn normal_axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, MilError> {
        if axes.len() > MAX_RANK {
            return Err(self.fail(format!("{} axes are too many", axes.len())));
        }
        let mut found = Vec::with_capacity(axes.len());
        for &axis in axes {
            let axis = self.normal_axis(axis, rank)?;
            if found.contains(&axis) {
                return Err(self.fail(format!("axis {axis} occurs twice")));
            }
            found.push(axis);
        }
        Ok(found)
    }

    /// The broadcast shape of two arguments.
    ///
    /// # Errors
    /// They do not broadcast.
    pub fn broadcast(&self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, MilError> {
        broadcast(a, b).ok_or_else(|| self.fail(format!("shapes {} and {} do not broadcast", show(a), show(b))))
    }
}

/// A single result: a tensor.
pub(super) fn tensor(dtype: DataType, shape: Vec<Dim>) -> Vec<Type> {
    vec![Type::Tensor { dtype, shape }]
}

/// `[1, 2, ?]`.
pub(super) fn show(shape: &[Dim]) -> String {
    let dims: Vec<String> =
        shape.iter().map(|d| if let Dim::Fixed(n) = d { n.to_string() } else { "?".into() }).collect();
    format!("[{}]", dims.join(", "))
}

/// A list of numbers for a message; a long one is abbreviated.
pub(super) fn show_ints(values: &[i64]) -> String {
    if values.len() > MAX_RANK { format!("({} values)", values.len()) } else { format!("{values:?}") }
}

/// Numpy broadcasting of two shapes. `None` if they do not fit.
pub fn broadcast(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map_or(Dim::Fixed(1), |i| s[i].clone());
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (Dim::Fixed(1), d) | (d, Dim::Fixed(1)) => Some(d),
            (Dim::Fixed(n), Dim::Unknown) | (Dim::Unknown, Dim::Fixed(n)) => Some(Dim::Fixed(n)),
            _ => None,
        })
        .collect()
}

/// Two extents that must be the same; an unknown one takes the other's value.
pub(super) fn same(a: &Dim, b: &Dim) -> Option<Dim> {
    match (a, b) {
        (Dim::Unknown, d) | (d, Dim::Unknown) => Some(d.clone()),
        (x, y) => (x == y).then(|| x.clone()),
    }
}

/// True if two types can be the same: an unknown extent agrees with any.
pub(crate) fn agree(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor { dtype: d, shape: s }, Type::Tensor { dtype: e, shape: t }) => {
            d == e && s.len() == t.len() && s.iter().zip(t).all(|(x, y)| same(x, y).is_some())
        }
        (Type::List { element: d, length: s }, Type::List { element: e, length: t }) => {
            agree(d, e) && same(s, t).is_some()
        }
        (Type::State(a), Type::State(b)) => agree(a, b),
        (Type::Tuple(a), Type::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| agree(x, y)),
        (Type::Dict(j, v), Type::Dict(k, w)) => agree(j, k) && agree(v, w),
        _ => false,
    }
}

/// True if two lists of extents can be the same.
pub(super) fn fits(a: &[Dim], b: &[Dim]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y).is_some())
}
