//! Turns a constant into an input.

use super::error::{GradError, near};
use crate::build::{Builder, Transpose};
use crate::error::MilError;
use crate::op;
use crate::ops;
use crate::opset::Opset;
use crate::program::{Arg, Function, Op, Program, ValueId};

/// The program with the `const` op `constant` of `function` turned into the last input, of the same
/// name and type, so that a trained weight can change without a new compilation.
///
/// Some ops require constant parameters. If such an op uses the lifted value, `linear` becomes
/// `matmul` and `add`, and the `gamma` and `beta` of `layer_norm` and the `bias` of `conv` become
/// `mul` and `add` after it.
///
/// # Errors
/// There is no such function or `const`; the function has several bodies; or another op requires
/// the value to be constant ([`MilError::NotConstant`]).
pub fn lift_constant(program: &Program, function: &str, constant: &str) -> Result<Program, GradError> {
    crate::verify::verify(program)?;
    let missing = |reason: &str| GradError::Value { name: constant.to_string(), reason: reason.into() };
    let position = program.functions.iter().position(|f| f.name == function);
    let Some(position) = position else { return Err(GradError::Function { name: function.to_string() }) };
    let source = &program.functions[position];
    if source.bodies.len() > 1 {
        return Err(missing("is in a function of several bodies"));
    }
    let ops = &source.body().ops;
    let own = |op: &&Op| op.name == op::CONST && op.outputs.iter().any(|v| source.value(*v).name == constant);
    let found = ops.iter().map(|&id| source.op(id)).find(own);
    let Some(&lifted) = found.and_then(|op| op.outputs.first()) else {
        return Err(missing(&format!("is not a `const` of the body{}", near(source, constant))));
    };

    let opset = source.opset()?;
    let mut b = Builder::over(&source.name, opset, program.weights.clone());
    let mut map = vec![None; source.values.len()];
    for &input in source.inputs.iter().chain([&lifted]) {
        let value = source.value(input);
        map[input.index()] = Some(b.input(&value.name, value.ty.clone())?);
    }
    for &id in ops {
        let op = source.op(id);
        if op.outputs.first() == Some(&lifted) {
            continue;
        }
        match wants_constant(op, lifted, opset) {
            true => open(&mut b, source, op, lifted, &mut map)?,
            false => b.copy(source, op, &mut map, &mut Vec::new())?,
        }
    }
    let mut outputs = Vec::new();
    for &output in &source.body().outputs {
        let name = source.value(output).name.as_str();
        outputs.push((name, map[output.index()].ok_or_else(|| missing("leaves an output without a value"))?));
    }
    let built = b.finish(&outputs)?;
    let mut result = program.clone();
    for mut function in built.functions {
        function.attributes = source.attributes.clone();
        result.functions[position] = function;
    }
    Ok(result)
}

/// True if the op uses the value in an argument that must be known at compile time.
fn wants_constant(op: &Op, value: ValueId, opset: Opset) -> bool {
    let Some(def) = ops::find(&op.name, opset) else { return false };
    let uses = |arg: &Arg| matches!(arg, Arg::Value(v) if *v == value);
    op.args.iter().any(|(name, arg)| uses(arg) && def.param(name).is_some_and(|p| p.constant))
}

/// The op, with its parameters applied by ops of their own.
fn open(
    b: &mut Builder,
    source: &Function,
    op: &Op,
    lifted: ValueId,
    map: &mut [Option<ValueId>],
) -> Result<(), MilError> {
    let refuse = || {
        let argument = op.args.iter().find(|(_, a)| matches!(a, Arg::Value(v) if *v == lifted));
        MilError::NotConstant { op: op.name.clone(), argument: argument.map_or(String::new(), |(n, _)| n.clone()) }
    };
    let Some(&output) = op.outputs.first() else { return Err(refuse()) };
    let name = source.value(output).name.clone();
    let here = |map: &[Option<ValueId>], argument: &str| -> Option<ValueId> {
        source.arg_value(op, argument).and_then(|v| map[v.index()])
    };
    let shape = source.value(output).ty.shape().ok_or_else(refuse)?;
    let result = match op.name.as_str() {
        op::LINEAR => {
            let (x, weight) = (here(map, "x").ok_or_else(refuse)?, here(map, "weight").ok_or_else(refuse)?);
            let product = b.matmul(&name, x, weight, Transpose::Y)?;
            match here(map, "bias") {
                Some(bias) => b.add(&name, product, bias)?,
                None => product,
            }
        }
        op::LAYER_NORM | op::CONV => {
            let outside: &[&str] = if op.name == op::CONV { &["bias"] } else { &["gamma", "beta"] };
            if !outside.iter().any(|a| source.arg_value(op, a) == Some(lifted)) {
                return Err(refuse());
            }
            let mut bare = op.clone();
            bare.args.retain(|(n, _)| !outside.contains(&n.as_str()));
            b.copy(source, &bare, map, &mut Vec::new())?;
            let mut result = map[output.index()].ok_or_else(refuse)?;
            let axes = match op.name.as_str() {
                op::CONV => vec![1],
                _ => layer_axes(source, op, shape.len()).ok_or_else(refuse)?,
            };
            for (argument, apply) in [("gamma", op::MUL), ("beta", op::ADD), ("bias", op::ADD)] {
                let Some(parameter) = here(map, argument) else { continue };
                let extents: Vec<i32> = (0..shape.len())
                    .map(|i| if axes.contains(&i) { i32::try_from(shape[i]).unwrap_or(i32::MAX) } else { 1 })
                    .collect();
                let parameter = b.reshape(&format!("{name}_{argument}"), parameter, &extents)?;
                result = b.op(apply, &name, [("x", result.into()), ("y", parameter.into())])?;
            }
            result
        }
        _ => return Err(refuse()),
    };
    map[output.index()] = Some(result);
    Ok(())
}

/// The normalized axes. The parameters' axes are those of x, in its order.
fn layer_axes(source: &Function, op: &Op, rank: usize) -> Option<Vec<usize>> {
    let Some(axes) = source.arg_constant(op, "axes") else { return Some((0..rank).collect()) };
    axes.as_ints()?.iter().map(|&a| usize::try_from(if a < 0 { a + rank as i64 } else { a }).ok()).collect()
}
