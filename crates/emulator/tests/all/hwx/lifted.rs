//! A compiled program as MIL: what its tasks do to tensors, independent of their addresses.
//!
//! It reads only the report's words and the shapes of the tensors. Tasks that move a value vanish:
//! a convolution over channels is one over the channels of the tensors, however the file turns them
//! in between. So this says what layouts must come to. A program of moves alone, or whose result
//! has another shape than its tensor, is not read: what it is for is its layouts.

use std::collections::BTreeMap;

use ferrane_hwx::Hwx;
use ferrane_hwx::container::Direction;
use ferrane_hwx::describe::{HwxReport, NamedLocation, TaskReport};

use ferrane_mil::{Arg, Builder, Constant, Conv, DataType, MilError, Opset, Program, Transpose, Type, ValueId};

use crate::harness::Tensor;

/// A program, and how far a result may be from its own: steps of fp16 of the largest result.
pub struct Lifted {
    pub program: Program,
    /// With the tables of the engine on both sides.
    pub steps: f64,
}

/// Tables that have an op, by their halfwords.
fn op_of(table: &[u8]) -> Option<&'static str> {
    use ferrane_arith::table::{EXP2, GELU, SIGMOID, TANH};
    let names = [(&SIGMOID, "sigmoid"), (&TANH, "tanh"), (&EXP2, "exp2"), (&GELU, "gelu")];
    let halfword = |i: usize| u16::from_le_bytes([table[2 * i], table[2 * i + 1]]);
    names.iter().find(|(t, _)| t.halfwords().iter().enumerate().all(|(i, h)| halfword(i) == *h)).map(|(_, n)| *n)
}

/// The program of a file whose convolutions have these weights. `None` for one that has a task
/// without such a reading.
pub fn lift(bytes: &[u8], weights: &[Option<Tensor>]) -> Option<Lifted> {
    let hwx = Hwx::read(bytes).ok()?;
    let report = HwxReport::of(&hwx);
    let mut b = Builder::new("main", Opset::IOS18);
    let ports = &report.programs.first()?.bindings.ports;
    let mut known: BTreeMap<NamedLocation, ValueId> = BTreeMap::new();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for port in ports {
        let tensor = port.tensor.as_ref()?;
        let place = NamedLocation::Buffer { name: port.name.clone(), offset: 0 };
        let [n, c, h, w, _] = tensor.nchwd.map(|n| n as usize);
        if tensor.direction == Some(Direction::Input) {
            let value = b.input(&format!("in{}", inputs.len()), Type::tensor(DataType::Fp16, &[n, c, h, w])).ok()?;
            known.insert(place, value);
            inputs.push(value);
        } else {
            outputs.push(place);
        }
    }
    let tasks = &report.texts.first()?.tasks;
    if tasks.iter().all(|t| passes(t) && t.post.is_empty()) {
        return None;
    }
    // The same sums, exact in any order, and the same roundings between tasks: results are equal.
    let (mut steps, mut i) = (0.0, 0);
    while let Some(task) = tasks.get(i) {
        let (value, last) = match softmax(&mut b, &tasks[i..], i, &known) {
            // The op's sum is not rounded, the task's is: half a step, and another half after the
            // reciprocal and the product.
            Some(value) => {
                steps += 2.0;
                (value, i + SOFTMAX.len() - 1)
            }
            None => (one(&mut b, &hwx, i, task, &known, weights)?, i),
        };
        known.insert(normal(&tasks[last].destination.as_ref()?.place), value);
        i = last + 1;
    }
    let outputs: Vec<ValueId> = outputs.iter().map(|place| known.get(place).copied()).collect::<Option<_>>()?;
    let written = ports.iter().filter_map(|p| p.tensor.as_ref()).filter(|t| t.direction != Some(Direction::Input));
    for (value, tensor) in outputs.iter().zip(written) {
        let [n, c, h, w, _] = tensor.nchwd.map(|n| n as usize);
        if b.shape(*value).ok()? != [n, c, h, w] {
            return None;
        }
    }
    let same = |b: &mut Builder, v: ValueId| if inputs.contains(&v) { b.identity("same", v).ok() } else { Some(v) };
    let outputs: Vec<ValueId> = outputs.into_iter().map(|v| same(&mut b, v)).collect::<Option<_>>()?;
    let names: Vec<String> = (0..outputs.len()).map(|i| format!("out{i}")).collect();
    let outputs: Vec<_> = names.iter().map(String::as_str).zip(outputs).collect();
    Some(Lifted { program: b.finish(&outputs).ok()?, steps })
}

/// An address in L2 that is left out is 0.
fn normal(place: &NamedLocation) -> NamedLocation {
    match place {
        NamedLocation::L2 { address } => NamedLocation::L2 { address: Some(address.unwrap_or(0)) },
        other => other.clone(),
    }
}

/// True for a task that passes values on to what follows.
fn passes(task: &TaskReport) -> bool {
    ["copy", "planar operation (task type 2)"].iter().any(|w| task.summary.starts_with(w))
}

/// Tasks that together are a softmax along the columns.
const SOFTMAX: [&str; 5] = [
    "max over elements",
    "element-wise subtraction",
    "function of each element",
    "planar operation on one source, addition",
    "element-wise multiplication",
];

