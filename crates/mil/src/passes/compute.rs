//! Arithmetic on constants through an [`Evaluate`]: a function of constants only, whose ops are
//! computed as they are added.

use crate::eval::Evaluate;
use crate::op;
use crate::ops::{self, InferContext};
use crate::opset::Opset;
use crate::program::{Arg, Constant, DataType, Function, Op, OpId, Value, ValueDef, ValueId};
use crate::weights::Weights;

/// A calculation in progress; each method adds an op and returns its value.
pub(super) struct Compute<'a> {
    evaluate: &'a dyn Evaluate,
    function: Function,
    weights: Weights,
    opset: Opset,
}

impl<'a> Compute<'a> {
    pub(super) fn new(evaluate: &'a dyn Evaluate, opset: Opset, weights: &Weights) -> Compute<'a> {
        Compute { evaluate, function: Function::default(), weights: weights.clone(), opset }
    }

    /// Adds a constant as an operand for later ops.
    pub(super) fn put(&mut self, constant: Constant) -> ValueId {
        let (op, value) = (OpId(self.function.ops.len() as u32), ValueId(self.function.values.len() as u32));
        let (name, ty) = (format!("c{}", value.0), constant.ty());
        self.function.values.push(Value { name, ty, def: ValueDef::Op(op, 0) });
        let attributes = vec![("val".to_string(), constant)];
        let (args, blocks) = (Vec::new(), Vec::new());
        self.function.ops.push(Op {
            name: op::CONST.into(),
            args,
            attributes,
            outputs: vec![value],
            blocks,
            span: None,
        });
        value
    }

    /// The result of an op.
    pub(super) fn op<const N: usize>(&mut self, name: &str, args: [(&str, Arg); N]) -> Option<ValueId> {
        let def = ops::find(name, self.opset)?;
        let args: Vec<(String, Arg)> = args.into_iter().map(|(n, a)| (n.to_string(), a)).collect();
        let context = InferContext {
            function: &self.function,
            weights: &self.weights,
            def,
            args: &args,
            attributes: &[],
            blocks: &[],
        };
        let types = ops::infer(&context).ok()?;
        let [ty] = types.as_slice() else { return None };
        let value = ValueId(self.function.values.len() as u32);
        let def = ValueDef::Op(OpId(self.function.ops.len() as u32), 0);
        self.function.values.push(Value { name: format!("c{}", value.0), ty: ty.clone(), def });
        let (attributes, blocks) = (Vec::new(), Vec::new());
        let op = Op { name: name.into(), args, attributes, outputs: vec![value], blocks, span: None };
        let results = self.evaluate.evaluate(&self.function, &op, self.opset, &self.weights);
        self.function.values.pop();
        let [result] = <[Constant; 1]>::try_from(results.ok()?).ok()?;
        (result.ty() == *ty).then(|| self.put(result))
    }

    /// `x op y`.
    pub(super) fn binary(&mut self, name: &str, x: ValueId, y: ValueId) -> Option<ValueId> {
        self.op(name, [("x", x.into()), ("y", y.into())])
    }

    /// Casts to another element type.
    pub(super) fn cast(&mut self, x: ValueId, dtype: DataType) -> Option<ValueId> {
        match self.function.value(x).ty.dtype() == Some(dtype) {
            true => Some(x),
            false => self.op(op::CAST, [("x", x.into()), ("dtype", Constant::string(dtype.name()).into())]),
        }
    }

    /// Reshapes to other extents.
    pub(super) fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Option<ValueId> {
        let extents: Vec<i32> = shape.iter().map(|&n| i32::try_from(n).ok()).collect::<Option<_>>()?;
        self.op(op::RESHAPE, [("x", x.into()), ("shape", Constant::int32s(&extents).into())])
    }

    /// The value as a constant.
    pub(super) fn take(&self, value: ValueId) -> Option<Constant> {
        self.function.constant(value).cloned()
    }
}

/// A constant with other extents and the same elements: nothing is computed.
pub(super) fn reshaped(constant: &Constant, shape: &[usize]) -> Option<Constant> {
    let Constant::Tensor { ty, payload } = constant else { return None };
    let ty = crate::program::Type::tensor(ty.dtype()?, shape);
    (ty.elements() == constant.ty().elements()).then(|| Constant::Tensor { ty, payload: payload.clone() })
}
