//! Lowers the element-wise ops of MIL to instructions.

use ferrane_device::Result;
use ferrane_mil::{Arg, DataType, Op, ValueId};

use super::args::{Args, floats};
use super::build::Lowering;
use super::member::MemberOperand;
use crate::ir::{Binary, Compare, Elementwise, IntUnary, Unary};

const UNARY: [&str; 40] = [
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "round",
    "exp",
    "exp2",
    "sqrt",
    "erf",
    "sin",
    "cos",
    "atan",
    "tan",
    "asin",
    "acos",
    "sinh",
    "cosh",
    "atanh",
    "log",
    "rsqrt",
    "inverse",
    "clip",
    "threshold",
    "sigmoid",
    "relu",
    "relu6",
    "tanh",
    "silu",
    "softplus",
    "softsign",
    "leaky_relu",
    "elu",
    "thresholded_relu",
    "clamped_relu",
    "linear_activation",
    "scaled_tanh",
    "sigmoid_hard",
    "gelu",
    "logical_not",
];

fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        "add" => Binary::Add,
        "sub" => Binary::Sub,
        "mul" => Binary::Mul,
        "real_div" => Binary::Div,
        "floor_div" => Binary::FloorDiv,
        "mod" => Binary::Mod,
        "pow" => Binary::Pow,
        "maximum" => Binary::Max,
        "minimum" => Binary::Min,
        _ => return None,
    })
}

fn compare(name: &str) -> Option<Compare> {
    Some(match name {
        "equal" => Compare::Equal,
        "not_equal" => Compare::NotEqual,
        "less" => Compare::Less,
        "less_equal" => Compare::LessEqual,
        "greater" => Compare::Greater,
        "greater_equal" => Compare::GreaterEqual,
        _ => return None,
    })
}

fn logical(name: &str) -> Option<Elementwise> {
    Some(match name {
        "logical_and" => Elementwise::And,
        "logical_or" => Elementwise::Or,
        "logical_xor" => Elementwise::Xor,
        _ => return None,
    })
}

/// True for ops that become members of groups.
pub(super) fn is_elementwise(name: &str) -> bool {
    UNARY.contains(&name)
        || binary(name).is_some()
        || compare(name).is_some()
        || logical(name).is_some()
        || matches!(name, "select" | "cast" | "quantize" | "dequantize" | "batch_norm")
}

/// True if the result is an fp16 value whenever the operands are.
fn keeps_grid(op: Elementwise) -> bool {
    match op {
        Elementwise::Unary(f) => f.exact(),
        Elementwise::Binary(f) => matches!(f, Binary::Max | Binary::Min),
        Elementwise::Select => true,
        _ => false,
    }
}

impl<'a> Lowering<'a> {
    /// Lowers an element-wise op.
    pub(super) fn elementwise(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        let name = op.name.as_str();
        match name {
            "cast" => return self.cast(op, args, y),
            "quantize" | "dequantize" => return self.quantization(op, args, y),
            "batch_norm" => return self.batch_norm(op, args, y),
            "select" => {
                let operands =
                    [self.source(op, args, "cond")?, self.source(op, args, "a")?, self.source(op, args, "b")?];
                return self.member(y, Elementwise::Select, &operands, false);
            }
            _ => {}
        }
        if UNARY.contains(&name) {
            let x = self.source(op, args, "x")?;
            let dtype = self.dtype(y)?;
            let instruction = self.unary(name, args, dtype)?;
            let round = self.policy.rounds(dtype) && !keeps_grid(instruction);
            return self.member(y, instruction, &[x], round);
        }
        let operands = [self.source(op, args, "x")?, self.source(op, args, "y")?];
        let dtype = match op.arg("x") {
            Some(Arg::Const(c)) => c.ty().dtype().unwrap_or(DataType::Fp32),
            _ => args.value("x").map_or(Ok(DataType::Fp32), |v| self.dtype(v))?,
        };
        let float = dtype.is_float();
        let instruction = match (binary(name), compare(name), logical(name)) {
            (Some(f), ..) if float => Elementwise::Binary(f),
            (Some(f), ..) => Elementwise::IntBinary(f),
            (_, Some(f), _) if float => Elementwise::Compare(f),
            (_, Some(f), _) => Elementwise::IntCompare(f),
            (.., Some(f)) => f,
            _ => return Err(args.unsupported("is not implemented by the emulator")),
        };
        let round = self.policy.rounds(self.dtype(y)?) && !keeps_grid(instruction);
        self.member(y, instruction, &operands, round)
    }

    /// An operand: a value or an inline literal.
    fn source(&mut self, op: &'a Op, args: &Args<'a>, name: &str) -> Result<MemberOperand> {
        if let Some(operand) = self.other_scale(op, name)? {
            return Ok(operand);
        }
        match args.value(name) {
            Some(value) => Ok(MemberOperand::Value(value)),
            None => Ok(MemberOperand::View(self.operand(args, op, name)?)),
        }
    }

