//! `coremldata.bin` of compiled models (spec: coreml-containers.md 4).
//!
//! The format is known from few samples; bytes between the parts named here are zero in all of
//! them.

use prost::Message;
use serde::Serialize;

use super::{u32_at, u64_at, zero};
use crate::error::{Error, Result};

/// Names of model kinds, by their field numbers in Core ML's message.
const KINDS: &[(u32, &str)] = &[
    (200, "pipeline classifier"),
    (201, "pipeline regressor"),
    (202, "pipeline"),
    (303, "neural network regressor"),
    (403, "neural network classifier"),
    (500, "neural network"),
    (502, "ML Program"),
];
/// Offset of the length of the first string.
const STRING: usize = 0x1c;
/// The number of zero bytes between the specification version and the length of the description.
const GAP: usize = 28;
/// The largest number of pairs and sections that are read.
const MOST: usize = 1 << 16;

/// The contents of `coremldata.bin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelHeader {
    /// The kind of model, as a field number of Core ML's message.
    pub kind: u32,
    /// The name of the kind, or `None` for an unknown one.
    pub kind_name: Option<&'static str>,
    /// The number after the kind; 5 in the sample.
    pub number: u32,
    /// The class of the model; `generic` in the sample.
    pub class: String,
    /// The version of Core ML's specification; 7 belongs to iOS 16.
    pub specification: u32,
    /// The names of its inputs, in the order of the file.
    pub inputs: Vec<String>,
    /// The names of its outputs, in the order of the file.
    pub outputs: Vec<String>,
    /// The model's metadata as key and value: author, license, version, description and
    /// user-defined entries.
    pub metadata: Vec<(String, String)>,
    /// The number of bytes after the description.
    pub trailing_bytes: usize,
}

#[derive(Clone, PartialEq, Message)]
struct Feature {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    description: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    author: String,
    #[prost(string, tag = "4")]
    license: String,
    #[prost(btree_map = "string, string", tag = "100")]
    others: std::collections::BTreeMap<String, String>,
}

/// The fields of Core ML's `ModelDescription` that are read here.
#[derive(Clone, PartialEq, Message)]
struct Description {
    #[prost(message, repeated, tag = "1")]
    inputs: Vec<Feature>,
    #[prost(message, repeated, tag = "10")]
    outputs: Vec<Feature>,
    #[prost(message, optional, tag = "100")]
    metadata: Option<Metadata>,
}

/// The string at `at`, which follows its length of eight bytes, and the offset after it.
fn string(file: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = usize::try_from(u64_at(file, at)?).ok()?;
    let end = at.checked_add(8)?.checked_add(length)?;
    Some((file.get(at + 8..end)?, end))
}

impl ModelHeader {
    /// True if the bytes begin like a `coremldata.bin`.
    pub fn is(head: &[u8]) -> bool {
        let kind = u32_at(head, 0).is_some_and(|k| KINDS.iter().any(|(n, _)| *n == k));
        kind && zero(head, 8..STRING) && string(head, STRING).is_some_and(|(s, _)| s.len() < 64 && s.is_ascii())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// E0731 if the file is truncated or its description is not a Core ML message.
    pub fn read(file: &[u8]) -> Result<ModelHeader> {
        let (Some(kind), Some(number)) = (u32_at(file, 0), u32_at(file, 4)) else {
            return Err(Error::bundle(0, format!("{} bytes are no `coremldata.bin`", file.len())));
        };
        let class = string(file, STRING);
        let (class, at) = class.ok_or_else(|| Error::bundle(STRING, "the first string reaches beyond the file"))?;
        let specification =
            u32_at(file, at).ok_or_else(|| Error::bundle(at, "the file ends before the specification's version"))?;
        let described = at.checked_add(4 + GAP).and_then(|at| string(file, at).map(|found| (at, found)));
        let Some((begin, (described, end))) = described else {
            return Err(Error::bundle(at, "the description reaches beyond the file"));
        };
        let description = Description::decode(described)
            .map_err(|e| Error::bundle(begin, format!("the description is no message of Core ML: {e}")))?;
        let names = |list: Vec<Feature>| list.into_iter().map(|f| f.name).collect();
        let m = description.metadata.unwrap_or_default();
        let own =
            [("description", m.description), ("version", m.version), ("author", m.author), ("license", m.license)];
        let own = own.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_string(), v));
        Ok(ModelHeader {
            kind,
            kind_name: KINDS.iter().find(|(n, _)| *n == kind).map(|(_, name)| *name),
            number,
            class: String::from_utf8_lossy(class).into_owned(),
            specification,
            inputs: names(description.inputs),
            outputs: names(description.outputs),
            metadata: own.chain(m.others).collect(),
            trailing_bytes: file.len() - end,
        })
    }
}

/// A name and the pairs that follow it.
pub type AnalyticsSection = (String, Vec<(String, String)>);

/// The contents of `analytics/coremldata.bin`: named lists of pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelAnalytics {
    /// The lists, in the order of the file.
    pub sections: Vec<AnalyticsSection>,
}

impl ModelAnalytics {
    /// True if the bytes begin with a length and that many letters.
    pub fn is(head: &[u8]) -> bool {
        let name = string(head, 0).map(|(name, _)| name);
        name.is_some_and(|n| (4..64).contains(&n.len()) && n.iter().all(u8::is_ascii_alphanumeric))
            && ModelAnalytics::read(head).is_ok()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// E0731 if a string or a list reaches beyond the file.
    pub fn read(file: &[u8]) -> Result<ModelAnalytics> {
        let (mut sections, mut at, mut seen) = (Vec::new(), 0, 0);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let cut = |at: usize| Error::bundle(at, "a string reaches beyond the file");
        while at < file.len() {
            let (name, next) = string(file, at).ok_or_else(|| cut(at))?;
            let count = u64_at(file, next).ok_or_else(|| cut(next))?;
            at = next + 8;
            let mut pairs = Vec::new();
            for _ in 0..count {
                seen += 1;
                if seen > MOST {
                    return Err(Error::bundle(at, format!("more than {MOST} pairs")));
                }
                let (key, next) = string(file, at).ok_or_else(|| cut(at))?;
                let (value, end) = string(file, next).ok_or_else(|| cut(next))?;
                pairs.push((text(key), text(value)));
                at = end;
            }
            sections.push((text(name), pairs));
        }
        Ok(ModelAnalytics { sections })
    }
}
