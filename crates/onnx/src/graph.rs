//! Graphs of a model, decoded and checked: names are unique, nodes are in an order in which they
//! can be computed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use prost::bytes::Bytes;

use crate::element::ElementType;
use crate::error::Error;
use crate::external::ExternalData;
use crate::proto::{
    AttributeProto, GraphProto, NodeProto, OperatorSetIdProto, SparseTensorProto, TensorProto, TypeProto,
    ValueInfoProto, part,
};
use crate::tensor::Tensor;

/// Graphs nest no deeper.
const MAX_DEPTH: usize = 32;

/// The opset of each domain; `ai.onnx` is the empty domain.
pub(crate) type Opsets = BTreeMap<String, i64>;

/// An extent of an input or output, as the model states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// The model states its number.
    Fixed(usize),
    /// A name, which has one number in a program.
    Named(String),
    /// Neither a number nor a name is stated.
    Unknown,
}

impl std::fmt::Display for Dimension {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dimension::Fixed(n) => write!(f, "{n}"),
            Dimension::Named(name) => f.write_str(name),
            Dimension::Unknown => f.write_str("?"),
        }
    }
}

/// An input or an output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// The name in the model.
    pub name: String,
    /// The element type; `None` for a sequence, a map or an optional.
    pub element: Option<ElementType>,
    /// The extents, outermost first; `None` if the model does not state the rank.
    pub shape: Option<Vec<Dimension>>,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Float(f32),
    Int(i64),
    Text(String),
    Tensor(Tensor),
    Graph(Graph),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    /// The attribute of that name of the function that the node is in.
    Reference(String),
    /// A kind that no lowering reads.
    Other,
}

/// One application of an operator.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// How messages name it: its name, or its first output.
    pub label: String,
    pub op: String,
    /// Empty for `ai.onnx`.
    pub domain: String,
    pub overload: String,
    /// The version of the domain's operator set.
    pub opset: i64,
    pub attributes: Vec<(String, Arc<Attribute>)>,
    /// An optional input that is left out is the empty string.
    pub inputs: Vec<String>,
    /// An optional output that is left out is the empty string.
    pub outputs: Vec<String>,
}

impl Node {
    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, a)| &**a)
    }

    pub(crate) fn graphs(&self) -> impl Iterator<Item = &Graph> {
        self.attributes.iter().filter_map(|(_, a)| if let Attribute::Graph(g) = &**a { Some(g) } else { None })
    }

    /// The operator with its domain: `com.microsoft.Gelu`.
    pub(crate) fn operator(&self) -> String {
        if self.domain.is_empty() { self.op.clone() } else { format!("{}.{}", self.domain, self.op) }
    }
}

/// A graph of a model, of a control-flow node, or of a function after inlining.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub initializers: Vec<(String, Tensor)>,
    pub nodes: Vec<Node>,
}

/// What a decoder needs to know.
pub(crate) struct Decoder<'a> {
    pub external: &'a ExternalData,
    pub opsets: &'a Opsets,
}

/// `ai.onnx` is another spelling of the default domain.
pub(crate) fn domain(name: String) -> String {
    if name == "ai.onnx" { String::new() } else { name }
}

/// The opsets that a model or a function imports.
pub(crate) fn opsets(imports: &[Bytes]) -> Result<Opsets, Error> {
    let one = |bytes: &Bytes| {
        let import: OperatorSetIdProto = part(bytes).map_err(|e| Error::invalid("an opset import", e))?;
        Ok((domain(import.domain), import.version))
    };
    imports.iter().map(one).collect()
}

