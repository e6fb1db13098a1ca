//! Reads the arguments of an op, with the registry's defaults.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::ops::{self, InferContext, Presence};
use ferrane_mil::program::Payload;
use ferrane_mil::{Arg, Constant, DataType, Function, MilError, Op, Opset, ValueId, Weights};

/// The arguments of one op.
pub(super) struct Args<'a> {
    context: InferContext<'a>,
    op: &'a Op,
}

/// An error about an op.
pub(super) fn unsupported(op: &str, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("op `{op}`: {reason}"))
}

fn invalid(error: &MilError) -> Error {
    Error::new(ErrorKind::InvalidProgram, error.to_string())
}

impl<'a> Args<'a> {
    pub(super) fn new(function: &'a Function, weights: &'a Weights, opset: Opset, op: &'a Op) -> Result<Args<'a>> {
        let def = ops::lookup(&op.name, opset).map_err(|e| Error::new(ErrorKind::Unsupported, e.to_string()))?;
        let context = InferContext { function, weights, def, args: &op.args, attributes: &op.attributes };
        Ok(Args { context, op })
    }

    pub(super) fn unsupported(&self, reason: impl std::fmt::Display) -> Error {
        unsupported(&self.op.name, reason)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.context.has(name)
    }

    /// A value argument, if it is given as one.
    pub(super) fn value(&self, name: &str) -> Option<ValueId> {
        match self.op.arg(name)? {
            Arg::Value(v) => Some(*v),
            Arg::List(v) => v.first().copied().filter(|_| v.len() == 1),
            Arg::Const(_) => None,
        }
    }

    /// The values of a list argument.
    pub(super) fn values(&self, name: &str) -> Vec<ValueId> {
        match self.op.arg(name) {
            Some(Arg::Value(v)) => vec![*v],
            Some(Arg::List(v)) => v.clone(),
            _ => Vec::new(),
        }
    }

    /// The constant behind an argument or attribute.
    pub(super) fn constant(&self, name: &str) -> Option<&'a Constant> {
        self.context.constant(name)
    }

    pub(super) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.context.ints(name).map_err(|e| invalid(&e))
    }

    pub(super) fn ints_if(&self, name: &str) -> Result<Option<Vec<i64>>> {
        if self.context.def.param(name).is_none() {
            return Ok(None);
        }
        self.context.ints_if(name).map_err(|e| invalid(&e))
    }

    pub(super) fn int(&self, name: &str) -> Result<i64> {
        self.context.int(name).map_err(|e| invalid(&e))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        self.context.flag(name).map_err(|e| invalid(&e))
    }

    pub(super) fn text(&self, name: &str) -> Result<String> {
        self.context.text(name).map_err(|e| invalid(&e))
    }

    pub(super) fn axis(&self, name: &str, rank: usize) -> Result<usize> {
        self.context.axis(name, rank).map_err(|e| invalid(&e))
    }

    pub(super) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        self.context.normal_axes(axes, rank).map_err(|e| invalid(&e))
    }

    /// A compile-time float, or its default as the element type of `like` holds it.
    pub(super) fn float(&self, name: &str, like: DataType) -> Result<f32> {
        if let Some(constant) = self.constant(name) {
            return floats(constant, self.context.weights)
                .and_then(|v| v.first().copied())
                .ok_or_else(|| self.unsupported(format!("argument `{name}` has no usable value")));
        }
        let default = match self.context.def.param(name).map(|p| p.presence) {
            Some(Presence::Default(literal)) => literal.constant(like).as_f32(),
            _ => None,
        };
        default.ok_or_else(|| self.unsupported(format!("argument `{name}` must be a compile-time constant")))
    }
}

/// The elements of a numeric constant as floats.
pub(super) fn floats(constant: &Constant, weights: &Weights) -> Option<Vec<f32>> {
    let bytes = constant.bytes(weights)?;
    let ty = constant.ty();
    let count = ty.elements()?;
    let values: Vec<f32> = match ty.dtype()? {
        DataType::Fp16 => {
            bytes.chunks_exact(2).map(|b| ferrane_host::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
        }
        DataType::Fp32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        dtype if dtype.bytes().is_none() => {
            let bits = dtype.bits()?;
            let signed = dtype == DataType::Int4;
            (0..count).map(|i| packed(bytes, bits, signed, i)).collect::<Option<_>>()?
        }
        dtype => {
            let inline = Constant::Tensor {
                ty: ferrane_mil::Type::tensor(dtype, &[count]),
                payload: Payload::Bytes(std::sync::Arc::from(bytes)),
            };
            inline.as_ints()?.into_iter().map(|v| v as f32).collect()
        }
    };
    (values.len() == count).then_some(values)
}

/// Element `i` of a tensor of elements of less than a byte (weight-blob §6): bits from the least significant on.
pub(super) fn packed(bytes: &[u8], bits: usize, signed: bool, i: usize) -> Option<f32> {
    let at = i * bits;
    let low = u32::from(*bytes.get(at / 8)?);
    let high = if at % 8 + bits > 8 { u32::from(*bytes.get(at / 8 + 1)?) } else { 0 };
    let value = ((low | high << 8) >> (at % 8)) & ((1 << bits) - 1);
    let wrapped = if signed && value >> (bits - 1) == 1 { value as i32 - (1 << bits) } else { value as i32 };
    Some(wrapped as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_elements_are_packed_from_the_lowest_bit() {
        // weight-blob §6.
        let bytes = [0x98, 0x0f, 0x61, 0x07];
        let found: Vec<f32> = (0..7).filter_map(|i| packed(&bytes, 4, true, i)).collect();
        assert_eq!(found, [-8.0, -7.0, -1.0, 0.0, 1.0, 6.0, 7.0]);
        // Three bits cross bytes: 1, 2, 3 are 0b011_010_001.
        assert_eq!((0..3).filter_map(|i| packed(&[0b1101_0001, 0], 3, false, i)).collect::<Vec<_>>(), [1.0, 2.0, 3.0]);
        assert_eq!(packed(&bytes, 4, true, 8), None);
    }
}
