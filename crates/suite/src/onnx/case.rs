//! Cases as the test data stores them: `cases.json` and `cases.safetensors`.

use std::path::Path;

use ferrane_onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, bytes,
};
use ferrane_onnx::{ElementType, Tensor};
use serde_json::{Map, Value};

/// A model with given inputs and expected outputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The model, as the bytes of a `.onnx` file.
    pub model: Vec<u8>,
    /// The graph's inputs by name, with their values.
    pub inputs: Vec<(String, Tensor)>,
    /// The graph's outputs in order, with the values that the reference computed.
    pub outputs: Vec<(String, Tensor)>,
    /// The error of ONNX's own evaluator against those values. It is not zero where the values were
    /// written by hand with few digits.
    pub spread: f64,
}

/// The name of a case, and the case or the reason why it cannot be read.
pub type Read = (String, Result<Case, String>);

/// Reads every case of a folder.
///
/// # Errors
/// The files are missing or malformed.
pub fn read(folder: &Path) -> Result<Vec<Read>, String> {
    let file = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let cases: Map<String, Value> = serde_json::from_slice(&file("cases.json")?).map_err(|e| e.to_string())?;
    let bytes = file("cases.safetensors")?;
    let tensors = safetensors::SafeTensors::deserialize(&bytes).map_err(|e| e.to_string())?;
    Ok(cases.iter().map(|(name, case)| (name.clone(), one(case, &tensors))).collect())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn one(case: &Value, tensors: &safetensors::SafeTensors<'_>) -> Result<Case, String> {
    let tensor = |entry: &Value| -> Result<(String, Tensor), String> {
        let text = |key: &str| entry[key].as_str().ok_or(format!("a tensor without {key}"));
        let view = tensors.tensor(text("key")?).map_err(|e| e.to_string())?;
        let element = ElementType::from_name(text("onnx_dtype")?).ok_or("an unknown element type")?;
        let values = numbers(view.dtype(), view.data()).ok_or_else(|| format!("elements of {element}"))?;
        let tensor = Tensor::new(element, view.shape(), values).map_err(|e| e.to_string())?;
        Ok((text("name")?.to_string(), tensor))
    };
    let inputs: Vec<_> = list(&case["inputs"]).iter().map(tensor).collect::<Result<_, _>>()?;
    let outputs: Vec<_> = list(&case["outputs"]).iter().map(tensor).collect::<Result<_, _>>()?;
    let graph = GraphProto {
        node: list(&case["nodes"]).iter().map(|n| bytes(node(n))).collect(),
        input: inputs.iter().map(|(name, t)| bytes(port(name, t))).collect(),
        output: outputs.iter().map(|(name, t)| bytes(port(name, t))).collect(),
        ..GraphProto::default()
    };
    let imports = list(&case["opset"]).iter().map(|o| {
        let domain = o[0].as_str().unwrap_or_default().to_string();
        bytes(OperatorSetIdProto { domain, version: o[1].as_i64().unwrap_or(0) })
    });
    let model = ModelProto {
        ir_version: 10,
        opset_import: imports.collect(),
        graph: Some(bytes(graph)),
        ..ModelProto::default()
    };
    let spread = case["reference_evaluator"]["max_abs_diff"].as_f64().unwrap_or(0.0);
    Ok(Case { model: bytes(model).to_vec(), inputs, outputs, spread })
}

pub(super) fn port(name: &str, t: &Tensor) -> ValueInfoProto {
    let dim = |&n: &usize| DimensionProto { dim_value: Some(n as i64), dim_param: None };
    let shape = Some(TensorShapeProto { dim: t.shape().iter().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: t.element().number(), shape });
    ValueInfoProto { name: name.to_string(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

fn node(node: &Value) -> NodeProto {
    let strings = |value: &Value| -> Vec<String> {
        list(value).iter().map(|s| s.as_str().unwrap_or_default().to_string()).collect()
    };
    let text = |key: &str| node[key].as_str().unwrap_or_default().to_string();
    let attributes = node["attributes"].as_object().cloned().unwrap_or_default();
    NodeProto {
        op_type: text("op"),
        domain: text("domain"),
        attribute: attributes.iter().map(|(name, value)| bytes(attribute(name, value))).collect(),
        input: strings(&node["inputs"]),
        output: strings(&node["outputs"]),
        ..NodeProto::default()
    }
}

/// An attribute: a number, a string, a list of either, or `{"dtype": …, "tensor": nested lists}`.
fn attribute(name: &str, value: &Value) -> AttributeProto {
    let mut a = AttributeProto { name: name.to_string(), ..AttributeProto::default() };
    match value {
        Value::String(s) => (a.r#type, a.s) = (3, Some(s.clone().into_bytes().into())),
        Value::Number(n) if n.is_i64() => (a.r#type, a.i) = (2, n.as_i64()),
        Value::Number(n) => (a.r#type, a.f) = (1, n.as_f64().map(|v| v as f32)),
        Value::Array(items) if items.iter().all(Value::is_i64) => {
            (a.r#type, a.ints) = (7, items.iter().filter_map(Value::as_i64).collect());
        }
        Value::Array(items) if items.iter().all(Value::is_number) => {
            (a.r#type, a.floats) = (6, items.iter().filter_map(Value::as_f64).map(|v| v as f32).collect());
        }
        Value::Array(items) => {
            let texts = items.iter().map(|s| s.as_str().unwrap_or_default().to_string().into_bytes().into());
            (a.r#type, a.strings) = (8, texts.collect());
        }
        Value::Object(_) => (a.r#type, a.t) = (4, Some(bytes(tensor(value)))),
        Value::Null | Value::Bool(_) => {}
    }
    a
}

fn tensor(value: &Value) -> TensorProto {
    let mut t = TensorProto::default();
    let mut level = &value["tensor"];
    while let Some(items) = level.as_array() {
        t.dims.push(items.len() as i64);
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    let mut values = Vec::new();
    let mut open = vec![&value["tensor"]];
    while let Some(next) = open.pop() {
        match next.as_array() {
            Some(items) => open.extend(items.iter().rev()),
            None => values.push(next.as_f64().unwrap_or(f64::from(u8::from(next.as_bool() == Some(true))))),
        }
    }
    // numpy's names; elements in the typed field of each.
    let dtype = value["dtype"].as_str().unwrap_or_default();
    let element = match dtype {
        "float32" => ElementType::Float,
        "float64" => ElementType::Double,
        "bool" => ElementType::Bool,
        other => ElementType::from_name(&other.to_uppercase()).unwrap_or(ElementType::Float),
    };
    t.data_type = element.number();
    match element {
        ElementType::Float => t.float_data = values.iter().map(|&v| v as f32).collect(),
        ElementType::Double => t.double_data = values,
        ElementType::Int64 => t.int64_data = values.iter().map(|&v| v as i64).collect(),
        ElementType::UInt32 | ElementType::UInt64 => t.uint64_data = values.iter().map(|&v| v as u64).collect(),
        ElementType::Float16 => {
            let bits = |v: f64| i32::from(ferrane_host::f16::from_f64(v).to_bits());
            t.int32_data = values.iter().map(|&v| bits(v)).collect();
        }
        _ => t.int32_data = values.iter().map(|&v| v as i32).collect(),
    }
    t
}

fn numbers(dtype: safetensors::Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    use safetensors::Dtype::*;
    macro_rules! each {
        ($t:ty) => {
            bytes.chunks_exact(size_of::<$t>()).map(|b| <$t>::from_le_bytes(b.try_into().unwrap_or_default()) as f64)
        };
    }
    Some(match dtype {
        BOOL | U8 => bytes.iter().map(|&b| f64::from(b)).collect(),
        I8 => each!(i8).collect(),
        I16 => each!(i16).collect(),
        U16 => each!(u16).collect(),
        I32 => each!(i32).collect(),
        U32 => each!(u32).collect(),
        I64 => each!(i64).collect(),
        U64 => each!(u64).collect(),
        F32 => each!(f32).collect(),
        F64 => each!(f64).collect(),
        F16 => bytes.chunks_exact(2).map(|b| ferrane_host::f16::from_le_bytes([b[0], b[1]]).to_f64()).collect(),
        _ => return None,
    })
}
