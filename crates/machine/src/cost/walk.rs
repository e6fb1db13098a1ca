//! The demands of a function's ops, in order. Views, constants and fused ops have none.
//!
//! Sizes come from types alone, so any program with known shapes can be walked. An unknown shape or
//! a nested block is an error, because the time then depends on the inputs.
//! given.

use std::collections::HashMap;

use ferrane_mil::{Arg, Constant, Function, Op, Type, ValueDef, ValueId};

use crate::select::{Unit, Work};

use super::demand::{Demand, DemandKind};

/// An op with its demand.
#[derive(Clone, Debug, PartialEq)]
pub struct OpDemand {
    /// The name of the op's first result.
    pub name: String,
    /// The name of the op, as in MIL.
    pub op: String,
    /// The demand; `None` for a view, a constant, or an op that its producer carries out.
    pub demand: Option<Demand>,
}

/// Why the time of a program cannot be predicted.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum CostError {
    /// The program has no function.
    #[error("the program has no function")]
    Empty,
    /// The size of a value is not known before the program runs.
    #[error("`{value}` has no fixed size: {ty}; give its extents to predict its time")]
    UnknownShape {
        /// The name of the value.
        value: String,
        /// The type of the value.
        ty: String,
    },
    /// The time of an op depends on values.
    #[error("`{value}`: the time of `{op}` depends on the program's inputs")]
    ControlFlow {
        /// The name of the op's first result.
        value: String,
        /// The name of the op, as in MIL.
        op: String,
    },
    /// The amount of work overflows.
    #[error("`{value}`: the work of `{op}` is too large to count")]
    TooLarge {
        /// The name of the op's first result.
        value: String,
        /// The name of the op, as in MIL.
        op: String,
    },
}

/// Ops that only rename axes, or whose result is known before the program runs.
const VIEWS: [&str; 7] = ["reshape", "reshape_like", "expand_dims", "squeeze", "flatten2d", "identity", "shape"];

/// Ops that read only the part of their operand that they return.
const PARTS: [&str; 9] = [
    "slice_by_index",
    "slice_by_size",
    "split",
    "gather",
    "gather_along_axis",
    "gather_nd",
    "crop",
    "sliding_windows",
    "non_zero",
];

/// Ops that the producer of their operand carries out if nothing else reads it (benchmarks §15.3,
/// and the compiler's fusion of batch norm, bias and quantization into a convolution).
const FUSED: [&str; 15] = [
    "relu",
    "relu6",
    "leaky_relu",
    "clamped_relu",
    "thresholded_relu",
    "prelu",
    "clip",
    "tanh",
    "scaled_tanh",
    "sigmoid",
    "gelu",
    "silu",
    "batch_norm",
    "quantize",
    "dequantize",
];

/// The demands of a function's ops for a compiler family such as `h13`, which decides whether
/// compressed weights are streamed.
///
/// # Errors
/// A value of unknown size, nested blocks, sizes that overflow, or an op without its operands.
pub fn demands(function: &Function, family: &str) -> Result<Vec<OpDemand>, CostError> {
    let mut walk = Walk { function, family, constants: HashMap::new(), uses: uses(function), arrays: HashMap::new() };
    function.body().ops.iter().map(|id| walk.item(function.op(*id))).collect()
}

/// The number of reads of each value.
fn uses(function: &Function) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    for id in &function.body().ops {
        for value in function.op(*id).operands() {
            *uses.entry(value).or_default() += 1;
        }
    }
    for value in &function.body().outputs {
        *uses.entry(*value).or_default() += 1;
    }
    uses
}

/// A value that is computed before the program runs.
#[derive(Clone, Copy)]
struct Stored {
    /// Its size at run time, in bytes.
    bytes: u64,
    /// True if its elements are int8.
    int8: bool,
}

struct Walk<'a> {
    function: &'a Function,
    family: &'a str,
    constants: HashMap<ValueId, Stored>,
    uses: HashMap<ValueId, usize>,
    /// Results of the array and of ops fused into it; true if they are int8 codes, or were before
    /// they were dequantized.
    arrays: HashMap<ValueId, bool>,
}

