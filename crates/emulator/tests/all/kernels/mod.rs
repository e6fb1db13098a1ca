//! Ops that are computed on whole tensors, against values from elsewhere.
//!
//! The tables hold a case a line, `op opset argument=value … => result …`, a value being
//! `type[shape]:elements`; an argument that is named several times is a list. The results were
//! computed with PyTorch 2.7 (resizing and sampling, convolution, recurrent layers, normalization),
//! with numpy (the rest, by the formulas of coremltools 9.0's descriptions), or are those of
//! coremltools' own tests.

use std::collections::BTreeMap;

use ferrane_device::Result;
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Arg, Builder, Constant, DataType, Opset, Type, Weights, ops};

use crate::harness::{BOTH, Tensor, close};

mod edges;
mod mutated;
mod random;

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Numbers(Tensor),
    Text(String),
}

impl Value {
    fn parse(text: &str) -> Value {
        let (head, list) = text.split_once(':').unwrap();
        let (name, shape) = match head.split_once('[') {
            Some((name, shape)) => (name, shape.trim_end_matches(']')),
            None => (head, ""),
        };
        let numbers = |list: &str| -> Vec<f64> {
            list.split(',').filter(|v| !v.is_empty()).map(|v| v.parse().unwrap()).collect()
        };
        match DataType::from_name(name).unwrap() {
            DataType::String => Value::Text(list.to_string()),
            dtype => {
                let shape: Vec<usize> = numbers(shape).iter().map(|&d| d as usize).collect();
                Value::Numbers(Tensor::new(dtype, &shape, numbers(list)))
            }
        }
    }

    fn constant(&self) -> Constant {
        match self {
            Value::Numbers(t) => Constant::raw(t.dtype, &t.shape, &t.to_bytes()),
            Value::Text(s) => Constant::string(s),
        }
    }
}

/// An op and its arguments.
#[derive(Clone, Debug)]
pub struct Case {
    op: String,
    opset: String,
    arguments: Vec<(String, Vec<Value>)>,
}

impl Case {
    /// Reads `op opset argument=value …`.
    pub fn parse(text: &str) -> Case {
        let mut words = text.split_whitespace().map(str::to_string);
        let (op, opset) = (words.next().unwrap(), words.next().unwrap());
        let mut arguments: Vec<(String, Vec<Value>)> = Vec::new();
        for word in words {
            let (name, value) = word.split_once('=').unwrap();
            let value = Value::parse(value);
            match arguments.iter_mut().find(|(n, _)| n == name) {
                Some((_, list)) => list.push(value),
                None => arguments.push((name.to_string(), vec![value])),
            }
        }
        Case { op, opset, arguments }
    }

    /// Runs the op. Arguments that need not be constants are inputs.
    pub fn run(&self, numerics: Numerics) -> Result<Vec<Tensor>> {
        let opset = Opset::from_name(&self.opset).unwrap();
        let def = ops::lookup(&self.op, opset).unwrap();
        let mut b = Builder::new("main", opset);
        let (mut inputs, mut arguments) = (Vec::new(), Vec::new());
        for (name, values) in &self.arguments {
            let param = def.param(name).unwrap();
            let mut one = |value: &Value, at: usize| match value {
                Value::Numbers(t) if !param.constant => {
                    let port = format!("{name}{at}");
                    inputs.push((port.clone(), value.constant()));
                    b.input(&port, Type::tensor(t.dtype, &t.shape)).unwrap()
                }
                _ => b.constant(&format!("{name}{at}"), value.constant()).unwrap(),
            };
            let ids: Vec<_> = values.iter().enumerate().map(|(at, v)| one(v, at)).collect();
            let argument = if param.variadic { Arg::List(ids) } else { Arg::Value(ids[0]) };
            arguments.push((name.as_str(), argument));
        }
        let results = b.ops(&self.op, "result", arguments).unwrap_or_else(|e| panic!("{self:?}: {e}"));
        let names: Vec<String> = (0..results.len()).map(|i| format!("out{i}")).collect();
        let outputs: Vec<_> = names.iter().map(String::as_str).zip(results).collect();
        let program = b.finish(&outputs).unwrap();
        let mut options = EmulatorOptions::default();
        options.numerics = numerics;
        let found = Emulator::new(options).call(&program, "main", &inputs, &mut BTreeMap::new())?;
        let tensor = |(_, c): &(String, Constant)| {
            let (ty, weights) = (c.ty(), Weights::new());
            Tensor::from_bytes(ty.dtype().unwrap(), &ty.shape().unwrap(), c.bytes(&weights).unwrap())
        };
        Ok(found.iter().map(tensor).collect())
    }
}

/// Runs every case of a table under both tables of numerics.
fn table(text: &str) {
    let mut failures = Vec::new();
    for line in text.lines() {
        let (case, wanted) = line.split_once(" => ").unwrap();
        let wanted: Vec<Value> = wanted.split_whitespace().map(Value::parse).collect();
        for numerics in BOTH {
            if let Err(e) = compare(&Case::parse(case), &wanted, numerics) {
                failures.push(format!("{numerics:?}: {e}\n    {line}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

fn compare(case: &Case, wanted: &[Value], numerics: Numerics) -> std::result::Result<(), String> {
    let found = case.run(numerics).map_err(|e| e.to_string())?;
    if found.len() != wanted.len() {
        return Err(format!("{} results instead of {}", found.len(), wanted.len()));
    }
    for (found, wanted) in found.iter().zip(wanted) {
        let Value::Numbers(wanted) = wanted else { return Err("a result of text".to_string()) };
        if (found.dtype, &found.shape) != (wanted.dtype, &wanted.shape) {
            return Err(format!("{} {:?} instead of {} {:?}", found.dtype, found.shape, wanted.dtype, wanted.shape));
        }
        // fp32 on both sides, in another order of sums and with other functions.
        let (absolute, relative) = if wanted.dtype.is_float() { (1e-6, 1e-5) } else { (0.0, 0.0) };
        close(&found.values, &wanted.values, absolute, relative)?;
    }
    Ok(())
}

macro_rules! tables {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            table(include_str!(concat!(stringify!($name), ".txt")));
        })*
    };
}

tables!(channels conv_transpose create einsum rearrange recurrent resize sample scatter sort suppress);
