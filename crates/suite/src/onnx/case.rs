//! Cases as the test data stores them: `cases.json` and `cases.safetensors`.

use std::path::Path;

use ferrane_mil::DataType;
use serde_json::{Map, Value};

/// An element type of ONNX, with the MIL type that replaces it.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// The name in ONNX: `INT64`.
    pub name: String,
}

impl Element {
    /// The MIL type that replaces it in a program, or `None` if there is none.
    pub fn mil(&self) -> Option<DataType> {
        Some(match self.name.as_str() {
            "FLOAT" | "DOUBLE" => DataType::Fp32,
            "FLOAT16" => DataType::Fp16,
            "BOOL" => DataType::Bool,
            _ if self.integer().is_some() => DataType::Int32,
            _ => return None,
        })
    }

    /// Width in bits of an integer type, and whether it is signed. `None` for other types.
    pub fn integer(&self) -> Option<(u32, bool)> {
        Some(match self.name.as_str() {
            "INT64" => (64, true),
            "UINT64" => (64, false),
            "INT32" => (32, true),
            "UINT32" => (32, false),
            "INT16" => (16, true),
            "UINT16" => (16, false),
            "INT8" => (8, true),
            "UINT8" => (8, false),
            "INT4" => (4, true),
            "UINT4" => (4, false),
            "INT2" => (2, true),
            "UINT2" => (2, false),
            _ => return None,
        })
    }

    /// The element type with this number in ONNX's `TensorProto.DataType`, as attributes state it.
    pub fn of_number(number: i64) -> Element {
        let name = match number {
            1 => "FLOAT",
            2 => "UINT8",
            3 => "INT8",
            4 => "UINT16",
            5 => "INT16",
            6 => "INT32",
            7 => "INT64",
            9 => "BOOL",
            10 => "FLOAT16",
            11 => "DOUBLE",
            12 => "UINT32",
            13 => "UINT64",
            16 => "BFLOAT16",
            21 => "UINT4",
            22 => "INT4",
            _ => "another type",
        };
        Element { name: name.to_string() }
    }
}

/// An input or an output of a case's graph.
#[derive(Clone, Debug)]
pub struct CaseTensor {
    /// The name by which nodes refer to it.
    pub name: String,
    /// The element type that ONNX states.
    pub element: Element,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Elements, row-major. Integers beyond 2⁵³ are rounded.
    pub values: Vec<f64>,
}

/// One application of an operator.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operator's name, such as `Add`.
    pub op: String,
    /// The operator's domain; empty for `ai.onnx`.
    pub domain: String,
    /// The attributes by name, as the JSON of the data has them.
    pub attributes: Map<String, Value>,
    /// Names of the inputs in order; an optional input that is left out is the empty string.
    pub inputs: Vec<String>,
    /// Names of the outputs in order; an optional output that is left out is the empty string.
    pub outputs: Vec<String>,
}

/// A graph with given inputs and expected outputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the test in the ONNX project.
    pub name: String,
    /// The version of the operator set that the graph imports.
    pub opset: i64,
    /// The nodes, in the order in which they are computed.
    pub nodes: Vec<Node>,
    /// The graph's inputs with their values.
    pub inputs: Vec<CaseTensor>,
    /// The graph's outputs with the values that the reference computed.
    pub outputs: Vec<CaseTensor>,
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
    Ok(cases.iter().map(|(name, case)| (name.clone(), one(name, case, &tensors))).collect())
}

fn one(name: &str, case: &Value, tensors: &safetensors::SafeTensors<'_>) -> Result<Case, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let strings = |value: &Value| -> Vec<String> {
        list(value).iter().map(|s| s.as_str().unwrap_or_default().to_string()).collect()
    };
    let tensor = |entry: &Value| -> Result<CaseTensor, String> {
        let text = |key: &str| entry[key].as_str().ok_or(format!("a tensor without {key}"));
        let view = tensors.tensor(text("key")?).map_err(|e| e.to_string())?;
        let element = Element { name: text("onnx_dtype")?.to_string() };
        let values = numbers(view.dtype(), view.data()).ok_or_else(|| format!("elements of {}", element.name))?;
        Ok(CaseTensor { name: text("name")?.to_string(), element, shape: view.shape().to_vec(), values })
    };
    let node = |node: &Value| Node {
        op: node["op"].as_str().unwrap_or_default().to_string(),
        domain: node["domain"].as_str().unwrap_or_default().to_string(),
        attributes: node["attributes"].as_object().cloned().unwrap_or_default(),
        inputs: strings(&node["inputs"]),
        outputs: strings(&node["outputs"]),
    };
    Ok(Case {
        name: name.to_string(),
        opset: list(&case["opset"]).first().and_then(|o| o[1].as_i64()).unwrap_or(0),
        nodes: list(&case["nodes"]).iter().map(node).collect(),
        inputs: list(&case["inputs"]).iter().map(tensor).collect::<Result<_, _>>()?,
        outputs: list(&case["outputs"]).iter().map(tensor).collect::<Result<_, _>>()?,
        spread: case["reference_evaluator"]["max_abs_diff"].as_f64().unwrap_or(0.0),
    })
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
