//! What a file holds, for a reader who knows nothing of its format: facts to print, and everything
//! as data.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::{FileKind, coreml, e5, espresso, flat, network};
use crate::anec::Anec;
use crate::container::Hwx;
use crate::describe;
use crate::error::Result;

/// Items of a list that are printed; the data has all.
const SHOWN: usize = 20;

/// A fact about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// One sentence, printed as a line.
    Line(String),
    /// A title, and what belongs below it.
    List(String, Vec<String>),
}

/// What a file holds.
///
/// Prints the facts, one per line and at most 20 of each list, and serializes as the content.
///
/// ```
/// use ferrane_hwx::bundle::{FileKind, FileSummary};
///
/// let net = br#"{"storage": "model.espresso.weights", "layers": [{"type": "convolution"}]}"#;
/// let summary = FileSummary::read(FileKind::EspressoNet, net)?;
/// assert_eq!(summary.to_string(), "  weights in model.espresso.weights\n  layers:\n    1 convolution\n");
/// # Ok::<(), ferrane_hwx::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSummary {
    /// What can be said in a line, in the order of importance.
    pub facts: Vec<Fact>,
    /// Everything that was read, as an object.
    pub content: Value,
}

impl FileSummary {
    /// A summary without facts of this content.
    pub fn new(content: impl Serialize) -> FileSummary {
        // What the readers return serializes: strings, numbers, lists, and maps with text keys.
        FileSummary { facts: Vec::new(), content: serde_json::to_value(content).unwrap_or_default() }
    }

    /// Reads a file of a recognized kind.
    ///
    /// The records of [`FileKind::Blob`] belong to the weights of MIL programs, which this crate
    /// does not read: their summary is empty.
    ///
    /// # Errors
    /// Those of the kind's reader, for a file that is damaged.
    pub fn read(kind: FileKind, file: &[u8]) -> Result<FileSummary> {
        match kind {
            FileKind::Hwx => hwx(file),
            FileKind::Anec => anec(file),
            FileKind::E5 => e5(file),
            FileKind::CoremlData => coreml_data(file),
            FileKind::Analytics => analytics(file),
            FileKind::Network => network(file),
            FileKind::EspressoNet => espresso_net(file),
            FileKind::EspressoPacked => espresso_packed(file),
            FileKind::EspressoWeights => espresso_weights(file),
            FileKind::Blob => Ok(FileSummary::new(json!({}))),
        }
    }

    /// Adds a sentence as the last fact.
    pub fn line(&mut self, text: impl Into<String>) {
        self.facts.push(Fact::Line(text.into()));
    }

    /// Adds a list, unless it is empty.
    pub fn list(&mut self, title: impl Into<String>, items: impl IntoIterator<Item = String>) {
        let items: Vec<String> = items.into_iter().collect();
        if !items.is_empty() {
            self.facts.push(Fact::List(title.into(), items));
        }
    }
}

