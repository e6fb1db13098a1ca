//! `ferrane inspect` of what is no program: compiled programs, files of the Linux driver, parts of
//! bundles and of compiled models, recognized by their contents.

use std::fmt::Write as _;
use std::path::Path;

use ferrane::hwx::anec::Anec;
use ferrane::hwx::bundle::{self, FileKind, coreml, e5, espresso, flat, network};
use ferrane::hwx::{Hwx, describe};
use ferrane::mil::weights::blob;
use serde_json::{Value, json};

use crate::args::Inspect;
use crate::error::{Error, Result};
use crate::{files, out};

/// Lines of a list that are shown.
const SHOWN: usize = 20;

/// What is known about a file.
struct About {
    /// Facts, a line each.
    lines: Vec<String>,
    /// What can be done with it.
    next: String,
    /// All of it.
    data: Value,
}

/// Shows a file that is one of these; false for what is none.
pub fn inspect(args: &Inspect) -> Result<bool> {
    let path = &args.file;
    if files::is_stdin(path) {
        return Ok(false);
    }
    if path.is_dir() {
        return folder(args);
    }
    // What cannot be opened is told by whoever reads programs.
    let Ok(Some((kind, length))) = bundle::file(path) else { return Ok(false) };
    let about = about(path, kind, &files::read(path)?)?;
    if args.json {
        out::line(json!({
            "file": path.display().to_string(), "kind": kind, "bytes": length, "next": about.next, "content": about.data,
        }))?;
        return Ok(true);
    }
    let mut text = format!("{}: {}, {length} bytes\n", path.display(), kind.name());
    for line in &about.lines {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "\n{}", about.next);
    out::print(text)?;
    Ok(true)
}