/// True if the family's engine streams this form of compressed weights (int8 §3); otherwise they
/// are fp16 in memory.
fn streams(op: &str, family: &str) -> bool {
    match op {
        "constexpr_lut_to_dense" | "constexpr_sparse_to_dense" | "constexpr_lut_to_sparse" => true,
        "constexpr_affine_dequantize" => family >= "h14",
        "constexpr_blockwise_shift_scale" | "constexpr_sparse_blockwise_shift_scale" => family >= "h15",
        _ => false,
    }
}

impl Walk<'_> {
    fn item(&mut self, op: &Op) -> Result<OpDemand, CostError> {
        let name = op.outputs.first().map_or_else(String::new, |v| self.function.value(*v).name.clone());
        let demand = self.demand(op, &name)?;
        Ok(OpDemand { name, op: op.name.clone(), demand })
    }

    fn demand(&mut self, op: &Op, name: &str) -> Result<Option<Demand>, CostError> {
        if !op.blocks.is_empty() {
            return Err(CostError::ControlFlow { value: name.to_string(), op: op.name.clone() });
        }
        if op.name == "const" || op.name.starts_with("constexpr_") {
            self.constant(op)?;
            return Ok(None);
        }
        let known = |v: &ValueId| self.constants.contains_key(v);
        if op.operands().next().is_some() && op.operands().all(|v| known(&v)) && op.name != "read_state" {
            // The compiler computes it once.
            let int8 = op.operands().any(|v| self.constants.get(&v).is_some_and(|c| c.int8)) && op.name == "dequantize";
            for v in &op.outputs {
                let bytes = self.bytes(*v)?;
                let bytes = if int8 && self.family >= "h14" { bytes / 2 } else { bytes };
                self.constants.insert(*v, Stored { bytes, int8 });
            }
            return Ok(None);
        }
        if self.is_free(op) {
            self.pass(op, false);
            return Ok(None);
        }
        if self.is_fused(op) {
            self.pass(op, op.name == "quantize");
            return Ok(None);
        }
        let demand = match Unit::of(self.function, op) {
            Unit::Host => Demand { kind: DemandKind::Host, ..self.planar(op)? },
            _ if op.name == "scaled_dot_product_attention" => self.attention(op, name)?,
            Unit::Mac => self.array(op, name)?,
            _ => self.planar(op)?,
        };
        if matches!(demand.kind, DemandKind::Array | DemandKind::Product) {
            self.arrays.extend(op.outputs.iter().map(|v| (*v, false)));
        }
        Ok(Some(demand))
    }

    /// Propagates the properties of the operand through a view or a fused op.
    fn pass(&mut self, op: &Op, codes: bool) {
        let Some(from) = first(op) else { return };
        if let Some(&int8) = self.arrays.get(&from) {
            self.arrays.extend(op.outputs.iter().map(|v| (*v, int8 || codes)));
        }
    }

    fn constant(&mut self, op: &Op) -> Result<(), CostError> {
        let attributes = op.attributes.iter().filter(|(n, _)| n != "name").map(|(_, c)| c);
        let inline = op.args.iter().filter_map(|(_, a)| if let Arg::Const(c) = a { Some(c) } else { None });
        let literal: Vec<Type> = attributes.chain(inline).map(Constant::ty).collect();
        let stored: u64 = literal.iter().filter_map(|t| t.bytes()).map(|b| b as u64).fold(0, u64::saturating_add);
        let named: u64 =
            op.operands().filter_map(|v| self.constants.get(&v)).map(|c| c.bytes).fold(0, u64::saturating_add);
        let types = literal.iter().chain(op.operands().map(|v| &self.function.value(v).ty));
        let codes = types.filter_map(Type::dtype).any(|d| d.is_int() && d.bits() == Some(8));
        for v in &op.outputs {
            let ty = &self.function.value(*v).ty;
            // A constant that is not a tensor (a string, a list of names) has no size at run time.
            let whole = ty.bytes().unwrap_or(0) as u64;
            let bytes = if streams(&op.name, self.family) { stored.saturating_add(named) } else { whole };
            let int8 = codes && (op.name.contains("affine") || op.name.contains("blockwise"))
                || (op.name == "const" && ty.dtype().is_some_and(|d| d.is_int() && d.bits() == Some(8)));
            self.constants.insert(*v, Stored { bytes, int8 });
        }
        Ok(())
    }

    fn is_free(&self, op: &Op) -> bool {
        // The labels of a classifier are put on by the framework, after the program.
        if VIEWS.contains(&op.name.as_str()) || op.name == ferrane_mil::op::CLASSIFY {
            return true;
        }
        let input = |v| matches!(self.function.value(v).def, ValueDef::Input(_));
        let output = |v| self.function.body().outputs.contains(v);
        op.name == "cast" && (first(op).is_some_and(input) || op.outputs.iter().any(output))
    }

    /// True if the producer of the op's operand carries out the op.
    fn is_fused(&self, op: &Op) -> bool {
        let scalar = |arg: Option<&Arg>| match arg {
            Some(Arg::Const(c)) => c.ty().elements() == Some(1),
            Some(Arg::Value(v)) => self.constants.contains_key(v) && self.function.value(*v).ty.elements() == Some(1),
            _ => false,
        };
        let from = match op.name.as_str() {
            "mul" | "add" | "sub" | "real_div" => match (op.arg("x"), op.arg("y")) {
                (Some(Arg::Value(x)), y) if scalar(y) => *x,
                (x, Some(Arg::Value(y))) if scalar(x) => *y,
                _ => return false,
            },
            name if FUSED.contains(&name) => match first(op) {
                Some(from) => from,
                None => return false,
            },
            _ => return false,
        };
        self.arrays.contains_key(&from) && self.uses.get(&from) == Some(&1)
    }

    fn bytes(&self, value: ValueId) -> Result<u64, CostError> {
        let v = self.function.value(value);
        let unknown = || CostError::UnknownShape { value: v.name.clone(), ty: v.ty.to_string() };
        v.ty.bytes().map(|b| b as u64).ok_or_else(unknown)
    }

    fn elements(&self, value: ValueId) -> Result<u64, CostError> {
        self.bytes(value)?;
        Ok(self.function.value(value).ty.elements().unwrap_or(0) as u64)
    }

    fn shape(&self, value: ValueId) -> Result<Vec<u64>, CostError> {
        self.bytes(value)?;
        Ok(self.function.value(value).ty.shape().unwrap_or_default().into_iter().map(|d| d as u64).collect())
    }

    fn written(&self, op: &Op) -> Result<u64, CostError> {
        op.outputs.iter().try_fold(0u64, |n, v| Ok(n.saturating_add(self.bytes(*v)?)))
    }

    /// Bytes of the operands: those computed at run time, and those known before.
    fn read(&self, op: &Op) -> Result<(u64, u64), CostError> {
        let (mut made, mut known) = (0u64, 0u64);
        for value in op.operands() {
            match self.constants.get(&value) {
                Some(c) => known = known.saturating_add(c.bytes),
                None => made = made.saturating_add(self.bytes(value)?),
            }
        }
        for (_, arg) in &op.args {
            if let Arg::Const(c) = arg {
                known = known.saturating_add(c.ty().bytes().unwrap_or(0) as u64);
            }
        }
        Ok((made, known))
    }

    fn planar(&self, op: &Op) -> Result<Demand, CostError> {
        let written = self.written(op)?;
        if PARTS.contains(&op.name.as_str()) {
            return Ok(Demand::planar(0, written, written));
        }
        let (made, known) = self.read(op)?;
        let largest = op.operands().chain(op.outputs.iter().copied()).map(|v| self.elements(v));
        let flops = largest.filter_map(Result::ok).max().unwrap_or(0);
        Ok(Demand::planar(flops, made.saturating_add(known), written))
    }

    /// The demand of a product or a convolution, with runtime or constant weights.
    fn array(&self, op: &Op, name: &str) -> Result<Demand, CostError> {
        let (bytes_in, weights) = self.read(op)?;
        let bytes_out = self.written(op)?;
        let too_large = || CostError::TooLarge { value: name.to_string(), op: op.name.clone() };
        // A saturated count is too large.
        let flops = Work::of(self.function, op, Unit::Mac).macs.checked_mul(2).ok_or_else(too_large)?;
        let weight = self.function.arg_value(op, "weight");
        let constant = weight.is_some_and(|w| self.constants.contains_key(&w));
        let row = match weight {
            Some(w) => self.shape(w)?.iter().skip(1).fold(1u64, |n, d| n.saturating_mul(*d)),
            None => 0,
        };
        let codes = first(op).and_then(|v| self.arrays.get(&v)).copied().unwrap_or(false);
        let int8 = codes && weight.and_then(|w| self.constants.get(&w)).is_some_and(|c| c.int8);
        let kind = if constant { DemandKind::Array } else { DemandKind::Product };
        Ok(Demand { kind, flops, weights, bytes_in, bytes_out, inner: 0, row, int8 })
    }

    /// The demand of attention: two products with the scores between them.
    fn attention(&self, op: &Op, name: &str) -> Result<Demand, CostError> {
        let demand = self.array(op, name)?;
        let shape = |arg| self.function.arg_value(op, arg).map_or(Ok(Vec::new()), |v| self.shape(v));
        let (query, key) = (shape("query")?, shape("key")?);
        let keys = key.iter().rev().nth(1).copied().unwrap_or(0);
        let rows = query.split_last().map_or(0, |(_, rows)| rows.iter().fold(1u64, |n, d| n.saturating_mul(*d)));
        // fp16 scores: written by the first product, read and written by the softmax, read by the
        // second.
        Ok(Demand { inner: rows.saturating_mul(keys).saturating_mul(8), ..demand })
    }
}

