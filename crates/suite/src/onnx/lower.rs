//! The state of a lowering (the builder and the node), and short helpers for what lowerings do
//! often.

use std::collections::HashMap;

use ferrane_mil::{Arg, Builder, Constant, DataType, MilError, Opset, Program, Type, ValueId};
use serde_json::Value;

use super::case::{Case, CaseTensor, Element, Node};
use super::table;

/// Why a case has no program.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// MIL has no op for the operator, or none for this form of it.
    Unmapped(String),
    /// The lowering has a bug, or the registry rejects the ops that it makes.
    Broken(String),
}

impl From<MilError> for Refusal {
    fn from(error: MilError) -> Refusal {
        Refusal::Broken(error.to_string())
    }
}

/// The result of a lowering step.
pub(super) type Built<T = ValueId> = Result<T, Refusal>;

/// A program with the values of its inputs. Output `i` of the program is output `i` of the case.
pub struct Lowered {
    /// The program. Its only function is `main`.
    pub program: Program,
    /// The value of each input, by name.
    pub inputs: Vec<(String, Constant)>,
}

/// The program of a case.
///
/// # Errors
/// See [`Refusal`].
pub fn lower(case: &Case) -> Result<Lowered, Refusal> {
    // Since iOS 17 MIL's non_maximum_suppression has neither a score threshold nor a box count.
    let opset = if case.nodes.iter().any(|n| n.op == "NonMaxSuppression") { Opset::IOS16 } else { Opset::IOS18 };
    let mut l =
        Lower { b: Builder::new("main", opset), case, node: &case.nodes[0], values: HashMap::new(), given: Vec::new() };
    for node in &case.nodes {
        l.node = node;
        let results = match table::find(&node.op) {
            Some(table::OpMapping::Lowered(lowering)) => lowering(&mut l)?,
            Some(table::OpMapping::Not(reason)) => return Err(Refusal::Unmapped(reason.to_string())),
            None if !node.domain.is_empty() => {
                return Err(Refusal::Unmapped(format!("`{}` is not an operator of ai.onnx", node.op)));
            }
            None => return Err(Refusal::Broken(format!("the table has no `{}`", node.op))),
        };
        for (name, value) in node.outputs.iter().zip(results) {
            if let Some(value) = value {
                l.values.insert(name, value);
            }
        }
    }
    let mut outputs = Vec::new();
    for (i, tensor) in case.outputs.iter().enumerate() {
        let value = *l.values.get(tensor.name.as_str()).ok_or_else(|| {
            Refusal::Unmapped(format!("output `{}` of `{}` has no counterpart in MIL", tensor.name, l.node.op))
        })?;
        // Output ports keep the type of the value; the test compares integers as integers, floats
        // as floats.
        outputs.push((format!("out{i}"), value));
    }
    let pairs: Vec<(&str, ValueId)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    Ok(Lowered { program: l.b.finish(&pairs)?, inputs: l.given })
}

pub(super) struct Lower<'a> {
    pub b: Builder,
    pub case: &'a Case,
    pub node: &'a Node,
    values: HashMap<&'a str, ValueId>,
    given: Vec<(String, Constant)>,
}

/// The results of a node with one output.
pub(super) fn one(value: ValueId) -> Built<Vec<Option<ValueId>>> {
    Ok(vec![Some(value)])
}

pub(super) fn unmapped<T>(reason: impl Into<String>) -> Built<T> {
    Err(Refusal::Unmapped(reason.into()))
}

/// A tensor as a constant of the MIL type that replaces its element type.
pub(super) fn constant(element: &Element, shape: &[usize], values: &[f64]) -> Built<Constant> {
    let Some(dtype) = element.mil() else {
        return unmapped(format!("MIL programs have no values of type {}", element.name));
    };
    let bytes: Vec<u8> = match dtype {
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => values.iter().flat_map(|&v| ferrane_host::f16::from_f64(v).to_le_bytes()).collect(),
        DataType::Bool => values.iter().map(|&v| u8::from(v != 0.0)).collect(),
        _ => {
            if values.iter().any(|&v| v < f64::from(i32::MIN) || v > f64::from(i32::MAX)) {
                return unmapped(format!("a value of type {} does not fit int32", element.name));
            }
            values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect()
        }
    };
    Ok(Constant::raw(dtype, shape, &bytes))
}

