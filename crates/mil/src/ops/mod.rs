//! The op registry: one signature and one shape rule for every op that can be built and checked.
//!
//! A signature says which arguments an op has, what they accept and what they default to; [`infer`]
//! checks the arguments against it and then runs the op's shape rule. Signatures differ by opset
//! through several [`OpDef`]s of one name: the newest that is not newer than the program's opset
//! counts. Names, types, constness and defaults are those of coremltools 9.0, except that
//! `read_state` and `write_state` are spelled as programs on disk spell them. An op that is not
//! here is still read, printed and kept (its types are then what the text says); building and
//! checking refuse it.

mod activation;
mod basic;
mod compression;
mod control_flow;
mod conv;
mod elementwise;
mod gather;
mod infer;
mod linear;
mod list;
mod normalization;
mod pool;
mod quantization;
mod random;
mod recurrent;
mod reduction;
mod resize;
mod scatter;
mod shape;
mod slice;
mod space;
mod state;
mod tensor;

pub(crate) use infer::agree;
pub use infer::{InferContext, broadcast, infer};

use std::sync::LazyLock;

use crate::error::MilError;
use crate::opset::Opset;
use crate::program::Constant;
use crate::program::DataType::{self, *};

/// The type of an op's shape rule.
pub type Infer = fn(&InferContext<'_>) -> Result<Vec<crate::program::Type>, MilError>;

/// The signature of an op from one opset on.
#[derive(Clone, Copy, Debug)]
pub struct OpDef {
    /// Its MIL name.
    pub name: &'static str,
    /// What it computes, in one line.
    pub doc: &'static str,
    /// The first opset this signature holds in.
    pub since: Opset,
    /// Where the signature is from.
    pub source: &'static str,
    /// Its arguments.
    pub params: &'static [Param],
    /// The types of its results.
    pub infer: Infer,
}

impl OpDef {
    const fn new(name: &'static str, doc: &'static str, params: &'static [Param], infer: Infer) -> OpDef {
        OpDef { name, doc, since: Opset(13), source: source(13), params, infer }
    }

    const fn since(mut self, opset: Opset) -> OpDef {
        self.since = opset;
        self.source = source(opset.0);
        self
    }

    const fn from(mut self, source: &'static str) -> OpDef {
        self.source = source;
        self
    }

    /// The same op with other parameters from an opset on.
    const fn again(self, opset: Opset, params: &'static [Param]) -> OpDef {
        OpDef { params, ..self.since(opset) }
    }

    /// The parameter of that name.
    pub fn param(&self, name: &str) -> Option<&'static Param> {
        self.params.iter().find(|p| p.name == name)
    }
}

const fn source(opset: u16) -> &'static str {
    match opset {
        18 => "coremltools 9.0, iOS18",
        17 => "coremltools 9.0, iOS17",
        16 => "coremltools 9.0, iOS16",
        _ => "coremltools 9.0, iOS15",
    }
}

/// The kind of value that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A tensor or scalar of one of the element types that the parameter accepts.
    Tensor,
    /// A list.
    List,
    /// A state of a tensor.
    State,
    /// A tensor, a list or a dictionary.
    Any,
}

/// One parameter of a signature.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// The kind of its value.
    pub takes: Takes,
    /// The element types it accepts, of a tensor.
    pub accepts: &'static [DataType],
    /// Parameters of one domain have the same element type.
    pub domain: Option<&'static str>,
    /// Whether it may be left out.
    pub presence: Presence,
    /// It must be known at compile time.
    pub constant: bool,
    /// It takes a parenthesized list of values.
    pub variadic: bool,
    /// The builder writes it even when the default is meant, because engines want it so (mil-text
    /// §4, §7).
    pub spelled: bool,
}

/// Whether a parameter may be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Presence {
    /// It may not.
    Required,
    /// It may; absence has its own meaning.
    Optional,
    /// It may; absence means this value.
    Default(Literal),
}

/// A default value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Literal {
    Bool(bool),
    Int(i32),
    /// Of the parameter's domain: fp16 or fp32.
    Float(f32),
    Str(&'static str),
}

impl Literal {
    /// As a constant; floats take `dtype`.
    pub fn constant(self, dtype: DataType) -> Constant {
        match self {
            Literal::Bool(b) => Constant::bool(b),
            Literal::Int(v) => Constant::int32(v),
            Literal::Float(v) if dtype == DataType::Fp16 => Constant::fp16(v),
            Literal::Float(v) => Constant::fp32(v),
            Literal::Str(s) => Constant::string(s),
        }
    }
}

impl Param {
    const fn new(name: &'static str, accepts: &'static [DataType]) -> Param {
        Param {
            name,
            takes: Takes::Tensor,
            accepts,
            domain: None,
            presence: Presence::Required,
            constant: false,
            variadic: false,
            spelled: false,
        }
    }

    const fn takes(name: &'static str, takes: Takes) -> Param {
        let mut param = Param::new(name, &[]);
        param.takes = takes;
        param
    }

    const fn of(mut self, domain: &'static str) -> Param {
        self.domain = Some(domain);
        self
    }

    const fn optional(mut self) -> Param {
        self.presence = Presence::Optional;
        self
    }

