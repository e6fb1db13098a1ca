//! Every op against what coremltools' own value inference gave (host semantics, fp32).

use ferrane_emulator::{Numerics, Support, support};
use ferrane_mil::{Arg, Builder, Constant, DataType, Dim, Opset, Program, Type, ValueId, ops};
use ferrane_testdata::Suite;
use serde_json::Value;

use crate::harness::{BOTH, Tensor, run};
use crate::interpret::{call, constant};

fn dtype(name: &str) -> Option<DataType> {
    match name {
        "float32" => Some(DataType::Fp32),
        "float16" => Some(DataType::Fp16),
        other => DataType::from_name(other),
    }
}

struct Tensors<'a>(safetensors::SafeTensors<'a>);

impl Tensors<'_> {
    fn read(&self, value: &Value) -> Option<Tensor> {
        let view = self.0.tensor(value["tensor"].as_str()?).ok()?;
        Some(Tensor::from_bytes(dtype(value["dtype"].as_str()?)?, view.shape(), view.data()))
    }
}

/// A case's `opset` is coremltools' number: 9 is iOS 18. What is older than iOS 15 has that one's
/// ops.
fn opset(case: &Value) -> Opset {
    Opset(case["opset"].as_str().and_then(|o| o.parse::<u16>().ok()).map_or(18, |v| v + 9).max(15))
}

/// How a case is run.
#[derive(Clone, Copy, PartialEq)]
enum Path {
    /// Known extents, and constants where a plan needs them: a plan, through the seam.
    Plan,
    /// Unknown extents, and nothing constant that need not be: interpreted.
    Interpreter,
    /// Known extents, interpreted for the sake of another input: ops whose rule wants to know more.
    Known,
}

/// Program and inputs of a case. Arguments that may vary at run time become inputs.
fn build(case: &Value, tensors: &Tensors<'_>, op: &str, path: Path) -> Result<(Program, Vec<Tensor>), String> {
    let opset = opset(case);
    let def = ops::find(op, opset).ok_or("the registry does not have this op")?;
    let mut b = Builder::new("main", opset);
    let (mut args, mut inputs): (Vec<(String, Arg)>, Vec<Tensor>) = Default::default();
    let mut input = |b: &mut Builder, name: String, tensor: Tensor| -> Result<ValueId, String> {
        let ty = match path {
            Path::Plan | Path::Known => Type::tensor(tensor.dtype, &tensor.shape),
            Path::Interpreter => Type::Tensor { dtype: tensor.dtype, shape: vec![Dim::Unknown; tensor.shape.len()] },
        };
        let id = b.input(&name, ty).map_err(|e| e.to_string())?;
        inputs.push(tensor);
        Ok(id)
    };
    for (name, value) in case["inputs"].as_object().ok_or("inputs")? {
        // Arguments that decide about extents; a plan wants them at compile time.
        let shapes = |p: &ops::Param| p.name != "indices" && p.accepts.iter().all(|d| d.is_int());
        let late = |p: &ops::Param| !p.constant && (path != Path::Plan || !shapes(p));
        let late = def.param(name).is_some_and(late);
        let plain = match value {
            Value::Object(o) if o.contains_key("value") && !o.contains_key("tensor") => &o["value"],
            other => other,
        };
        let list = match plain {
            Value::Object(o) => o.get("list"),
            _ => None,
        };
        let arg: Arg = match plain {
            Value::Null => continue,
            Value::String(s) => Constant::string(s).into(),
            Value::Bool(v) => Constant::bool(*v).into(),
            Value::Number(n) if n.is_i64() => Constant::int32(n.as_i64().unwrap_or(0) as i32).into(),
            Value::Number(n) => Constant::fp32(n.as_f64().unwrap_or(0.0) as f32).into(),
            Value::Array(items) => values(&mut b, tensors, name, items, &mut input)?,
            _ => match list.and_then(Value::as_array) {
                Some(items) => values(&mut b, tensors, name, items, &mut input)?,
                None => {
                    let tensor = tensors.read(plain).ok_or("an input of a type that the emulator has not")?;
                    if late { input(&mut b, name.clone(), tensor)?.into() } else { constant(&tensor).into() }
                }
            },
        };
        args.push((name.clone(), arg));
    }
    if path == Path::Known {
        let none = Tensor::new(DataType::Fp32, &[0], Vec::new());
        b.input("open", Type::Tensor { dtype: none.dtype, shape: vec![Dim::Unknown] }).map_err(|e| e.to_string())?;
        inputs.push(none);
    }
    let args = args.iter().map(|(n, a)| (n.as_str(), a.clone()));
    let outputs = b.ops(op, "y", args).map_err(|e| e.to_string())?;
    let names: Vec<String> = (0..outputs.len()).map(|i| format!("result{i}")).collect();
    let pairs: Vec<(&str, ValueId)> = names.iter().map(String::as_str).zip(outputs).collect();
    Ok((b.finish(&pairs).map_err(|e| e.to_string())?, inputs))
}

