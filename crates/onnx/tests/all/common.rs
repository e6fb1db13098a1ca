//! The models of `tests/models`, and small ones that are built here.

use std::path::{Path, PathBuf};

use ferrane_onnx::Model;
use ferrane_onnx::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto, bytes,
};

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

/// A node `op inputs -> outputs`, names separated by blanks.
pub fn node(op: &str, inputs: &str, outputs: &str) -> NodeProto {
    let names = |list: &str| list.split_whitespace().map(str::to_string).collect();
    NodeProto { op_type: op.to_string(), input: names(inputs), output: names(outputs), ..NodeProto::default() }
}

/// An fp32 port; a negative extent is `N`.
pub fn port(name: &str, shape: &[i64]) -> ValueInfoProto {
    let dim = |&n: &i64| match n {
        n if n < 0 => DimensionProto { dim_value: None, dim_param: Some("N".into()) },
        n => DimensionProto { dim_value: Some(n), dim_param: None },
    };
    let shape = Some(TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: 1, shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

/// A model of the opset 21.
pub fn model(
    nodes: Vec<NodeProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
    fixed: Vec<TensorProto>,
) -> ModelProto {
    let graph = GraphProto {
        node: nodes.into_iter().map(bytes).collect(),
        input: inputs.into_iter().map(bytes).collect(),
        output: outputs.into_iter().map(bytes).collect(),
        initializer: fixed.into_iter().map(bytes).collect(),
        ..GraphProto::default()
    };
    ModelProto {
        ir_version: 10,
        opset_import: vec![bytes(OperatorSetIdProto { domain: String::new(), version: 21 })],
        graph: Some(bytes(graph)),
        ..ModelProto::default()
    }
}

/// The model of a message.
pub fn read(model: ModelProto) -> Result<Model, ferrane_onnx::Error> {
    Model::from_bytes(&bytes(model), None)
}