impl fmt::Display for FileSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fact in &self.facts {
            match fact {
                Fact::Line(text) => writeln!(f, "  {text}")?,
                Fact::List(title, items) => {
                    writeln!(f, "  {title}:")?;
                    items.iter().take(SHOWN).try_for_each(|item| writeln!(f, "    {item}"))?;
                    if items.len() > SHOWN {
                        writeln!(f, "    … and {} more", items.len() - SHOWN)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Serialize for FileSummary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.content.serialize(serializer)
    }
}

/// `1 task`, `2 tasks`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A number, or a question mark where the file has none.
fn number(value: &Option<u64>) -> String {
    value.map_or_else(|| "?".to_string(), |v| v.to_string())
}

fn numbers(values: &[Option<u64>]) -> String {
    values.iter().map(number).collect::<Vec<_>>().join(", ")
}

fn hwx(file: &[u8]) -> Result<FileSummary> {
    let hwx = Hwx::read(file)?;
    let mut summary = FileSummary::new(describe::json(&hwx));
    describe::header(&hwx).lines().filter(|line| !line.is_empty()).for_each(|line| summary.line(line));
    Ok(summary)
}

fn anec(file: &[u8]) -> Result<FileSummary> {
    let anec = Anec::read(file)?;
    let (text, constants) = (anec.text.len(), anec.constants.len());
    let mut summary = FileSummary::new(json!({
        "payload_at": anec.payload_at, "tasks": anec.tasks, "first_task_bytes": anec.first_size, "inputs": anec.inputs,
        "outputs": anec.outputs, "tiles": anec.tiles, "shapes": anec.shapes, "text_bytes": text,
        "constants_bytes": constants,
    }));
    summary.line(format!("payload at {:#x}: {text} of descriptors, {constants} of constants", anec.payload_at));
    let (inputs, outputs) = (anec.inputs as usize, anec.outputs as usize);
    let (tasks, ports) = (count(anec.tasks as usize, "task"), [count(inputs, "input"), count(outputs, "output")]);
    summary.line(format!("{tasks}, {}", ports.join(", ")));
    for i in (2..anec.tiles.len()).filter(|i| anec.tiles[*i] > 0) {
        let [n, c, h, w, plane, row] = anec.shapes[i];
        let what = match i {
            2 | 3 => "memory between tasks".to_string(),
            _ if i < 4 + outputs => format!("output {}", i - 4),
            _ => format!("input {}", i - 4 - outputs),
        };
        let shape = match i {
            0..4 => String::new(),
            _ => format!("[{n}, {c}, {h}, {w}], plane {plane:#x}, row {row:#x}, "),
        };
        summary.line(format!("buffer {i}, {what}: {shape}{} of 16 KiB", count(anec.tiles[i] as usize, "tile")));
    }
    Ok(summary)
}

fn e5(file: &[u8]) -> Result<FileSummary> {
    let e5 = e5::E5Program::read(file)?;
    let mut summary = FileSummary::new(&e5);
    match (e5.odd.is_empty(), e5.version) {
        (true, Some(version)) => {
            summary.line(format!("a program of the E5 runtime, as far as reported: format {version}"))
        }
        _ => summary.line(format!("not as programs of the E5 runtime are reported: {}", e5.odd.join("; "))),
    }
    let tables = count(e5.walk.tables.len(), "table");
    summary.line(format!("{tables}, {} in the list of sections", e5.sections));
    summary.list("names", e5.symbols.iter().cloned());
    summary.list("tables, by what their fields look like", e5.walk.tables.iter().map(table));
    summary.list("sharing bytes", e5.walk.overlaps.iter().cloned());
    for program in &e5.programs {
        let generation = program.generation.as_ref().map(|g| format!(" for {}", g.to_uppercase()));
        let what = generation.or(program.error.clone()).unwrap_or_default();
        summary.line(format!("compiled program at {:#x}{what}", program.at));
    }
    if !e5.walk.complete {
        summary.line("not everything was read: the tables refer to each other too often");
    }
    summary.line("not known: what the fields mean; no schema is published");
    Ok(summary)
}

/// A table in a line.
fn table(table: &flat::FlatTable) -> String {
    let field = |f: &flat::FlatField| {
        let value = match &f.value {
            flat::FieldValue::Inline(n) => format!("{n:#x}"),
            flat::FieldValue::String(text) => format!("{text:?}"),
            flat::FieldValue::Table(at) => format!("table {at:#x}"),
            flat::FieldValue::Tables(list) => count(list.len(), "table"),
            flat::FieldValue::Strings(list) => count(list.len(), "string"),
            flat::FieldValue::Nested(at, length) => format!("{length} bytes at {at:#x}, a file of their own"),
        };
        format!("{} = {value}", f.id)
    };
    let fields: Vec<String> = table.fields.iter().map(field).collect();
    format!("{} at {:#x}: {}", table.path, table.at, fields.join(", "))
}

fn coreml_data(file: &[u8]) -> Result<FileSummary> {
    let model = coreml::ModelHeader::read(file)?;
    let mut summary = FileSummary::new(&model);
    let kind = model.kind_name.map_or(format!("model of kind {}", model.kind), str::to_string);
    summary.line(format!("{kind}, specification version {}, {}", model.specification, model.class));
    summary.list("inputs", model.inputs.iter().cloned());
    summary.list("outputs", model.outputs.iter().cloned());
    summary.list("about itself", model.metadata.iter().map(|(k, v)| format!("{k}: {}", v.replace('\n', " "))));
    Ok(summary)
}

fn analytics(file: &[u8]) -> Result<FileSummary> {
    let analytics = coreml::ModelAnalytics::read(file)?;
    let mut summary = FileSummary::new(&analytics);
    for (section, pairs) in &analytics.sections {
        summary.list(section.as_str(), pairs.iter().map(|(k, v)| format!("{k}: {v}")));
    }
    Ok(summary)
}

fn network(file: &[u8]) -> Result<FileSummary> {
    let plist = network::read(file)?;
    let mut summary = FileSummary::new(&plist);
    plist.version.iter().for_each(|version| summary.line(format!("version {version}")));
    let dtype = |ty: &Option<String>| ty.clone().unwrap_or_else(|| "no type".to_string());
    for net in &plist.networks {
        summary.line(format!("network {}", net.name));
        summary.list(
            "inputs",
            net.inputs.iter().map(|p| format!("{}: {}[{}]", p.name, dtype(&p.dtype), numbers(&p.nchw))),
        );
        let output = |p: &network::NetworkPort| format!("{}: {} of {}", p.name, dtype(&p.dtype), p.bottom.join(", "));
        summary.list("outputs", net.outputs.iter().map(output));
        let unit = |u: &network::NetworkUnit| format!("{}: {} of {}", u.name, u.kind, u.bottom.join(", "));
        summary.list("units", net.units.iter().map(unit));
        summary.list("weight files", net.weights.iter().cloned());
        summary.list("listed and not described", net.missing.iter().cloned());
    }
    Ok(summary)
}

fn espresso_net(file: &[u8]) -> Result<FileSummary> {
    let net = espresso::EspressoNet::read(file)?;
    let mut summary = FileSummary::new(&net);
    net.version.iter().for_each(|version| summary.line(format!("format {version}")));
    net.storage.iter().for_each(|storage| summary.line(format!("weights in {storage}")));
    summary.list("layers", net.layers.iter().map(|(kind, n)| format!("{n} {kind}")));
    summary.list("shapes", net.shapes.iter().map(|(name, shape)| format!("{name}: [{}]", numbers(shape))));
    Ok(summary)
}

fn espresso_packed(file: &[u8]) -> Result<FileSummary> {
    let packed = espresso::EspressoPacked::read(file)?;
    let mut summary = FileSummary::new(&packed);
    summary.line(format!("{} bytes packed in {}, blocks of {}", packed.unpacked, packed.packed, packed.block));
    Ok(summary)
}

fn espresso_weights(file: &[u8]) -> Result<FileSummary> {
    let weights = espresso::EspressoWeights::read(file)?;
    let all = || weights.blobs.iter();
    let data: Vec<Value> = all().map(|(id, r)| json!({"id": id, "at": r.start, "bytes": r.len()})).collect();
    let mut summary = FileSummary::new(json!({"blobs": data}));
    let padding = |id: &u64| if id.is_multiple_of(2) { ", padding" } else { "" };
    summary.list("blobs", all().map(|(id, r)| format!("{id}: {} bytes at {:#x}{}", r.len(), r.start, padding(id))));
    Ok(summary)
}
