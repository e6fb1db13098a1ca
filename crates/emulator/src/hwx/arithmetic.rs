//! The arithmetic of a task: a MIL function of its own, lowered like any other, so that a compiled
//! program has the numbers of the emulator's table.

use ferrane_device::{Error, ErrorKind, Result};

use ferrane_mil::{Builder, Constant, Conv, DataType, MilError, Opset, Program, Transpose, Type, ValueId};

use super::step::{Op, TaskStep};
use crate::Emulator;
use crate::call::found;
use crate::executable::ExecutablePlan;
use crate::function::CompiledFunction;
use crate::plan::Ports;

/// The task as a plan over its sources and, after them, weights from memory, if any.
pub(super) fn plan(emulator: &Emulator, step: &TaskStep) -> Result<Box<ExecutablePlan>> {
    let failed = |what: String| Error::new(ErrorKind::Unsupported, format!("task {}: {what}", step.id));
    let program = function(step).map_err(|e| failed(e.to_string()))?;
    let function = found(&program, "task")?;
    let ports = Ports::declared(0, function)?;
    match CompiledFunction::new(ports, function, &program.weights, emulator.table(), emulator.bounds())? {
        CompiledFunction::Plan(plan) => Ok(plan),
        CompiledFunction::Interpreted(..) => Err(failed("its arithmetic is not a plan".to_string())),
    }
}

fn function(step: &TaskStep) -> std::result::Result<Program, MilError> {
    let mut b = Builder::new("task", Opset::IOS18);
    let fp16 = |shape: &[usize]| Type::tensor(DataType::Fp16, shape);
    let mut sources = Vec::new();
    for (name, span) in ["x", "y"].iter().zip(&step.sources) {
        sources.push(b.input(name, fp16(&span.extents))?);
    }
    let mut operands = sources.clone();
    for (i, _) in step.relu_first.iter().enumerate().filter(|(_, relu)| **relu) {
        if let Some(x) = operands.get_mut(i) {
            *x = b.op("relu", &format!("source{i}"), [("x", (*x).into())])?;
        }
    }
    let mut y = operation(&mut b, step, operands[0], &operands)?;
    let after = &step.after;
    if after.inverse {
        y = b.op("inverse", "inverse", [("x", y.into()), ("epsilon", Constant::fp16(0.0).into())])?;
    }
    if let Some(scale) = after.scale {
        y = b.scale("scaled", y, scale)?;
    }
    if let Some(bias) = after.bias {
        y = b.add("biased", y, Constant::fp16(bias))?;
    }
    if after.relu {
        y = b.op("relu", "positive", [("x", y.into())])?;
    }
    if sources.contains(&y) {
        y = b.identity("same", y)?;
    }
    b.finish(&[("result", y)])
}

fn operation(
    b: &mut Builder,
    step: &TaskStep,
    x: ValueId,
    sources: &[ValueId],
) -> std::result::Result<ValueId, MilError> {
    let int = |n: &usize| *n as i32;
    match &step.op {
        Op::Copy => Ok(x),
        Op::Conv { weights, strides, pad } => {
            let bytes: Vec<u8> = weights.bits.iter().flat_map(|w| w.to_le_bytes()).collect();
            let weight = b.weight("weight", "@model_path/weight.bin", DataType::Fp16, &weights.shape, bytes)?;
            let options = Conv {
                pad_type: "custom",
                strides: strides.iter().map(int).collect(),
                pad: pad.iter().map(int).collect(),
                ..Conv::default()
            };
            b.conv("conv", x, weight, None, &options)
        }
        Op::Product { outputs } => {
            let [g, c, h, w] = step.sources[0].extents;
            let kernel = b.input("kernel", Type::tensor(DataType::Fp16, &[g, *outputs, c]))?;
            let flat = b.reshape("flat", x, &[int(&g), int(&c), int(&(h * w))])?;
            let product = b.matmul("product", kernel, flat, Transpose::Neither)?;
            b.reshape("shaped", product, &[g, *outputs, h, w].map(|n| n as i32))
        }
        Op::Binary(name) | Op::Compare(name) => match sources {
            [_, second] => {
                let y = b.op(name, "result", [("x", x.into()), ("y", (*second).into())])?;
                if matches!(step.op, Op::Compare(_)) { b.cast("number", y, DataType::Fp16) } else { Ok(y) }
            }
            _ => Ok(x),
        },
        Op::Unary(name) => b.op(name, "result", [("x", x.into())]),
        Op::Pool { form, kernel, strides, pad } => {
            let pair = |n: &[usize; 2]| Constant::int32s(&n.map(|n| n as i32));
            let minus = |b: &mut Builder, name: &str, v: ValueId| b.scale(name, v, -1.0);
            // The minimum is the negated maximum of the negated values, exactly.
            let (form, x) = if *form == "min" { ("max_pool", minus(b, "turned", x)?) } else { (*form, x) };
            let mut args = vec![
                ("x", x.into()),
                ("kernel_sizes", pair(kernel).into()),
                ("strides", pair(strides).into()),
                ("pad_type", Constant::string("custom").into()),
                ("pad", Constant::int32s(&pad.map(|n| n as i32)).into()),
                ("ceil_mode", Constant::bool(false).into()),
            ];
            if form == "avg_pool" {
                args.push(("exclude_padding_from_average", Constant::bool(false).into()));
            }
            let y = b.op(form, "window", args)?;
            if matches!(&step.op, Op::Pool { form: "min", .. }) { minus(b, "back", y) } else { Ok(y) }
        }
        Op::Reduce { name, axes } => {
            let axes = Constant::int32s(axes);
            b.op(name, "result", [("x", x.into()), ("axes", axes.into()), ("keep_dims", Constant::bool(true).into())])
        }
    }
}
