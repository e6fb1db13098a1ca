//! `net.plist`: what the compiler's older entrance reads (spec: coreml-containers.md 5).

use std::io::Cursor;

use plist::{Dictionary, Value};
use serde::Serialize;

use crate::error::{Error, Result};

/// Lists in lists that a property list may have; those of networks have six.
const DEPTH: usize = 64;

/// The description of networks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkFile {
    /// The format's version.
    pub version: Option<String>,
    /// The networks, in the order in which the file lists them.
    pub networks: Vec<NetworkDescription>,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkDescription {
    /// Its name.
    pub name: String,
    /// What it reads.
    pub inputs: Vec<NetworkPort>,
    /// What it writes.
    pub outputs: Vec<NetworkPort>,
    /// Its operations.
    pub units: Vec<NetworkUnit>,
    /// Files of weights, by the numbers that units use.
    pub weights: Vec<String>,
    /// Names that are listed and not described.
    pub missing: Vec<String>,
}

/// An input or an output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkPort {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: Option<String>,
    /// Batches, channels, height and width of an input; an output says none.
    pub nchw: [Option<u64>; 4],
    /// What an output is taken from.
    pub bottom: Vec<String>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkUnit {
    /// Its name.
    pub name: String,
    /// `Conv`, `GOC`, `Neuron`, …
    pub kind: String,
    /// What it reads.
    pub bottom: Vec<String>,
    /// Its element type.
    pub dtype: Option<String>,
    /// Channels that it makes.
    pub channels: Option<u64>,
    /// Its parameters, those that are no lists, as text.
    pub params: Vec<(String, String)>,
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_string).map(str::to_string)
}

/// A string, or the strings of a list.
fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(|v| text(Some(v))).collect(),
        other => text(other).into_iter().collect(),
    }
}

/// A value in a few words.
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

/// Takes a value apart, list by list: dropped as it is, one that is very deep would overflow the
/// stack.
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

/// True if no list is deeper than a network has them.
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

/// Reads a property list in XML. Binary ones are not taken: in them one list may stand in many
/// places, so a short file may be a very long list.
///
/// # Errors
/// E0731 for what is none, or lists no networks.
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
