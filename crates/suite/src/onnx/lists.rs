//! Cases whose ports are sequences or optionals, which no program has.
//!
//! Their graph is wrapped: an input is constructed from its elements, which become the inputs; the
//! elements of an output, and their number, become the outputs.

use ferrane_onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, bytes, part};
use ferrane_onnx::{ElementType, Tensor};
use prost::Message;
use prost::bytes::Bytes;

use super::case::port;

/// `SequenceProto` of `onnx-data.proto`, as far as the node tests use it.
#[derive(Clone, PartialEq, Message)]
struct SequenceProto {
    #[prost(bytes = "bytes", repeated, tag = "3")]
    tensors: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    sequences: Vec<Bytes>,
}

/// `OptionalProto` of `onnx-data.proto`.
#[derive(Clone, PartialEq, Message)]
struct OptionalProto {
    #[prost(bytes = "bytes", optional, tag = "3")]
    tensor: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    sequence: Option<Bytes>,
}

/// What a port holds.
enum PortValue {
    Tensor(Tensor),
    Sequence(Vec<Tensor>),
    Optional(Option<Box<PortValue>>),
}

fn sequence(file: &Bytes) -> Result<PortValue, String> {
    let message: SequenceProto = part(file)?;
    if !message.sequences.is_empty() {
        return Err("a sequence of sequences".into());
    }
    Ok(PortValue::Sequence(message.tensors.iter().map(|t| tensor(t)).collect::<Result<_, _>>()?))
}

fn tensor(file: &[u8]) -> Result<Tensor, String> {
    Tensor::from_bytes(file).map_err(|e| e.to_string())
}

impl PortValue {
    /// Reads the file of a port of this type.
    fn read(ty: &TypeProto, file: Bytes) -> Result<PortValue, String> {
        if ty.sequence_type.is_some() {
            return sequence(&file);
        }
        if ty.optional_type.is_none() {
            return tensor(&file).map(PortValue::Tensor);
        }
        let message: OptionalProto = part(&file)?;
        let value = match (&message.tensor, &message.sequence) {
            (Some(t), _) => Some(PortValue::Tensor(tensor(t)?)),
            (None, Some(s)) => Some(sequence(s)?),
            (None, None) => None,
        };
        Ok(PortValue::Optional(value.map(Box::new)))
    }
}

/// A model whose ports are tensors, with the values of these ports.
pub(super) struct Plain {
    pub model: Vec<u8>,
    pub inputs: Vec<(String, Tensor)>,
    pub outputs: Vec<(String, Tensor)>,
}

fn node(op: &str, inputs: &[String], output: &str) -> NodeProto {
    NodeProto { op_type: op.into(), input: inputs.to_vec(), output: vec![output.into()], ..NodeProto::default() }
}

impl Plain {
    /// The model with nodes for the ports that are no tensors. `file` returns the bytes of the file
    /// of a port: `input_0.pb`, `output_0.pb`.
    pub fn wrap(model: &[u8], file: impl Fn(&str) -> Result<Vec<u8>, String>) -> Result<Plain, String> {
        let mut model: ModelProto = part(&model.to_vec().into())?;
        let mut graph: GraphProto = part(model.graph.as_ref().ok_or("no graph")?)?;
        let mut wrapped = Plain { model: Vec::new(), inputs: Vec::new(), outputs: Vec::new() };
        for (kind, ports) in [("input", graph.input.clone()), ("output", graph.output.clone())] {
            for (i, message) in ports.iter().enumerate() {
                let found: ValueInfoProto = part(message)?;
                let ty = found.r#type.unwrap_or_default();
                let value = PortValue::read(&ty, file(&format!("{kind}_{i}.pb"))?.into())
                    .map_err(|e| format!("`{}`: {e}", found.name))?;
                match kind {
                    "input" => wrapped.input(&mut graph, &found.name, value),
                    _ => wrapped.output(&mut graph, &found.name, value),
                }
            }
        }
        let ports = |list: &[(String, Tensor)]| list.iter().map(|(name, t)| bytes(port(name, t))).collect();
        (graph.input, graph.output) = (ports(&wrapped.inputs), ports(&wrapped.outputs));
        model.graph = Some(bytes(graph));
        wrapped.model = bytes(model).to_vec();
        Ok(wrapped)
    }

    fn input(&mut self, graph: &mut GraphProto, name: &str, value: PortValue) {
        match value {
            PortValue::Tensor(tensor) => self.inputs.push((name.to_string(), tensor)),
            PortValue::Sequence(items) => {
                let names: Vec<String> = (0..items.len()).map(|i| format!("{name}.{i}")).collect();
                let op = if items.is_empty() { "SequenceEmpty" } else { "SequenceConstruct" };
                graph.node.push(bytes(node(op, &names, name)));
                self.inputs.extend(names.into_iter().zip(items));
            }
            PortValue::Optional(Some(value)) => self.input(graph, name, *value),
            PortValue::Optional(None) => graph.node.push(bytes(node("Optional", &[], name))),
        }
    }

    fn output(&mut self, graph: &mut GraphProto, name: &str, value: PortValue) {
        let mut push = |graph: &mut GraphProto, op: &str, inputs: &[String], output: String, value: Tensor| {
            graph.node.push(bytes(node(op, inputs, &output)));
            self.outputs.push((output, value));
        };
        match value {
            PortValue::Tensor(tensor) => self.outputs.push((name.to_string(), tensor)),
            PortValue::Sequence(items) => {
                let length = number(ElementType::Int64, items.len());
                push(graph, "SequenceLength", &[name.to_string()], format!("{name}.length"), length);
                for (i, item) in items.into_iter().enumerate() {
                    let at = format!("{name}.at.{i}");
                    push(graph, "SequenceAt", &[name.to_string(), at.clone()], format!("{name}.{i}"), item);
                    graph.node.push(bytes(constant(&at, i)));
                }
            }
            PortValue::Optional(value) => {
                let there = number(ElementType::Bool, usize::from(value.is_some()));
                push(graph, "OptionalHasElement", &[name.to_string()], format!("{name}.there"), there);
                if let Some(value) = value {
                    let element = format!("{name}.element");
                    graph.node.push(bytes(node("OptionalGetElement", &[name.to_string()], &element)));
                    self.output(graph, &element, *value);
                }
            }
        }
    }
}

/// A tensor of one number.
fn number(element: ElementType, value: usize) -> Tensor {
    Tensor::new(element, &[], vec![value as f64]).expect("a scalar has one element")
}

/// A node that gives a position.
fn constant(name: &str, value: usize) -> NodeProto {
    let value =
        AttributeProto { name: "value_int".into(), r#type: 2, i: Some(value as i64), ..AttributeProto::default() };
    NodeProto { attribute: vec![bytes(value)], ..node("Constant", &[], name) }
}
