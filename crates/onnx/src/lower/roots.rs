//! Which inputs of a model a name depends on.
//!
//! Every refusal of a value that is not known asks for them, and a hostile file chooses how many
//! refusals and names there are. So what a node reads is listed once, and all searches together
//! follow a bounded number of names.

use std::collections::{HashMap, HashSet};

use crate::graph::{Graph, Node};
use crate::model::Model;

/// Names that all searches follow.
const MOST: usize = 1 << 20;

/// The searches of a conversion.
pub(super) struct Roots<'a> {
    nodes: &'a [Node],
    /// The position of the node that computes a name; `None` for an input of the model.
    makers: HashMap<&'a str, Option<usize>>,
    /// What each node reads, also in its subgraphs; absent until a search meets the node.
    reads: Vec<Option<Vec<&'a str>>>,
    left: usize,
}

/// What a node reads that its result depends on. Extents are known and do not count.
fn reads(node: &Node) -> Vec<&str> {
    if matches!(node.op.as_str(), "Shape" | "Size") {
        return Vec::new();
    }
    let inputs = node.inputs.iter().map(String::as_str);
    inputs.chain(node.graphs().flat_map(Graph::captures)).collect()
}

impl<'a> Roots<'a> {
    pub(super) fn new(model: &'a Model) -> Roots<'a> {
        let nodes = model.graph.nodes.as_slice();
        let made = nodes.iter().enumerate().flat_map(|(i, n)| n.outputs.iter().map(move |o| (o.as_str(), Some(i))));
        let makers = made.chain(model.inputs.iter().map(|p| (p.name.as_str(), None))).collect();
        Roots { nodes, makers, reads: vec![None; nodes.len()], left: MOST }
    }

    /// The inputs that `name` depends on, sorted, as far as names may still be followed.
    pub(super) fn of(&mut self, name: &'a str) -> Vec<String> {
        let (mut open, mut seen, mut found) = (vec![name], HashSet::new(), Vec::new());
        while let (Some(name), Some(left)) = (open.pop(), self.left.checked_sub(1)) {
            self.left = left;
            if !seen.insert(name) {
                continue;
            }
            match self.makers.get(name) {
                Some(None) => found.push(name.to_string()),
                Some(&Some(at)) => {
                    let node: &'a Node = &self.nodes[at];
                    open.extend(self.reads[at].get_or_insert_with(|| reads(node)).iter());
                }
                None => {}
            }
        }
        found.sort_unstable();
        found
    }
}