/// A folder without a program in it that inspect shows better.
fn folder(args: &Inspect) -> Result<bool> {
    let path = &args.file;
    if ["model.mil", "Manifest.json"].iter().any(|name| path.join(name).is_file()) {
        return Ok(false);
    }
    let (found, more) = bundle::scan(path).map_err(|e| files::failed(path, e))?;
    // Weights alone are no bundle: they belong to a program elsewhere.
    if found.iter().all(|f| f.kind == FileKind::Blob) {
        return Ok(false);
    }
    let next = "Each of these can be given to `ferrane inspect`, and compiled programs to `ferrane disasm`.";
    if args.json {
        let one =
            |f: &bundle::FoundFile| json!({"file": f.path.display().to_string(), "kind": f.kind, "bytes": f.length});
        let list: Vec<Value> = found.iter().map(one).collect();
        out::line(
            json!({"file": path.display().to_string(), "kind": "folder", "next": next, "files": list, "more": more}),
        )?;
        return Ok(true);
    }
    let mut text = format!("{}: a folder with {} that are known\n", path.display(), count(found.len(), "file"));
    for f in &found {
        let _ = writeln!(text, "  {}: {}, {} bytes", f.path.display(), f.kind.name(), f.length);
    }
    if more {
        text.push_str("  … and files that were not looked at: the folder is too large\n");
    }
    let _ = writeln!(text, "\n{next}");
    out::print(text)?;
    Ok(true)
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first of a list, a line each.
fn list(lines: &mut Vec<String>, what: &str, all: &[String]) {
    if all.is_empty() {
        return;
    }
    lines.push(format!("{what}:"));
    lines.extend(all.iter().take(SHOWN).map(|one| format!("  {one}")));
    if all.len() > SHOWN {
        lines.push(format!("  … and {} more (--json has all)", all.len() - SHOWN));
    }
}

fn data(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// The lines of a text that say something.
fn lines_of(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_string).collect()
}

fn about(path: &Path, kind: FileKind, file: &[u8]) -> Result<About> {
    let wrong = |e: ferrane::hwx::Error| files::failed(path, format_args!("looks like {}, but {e}", kind.name()));
    let name = path.display();
    let mut lines = Vec::new();
    Ok(match kind {
        FileKind::Hwx => {
            let hwx = Hwx::read(file).map_err(wrong)?;
            let words = describe::prose(&hwx, describe::Detail::default());
            // What comes before the tasks.
            lines.extend(lines_of(words.split("\ntasks of").next().unwrap_or("")));
            let next = format!(
                "`ferrane disasm {name}` says what each task does, `ferrane hwx convert` writes programs of M1 for the Linux driver, \
                 `ferrane hwx unpack` their weights."
            );
            About { lines, next, data: describe::json(&hwx) }
        }
        FileKind::Anec => {
            let anec = Anec::read(file).map_err(wrong)?;
            lines.push(format!(
                "payload at {:#x}: {} of descriptors, {} of constants",
                anec.payload_at,
                anec.text.len(),
                anec.constants.len()
            ));
            let (inputs, outputs) = (anec.inputs as usize, anec.outputs as usize);
            lines.push(format!(
                "{}, {}, {}",
                count(anec.tasks as usize, "task"),
                count(inputs, "input"),
                count(outputs, "output")
            ));
            for i in (2..anec.tiles.len()).filter(|i| anec.tiles[*i] > 0) {
                let [n, c, h, w, plane, row] = anec.shapes[i];
                let what = match i {
                    2 | 3 => "memory between tasks".to_string(),
                    _ if i < 4 + outputs => format!("output {}", i - 4),
                    _ => format!("input {}", i - 4 - outputs),
                };
                let shape = if i < 4 {
                    String::new()
                } else {
                    format!("[{n}, {c}, {h}, {w}], plane {plane:#x}, row {row:#x}, ")
                };
                lines.push(format!("buffer {i}, {what}: {shape}{} of 16 KiB", count(anec.tiles[i] as usize, "tile")));
            }
            let data = json!({
                "payload_at": anec.payload_at, "tasks": anec.tasks, "first_task_bytes": anec.first_size, "inputs": anec.inputs,
                "outputs": anec.outputs, "tiles": anec.tiles, "shapes": anec.shapes,
                "text_bytes": anec.text.len(), "constants_bytes": anec.constants.len(),
            });
            let next = format!(
                "`ferrane disasm {name}` says what each task does; `ferrane hwx convert` puts a container around it."
            );
            About { lines, next, data }
        }
        FileKind::E5 => {
            let e5 = e5::E5Program::read(file).map_err(wrong)?;
            match (e5.odd.is_empty(), e5.version) {
                (true, Some(version)) => {
                    lines.push(format!("a program of the E5 runtime, as far as reported: format {version}"))
                }
                _ => lines.push(format!("not as programs of the E5 runtime are reported: {}", e5.odd.join("; "))),
            }
            lines.push(format!("{}, {} in the list of sections", count(e5.walk.tables.len(), "table"), e5.sections));
            list(&mut lines, "names", &e5.symbols);
            let tables: Vec<String> = e5.walk.tables.iter().map(table).collect();
            list(&mut lines, "tables, by what their fields look like", &tables);
            list(&mut lines, "sharing bytes", &e5.walk.overlaps);
            for program in &e5.programs {
                let what =
                    program.generation.as_ref().map(|g| format!(" for {}", g.to_uppercase())).or(program.error.clone());
                lines.push(format!("compiled program at {:#x}{}", program.at, what.unwrap_or_default()));
            }
            if !e5.walk.complete {
                lines.push("not all was looked at: the tables refer to each other too often".to_string());
            }
            lines.push("not known: what the fields mean; no schema is published".to_string());
            let next = "Compiled programs may lie beside it: `ferrane inspect` of the bundle's folder looks for them."
                .to_string();
            About { lines, next, data: data(&e5) }
        }
        FileKind::CoremlData => {
            let model = coreml::ModelHeader::read(file).map_err(wrong)?;
            let kind = model.kind_name.map_or(format!("model of kind {}", model.kind), str::to_string);
            lines.push(format!("{kind}, specification version {}, {}", model.specification, model.class));
            list(&mut lines, "inputs", &model.inputs);
            list(&mut lines, "outputs", &model.outputs);
            let pairs: Vec<String> =
                model.metadata.iter().map(|(k, v)| format!("{k}: {}", v.replace('\n', " "))).collect();
            list(&mut lines, "about itself", &pairs);
            let next = "It belongs to a compiled model: give `ferrane inspect` the folder, .mlmodelc, for its program."
                .to_string();
            About { lines, next, data: data(&model) }
        }
        FileKind::Analytics => {
            let analytics = coreml::ModelAnalytics::read(file).map_err(wrong)?;
            for (section, pairs) in &analytics.sections {
                let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}: {v}")).collect();
                list(&mut lines, section, &pairs);
            }
            let next = "It belongs to a compiled model: give `ferrane inspect` the folder, .mlmodelc, for its program."
                .to_string();
            About { lines, next, data: data(&analytics) }
        }
        FileKind::Network => {
            let plist = network::read(file).map_err(wrong)?;
            lines.extend(plist.version.as_ref().map(|v| format!("version {v}")));
            for net in &plist.networks {
                lines.push(format!("network {}", net.name));
                let dtype = |t: &Option<String>| t.clone().unwrap_or_else(|| "no type".to_string());
                let n = |v: &Option<u64>| v.map_or_else(|| "?".to_string(), |v| v.to_string());
                let port = |p: &network::NetworkPort| {
                    format!("{}: {}[{}]", p.name, dtype(&p.dtype), p.nchw.iter().map(n).collect::<Vec<_>>().join(", "))
                };
                list(&mut lines, "inputs", &net.inputs.iter().map(port).collect::<Vec<_>>());
                let output =
                    |p: &network::NetworkPort| format!("{}: {} of {}", p.name, dtype(&p.dtype), p.bottom.join(", "));
                list(&mut lines, "outputs", &net.outputs.iter().map(output).collect::<Vec<_>>());
                let unit = |u: &network::NetworkUnit| format!("{}: {} of {}", u.name, u.kind, u.bottom.join(", "));
                list(&mut lines, "units", &net.units.iter().map(unit).collect::<Vec<_>>());
                list(&mut lines, "files of weights", &net.weights);
                list(&mut lines, "listed and not described", &net.missing);
            }
            let next = format!(
                "On a Mac `ferrane compile --aot {name} --out built` has Apple's compiler make a compiled program of it."
            );
            About { lines, next, data: data(&plist) }
        }
        FileKind::EspressoNet => {
            let net = espresso::EspressoNet::read(file).map_err(wrong)?;
            lines.extend(net.version.map(|v| format!("format {v}")));
            lines.extend(net.storage.as_ref().map(|s| format!("weights in {s}")));
            let layers: Vec<String> = net.layers.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            list(&mut lines, "layers", &layers);
            let n = |v: &Option<u64>| v.map_or_else(|| "?".to_string(), |v| v.to_string());
            let shapes: Vec<String> = net
                .shapes
                .iter()
                .map(|(name, s)| format!("{name}: [{}]", s.iter().map(n).collect::<Vec<_>>().join(", ")))
                .collect();
            list(&mut lines, "shapes", &shapes);
            let next =
                "Ferrane runs no Espresso networks: convert the model they were made of to an ML Program.".to_string();
            About { lines, next, data: data(&net) }
        }
        FileKind::EspressoPacked => {
            let packed = espresso::EspressoPacked::read(file).map_err(wrong)?;
            lines.push(format!("{} bytes packed in {}, blocks of {}", packed.unpacked, packed.packed, packed.block));
            let next = "It is packed with LZFSE, which Ferrane does not unpack.".to_string();
            About { lines, next, data: data(&packed) }
        }
        FileKind::EspressoWeights => {
            let weights = espresso::EspressoWeights::read(file).map_err(wrong)?;
            let blobs: Vec<String> = weights
                .blobs
                .iter()
                .map(|(id, r)| {
                    format!("{id}: {} bytes at {:#x}{}", r.len(), r.start, if id % 2 == 0 { ", padding" } else { "" })
                })
                .collect();
            list(&mut lines, "blobs", &blobs);
            let next =
                "What the blobs are stands in the network beside it: net.plist or model.espresso.net.".to_string();
            let list: Vec<Value> =
                weights.blobs.iter().map(|(id, r)| json!({"id": id, "at": r.start, "bytes": r.len()})).collect();
            About { lines, next, data: json!({"blobs": list}) }
        }
        FileKind::Blob => {
            let records =
                blob::records(file).map_err(|e| Error::new(format!("{name}: looks like {}, but {e}", kind.name())))?;
            let dtype = |code| blob::from_code(code).map_or(format!("type {code}"), |d| d.to_string());
            let told: Vec<String> =
                records.iter().map(|(at, r)| format!("at {at}: {}, {} bytes", dtype(r.code), r.size)).collect();
            lines.push(count(told.len(), "record"));
            list(&mut lines, "records", &told);
            let next =
                "Shapes and names stand in the program that refers to it: `ferrane inspect` of its text or folder."
                    .to_string();
            let list: Vec<Value> =
                records.iter().map(|(at, r)| json!({"offset": at, "type": dtype(r.code), "bytes": r.size})).collect();
            About { lines, next, data: json!({"records": list}) }
        }
    })
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