fn values(
    b: &mut Builder,
    tensors: &Tensors<'_>,
    name: &str,
    items: &[Value],
    input: &mut dyn FnMut(&mut Builder, String, Tensor) -> Result<ValueId, String>,
) -> Result<Arg, String> {
    let mut ids = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let tensor = tensors.read(item).ok_or("a list of something else than tensors")?;
        ids.push(input(b, format!("{name}_{i}"), tensor)?);
    }
    Ok(Arg::List(ids))
}

/// The promise: fp32 within 1e-5 of the value or 1e-6 in all, fp16 within two units of the last
/// place, integers and bools exact.
fn allowed(op: &str, dtype: DataType, wanted: f64) -> f64 {
    match dtype {
        // numpy rounds 1 + e^x to fp16 before the logarithm, which loses all of a small e^x.
        DataType::Fp16 if op == "softplus" => f64::max(1e-3, allowed("", dtype, wanted)),
        DataType::Fp16 => 2.0 * 2f64.powi(wanted.abs().log2().floor().clamp(-14.0, 15.0) as i32 - 10),
        DataType::Fp32 => (1e-5 * wanted.abs()).max(1e-6),
        _ => 0.0,
    }
}

fn compare(op: &str, found: &[Tensor], case: &Value, tensors: &Tensors<'_>) -> Result<(), String> {
    let wanted = case["outputs"].as_array().ok_or("outputs")?;
    if found.len() != wanted.len() {
        return Err(format!("{} results, not {}", found.len(), wanted.len()));
    }
    for (found, wanted) in found.iter().zip(wanted) {
        let Some(wanted) = tensors.read(wanted) else { continue };
        if (found.dtype, &found.shape) != (wanted.dtype, &wanted.shape) {
            return Err(format!("{} {:?}, not {} {:?}", found.dtype, found.shape, wanted.dtype, wanted.shape));
        }
        for (i, (&f, &w)) in found.values.iter().zip(&wanted.values).enumerate() {
            let same = f == w || (f.is_nan() && w.is_nan()) || (f - w).abs() <= allowed(op, wanted.dtype, w);
            if !same {
                return Err(format!("value {i} is {f}, not {w}"));
            }
        }
    }
    Ok(())
}

#[test]
fn ops_give_the_values_of_coremltools() {
    let Some(mut suite) = Suite::open("emulator-values", "mil/mil_value_inference") else { return };
    let folder = suite.folder().to_path_buf();
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
    let bytes = std::fs::read(folder.join("cases.safetensors")).unwrap();
    let tensors = Tensors(safetensors::SafeTensors::deserialize(&bytes).unwrap());
    for case in &cases {
        let op = case["op"].as_str().unwrap();
        for path in [Path::Plan, Path::Interpreter] {
            let way = if path == Path::Plan { "plan" } else { "interpreter" };
            let id = format!("{}:{op}:{way}", case["id"]);
            if let Support::Refused(reason) = support(op, opset(case)) {
                suite.skip(&id, reason);
                continue;
            }
            let built = match build(case, &tensors, op, path) {
                Err(_) if path == Path::Interpreter => build(case, &tensors, op, Path::Known),
                built => built,
            };
            let result = built.and_then(|(program, inputs)| {
                BOTH.into_iter().try_for_each(|numerics| {
                    let found = match path {
                        Path::Plan if has_extents(&program) => run(numerics, &program, &inputs),
                        _ => interpret(numerics, &program, &inputs),
                    };
                    let found = found.map_err(|e| e.to_string())?;
                    compare(op, &found, case, &tensors).map_err(|e| format!("{numerics:?}: {e}"))
                })
            });
            suite.case(&id, result);
        }
    }
    suite.finish();
}

/// Whether every result has a surface that can hold it: the extents of some depend on values.
fn has_extents(program: &Program) -> bool {
    let function = &program.functions[0];
    function.body().outputs.iter().all(|v| function.value(*v).ty.shape().is_some())
}

fn interpret(numerics: Numerics, program: &Program, inputs: &[Tensor]) -> ferrane_device::Result<Vec<Tensor>> {
    let function = &program.functions[0];
    let names = function.inputs.iter().map(|v| function.value(*v).name.as_str());
    let inputs: Vec<_> = names.zip(inputs.iter().map(constant)).collect();
    call(numerics, program, &inputs)
}