fn port(bytes: &Bytes) -> Result<Port, Error> {
    let info: ValueInfoProto = part(bytes).map_err(|e| Error::invalid("an input or output", e))?;
    let TypeProto { tensor_type, sequence_type, map_type, sparse_tensor_type, optional_type } =
        info.r#type.unwrap_or_default();
    let other = [sequence_type, map_type, sparse_tensor_type, optional_type].iter().any(Option::is_some);
    let Some(tensor) = tensor_type else {
        // A graph of a control-flow node need not state types.
        let element = None;
        return Ok(Port { name: info.name, element, shape: if other { None } else { Some(Vec::new()) } });
    };
    let dims = |shape: crate::proto::TensorShapeProto| {
        let one = |d: crate::proto::DimensionProto| match (d.dim_value, d.dim_param) {
            (Some(n), _) => usize::try_from(n).map_or(Dimension::Unknown, Dimension::Fixed),
            (None, Some(name)) if !name.is_empty() => Dimension::Named(name),
            _ => Dimension::Unknown,
        };
        shape.dim.into_iter().map(one).collect()
    };
    let element = Some(ElementType::from_number(tensor.elem_type));
    Ok(Port { name: info.name, element, shape: tensor.shape.map(dims) })
}

impl Decoder<'_> {
    pub(crate) fn graph(&self, bytes: &Bytes, depth: usize) -> Result<Graph, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::invalid("a graph", format!("graphs nest deeper than {MAX_DEPTH}")));
        }
        let message: GraphProto = part(bytes).map_err(|e| Error::invalid("a graph", e))?;
        let mut graph = Graph {
            inputs: message.input.iter().map(port).collect::<Result<_, _>>()?,
            outputs: message.output.iter().map(port).collect::<Result<_, _>>()?,
            ..Graph::default()
        };
        for bytes in &message.initializer {
            let tensor: TensorProto = part(bytes).map_err(|e| Error::invalid("an initializer", e))?;
            let name = tensor.name.clone();
            graph.initializers.push((name.clone(), Tensor::read(tensor, &name, self.external)?));
        }
        for bytes in &message.sparse_initializer {
            let tensor: SparseTensorProto = part(bytes).map_err(|e| Error::invalid("a sparse initializer", e))?;
            graph.initializers.push(Tensor::read_sparse(&tensor, self.external)?);
        }
        graph.nodes = self.nodes(&message.node, depth)?;
        graph.ordered()
    }

    pub(crate) fn nodes(&self, parts: &[Bytes], depth: usize) -> Result<Vec<Node>, Error> {
        parts.iter().map(|bytes| self.node(bytes, depth)).collect()
    }

    fn node(&self, bytes: &Bytes, depth: usize) -> Result<Node, Error> {
        let message: NodeProto = part(bytes).map_err(|e| Error::invalid("a node", e))?;
        let label = match (message.name.is_empty(), message.output.first()) {
            (true, Some(output)) => output.clone(),
            _ => message.name,
        };
        let mut attributes = Vec::with_capacity(message.attribute.len());
        for bytes in &message.attribute {
            let attribute: AttributeProto =
                part(bytes).map_err(|e| Error::invalid(format!("node `{label}`"), format!("an attribute: {e}")))?;
            let name = attribute.name.clone();
            attributes.push((name, Arc::new(self.attribute(attribute, &label, depth)?)));
        }
        let domain = domain(message.domain);
        let opset = self.opsets.get(&domain).copied().unwrap_or(1);
        Ok(Node {
            label,
            op: message.op_type,
            domain,
            overload: message.overload,
            opset,
            attributes,
            inputs: message.input,
            outputs: message.output,
        })
    }

    fn attribute(&self, a: AttributeProto, label: &str, depth: usize) -> Result<Attribute, Error> {
        let refuse =
            |reason: String| Error::invalid(format!("node `{label}`"), format!("attribute `{}`: {reason}", a.name));
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        if !a.ref_attr_name.is_empty() {
            return Ok(Attribute::Reference(a.ref_attr_name));
        }
        // Models older than IR version 2 do not state the kind.
        let kind = match a.r#type {
            0 if a.f.is_some() => 1,
            0 if a.i.is_some() => 2,
            0 if a.s.is_some() => 3,
            0 if a.t.is_some() => 4,
            0 if a.g.is_some() => 5,
            0 if !a.floats.is_empty() => 6,
            0 if !a.ints.is_empty() => 7,
            0 if !a.strings.is_empty() => 8,
            kind => kind,
        };
        Ok(match kind {
            1 => Attribute::Float(a.f.unwrap_or(0.0)),
            2 => Attribute::Int(a.i.unwrap_or(0)),
            3 => Attribute::Text(a.s.as_ref().map(text).unwrap_or_default()),
            4 => {
                let bytes = a.t.clone().ok_or_else(|| refuse("it has no tensor".into()))?;
                let message: TensorProto = part(&bytes).map_err(&refuse)?;
                Attribute::Tensor(Tensor::read(message, label, self.external)?)
            }
            5 => {
                let bytes = a.g.clone().ok_or_else(|| refuse("it has no graph".into()))?;
                Attribute::Graph(self.graph(&bytes, depth + 1)?)
            }
            6 => Attribute::Floats(a.floats),
            7 => Attribute::Ints(a.ints),
            8 => Attribute::Texts(a.strings.iter().map(text).collect()),
            _ => Attribute::Other,
        })
    }
}