/// The first operand, if it is a value.
fn first(op: &Op) -> Option<ValueId> {
    op.arg("x").or_else(|| op.arg("input")).map_or_else(
        || op.operands().next(),
        |arg| match arg {
            Arg::Value(v) => Some(*v),
            Arg::List(vs) => vs.first().copied(),
            Arg::Const(_) => None,
        },
    )
}

#[cfg(test)]
mod tests {
    use ferrane_mil::{Program, Weights, parse};

    use super::*;

    fn items(body: &str, inputs: &str, out: &str) -> Result<Vec<OpDemand>, CostError> {
        let text = format!(
            "program(1.3)\n[buildInfo = dict<string, string>({{}})]\n{{\n    func main<ios18>({inputs}) {{\n{body}\n    }} -> ({out});\n}}\n"
        );
        let program: Program = parse(text.as_bytes(), &Weights::new()).unwrap_or_else(|e| panic!("{e}"));
        demands(program.function("main").unwrap(), "h16")
    }

    fn demand(body: &str, inputs: &str) -> Demand {
        items(body, inputs, "y").unwrap().into_iter().find_map(|i| i.demand).unwrap()
    }

    #[test]
    fn products_count_their_inner_axis() {
        let body = "bool t = const()[name = string(\"t\"), val = bool(true)];\nbool f = const()[name = string(\"f\"), val = bool(false)];\n\
            tensor<fp16, [3, 4, 6]> y = matmul(x = a, y = b, transpose_x = t, transpose_y = f)[name = string(\"y\")];";
        let w = demand(body, "tensor<fp16, [3, 5, 4]> a, tensor<fp16, [3, 5, 6]> b");
        assert_eq!((w.kind, w.flops), (DemandKind::Product, 2 * 3 * 4 * 6 * 5));
        // Two bytes for each element of a and b, and the flags.
        assert_eq!((w.bytes_in, w.bytes_out), (2 * (60 + 90), 2 * 72));
        let body = "string e = const()[name = string(\"e\"), val = string(\"chw,whr->chr\")];\n\
            tensor<fp16, [3, 4, 6]> y = einsum(equation = e, values = (a, b))[name = string(\"y\")];";
        assert_eq!(demand(body, "tensor<fp16, [3, 4, 5]> a, tensor<fp16, [5, 4, 6]> b").flops, 2 * 3 * 4 * 5 * 6);
    }