    fn unary(&self, name: &str, args: &Args<'a>, dtype: DataType) -> Result<Elementwise> {
        if name == "logical_not" {
            return Ok(Elementwise::Not);
        }
        if !dtype.is_float() {
            return Ok(Elementwise::IntUnary(match name {
                "abs" => IntUnary::Abs,
                "sign" => IntUnary::Sign,
                "square" => IntUnary::Square,
                "floor" | "ceil" | "round" => IntUnary::Identity,
                "relu" => IntUnary::Relu,
                "exp2" => IntUnary::Exp2,
                _ => return Err(args.unsupported(format!("has no form for {dtype}"))),
            }));
        }
        let f = |n: &str| args.float(n, dtype);
        Ok(Elementwise::Unary(match name {
            "abs" => Unary::Abs,
            "sign" => Unary::Sign,
            "square" => Unary::Square,
            "floor" => Unary::Floor,
            "ceil" => Unary::Ceil,
            "round" => Unary::Round,
            "exp" => Unary::Exp,
            "exp2" => Unary::Exp2,
            "sqrt" => Unary::Sqrt,
            "erf" => Unary::Erf,
            "sin" => Unary::Sin,
            "cos" => Unary::Cos,
            "atan" => Unary::Atan,
            "tan" => Unary::Tan,
            "asin" => Unary::Asin,
            "acos" => Unary::Acos,
            "sinh" => Unary::Sinh,
            "cosh" => Unary::Cosh,
            "atanh" => Unary::Atanh,
            "log" => Unary::Log(f("epsilon")?),
            "rsqrt" => Unary::Rsqrt(f("epsilon")?),
            "inverse" => Unary::Inverse(f("epsilon")?),
            "clip" => Unary::Clip(f("alpha")?, f("beta")?),
            "threshold" => Unary::Threshold(f("alpha")?),
            "sigmoid" => Unary::Sigmoid,
            "relu" => Unary::Relu,
            "relu6" => Unary::Relu6,
            "tanh" => Unary::Tanh,
            "silu" => Unary::Silu,
            "softplus" => Unary::Softplus,
            "softsign" => Unary::Softsign,
            "leaky_relu" => Unary::LeakyRelu(f("alpha")?),
            "elu" => Unary::Elu(f("alpha")?),
            "thresholded_relu" => Unary::ThresholdedRelu(f("alpha")?),
            "clamped_relu" => Unary::ClampedRelu(f("alpha")?, f("beta")?),
            "linear_activation" => Unary::Linear(f("alpha")?, f("beta")?),
            "scaled_tanh" => Unary::ScaledTanh(f("alpha")?, f("beta")?),
            "sigmoid_hard" => Unary::SigmoidHard(f("alpha")?, f("beta")?),
            "gelu" => match args.text("mode")?.as_str() {
                "TANH_APPROXIMATION" => Unary::GeluTanh,
                "SIGMOID_APPROXIMATION" => Unary::GeluSigmoid,
                _ => Unary::GeluExact,
            },
            _ => return Err(args.unsupported("is not implemented by the emulator")),
        }))
    }

    fn cast(&mut self, op: &'a Op, args: &Args<'a>, y: ValueId) -> Result<()> {
        let x = self.source(op, args, "x")?;
        let from = match (&x, op.arg("x")) {
            (MemberOperand::Value(v), _) => self.dtype(*v)?,
            (_, Some(Arg::Const(c))) => c.ty().dtype().unwrap_or(DataType::Fp32),
            _ => DataType::Fp32,
        };
        let to = self.dtype(y)?;
        if let (MemberOperand::Value(v), DataType::Int8, true) = (&x, from, self.is_factor(y))
            && to.is_float()
        {
            // Products take int8 operands directly, and every float type can hold every int8.
            let codes = self.view(*v)?;
            return self.settle(y, codes);
        }
        if (from == DataType::UInt32) != (to == DataType::UInt32) {
            return Err(args.unsupported(format!("from {from} to {to} is not implemented by the emulator")));
        }
        let range = |dtype: DataType| match dtype {
            DataType::Int8 => (-128, 127),
            DataType::UInt8 => (0, 255),
            DataType::Int16 => (-32768, 32767),
            DataType::UInt16 => (0, 65535),
            _ => (i32::MIN, i32::MAX),
        };
        let instruction = match (from.is_float(), to.is_float(), to) {
            (true, true, _) => Elementwise::Unary(Unary::Identity),
            (true, false, DataType::Bool) => Elementwise::FloatToBool,
            (true, false, _) => {
                let (low, high) = range(to);
                Elementwise::FloatToInt(low, high)
            }
            (false, true, _) => Elementwise::IntToFloat,
            (false, false, DataType::Bool) => Elementwise::IntToBool,
            (false, false, _) => {
                let signed = matches!(to, DataType::Int8 | DataType::Int16 | DataType::Int32);
                Elementwise::IntToInt(to.bits().unwrap_or(32) as u8, signed)
            }
        };
        // An fp16 value needs no rounding; other values are rounded here.
        let round = self.policy.rounds(to) && from != DataType::Fp16;
        self.member(y, instruction, &[x], round)
    }

