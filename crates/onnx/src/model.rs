//! A model that was read.

use std::path::Path;

use ferrane_mil::Program;
use prost::Message as _;
use prost::bytes::Bytes;

use crate::error::{Error, Refusals};
use crate::external::{ExternalData, map};
use crate::graph::{Decoder, Graph, Opsets, Port, opsets};
use crate::inline;
use crate::options::Options;
use crate::proto::ModelProto;

/// Versions of the format that are known; version 3 is the first with a stable meaning.
const IR_VERSIONS: std::ops::RangeInclusive<i64> = 3..=13;
/// Versions of `ai.onnx` that are known; of those before 7, only operators that did not change.
const OPSETS: std::ops::RangeInclusive<i64> = 1..=27;

/// An ONNX model: decoded, checked, its functions inlined. Initializers share the memory of the
/// file, which is mapped, so the file must not change while the model lives.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) graph: Graph,
    pub(crate) inputs: Vec<Port>,
    ir_version: i64,
    opsets: Opsets,
    producer: String,
}

impl Model {
    /// Reads a model, and maps the files of external data that it names in its folder.
    ///
    /// # Errors
    /// [`Error::Io`] with the path for the model or a file of external data; [`Error::NotAModel`]
    /// if the bytes are something else; [`Error::Version`] for a format or opset that is not known;
    /// [`Error::Invalid`] for a model that contradicts itself: names that are defined twice or
    /// nowhere, nodes that depend on themselves, tensors with a wrong number of bytes, external
    /// data outside of the folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        Model::read(map(path)?, Some(folder))
    }

    /// Reads a model from its bytes. External data are looked up in `folder`; without one, a model
    /// with external data is an error.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes(bytes: &[u8], folder: Option<&Path>) -> Result<Model, Error> {
        Model::read(Bytes::copy_from_slice(bytes), folder)
    }

    fn read(bytes: Bytes, folder: Option<&Path>) -> Result<Model, Error> {
        let model = ModelProto::decode(bytes).map_err(|e| Error::NotAModel { reason: e.to_string() })?;
        let graph = model.graph.ok_or_else(|| Error::NotAModel { reason: "it has no graph".into() })?;
        if !IR_VERSIONS.contains(&model.ir_version) {
            return Err(version("the format version (ir_version)".into(), model.ir_version, &IR_VERSIONS));
        }
        let opsets = opsets(&model.opset_import)?;
        if let Some(&opset) = opsets.get("").filter(|opset| !OPSETS.contains(opset)) {
            return Err(version("opset".into(), opset, &OPSETS));
        }
        let external = ExternalData::new(folder);
        let functions = inline::functions(&model.functions, &external)?;
        let graph = Decoder { external: &external, opsets: &opsets }.graph(&graph, 0)?;
        let graph = inline::inline(graph, &functions)?;
        check_names(&graph)?;
        // Before IR version 4, every initializer is also listed as an input.
        let defaults: std::collections::HashSet<&str> = graph.initializers.iter().map(|(n, _)| n.as_str()).collect();
        let inputs = graph.inputs.iter().filter(|p| !defaults.contains(p.name.as_str())).cloned().collect();
        let producer = format!("{} {}", model.producer_name, model.producer_version).trim().to_string();
        Ok(Model { graph, inputs, ir_version: model.ir_version, opsets, producer })
    }

    /// The inputs, without those that have an initializer.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[Port] {
        &self.graph.outputs
    }

    /// The version of the format.
    pub fn ir_version(&self) -> i64 {
        self.ir_version
    }

    /// The version of each operator set that the model imports, by domain; `ai.onnx` is the empty
    /// domain.
    pub fn opsets(&self) -> impl Iterator<Item = (&str, i64)> {
        self.opsets.iter().map(|(domain, version)| (domain.as_str(), *version))
    }

    /// Name and version of the program that wrote the model; may be empty.
    pub fn producer(&self) -> &str {
        &self.producer
    }

    /// The model as a MIL program with the function `main`. Inputs and outputs keep their order;
    /// their names are those of the model where these are identifiers (see
    /// [`port_names`](crate::port_names)).
    ///
    /// Nodes that no output depends on are left out. What can be computed from constants and known
    /// extents is computed here, as far as it is small.
    ///
    /// # Errors
    /// All nodes that MIL cannot express and all extents that have no number, each with its reason.
    pub fn to_mil(&self, options: &Options) -> Result<Program, Refusals> {
        crate::lower::lower(self, options)
    }
}

fn version(what: String, found: i64, known: &std::ops::RangeInclusive<i64>) -> Error {
    Error::Version { what, found, known: format!("{} to {}", known.start(), known.end()) }
}

/// Checks that the names of inputs and initializers are unique, and that every name that is used
/// is defined.
fn check_names(graph: &Graph) -> Result<(), Error> {
    let mut inputs = std::collections::HashSet::new();
    let mut fixed = std::collections::HashSet::new();
    for port in &graph.inputs {
        if port.name.is_empty() || !inputs.insert(&port.name) {
            return Err(Error::invalid(format!("input `{}`", port.name), "the name is empty or defined twice"));
        }
    }
    for (name, _) in &graph.initializers {
        if !fixed.insert(name) {
            return Err(Error::invalid(format!("initializer `{name}`"), "the name is defined twice"));
        }
    }
    if graph.outputs.is_empty() {
        return Err(Error::invalid("the model", "it has no outputs"));
    }
    if let Some(name) = graph.captures().into_iter().min() {
        let reader = graph
            .nodes
            .iter()
            .find(|n| n.inputs.iter().any(|i| i == name) || n.graphs().any(|g| g.captures().contains(name)));
        let subject = reader.map_or_else(|| "the model".to_string(), |n| format!("node `{}`", n.label));
        return Err(Error::invalid(subject, format!("it reads `{name}`, which nothing defines")));
    }
    Ok(())
}