impl Graph {
    /// The names that the graph uses and does not define.
    pub(crate) fn captures(&self) -> HashSet<&str> {
        let mut used: HashSet<&str> = self.outputs.iter().map(|p| p.name.as_str()).collect();
        for node in &self.nodes {
            used.extend(node.inputs.iter().map(String::as_str));
            node.graphs().for_each(|g| used.extend(g.captures()));
        }
        used.remove("");
        for name in self.inputs.iter().map(|p| p.name.as_str()).chain(self.initializers.iter().map(|(n, _)| n.as_str()))
        {
            used.remove(name);
        }
        self.nodes.iter().flat_map(|n| &n.outputs).for_each(|name| {
            used.remove(name.as_str());
        });
        used
    }

    /// The graph with its nodes in an order in which they can be computed; an order that is right
    /// already stays.
    pub(crate) fn ordered(mut self) -> Result<Graph, Error> {
        let inputs: HashSet<&str> = self.inputs.iter().map(|p| p.name.as_str()).collect();
        let fixed: HashSet<&str> = self.initializers.iter().map(|(n, _)| n.as_str()).collect();
        let mut made: HashMap<&str, usize> = HashMap::new();
        for (i, node) in self.nodes.iter().enumerate() {
            for name in node.outputs.iter().filter(|n| !n.is_empty()) {
                let twice = made.insert(name, i).is_some();
                if twice || fixed.contains(name.as_str()) || inputs.contains(name.as_str()) {
                    let subject = format!("node `{}`", node.label);
                    return Err(Error::invalid(subject, format!("the name `{name}` is defined twice")));
                }
            }
        }
        let uses = |node: &Node| -> HashSet<usize> {
            let inner = node.graphs().flat_map(Graph::captures);
            let names = node.inputs.iter().map(String::as_str).chain(inner);
            names.filter_map(|name| made.get(name).copied()).collect()
        };
        let needs: Vec<HashSet<usize>> = self.nodes.iter().map(uses).collect();
        if needs.iter().enumerate().all(|(i, n)| n.iter().all(|&j| j < i)) {
            return Ok(self);
        }
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut missing: Vec<usize> = needs.iter().map(HashSet::len).collect();
        for (i, n) in needs.iter().enumerate() {
            n.iter().for_each(|&j| readers[j].push(i));
        }
        let mut ready: VecDeque<usize> = (0..missing.len()).filter(|&i| missing[i] == 0).collect();
        let mut order = Vec::with_capacity(missing.len());
        while let Some(i) = ready.pop_front() {
            order.push(i);
            for &j in &readers[i] {
                missing[j] -= 1;
                if missing[j] == 0 {
                    ready.push_back(j);
                }
            }
        }
        if let Some(i) = missing.iter().position(|&n| n > 0) {
            let node = &self.nodes[i];
            return Err(Error::invalid(format!("node `{}`", node.label), "it depends on its own result"));
        }
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        self.nodes = order.into_iter().filter_map(|i| nodes[i].take()).collect();
        Ok(self)
    }
}