    /// True if every reader of a value is a product that multiplies by it, and no machine's rules
    /// apply.
    fn is_factor(&self, value: ValueId) -> bool {
        let body = self.function.body();
        let reads = |op: &Op| op.operands().filter(|v| *v == value).count();
        let factor = |op: &Op| match (op.name.as_str(), op.arg("y")) {
            ("matmul", Some(Arg::Value(y))) => usize::from(*y == value),
            _ => 0,
        };
        let ops = || body.ops.iter().map(|&id| self.function.op(id)).filter(|op| self.is_needed(op));
        self.policy.rules.is_none()
            && self.homes[value.index()].is_none()
            && !body.outputs.contains(&value)
            && ops().map(reads).sum::<usize>() == ops().map(factor).sum::<usize>()
    }

    /// `scale` or `zero_point`, as fp32 along `axis` of a tensor of that rank, or a scalar.
    fn per_axis(&mut self, args: &Args<'a>, name: &str, rank: usize, default: f32) -> Result<MemberOperand> {
        if !args.has(name) {
            return Ok(MemberOperand::float(default));
        }
        let values = args
            .constant(name)
            .and_then(|c| floats(c, self.weights))
            .ok_or_else(|| args.unsupported(format!("argument `{name}` must be a compile-time constant")))?;
        if let [one] = values.as_slice() {
            return Ok(MemberOperand::float(*one));
        }
        let axis = args.axis("axis", rank)?;
        let mut shape = vec![1; rank];
        shape[axis] = values.len();
        Ok(MemberOperand::View(self.constant_floats(&shape, &values)))
    }

    fn quantization(&mut self, op: &'a Op, args: &Args<'a>, y: ValueId) -> Result<()> {
        if let Some(codes) = args.value("input").filter(|x| op.name == "dequantize" && self.multiplied[x.index()]) {
            // Codes that a product reads come from memory here too: the step that makes them may
            // then be joined with the one before it.
            self.view(codes)?;
        }
        let x = self.source(op, args, "input")?;
        let rank = self.shape(y)?.len();
        let scale = self.per_axis(args, "scale", rank, 1.0)?;
        let zero = self.per_axis(args, "zero_point", rank, 0.0)?;
        if op.name == "quantize" {
            let (low, high) = if self.dtype(y)? == DataType::Int8 { (-128, 127) } else { (0, 255) };
            return self.member(y, Elementwise::Quantize(low, high), &[x, scale, zero], false);
        }
        // Integers are converted to floats by the subtraction; fp32 holds both exactly.
        let round = self.policy.rounds(self.dtype(y)?);
        self.member(y, Elementwise::Dequantize, &[x, scale, zero], round)
    }

    /// Folds the op to one multiply-add for each channel.
    fn batch_norm(&mut self, op: &'a Op, args: &Args<'a>, y: ValueId) -> Result<()> {
        let x = self.source(op, args, "x")?;
        let shape = self.shape(y)?;
        let channels = shape[1];
        let read = |name: &str, default: f32| -> Result<Vec<f32>> {
            if !args.has(name) {
                return Ok(vec![default; channels]);
            }
            args.constant(name)
                .and_then(|c| floats(c, self.weights))
                .filter(|v| v.len() == channels)
                .ok_or_else(|| args.unsupported(format!("argument `{name}` must be a constant vector of {channels}")))
        };
        let (mean, variance) = (read("mean", 0.0)?, read("variance", 1.0)?);
        let (gamma, beta) = (read("gamma", 1.0)?, read("beta", 0.0)?);
        let dtype = self.dtype(y)?;
        let epsilon = f64::from(args.float("epsilon", dtype)?);
        let factor = |c: usize| f64::from(gamma[c]) / (f64::from(variance[c]) + epsilon).sqrt();
        let scale: Vec<f32> = (0..channels).map(|c| factor(c) as f32).collect();
        let shift: Vec<f32> =
            (0..channels).map(|c| (f64::from(beta[c]) - f64::from(mean[c]) * factor(c)) as f32).collect();
        let mut along = vec![1; shape.len()];
        along[1] = channels;
        let scale = MemberOperand::View(self.constant_floats(&along, &scale));
        let shift = MemberOperand::View(self.constant_floats(&along, &shift));
        self.member(y, Elementwise::MulAdd, &[x, scale, shift], self.policy.rounds(dtype))
    }
}