    #[test]
    fn attention_writes_its_scores_between_two_products() {
        let body = "tensor<fp16, [1, 4, 8, 16]> y = scaled_dot_product_attention(query = q, key = k, value = v)[name = string(\"y\")];";
        let inputs = "tensor<fp16, [1, 4, 8, 16]> q, tensor<fp16, [1, 4, 32, 16]> k, tensor<fp16, [1, 4, 32, 16]> v";
        let w = demand(body, inputs);
        assert_eq!((w.flops, w.inner), (2 * 4 * 8 * 32 * (16 + 16), 4 * 8 * 32 * 8));
    }

    #[test]
    fn a_slice_reads_what_it_returns_and_a_reshape_nothing() {
        let body = ["b", "s", "r"].iter().zip(["0, 0", "4, 8", "8, 4"]).map(|(n, v)| {
            format!("tensor<int32, [2]> {n} = const()[name = string(\"{n}\"), val = tensor<int32, [2]>([{v}])];\n")
        });
        let body = body.collect::<String>()
            + "tensor<fp16, [4, 8]> p = slice_by_size(x = x, begin = b, size = s)[name = string(\"p\")];\n\
               tensor<fp16, [8, 4]> y = reshape(x = p, shape = r)[name = string(\"y\")];";
        let items = items(&body, "tensor<fp16, [400, 800]> x", "y").unwrap();
        let found: Vec<_> = items.iter().filter_map(|i| i.demand).collect();
        assert_eq!(found, [Demand::planar(0, 64, 64)]);
    }

