//! What a machine does to an op besides rounding it: conversions through other number formats, and
//! defects.
//!
//! Everything here depends on a switch of the policy's rules; without rules, nothing changes.

use ferrane_arith::Rules;
use ferrane_device::Result;
use ferrane_machine::Unit;
use ferrane_mil::{Arg, DataType, Op, ValueDef, ValueId};

use super::args::floats;
use super::build::Lowering;
use super::member::MemberOperand;
use crate::ir::{Elementwise, Group, StepKind, Storage, Unary, View};

impl<'a> Lowering<'a> {
    /// Whether the policy has a machine's rules with this switch on.
    pub(super) fn rule(&self, switch: impl Fn(&Rules) -> bool) -> bool {
        self.policy.rules.is_some_and(switch)
    }

    /// The op that computes a value.
    fn maker(&self, value: Option<ValueId>) -> Option<&'a Op> {
        match self.function.value(value?).def {
            ValueDef::Op(op, _) => Some(self.function.op(op)),
            _ => None,
        }
    }

    /// A slice is a view, unless the machine sends it through its crop (numerics §4).
    pub(super) fn slice(&mut self, op: &'a Op, y: ValueId, view: View) -> Result<()> {
        let crops = self.rule(|rules| rules.slice_crop) && self.dtype(y)? == DataType::Fp16;
        if crops && Unit::of(self.function, op) == Unit::Crop {
            return self.member(y, Elementwise::Unary(Unary::Crop), &[MemberOperand::View(view)], true);
        }
        self.alias(y, &view, Some(view.clone()))
    }

    /// A factor of a product, cropped if the other one is an int8 weight (int8 §3).
    pub(super) fn beside_int8(&mut self, view: View, other: Option<ValueId>) -> Result<View> {
        let is_int8 = |op: &Op| {
            let data = op.attribute("quantized_data").or_else(|| match op.arg("quantized_data").or(op.arg("data"))? {
                Arg::Const(constant) => Some(constant),
                Arg::Value(value) => self.function.constant(*value),
                Arg::List(_) => None,
            });
            let eight =
                data.and_then(|d| d.ty().dtype()).is_some_and(|d| matches!(d, DataType::Int8 | DataType::UInt8));
            op.name.starts_with("constexpr_") && op.name != "constexpr_lut_to_dense" && eight
        };
        let crops = self.rule(|rules| rules.int8_crop) && view.storage == Storage::F16 && !self.is_constant(&view);
        if !crops || !self.maker(other).is_some_and(is_int8) {
            return Ok(view);
        }
        let to = self.fresh(Storage::F16, &view.shape.clone(), None);
        let crop = Group::single(Elementwise::Unary(Unary::Crop), &to, &[&view], true);
        self.push(StepKind::Group(crop), vec![view], vec![to.clone()])?;
        Ok(to)
    }

    /// A factor of an element-wise product that the machine dequantizes with the scale of another
    /// quantization of the same product: of the first factor, or of the result (int8 §2).
    pub(super) fn other_scale(&mut self, op: &'a Op, name: &str) -> Result<Option<MemberOperand>> {
        if op.name != "mul" || !self.rule(|rules| rules.qdq_defect) {
            return Ok(None);
        }
        let value = |name: &str| match op.arg(name) {
            Some(Arg::Value(value)) => Some(*value),
            _ => None,
        };
        let dequantized = |name: &str| self.maker(value(name)).filter(|op| op.name == "dequantize");
        let Some(maker) = dequantized(name) else { return Ok(None) };
        let other = match (name, dequantized("x"), dequantized("y")) {
            ("y", Some(first), _) => Some(first),
            ("x", _, Some(_)) => None,
            _ => self.function.body().ops.iter().map(|&id| self.function.op(id)).find(|reader| {
                reader.name == "quantize" && matches!(reader.arg("input"), Some(Arg::Value(v)) if *v == op.outputs[0])
            }),
        };
        let Some(other) = other else { return Ok(None) };
        let (code, scale) = (self.args(maker)?, self.args(other)?);
        let scale = scale.constant("scale").and_then(|c| floats(c, self.weights));
        let zero = code.constant("zero_point").and_then(|c| floats(c, self.weights)).unwrap_or_else(|| vec![0.0]);
        let (Some([scale]), [zero]) = (scale.as_deref(), &zero[..]) else { return Ok(None) };
        // In memory: see `count_uses`.
        let codes = self.operand(&code, maker, "input")?;
        let to = self.fresh(Storage::F16, &codes.shape.clone(), None);
        let number = |low: &mut Self, v: f32| low.constant_floats(&[], &[v]).broadcast(&codes.shape);
        let reads = [codes.clone(), number(self, *scale), number(self, *zero)];
        let group = Group::single(Elementwise::Dequantize, &to, &[&reads[0], &reads[1], &reads[2]], true);
        self.push(StepKind::Group(group), reads.to_vec(), vec![to.clone()])?;
        Ok(Some(MemberOperand::View(to)))
    }
}
