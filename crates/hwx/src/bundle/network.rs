//! `net.plist`: the network description that the compiler's older interface reads (spec:
//! coreml-containers.md 5).

use std::io::Cursor;

use plist::{Dictionary, Value};
use serde::Serialize;

use crate::error::{Error, Result};

/// The largest nesting depth of a property list; those of networks have six levels.
const DEPTH: usize = 64;

/// The contents of `net.plist`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkFile {
    /// The format version, if the file has one.
    pub version: Option<String>,
    /// The networks, in the order of the file's list.
    pub networks: Vec<NetworkDescription>,
}

/// A network with its operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkDescription {
    /// The key under which the file describes it.
    pub name: String,
    /// The inputs, in the order of the file.
    pub inputs: Vec<NetworkPort>,
    /// The outputs, in the order of the file.
    pub outputs: Vec<NetworkPort>,
    /// The operations, in the order of the file.
    pub units: Vec<NetworkUnit>,
    /// Paths of weight files; units refer to them by index.
    pub weights: Vec<String>,
    /// Names that the network lists but the file does not describe.
    pub missing: Vec<String>,
}

/// An input or output of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkPort {
    /// The name that units refer to.
    pub name: String,
    /// The element type as the file spells it, if it has one.
    pub dtype: Option<String>,
    /// Batches, channels, height and width of an input; `None` for outputs.
    pub nchw: [Option<u64>; 4],
    /// The values that an output is taken from; empty for inputs.
    pub bottom: Vec<String>,
}

/// An operation of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkUnit {
    /// The name that other units refer to.
    pub name: String,
    /// `Conv`, `GOC`, `Neuron`, …
    pub kind: String,
    /// The values that it reads.
    pub bottom: Vec<String>,
    /// The element type of its result as the file spells it, if it has one.
    pub dtype: Option<String>,
    /// The number of output channels, if the file gives it.
    pub channels: Option<u64>,
    /// Its scalar parameters as text: name and value.
    pub params: Vec<(String, String)>,
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_string).map(str::to_string)
}

/// The string, or the strings of a list.
fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(|v| text(Some(v))).collect(),
        other => text(other).into_iter().collect(),
    }
}

/// A scalar value as text.
fn short(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Boolean(b) => Some(b.to_string()),
        Value::Integer(n) => Some(n.to_string()),
        Value::Real(r) => Some(r.to_string()),
        Value::Array(list) => {
            let list: Option<Vec<String>> =
                list.iter().map(|v| if matches!(v, Value::Array(_)) { None } else { short(v) }).collect();
            Some(format!("[{}]", list?.join(", ")))
        }
        _ => None,
    }
}

/// Drops a value list by list: the derived drop of a deeply nested one would overflow the stack.
fn dismantle(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(list) => open.extend(list),
            Value::Dictionary(all) => open.extend(all.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// True if no list is nested deeper than [`DEPTH`].
fn is_flat(value: &Value) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > DEPTH {
            return false;
        }
        match value {
            Value::Array(list) => open.extend(list.iter().map(|v| (v, depth + 1))),
            Value::Dictionary(all) => open.extend(all.values().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    true
}

/// Reads an XML property list. Binary ones are refused: they can share a list between many places,
/// so a short file may expand to a very long list.
///
/// # Errors
/// E0731 if the file is not an XML property list, or lists no networks.
pub fn read(file: &[u8]) -> Result<NetworkFile> {
    if file.starts_with(b"bplist") {
        return Err(Error::bundle(0, "a binary property list; `plutil -convert xml1` makes it XML, which is read"));
    }
    let all = Value::from_reader_xml(Cursor::new(file));
    let all = all.map_err(|e| Error::bundle(0, format!("no property list: {e}")))?;
    let read = if is_flat(&all) {
        networks(&all)
    } else {
        Err(Error::bundle(0, format!("lists in lists, more than {DEPTH} deep")))
    };
    dismantle(all);
    read
}

fn networks(all: &Value) -> Result<NetworkFile> {
    let Some(all) = all.as_dictionary() else { return Err(Error::bundle(0, "the property list is no dictionary")) };
    let names = texts(all.get("Networks"));
    if names.is_empty() {
        return Err(Error::bundle(0, "the property list has no `Networks`: it describes none"));
    }
    let networks = names.into_iter().filter_map(|name| Some(network(all.get(&name)?.as_dictionary()?, name)));
    Ok(NetworkFile { version: text(all.get("Version")), networks: networks.collect() })
}

fn network(all: &Dictionary, name: String) -> NetworkDescription {
    let mut missing = Vec::new();
    let mut find = |list: &str| {
        let mut found = Vec::new();
        for name in texts(all.get(list)) {
            match all.get(&name).and_then(Value::as_dictionary) {
                Some(entry) => found.push((name, entry)),
                None => missing.push(name),
            }
        }
        found
    };
    let number = |entry: &Dictionary, key: &str| entry.get(key).and_then(Value::as_unsigned_integer);
    let port = |(name, entry): (String, &Dictionary), way: &str| NetworkPort {
        name,
        dtype: text(entry.get(&format!("{way}Type"))),
        nchw: ["BatchSize", "InputChannels", "InputHeight", "InputWidth"].map(|key| number(entry, key)),
        bottom: texts(entry.get("Bottom")),
    };
    let inputs = find("Inputs").into_iter().map(|e| port(e, "Input")).collect();
    let outputs = find("Outputs").into_iter().map(|e| port(e, "Output")).collect();
    let unit = |(name, entry): (String, &Dictionary)| {
        let params = entry.get("Params").and_then(Value::as_dictionary).into_iter().flatten();
        NetworkUnit {
            name,
            kind: text(entry.get("Type")).unwrap_or_default(),
            bottom: texts(entry.get("Bottom")),
            dtype: text(entry.get("OutputType")),
            channels: number(entry, "OutputChannels"),
            params: params.filter_map(|(key, value)| Some((key.clone(), short(value)?))).collect(),
        }
    };
    let units = find("Units").into_iter().map(unit).collect();
    NetworkDescription { name, inputs, outputs, units, weights: texts(all.get("Weights")), missing }
}