impl<'a> Lower<'a> {
    fn name(&self, i: usize) -> &'a str {
        self.node.inputs.get(i).map_or("", String::as_str)
    }

    /// True if input `i` of the node is given.
    pub fn has(&self, i: usize) -> bool {
        !self.name(i).is_empty()
    }

    /// Number of inputs that the node lists, left-out ones included.
    pub fn count(&self) -> usize {
        self.node.inputs.len()
    }

    /// True if output `i` of the node is used.
    pub fn wants(&self, i: usize) -> bool {
        self.node.outputs.get(i).is_some_and(|n| !n.is_empty())
    }

    /// Input `i` as a value: the result of an earlier node, or an input of the program.
    pub fn x(&mut self, i: usize) -> Built {
        let name = self.name(i);
        if let Some(value) = self.values.get(name) {
            return Ok(*value);
        }
        let tensor = self.known(i)?;
        let value = constant(&tensor.element, &tensor.shape, &tensor.values)?;
        let dtype = value.ty().dtype().unwrap_or(DataType::Fp32);
        let id = self.given(Type::tensor(dtype, &tensor.shape), value)?;
        self.values.insert(name, id);
        Ok(id)
    }

    /// Adds an input with this value to the program.
    pub fn given(&mut self, ty: Type, value: Constant) -> Built {
        let port = format!("in{}", self.given.len());
        let id = self.b.input(&port, ty)?;
        self.given.push((port, value));
        Ok(id)
    }

    /// Input `i` as a value, or `None` if it is left out.
    pub fn maybe(&mut self, i: usize) -> Built<Option<ValueId>> {
        if self.has(i) { self.x(i).map(Some) } else { Ok(None) }
    }

    /// The elements of input `i`, for what MIL requires at compile time. The input must be an input
    /// of the graph.
    pub fn known(&self, i: usize) -> Built<&'a CaseTensor> {
        let name = self.name(i);
        self.case.inputs.iter().find(|t| t.name == name).ok_or_else(|| {
            Refusal::Unmapped(format!("input {i} of `{}` must be known when the program is made", self.node.op))
        })
    }

    /// Input `i` as a constant of the program.
    pub fn fixed(&mut self, i: usize) -> Built<Constant> {
        let tensor = self.known(i)?;
        constant(&tensor.element, &tensor.shape, &tensor.values)
    }

    /// The integers of input `i`, known at compile time.
    pub fn ints(&self, i: usize) -> Built<Vec<i64>> {
        Ok(self.known(i)?.values.iter().map(|&v| v as i64).collect())
    }

    /// The integers of input `i`, known at compile time, or `None` if it is left out.
    pub fn ints_if(&self, i: usize) -> Built<Option<Vec<i64>>> {
        if self.has(i) { self.ints(i).map(Some) } else { Ok(None) }
    }

    /// The floats of input `i`, known at compile time.
    pub fn floats(&self, i: usize) -> Built<Vec<f64>> {
        Ok(self.known(i)?.values.clone())
    }

    /// The integer attribute `name` of the node, or `default`.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.node.attributes.get(name).and_then(Value::as_i64).unwrap_or(default)
    }

    /// The float attribute `name` of the node, or `default`.
    pub fn float(&self, name: &str, default: f32) -> f32 {
        self.node.attributes.get(name).and_then(Value::as_f64).map_or(default, |v| v as f32)
    }

    /// The string attribute `name` of the node, or `default`.
    pub fn text(&self, name: &str, default: &'static str) -> &'a str {
        self.node.attributes.get(name).and_then(Value::as_str).unwrap_or(default)
    }

    /// The attribute `name` as a list of integers, if the node has it.
    pub fn list(&self, name: &str) -> Option<Vec<i64>> {
        let items = self.node.attributes.get(name)?.as_array()?;
        Some(items.iter().map(|v| v.as_i64().unwrap_or(0)).collect())
    }

    /// The extents of a value, outermost first.
    pub fn shape(&self, x: ValueId) -> Built<Vec<usize>> {
        Ok(self.b.shape(x)?)
    }

    /// The element type of a value.
    pub fn dtype(&self, x: ValueId) -> DataType {
        self.b.ty(x).dtype().unwrap_or(DataType::Fp32)
    }

    /// True for fp16 and fp32.
    pub fn is_float(&self, x: ValueId) -> bool {
        self.dtype(x).is_float()
    }

    /// A scalar constant of the element type of `like`.
    pub fn num(&self, like: ValueId, value: f32) -> Constant {
        match self.dtype(like) {
            DataType::Fp16 => Constant::fp16(value),
            DataType::Fp32 => Constant::fp32(value),
            DataType::Bool => Constant::bool(value != 0.0),
            _ => Constant::int32(value as i32),
        }
    }

    /// A constant tensor with the element type of `like`, which must be a float type.
    pub fn tensor(&mut self, like: ValueId, shape: &[usize], values: &[f64]) -> Built {
        let name = match self.dtype(like) {
            DataType::Fp16 => "FLOAT16",
            DataType::Fp32 => "FLOAT",
            DataType::Bool => "BOOL",
            _ => "INT32",
        };
        let value = constant(&Element { name: name.into() }, shape, values)?;
        Ok(self.b.constant("c", value)?)
    }

    /// A constant tensor of int32.
    pub fn indices(&mut self, shape: &[usize], values: &[i64]) -> Built {
        let bytes: Vec<u8> = values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect();
        Ok(self.b.constant("i", Constant::raw(DataType::Int32, shape, &bytes))?)
    }

    /// Adds an op with one result.
    pub fn op<const N: usize>(&mut self, op: &str, args: [(&str, Arg); N]) -> Built {
        Ok(self.b.op(op, op, args)?)
    }

    /// Adds an op whose only argument is `x`.
    pub fn un(&mut self, op: &str, x: ValueId) -> Built {
        self.op(op, [("x", x.into())])
    }

    /// Adds an op with the arguments `x` and `y`.
    pub fn bin(&mut self, op: &str, x: impl Into<Arg>, y: impl Into<Arg>) -> Built {
        self.op(op, [("x", x.into()), ("y", y.into())])
    }

    /// Adds `select(cond, a, b)`; `a` and `b` have the same type.
    pub fn select(&mut self, cond: ValueId, a: impl Into<Arg>, b: impl Into<Arg>) -> Built {
        self.op("select", [("cond", cond.into()), ("a", a.into()), ("b", b.into())])
    }

    /// Adds a cast, unless the value has the type already.
    pub fn cast(&mut self, x: ValueId, dtype: DataType) -> Built {
        if self.dtype(x) == dtype { Ok(x) } else { Ok(self.b.cast("cast", x, dtype)?) }
    }

    /// Adds a reshape to constant extents.
    pub fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Built {
        if self.shape(x)? == shape {
            return Ok(x);
        }
        if shape.is_empty() {
            let rank = self.shape(x)?.len() as i32;
            return Ok(self.b.squeeze("scalar", x, &(0..rank).collect::<Vec<_>>())?);
        }
        let wanted: Vec<i32> = shape.iter().map(|&n| n as i32).collect();
        Ok(self.b.reshape("reshape", x, &wanted)?)
    }

    /// Adds a transpose; axis `i` of the result is axis `perm[i]` of `x`.
    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Built {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x);
        }
        let perm: Vec<i32> = perm.iter().map(|&n| n as i32).collect();
        Ok(self.b.transpose("transpose", x, &perm)?)
    }

    /// Adds a slice `x[…, begin..begin+size, …]` along one axis.
    pub fn slice(&mut self, x: ValueId, axis: usize, begin: usize, size: usize) -> Built {
        let mut extents = self.shape(x)?;
        if begin == 0 && size == extents[axis] {
            return Ok(x);
        }
        let mut from = vec![0i32; extents.len()];
        from[axis] = begin as i32;
        extents[axis] = size;
        let size: Vec<i32> = extents.iter().map(|&n| n as i32).collect();
        Ok(self.b.slice_by_size("slice", x, &from, &size)?)
    }

    /// Adds a concat along an axis.
    pub fn concat(&mut self, values: &[ValueId], axis: usize) -> Built {
        if let [one] = values { Ok(*one) } else { Ok(self.b.concat("concat", values, axis as i32)?) }
    }

    /// Adds a reduction over `axes`; `keep` keeps them with extent 1.
    pub fn reduce(&mut self, op: &str, x: ValueId, axes: &[usize], keep: bool) -> Built {
        let axes: Vec<i32> = axes.iter().map(|&a| a as i32).collect();
        self.op(
            op,
            [("x", x.into()), ("axes", Constant::int32s(&axes).into()), ("keep_dims", Constant::bool(keep).into())],
        )
    }

    /// An axis from 0 to `rank - 1`; negative ones count from the end.
    pub fn normal(&self, axis: i64, rank: usize) -> Built<usize> {
        let at = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(at)
            .ok()
            .filter(|&a| a < rank)
            .ok_or_else(|| Refusal::Broken(format!("axis {axis} of rank {rank}")))
    }

    /// The attribute `axis`, or `default`, from 0 to `rank - 1`.
    pub fn axis(&self, default: i64, rank: usize) -> Built<usize> {
        self.normal(self.int("axis", default), rank)
    }
}
