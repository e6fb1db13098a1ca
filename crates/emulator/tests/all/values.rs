//! Every op against what coremltools' own value inference gave (host semantics, fp32).

use ferrane_emulator::Numerics;
use ferrane_mil::{Arg, Builder, Constant, DataType, Program, Type, ValueId, ops};
use ferrane_testdata::Suite;
use serde_json::Value;

use crate::harness::{BOTH, Tensor, close, run};

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

fn constant(tensor: &Tensor) -> Constant {
    Constant::raw(tensor.dtype, &tensor.shape, &tensor.to_bytes())
}

/// Program and inputs of a case. Arguments that may vary at run time become inputs.
fn build(case: &Value, tensors: &Tensors<'_>, op: &str) -> Result<(Program, Vec<Tensor>), String> {
    let opset =
        format!("ios{}", case["opset"].as_str().and_then(|o| o.parse::<u16>().ok()).map_or(18, |v| v + 9).max(15));
    let def =
        ops::find(op, ops::Opset::from_name(&opset).ok_or("opset")?).ok_or("the registry does not have this op")?;
    let mut b = Builder::new("main", &opset);
    let (mut args, mut inputs): (Vec<(String, Arg)>, Vec<Tensor>) = Default::default();
    let mut input = |b: &mut Builder, name: String, tensor: Tensor| -> Result<ValueId, String> {
        let id = b.input(&name, Type::tensor(tensor.dtype, &tensor.shape)).map_err(|e| e.to_string())?;
        inputs.push(tensor);
        Ok(id)
    };
    for (name, value) in case["inputs"].as_object().ok_or("inputs")? {
        // Index arguments that the emulator wants at compile time although MIL does not.
        let late = |p: &ops::Param| !p.constant && !matches!(p.name, "begin" | "end" | "size" | "shape");
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

/// A few units of the last place of fp32 for sums and functions; of fp16 where the case is fp16.
fn tolerance(numerics: Numerics, dtype: DataType) -> (f64, f64) {
    match (dtype, numerics) {
        // numpy rounds intermediate results to fp16 where we round once (softplus: MANIFEST): two units.
        (DataType::Fp16, _) => (1e-3, 2e-3),
        (DataType::Fp32, Numerics::Exact) => (1e-6, 2e-6),
        (DataType::Fp32, _) => (2e-6, 5e-6),
        _ => (1e-9, 0.0),
    }
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
        let id = format!("{}:{op}", case["id"]);
        let (program, inputs) = match build(case, &tensors, op) {
            Ok(built) => built,
            Err(reason) => {
                suite.skip(&id, &reason);
                continue;
            }
        };
        let mut result = Ok(());
        let mut unsupported = None;
        for numerics in BOTH {
            let found = match run(numerics, &program, &inputs) {
                Ok(found) => found,
                Err(e) if e.kind() == ferrane_device::ErrorKind::Unsupported => {
                    unsupported = Some(e.to_string());
                    break;
                }
                Err(e) => {
                    result = Err(e.to_string());
                    break;
                }
            };
            for (found, wanted) in found.iter().zip(case["outputs"].as_array().unwrap()) {
                let Some(wanted) = tensors.read(wanted) else { continue };
                let (absolute, relative) = tolerance(numerics, wanted.dtype);
                // The references are fp32 themselves: where large terms cancel (layer_norm with gamma and beta near 100) both
                // sides are off by some units of the terms, not of the result.
                let terms = wanted.values.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
                let cancelled = if wanted.dtype == DataType::Fp32 { 3e-7 * terms } else { 0.0 };
                let same = close(&found.values, &wanted.values, absolute + cancelled, relative);
                result = result.and(same.map_err(|e| format!("{numerics:?}: {e}")));
            }
        }
        match unsupported {
            Some(reason) => suite.skip(&id, &reason),
            None => suite.case(&id, result),
        }
    }
    suite.finish();
}
