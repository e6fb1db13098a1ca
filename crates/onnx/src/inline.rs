//! Model-local functions, replaced by their nodes.

use std::collections::HashMap;
use std::sync::Arc;

use prost::bytes::Bytes;

use crate::error::Error;
use crate::external::ExternalData;
use crate::graph::{self, Attribute, Decoder, Graph, Node};
use crate::proto::{FunctionProto, NodeProto, part};

/// Calls of functions nest no deeper.
const MAX_DEPTH: usize = 32;
/// The most nodes of a model after inlining, and the most bytes of their names.
const MAX_NODES: usize = 1 << 20;
const MAX_NAMES: usize = 1 << 28;

/// A function of a model.
pub(crate) struct LocalFunction {
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// The defaults of its attributes.
    defaults: Vec<(String, Arc<Attribute>)>,
    nodes: Vec<Node>,
}

/// Functions by domain, name and overload.
pub(crate) type Functions = HashMap<(String, String, String), LocalFunction>;

/// Decodes the functions of a model.
pub(crate) fn functions(parts: &[Bytes], external: &ExternalData) -> Result<Functions, Error> {
    let mut found = Functions::new();
    for bytes in parts {
        let message: FunctionProto = part(bytes).map_err(|e| Error::invalid("a function", e))?;
        let opsets = graph::opsets(&message.opset_import)?;
        let decoder = Decoder { external, opsets: &opsets };
        // The defaults are those of a node without inputs.
        let holder =
            NodeProto { name: message.name.clone(), attribute: message.attribute_proto, ..NodeProto::default() };
        let holder = decoder.nodes(&[crate::proto::bytes(holder)], 0)?.pop();
        let nodes = Graph { nodes: decoder.nodes(&message.node, 0)?, ..Graph::default() }.ordered()?.nodes;
        let (inputs, outputs) = (message.input, message.output);
        let function =
            LocalFunction { inputs, outputs, defaults: holder.map(|n| n.attributes).unwrap_or_default(), nodes };
        let key = (graph::domain(message.domain), message.name.clone(), message.overload);
        if found.insert(key, function).is_some() {
            return Err(Error::invalid(format!("function `{}`", message.name), "it is defined twice"));
        }
    }
    Ok(found)
}

/// The graph without calls of functions.
pub(crate) fn inline(graph: Graph, functions: &Functions) -> Result<Graph, Error> {
    if functions.is_empty() {
        return Ok(graph);
    }
    let mut inliner = Inliner { functions, calls: 0, nodes: 0, names: 0 };
    inliner.graph(graph, 0)
}

struct Inliner<'a> {
    functions: &'a Functions,
    calls: usize,
    nodes: usize,
    names: usize,
}

/// What the names and attributes of a function's nodes stand for in one call.
struct Expansion<'a> {
    /// Number of the call; local names are prefixed by it.
    number: usize,
    label: &'a str,
    names: HashMap<&'a str, &'a str>,
    attributes: &'a [(String, Arc<Attribute>)],
    defaults: &'a [(String, Arc<Attribute>)],
}

impl Expansion<'_> {
    fn name(&self, name: &str) -> String {
        match self.names.get(name) {
            Some(actual) => (*actual).to_string(),
            None if name.is_empty() => String::new(),
            None => format!("{}/{name}", self.number),
        }
    }

    fn attribute(&self, name: &str) -> Option<Arc<Attribute>> {
        let find = |list: &[(String, Arc<Attribute>)]| list.iter().find(|(n, _)| n == name).map(|(_, a)| a.clone());
        find(self.attributes).or_else(|| find(self.defaults))
    }

    fn node(&self, node: &Node) -> Node {
        let attributes = node.attributes.iter().filter_map(|(name, attribute)| {
            let attribute = match &**attribute {
                Attribute::Reference(other) => self.attribute(other)?,
                Attribute::Graph(graph) => Arc::new(Attribute::Graph(self.graph(graph))),
                _ => attribute.clone(),
            };
            Some((name.clone(), attribute))
        });
        let label: String = format!("{}/{}", self.label, node.label).chars().take(200).collect();
        Node {
            label,
            op: node.op.clone(),
            domain: node.domain.clone(),
            overload: node.overload.clone(),
            opset: node.opset,
            attributes: attributes.collect(),
            inputs: node.inputs.iter().map(|n| self.name(n)).collect(),
            outputs: node.outputs.iter().map(|n| self.name(n)).collect(),
        }
    }

    fn graph(&self, graph: &Graph) -> Graph {
        let mut copy = graph.clone();
        copy.inputs.iter_mut().chain(&mut copy.outputs).for_each(|p| p.name = self.name(&p.name));
        copy.initializers.iter_mut().for_each(|(n, _)| *n = self.name(n));
        copy.nodes = graph.nodes.iter().map(|n| self.node(n)).collect();
        copy
    }
}

impl Inliner<'_> {
    fn graph(&mut self, graph: Graph, depth: usize) -> Result<Graph, Error> {
        let mut nodes = Vec::with_capacity(graph.nodes.len());
        for node in graph.nodes {
            self.node(node, depth, &mut nodes)?;
        }
        Ok(Graph { nodes, ..graph })
    }

    fn node(&mut self, mut node: Node, depth: usize, into: &mut Vec<Node>) -> Result<(), Error> {
        self.nodes += 1;
        self.names += node.inputs.iter().chain(&node.outputs).map(String::len).sum::<usize>();
        if self.nodes > MAX_NODES || self.names > MAX_NAMES {
            return Err(Error::invalid("the model", "its functions expand to too many nodes"));
        }
        let key = (node.domain.clone(), node.op.clone(), node.overload.clone());
        let Some(function) = self.functions.get(&key) else {
            for (_, attribute) in &mut node.attributes {
                if let Attribute::Graph(graph) = &**attribute {
                    *attribute = Arc::new(Attribute::Graph(self.graph(graph.clone(), depth)?));
                }
            }
            into.push(node);
            return Ok(());
        };
        if depth >= MAX_DEPTH {
            let reason = format!("calls of functions nest deeper than {MAX_DEPTH}, or a function calls itself");
            return Err(Error::invalid(format!("node `{}`", node.label), reason));
        }
        self.calls += 1;
        let mut names: HashMap<&str, &str> = HashMap::new();
        for (i, formal) in function.inputs.iter().enumerate() {
            names.insert(formal, node.inputs.get(i).map_or("", String::as_str));
        }
        // An output that is an input, or that occurs twice, is a copy of its own.
        let mut copies = Vec::new();
        for (formal, actual) in function.outputs.iter().zip(&node.outputs).filter(|(_, a)| !a.is_empty()) {
            if names.contains_key(formal.as_str()) {
                copies.push((formal, actual));
            } else {
                names.insert(formal, actual);
            }
        }
        let call = Expansion {
            number: self.calls,
            label: &node.label,
            names,
            attributes: &node.attributes,
            defaults: &function.defaults,
        };
        for inner in &function.nodes {
            self.node(call.node(inner), depth + 1, into)?;
        }
        for (formal, actual) in copies {
            into.push(Node {
                label: node.label.clone(),
                op: "Identity".into(),
                domain: String::new(),
                overload: String::new(),
                opset: 1,
                attributes: Vec::new(),
                inputs: vec![call.name(formal)],
                outputs: vec![actual.clone()],
            });
        }
        Ok(())
    }
}
