//! Checks the arguments of one op against its signature and runs its shape rule.
//!
//! Unknown extents (`?`) pass every check that they could satisfy and stay unknown in results.

use std::collections::BTreeMap;

use super::{OpDef, Param, Presence};
use crate::error::MilError;
use crate::program::{Arg, Constant, DataType, Dim, Function, Type, ValueDef, ValueId};
use crate::weights::Weights;

/// What a shape rule sees: the op's arguments with their types, and the compile-time values among them.
pub struct InferContext<'a> {
    /// The function the arguments live in.
    pub function: &'a Function,
    /// The weights of the program.
    pub weights: &'a Weights,
    /// The signature.
    pub def: &'static OpDef,
    /// The arguments.
    pub args: &'a [(String, Arg)],
    /// The attributes; `const` and iOS 16 `constexpr_*` ops carry arguments here.
    pub attributes: &'a [(String, Constant)],
}

/// The result types of an op, after all checks.
///
/// # Errors
/// Unknown, missing, doubled or ill-typed arguments, and what the op's own rule finds.
pub fn infer(context: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    check_arguments(context)?;
    (context.def.infer)(context)
}

/// The most axes, list entries of axes, and results that a rule looks at: far above what MIL knows (rank 5), low enough that a
/// number in a hostile text costs nothing.
pub(super) const MAX_RANK: usize = 64;
/// The most results of one op.
pub(super) const MAX_RESULTS: usize = 4096;
/// The largest extent, so that no sum or product of two leaves 64 bits.
const MAX_EXTENT: usize = i32::MAX as usize;

fn check_arguments(c: &InferContext<'_>) -> Result<(), MilError> {
    let op = c.def.name.to_string();
    for (i, (name, arg)) in c.args.iter().enumerate() {
        let argument = name.clone();
        let Some(param) = c.def.param(name) else {
            let suggestion = ferrane_diag::nearest(name, c.def.params.iter().map(|p| p.name)).map(str::to_string);
            return Err(MilError::UnknownArgument { op, argument, suggestion });
        };
        if c.args[..i].iter().any(|(n, _)| n == name) {
            return Err(MilError::DuplicateArgument { op, argument });
        }
        if matches!(arg, Arg::List(_)) != param.variadic {
            let (expected, found) = match param.variadic {
                true => ("a list of values", "one value"),
                false => ("one value", "a list of values"),
            };
            // A list argument of one value may be written without parentheses.
            if !(param.variadic && matches!(arg, Arg::Value(_))) {
                return Err(MilError::ArgumentType { op, argument, expected: expected.into(), found: found.into() });
            }
        }
    }
    let mut domains: BTreeMap<&str, (DataType, &str)> = BTreeMap::new();
    for param in c.def.params {
        let types = c.types(param.name);
        if types.is_empty() {
            if param.presence == Presence::Required {
                return Err(MilError::MissingArgument { op, argument: param.name.to_string() });
            }
            continue;
        }
        for ty in types {
            check_type(c, param, &ty, &mut domains)?;
        }
        if param.constant && !c.is_constant(param.name) {
            return Err(MilError::NotConstant { op, argument: param.name.to_string() });
        }
    }
    Ok(())
}

fn check_type(
    c: &InferContext<'_>,
    param: &Param,
    ty: &Type,
    domains: &mut BTreeMap<&'static str, (DataType, &'static str)>,
) -> Result<(), MilError> {
    let mismatch = |expected: String| MilError::ArgumentType {
        op: c.def.name.to_string(),
        argument: param.name.to_string(),
        expected,
        found: ty.to_string(),
    };
    let Type::Tensor { dtype, shape } = ty else { return Err(mismatch("a tensor".into())) };
    if shape.len() > MAX_RANK || shape.iter().any(|d| matches!(d, Dim::Fixed(n) if *n > MAX_EXTENT)) {
        return Err(mismatch(format!("of rank {MAX_RANK} and extents {MAX_EXTENT} at most")));
    }
    if !param.accepts.contains(dtype) {
        let names: Vec<&str> = param.accepts.iter().map(|d| d.name()).collect();
        return Err(mismatch(format!("of {}", names.join(", "))));
    }
    if let Some(domain) = param.domain {
        let (first, owner) = domains.entry(domain).or_insert((*dtype, param.name));
        if first != dtype {
            return Err(mismatch(format!("of {first} like `{owner}`")));
        }
    }
    Ok(())
}

impl<'a> InferContext<'a> {
    fn arg(&self, name: &str) -> Option<&'a Arg> {
        self.args.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }

    fn attribute(&self, name: &str) -> Option<&'a Constant> {
        // `name` is every op's label, never an argument. Elsewhere attributes say nothing to the op.
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
            Some(Arg::Const(c)) => vec![c.ty()],
            None => self.attribute(name).map(Constant::ty).into_iter().collect(),
        }
    }

    fn value_type(&self, id: ValueId) -> Type {
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

    /// Known at compile time: a literal, a `const`, or the result of a `constexpr_*` op.
    fn is_constant(&self, name: &str) -> bool {
        let folded = |v: ValueId| match self.function.value(v).def {
            ValueDef::Op(op, _) => {
                let name = &self.function.op(op).name;
                name == "const" || name.starts_with("constexpr_")
            }
            _ => false,
        };
        match self.arg(name) {
            Some(Arg::Value(v)) => folded(*v),
            Some(Arg::List(vs)) => vs.iter().all(|v| folded(*v)),
            Some(Arg::Const(_)) | None => true,
        }
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
    /// It is absent or no tensor.
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

    /// The integers of a compile-time argument, which may lie in the weights.
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

/// A tensor type.
pub(super) fn tensor(dtype: DataType, shape: Vec<Dim>) -> Vec<Type> {
    vec![Type::Tensor { dtype, shape }]
}

/// `[1, 2, ?]`.
pub(super) fn show(shape: &[Dim]) -> String {
    let dims: Vec<String> =
        shape.iter().map(|d| if let Dim::Fixed(n) = d { n.to_string() } else { "?".into() }).collect();
    format!("[{}]", dims.join(", "))
}

/// A list of numbers for a message: a hostile one may be long.
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

/// True if two extents can be the same.
pub(crate) fn same_extent(a: &Dim, b: &Dim) -> bool {
    same(a, b).is_some()
}