    const fn or(mut self, value: Literal) -> Param {
        self.presence = Presence::Default(value);
        self
    }

    const fn constant(mut self) -> Param {
        self.constant = true;
        self
    }

    const fn variadic(mut self) -> Param {
        self.variadic = true;
        self
    }

    const fn spelled(mut self) -> Param {
        self.spelled = true;
        self
    }
}

/// fp16 and fp32.
const FLOATS: &[DataType] = &[Fp16, Fp32];
/// What arithmetic takes.
const NUMBERS: &[DataType] = &[Fp16, Fp32, Int32];
/// What moving data takes before iOS 17.
const BASIC: &[DataType] = &[Fp16, Fp32, Int32, Bool];
/// What moving data takes from iOS 17 on.
const MOVABLE: &[DataType] = &[Fp16, Fp32, Int8, UInt8, Int16, UInt16, Int32, Bool];
/// Indices from iOS 16 on.
const INDICES_16: &[DataType] = &[Int32, Int16, UInt16];
/// Indices from iOS 17 on.
const INDICES_17: &[DataType] = &[Int32, Int16, UInt16, Int8, UInt8];
/// Signed counts from iOS 17 on: shapes, bounds, lengths.
const COUNTS: &[DataType] = &[Int32, Int16, Int8];
/// What a list of tensors may hold: coremltools looks only at whether they are alike.
const ALIKE: &[DataType] = &[Fp16, Fp32, Int8, UInt8, Int16, UInt16, Int32, UInt32, Bool];
const BYTES: &[DataType] = &[Int8, UInt8];
const INT32: &[DataType] = &[Int32];
const UINT32: &[DataType] = &[UInt32];
const FP32: &[DataType] = &[Fp32];
const BOOL: &[DataType] = &[Bool];
const STRING: &[DataType] = &[String];

/// From iOS 17 on, weights and parameters of many ops need only agree with each other, not with
/// `x`, the first parameter.
const fn apart<const N: usize>(mut params: [Param; N]) -> [Param; N] {
    let mut i = 1;
    while i < N {
        if params[i].domain.is_some() {
            params[i].domain = Some("U");
        }
        i += 1;
    }
    params
}

const fn x_of(accepts: &'static [DataType]) -> Param {
    Param::new("x", accepts).of("T")
}

const fn int_const(name: &'static str) -> Param {
    Param::new(name, INT32).constant()
}

const fn bool_const(name: &'static str) -> Param {
    Param::new(name, BOOL).constant()
}

const fn float_const(name: &'static str) -> Param {
    Param::new(name, FLOATS).of("T").constant()
}

const fn str_const(name: &'static str) -> Param {
    Param::new(name, STRING).constant()
}

const FAMILIES: &[&[OpDef]] = &[
    basic::OPS,
    elementwise::OPS,
    activation::OPS,
    reduction::OPS,
    normalization::OPS,
    linear::OPS,
    conv::OPS,
    pool::OPS,
    shape::OPS,
    slice::OPS,
    space::OPS,
    tensor::OPS,
    gather::OPS,
    scatter::OPS,
    resize::OPS,
    quantization::OPS,
    compression::OPS,
    recurrent::OPS,
    random::OPS,
    control_flow::OPS,
    list::OPS,
    state::OPS,
];

/// Every signature, by name and then oldest first. Searched by halves: a comparison ends at the
/// first difference, where a hash would read the whole of a name that a hostile text makes long.
static SORTED: LazyLock<Vec<&'static OpDef>> = LazyLock::new(|| {
    let mut defs: Vec<&'static OpDef> = all().collect();
    defs.sort_by_key(|d| (d.name, d.since));
    defs
});

/// Every signature.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().flat_map(|f| f.iter())
}

/// The names of all ops, sorted.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = SORTED.iter().map(|d| d.name).collect();
    names.dedup();
    names
}

/// The signatures of an op, oldest first; none if there is no such op.
pub fn versions(name: &str) -> &'static [&'static OpDef] {
    let start = SORTED.partition_point(|d| d.name < name);
    let count = SORTED[start..].iter().take_while(|d| d.name == name).count();
    &SORTED[start..start + count]
}

/// The signature of an op in an opset.
pub fn find(name: &str, opset: Opset) -> Option<&'static OpDef> {
    versions(name).iter().rev().find(|d| d.since <= opset).copied()
}

/// The signature of an op, or the error that says from which opset on it exists or names the
/// nearest op.
///
/// # Errors
/// [`MilError::LaterOp`] or [`MilError::UnknownOp`].
pub fn lookup(name: &str, opset: Opset) -> Result<&'static OpDef, MilError> {
    if let Some(def) = find(name, opset) {
        return Ok(def);
    }
    if let Some(first) = versions(name).first() {
        return Err(MilError::LaterOp {
            op: name.to_string(),
            since: first.since.to_string(),
            opset: opset.to_string(),
        });
    }
    Err(MilError::UnknownOp {
        name: name.to_string(),
        opset: opset.to_string(),
        suggestion: ferrane_diag::nearest(name, all().filter(|d| d.since <= opset).map(|d| d.name)).map(str::to_string),
    })
}