/// A softmax that these tasks begin with, if the first reads a value as it stands in the program.
fn softmax(
    b: &mut Builder,
    tasks: &[TaskReport],
    i: usize,
    known: &BTreeMap<NamedLocation, ValueId>,
) -> Option<ValueId> {
    let begins = tasks.len() >= SOFTMAX.len() && tasks.iter().zip(SOFTMAX).all(|(t, w)| t.summary.starts_with(w));
    let [source] = &tasks.first().filter(|_| begins)?.sources[..] else { return None };
    let x = known.get(&normal(&source.place)).copied()?;
    let [w, h, c, _] = tasks[0].shapes[0].map(|n| n.unwrap_or(1) as usize);
    let stands = b.shape(x).ok()? == [1, c, h, w];
    b.softmax(&format!("softmax{i}"), x, -1).ok().filter(|_| stands)
}

fn one(
    b: &mut Builder,
    hwx: &Hwx,
    i: usize,
    task: &TaskReport,
    known: &BTreeMap<NamedLocation, ValueId>,
    weights: &[Option<Tensor>],
) -> Option<ValueId> {
    let sources: Vec<ValueId> =
        task.sources.iter().map(|s| known.get(&normal(&s.place)).copied()).collect::<Option<_>>()?;
    let binary = |b: &mut Builder, op: &str| -> Result<ValueId, MilError> {
        let arg = |v: ValueId| Arg::Value(v);
        b.op(op, &format!("result{i}"), [("x", arg(sources[0])), ("y", arg(*sources.get(1).unwrap_or(&sources[0])))])
    };
    let value = match &task.summary {
        // Weights out of a tensor: a product with it, by groups.
        s if s.contains(" convolution") => match known.get(&normal(task.kernel.as_ref()?.place.as_ref()?)) {
            Some(kernel) => b.matmul(&format!("product{i}"), *kernel, sources[0], Transpose::Y).ok()?,
            None => convolution(b, hwx, i, task, sources[0], weights.get(i)?.as_ref()?)?,
        },
        s if s.starts_with("element-wise addition") => binary(b, "add").ok()?,
        s if s.starts_with("element-wise subtraction") => binary(b, "sub").ok()?,
        s if s.starts_with("element-wise multiplication") => binary(b, "mul").ok()?,
        s if s.starts_with("element-wise maximum") => binary(b, "maximum").ok()?,
        s if s.starts_with("element-wise minimum") => binary(b, "minimum").ok()?,
        s if s.starts_with("function of each element") || passes(task) => sources[0],
        _ => return None,
    };
    after(b, hwx, i, task, value)
}

fn convolution(
    b: &mut Builder,
    hwx: &Hwx,
    i: usize,
    task: &TaskReport,
    x: ValueId,
    weights: &Tensor,
) -> Option<ValueId> {
    let generation = hwx.generation()?;
    let word = task.registers.get("Common.ConvCfg").copied();
    let (register, _) = generation.named("Common", "ConvCfg")?;
    let word = word.or(register.default)?;
    let field = |name: &str| register.field(name).map(|f| f.get(word) as i32);
    let [rows, columns] = [2, 3].map(|axis| weights.shape[axis] as i32);
    let (sx, sy, px, py) = (field("Sx")?, field("Sy")?, field("Px")?, field("Py")?);
    // The padding at the end that gives the result its extent.
    let [[w, h, ..], [wout, hout, ..]] = task.shapes.map(|s| s.map(|n| n.unwrap_or(1) as i32));
    let behind = |n: i32, k: i32, s: i32, p: i32, out: i32| ((out - 1) * s + k - n - p).max(0);
    let pad = vec![py, behind(h, rows, sy, py, hout), px, behind(w, columns, sx, px, wout)];
    let weight =
        b.weight(&format!("weight{i}"), "@model_path/w.bin", DataType::Fp16, &weights.shape, weights.to_bytes());
    let options = Conv { pad_type: "custom", strides: vec![sy, sx], pad, ..Conv::default() };
    b.conv(&format!("conv{i}"), x, weight.ok()?, None, &options).ok()
}

/// What follows: the words of the report, and the table.
fn after(b: &mut Builder, hwx: &Hwx, i: usize, task: &TaskReport, mut value: ValueId) -> Option<ValueId> {
    for (n, said) in task.post.iter().enumerate() {
        let name = format!("after{i}_{n}");
        if let Some(factor) = said.strip_prefix("multiplies by ") {
            let factor = factor.split(' ').next()?.parse().ok()?;
            value = b.scale(&name, value, factor).ok()?;
        } else if said.contains("ReLU") {
            value = b.op("relu", &name, [("x", value.into())]).ok()?;
        } else if said.contains("table of a function") {
            let Some(NamedLocation::Buffer { name: section, offset }) = &task.table else { return None };
            let found = hwx.sections().into_iter().find(|s| s.label() == *section)?;
            let op = op_of(hwx.content(&found).get(*offset as usize..)?.get(..128)?)?;
            let mut args = vec![("x", Arg::Value(value))];
            if op == "gelu" {
                args.push(("mode", Constant::string("EXACT").into()));
            }
            value = b.op(op, &name, args).ok()?;
        } else {
            return None;
        }
    }
    Some(value)
}
