//! Calls that are almost right: the cases of the tables and of every other kind of op, changed at
//! random. Whatever comes of it is a result or an error, soon and in little memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Arg, Builder, Constant, DataType, Dim, Opset, Program, Type, ops};
use proptest::prelude::*;

use super::{Case, Value};
use crate::harness::{BOTH, Tensor};

/// Right calls of ops that have no table, most of them steps of a plan.
const OTHERS: &str = include_str!("mutated.txt");

const TABLES: &[&str] = &[
    OTHERS,
    include_str!("channels.txt"),
    include_str!("conv_transpose.txt"),
    include_str!("create.txt"),
    include_str!("einsum.txt"),
    include_str!("rearrange.txt"),
    include_str!("recurrent.txt"),
    include_str!("resize.txt"),
    include_str!("sample.txt"),
    include_str!("scatter.txt"),
    include_str!("sort.txt"),
    include_str!("suppress.txt"),
];

/// Numbers one after another from a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n.max(1)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// A value at the edge of what a type holds, or a small one.
fn edge(dtype: DataType, n: &mut Numbers) -> f64 {
    match dtype {
        DataType::Bool => n.of(&[0.0, 1.0]),
        dtype if dtype.is_float() => {
            n.of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1.0, 1e30, 1e-30, 0.5, 2.0, 70000.0])
        }
        _ => n.of(&[-2147483648.0, 2147483647.0, -1.0, 0.0, 1.0, 2.0, 3.0, -2.0, 7.0, 100.0, 65536.0, 1e6]),
    }
}

fn reshaped(t: &Tensor, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let values =
        if t.values.is_empty() { vec![1.0; count] } else { t.values.iter().copied().cycle().take(count).collect() };
    Tensor::new(t.dtype, shape, values)
}

/// Applies one random change.
fn change(case: &mut Case, texts: &[String], n: &mut Numbers) {
    if case.arguments.is_empty() {
        return;
    }
    let argument = n.below(case.arguments.len());
    if n.below(12) == 0 {
        case.arguments.remove(argument);
        return;
    }
    let list = &mut case.arguments[argument].1;
    let place = n.below(list.len());
    if n.below(12) == 0 {
        match n.below(2) {
            0 => drop(list.remove(place)),
            _ => list.push(list[place].clone()),
        }
        if list.is_empty() {
            case.arguments.remove(argument);
        }
        return;
    }
    match &mut list[place] {
        Value::Text(text) => *text = texts[n.below(texts.len())].clone(),
        Value::Numbers(t) => match n.below(6) {
            0..3 if !t.values.is_empty() => {
                let at = n.below(t.values.len());
                t.values[at] = edge(t.dtype, n);
            }
            3 if !t.shape.is_empty() => {
                let mut shape = t.shape.clone();
                let axis = n.below(shape.len());
                shape[axis] = n.of(&[0, 1, 2, 3, 5]);
                *t = reshaped(t, &shape);
            }
            4 => {
                let mut shape = t.shape.clone();
                match n.below(2) {
                    0 if !shape.is_empty() => drop(shape.remove(n.below(shape.len()))),
                    _ => shape.insert(n.below(shape.len() + 1), n.of(&[1, 2])),
                }
                *t = reshaped(t, &shape);
            }
            _ => {
                use DataType::*;
                let dtype = n.of(&[Fp16, Fp32, Int32, Int8, UInt8, Int16, UInt16, Bool]);
                *t = Tensor { dtype, ..t.clone() };
            }
        },
    }
}

/// The call as a program: operands are inputs with known or unknown extents, or constants. `None`
/// if its op's rule refuses it.
fn program(case: &Case, n: &mut Numbers) -> Option<(Program, Vec<(String, Constant)>)> {
    let opset = Opset::from_name(&case.opset)?;
    let def = ops::find(&case.op, opset)?;
    let mut b = Builder::new("main", opset);
    let (mut inputs, mut arguments) = (Vec::new(), Vec::new());
    let (open, fixed) = (n.below(3) == 0, n.below(4) == 0);
    for (name, values) in &case.arguments {
        let param = def.param(name)?;
        let mut ids = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let port = format!("{name}{at}");
            ids.push(match value {
                Value::Numbers(t) if !param.constant && !fixed => {
                    let unknown = Type::Tensor { dtype: t.dtype, shape: vec![Dim::Unknown; t.shape.len()] };
                    inputs.push((port.clone(), value.constant()));
                    b.input(&port, if open { unknown } else { Type::tensor(t.dtype, &t.shape) }).ok()?
                }
                _ => b.constant(&port, value.constant()).ok()?,
            });
        }
        let argument = if param.variadic { Arg::List(ids) } else { Arg::Value(*ids.first()?) };
        arguments.push((name.as_str(), argument));
    }
    let results = b.ops(&case.op, "result", arguments).ok()?;
    let names: Vec<String> = (0..results.len()).map(|i| format!("out{i}")).collect();
    let outputs: Vec<_> = names.iter().map(String::as_str).zip(results).collect();
    Some((b.finish(&outputs).ok()?, inputs))
}

fn call(numerics: Numerics, program: &Program, inputs: &[(String, Constant)]) -> bool {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    options.memory = 64 << 20;
    Emulator::new(options).call(program, "main", inputs, &mut BTreeMap::new()).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn calls_that_are_almost_right(seed in 1u64..) {
        let lines: Vec<&str> = TABLES.iter().flat_map(|t| t.lines()).filter(|l| !l.is_empty()).collect();
        let mut n = Numbers(seed);
        for _ in 0..16 {
            let line = lines[n.below(lines.len())];
            let mut case = Case::parse(line.split(" => ").next().unwrap());
            let other = Case::parse(lines[n.below(lines.len())].split(" => ").next().unwrap());
            let mut texts: Vec<String> = [&case, &other].into_iter().flat_map(|c| &c.arguments).flat_map(|(_, l)| l).filter_map(|v| {
                if let Value::Text(t) = v { Some(t.clone()) } else { None }
            }).collect();
            texts.push(String::new());
            for _ in 0..1 + n.below(3) {
                change(&mut case, &texts, &mut n);
            }
            let Some((program, inputs)) = program(&case, &mut n) else { continue };
            for numerics in BOTH {
                let begun = Instant::now();
                let text = format!("{case:?}\n{}", ferrane_mil::print(&program));
                let found = std::panic::catch_unwind(|| call(numerics, &program, &inputs));
                prop_assert!(found.is_ok(), "panics: {text}");
                // Each takes microseconds; what follows an extent out of a value takes minutes.
                prop_assert!(begun.elapsed() < Duration::from_secs(10), "takes {:?}: {text}", begun.elapsed());
            }
        }
    }
}
