//! Shape rules against the shapes that coremltools' own value inference gave.

use ferrane_mil::{Arg, Builder, Constant, DataType, ops};
use ferrane_testdata::Suite;
use serde_json::Value;

fn dtype(name: &str) -> Option<DataType> {
    match name {
        "float32" => Some(DataType::Fp32),
        "float16" => Some(DataType::Fp16),
        "bool" => Some(DataType::Bool),
        other => DataType::from_name(other),
    }
}

struct Tensors {
    header: Value,
    data: Vec<u8>,
}

impl Tensors {
    fn read(path: &std::path::Path) -> Tensors {
        let bytes = std::fs::read(path).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        Tensors { header: serde_json::from_slice(&bytes[8..8 + n]).unwrap(), data: bytes[8 + n..].to_vec() }
    }

    fn constant(&self, value: &Value) -> Option<Constant> {
        let key = value["tensor"].as_str()?;
        let at = |i: usize| self.header[key]["data_offsets"][i].as_u64().map(|v| v as usize);
        let bytes = self.data.get(at(0)?..at(1)?)?;
        let shape: Vec<usize> = value["shape"].as_array()?.iter().map(|d| d.as_u64().unwrap() as usize).collect();
        Some(Constant::raw(dtype(value["dtype"].as_str()?)?, &shape, bytes))
    }
}

/// An input of a case: a tensor, a list of tensors, or a plain value.
fn argument(b: &mut Builder, tensors: &Tensors, name: &str, value: &Value) -> Option<Arg> {
    match value {
        Value::String(s) => Some(Constant::string(s).into()),
        Value::Bool(v) => Some(Constant::bool(*v).into()),
        Value::Number(n) if n.is_i64() => Some(Constant::int32(n.as_i64()? as i32).into()),
        Value::Number(n) => Some(Constant::fp32(n.as_f64()? as f32).into()),
        Value::Array(items) => {
            let ids = items.iter().map(|v| b.constant(name, tensors.constant(v)?).ok());
            Some(Arg::List(ids.collect::<Option<Vec<_>>>()?))
        }
        Value::Object(o) if o.contains_key("tensor") => Some(tensors.constant(value)?.into()),
        Value::Object(o) => argument(b, tensors, name, o.get("value")?),
        Value::Null => None,
    }
}

#[test]
fn result_types_are_those_of_coremltools() {
    let Some(mut suite) = Suite::open("mil-inference", "mil/mil_value_inference") else { return };
    let folder = suite.folder().to_path_buf();
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
    let tensors = Tensors::read(&folder.join("cases.safetensors"));
    for case in &cases {
        let op = case["op"].as_str().unwrap();
        let id = format!("{}:{op}", case["id"]);
        if ops::find(op, ops::Opset::IOS18).is_none() {
            suite.skip(&id, "the registry does not have this op");
            continue;
        }
        let mut b = Builder::new("main", "ios18");
        let mut args = Vec::new();
        let mut readable = true;
        for (name, value) in case["inputs"].as_object().unwrap() {
            if value.is_null() {
                continue;
            }
            match argument(&mut b, &tensors, name, value) {
                Some(arg) => args.push((name.as_str(), arg)),
                None => readable = false,
            }
        }
        if !readable {
            suite.skip(&id, "an input of a type that the registry does not take");
            continue;
        }
        let result = b.ops(op, "y", args).map_err(|e| e.to_string()).and_then(|ids| {
            let found: Vec<String> = ids.iter().map(|v| b.ty(*v).to_string()).collect();
            let expected: Option<Vec<String>> = case["outputs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|o| Some(tensors.constant(o)?.ty().to_string()))
                .collect();
            match expected {
                Some(e) if e == found => Ok(()),
                e => Err(format!("{found:?} instead of {e:?}")),
            }
        });
        suite.case(&id, result);
    }
    suite.finish();
}
