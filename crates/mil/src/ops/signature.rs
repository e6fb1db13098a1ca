//! Signatures: [`OpDef`] and [`Param`], and the helpers with which the families declare them.

use super::infer::InferContext;
use crate::error::MilError;
use crate::opset::Opset;
use crate::program::DataType::{self, *};
use crate::program::{Constant, Type};

/// The type of an op's shape rule.
pub type Infer = fn(&InferContext<'_>) -> Result<Vec<Type>, MilError>;

/// The signature of an op from one opset on.
#[derive(Clone, Copy, Debug)]
pub struct OpDef {
    /// MIL name of the op.
    pub name: &'static str,
    /// What the op computes, in one line, for docs/ops.md.
    pub doc: &'static str,
    /// The first opset this signature holds in.
    pub since: Opset,
    /// Source of the signature.
    pub source: &'static str,
    /// The parameters, in the order of the source.
    pub params: &'static [Param],
    /// The shape rule, which computes the types of the results.
    pub infer: Infer,
}

impl OpDef {
    pub(super) const fn new(name: &'static str, doc: &'static str, params: &'static [Param], infer: Infer) -> OpDef {
        OpDef { name, doc, since: Opset(13), source: source(13), params, infer }
    }

    pub(super) const fn since(mut self, opset: Opset) -> OpDef {
        self.since = opset;
        self.source = source(opset.0);
        self
    }

    pub(super) const fn from(mut self, source: &'static str) -> OpDef {
        self.source = source;
        self
    }

    /// The same op with other parameters from an opset on.
    pub(super) const fn again(self, opset: Opset, params: &'static [Param]) -> OpDef {
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
    /// A list of tensors.
    List,
    /// A state of a tensor.
    State,
    /// A tensor, a list or a dictionary.
    Any,
}

/// One parameter of a signature.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name of the argument in text.
    pub name: &'static str,
    /// The kind of value that it accepts.
    pub takes: Takes,
    /// The element types that it accepts, for tensors.
    pub accepts: &'static [DataType],
    /// Parameters of one domain have the same element type.
    pub domain: Option<&'static str>,
    /// Whether it may be left out.
    pub presence: Presence,
    /// Its value must be known at compile time.
    pub constant: bool,
    /// It takes a parenthesized list of values.
    pub variadic: bool,
    /// The builder writes it even if it has its default value, because engines require it
    /// (mil-text §4, §7).
    pub spelled: bool,
}

/// Whether a parameter may be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Presence {
    /// It must be given.
    Required,
    /// It may be left out, and that has a meaning of its own.
    Optional,
    /// It may be left out, and then has this value.
    Default(Literal),
}

/// The default value of a parameter.
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
    pub(super) const fn new(name: &'static str, accepts: &'static [DataType]) -> Param {
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

    pub(super) const fn takes(name: &'static str, takes: Takes) -> Param {
        let mut param = Param::new(name, &[]);
        param.takes = takes;
        param
    }

    pub(super) const fn of(mut self, domain: &'static str) -> Param {
        self.domain = Some(domain);
        self
    }

    pub(super) const fn optional(mut self) -> Param {
        self.presence = Presence::Optional;
        self
    }

    pub(super) const fn or(mut self, value: Literal) -> Param {
        self.presence = Presence::Default(value);
        self
    }

    pub(super) const fn constant(mut self) -> Param {
        self.constant = true;
        self
    }

    pub(super) const fn variadic(mut self) -> Param {
        self.variadic = true;
        self
    }

    pub(super) const fn spelled(mut self) -> Param {
        self.spelled = true;
        self
    }
}

/// fp16 and fp32.
pub(super) const FLOATS: &[DataType] = &[Fp16, Fp32];
/// The element types of arithmetic.
pub(super) const NUMBERS: &[DataType] = &[Fp16, Fp32, Int32];
/// The element types of data movement before iOS 17.
pub(super) const BASIC: &[DataType] = &[Fp16, Fp32, Int32, Bool];
/// The element types of data movement from iOS 17 on.
pub(super) const MOVABLE: &[DataType] = &[Fp16, Fp32, Int8, UInt8, Int16, UInt16, Int32, Bool];
/// Indices from iOS 16 on.
pub(super) const INDICES_16: &[DataType] = &[Int32, Int16, UInt16];
/// Indices from iOS 17 on.
pub(super) const INDICES_17: &[DataType] = &[Int32, Int16, UInt16, Int8, UInt8];
/// Signed counts from iOS 17 on: shapes, bounds, lengths.
pub(super) const COUNTS: &[DataType] = &[Int32, Int16, Int8];
/// The element types of a list of tensors: coremltools only requires that they are the same.
pub(super) const ALIKE: &[DataType] = &[Fp16, Fp32, Int8, UInt8, Int16, UInt16, Int32, UInt32, Bool];
pub(super) const BYTES: &[DataType] = &[Int8, UInt8];
pub(super) const INT32: &[DataType] = &[Int32];
pub(super) const UINT32: &[DataType] = &[UInt32];
pub(super) const FP32: &[DataType] = &[Fp32];
pub(super) const BOOL: &[DataType] = &[Bool];
pub(super) const STRING: &[DataType] = &[String];

/// Puts every parameter but the first (`x`) in a second domain: from iOS 17 on, weights and
/// parameters of many ops need only agree with each other.
pub(super) const fn apart<const N: usize>(mut params: [Param; N]) -> [Param; N] {
    let mut i = 1;
    while i < N {
        if params[i].domain.is_some() {
            params[i].domain = Some("U");
        }
        i += 1;
    }
    params
}

pub(super) const fn x_of(accepts: &'static [DataType]) -> Param {
    Param::new("x", accepts).of("T")
}

pub(super) const fn int_const(name: &'static str) -> Param {
    Param::new(name, INT32).constant()
}

pub(super) const fn bool_const(name: &'static str) -> Param {
    Param::new(name, BOOL).constant()
}

pub(super) const fn float_const(name: &'static str) -> Param {
    Param::new(name, FLOATS).of("T").constant()
}

pub(super) const fn str_const(name: &'static str) -> Param {
    Param::new(name, STRING).constant()
}