    #[test]
    fn int8_on_both_sides_is_told_from_int8_weights() {
        let quantized = |op: &str, from: &str| {
            format!(
                "fp16 s{op} = const()[name = string(\"s{op}\"), val = fp16(0.125)];\nstring d{op} = const()[name = string(\"d{op}\"), val = string(\"int8\")];\n\
                 tensor<int8, [1, 8, 4, 4]> q{op} = quantize(input = {from}, output_dtype = d{op}, scale = s{op})[name = string(\"q{op}\")];\n\
                 tensor<fp16, [1, 8, 4, 4]> {op} = dequantize(input = q{op}, scale = s{op})[name = string(\"{op}\")];\n"
            )
        };
        let weight = |n: usize| {
            let codes = vec!["1"; 64].join(", ");
            format!(
                "fp16 ws{n} = const()[name = string(\"ws{n}\"), val = fp16(0.125)];\n\
                 tensor<int8, [8, 8, 1, 1]> wc{n} = const()[name = string(\"wc{n}\"), val = tensor<int8, [8, 8, 1, 1]>([{codes}])];\n\
                 tensor<fp16, [8, 8, 1, 1]> w{n} = dequantize(input = wc{n}, scale = ws{n})[name = string(\"w{n}\")];\n"
            )
        };
        let conv = |y: &str, x: &str, n: usize| {
            format!("tensor<fp16, [1, 8, 4, 4]> {y} = conv(x = {x}, weight = w{n})[name = string(\"{y}\")];\n")
        };
        let body = weight(0) + &weight(1) + &conv("a", "x", 0) + &quantized("b", "a") + &conv("y", "b", 1);
        let items = items(&body, "tensor<fp16, [1, 8, 4, 4]> x", "y").unwrap();
        let found: Vec<_> = items.iter().filter_map(|i| i.demand).collect();
        // The quantize and dequantize pair between the convolutions is fused into the first; its
        // codes meet int8 weights in the second.
        assert_eq!(found.iter().map(|w| w.int8).collect::<Vec<_>>(), [false, true]);
        assert!(found.iter().all(|w| w.weights == 64 && w.flops == 2 * 8 * 8 * 16 && w.kind == DemandKind::Array));
    }

    #[test]
    fn compressed_weights_are_streamed_where_the_family_does() {
        assert!(!streams("constexpr_affine_dequantize", "h13") && streams("constexpr_affine_dequantize", "h14"));
        assert!(
            !streams("constexpr_blockwise_shift_scale", "h14") && streams("constexpr_blockwise_shift_scale", "h15")
        );
        assert!(streams("constexpr_lut_to_dense", "h13") && !streams("constexpr_cast", "h17"));
    }

    #[test]
    fn a_value_of_unknown_size_is_an_error() {
        let unknown = items("tensor<fp16, [?]> y = relu(x = x)[name = string(\"y\")];", "tensor<fp16, [?]> x", "y");
        assert!(matches!(unknown, Err(CostError::UnknownShape { value, .. }) if value == "y" || value == "x"));
    }
}
