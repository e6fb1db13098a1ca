//! `ferrane inspect` of files that are not programs: compiled programs, files of the Linux driver,
//! parts of bundles and of compiled models, and GGUF files, recognized by their contents, and Core
//! AI models.

use std::path::Path;

use ferrane::coreai::asset::{self, Asset};
use ferrane::coreai::summary::Summary;
use ferrane::diag::printable;
use ferrane::gguf;
use ferrane::hwx::bundle::{self, FileKind, FileSummary, FoundFile};
use ferrane::mil::weights::blob;
use serde_json::{Value, json};

use crate::args::Inspect;
use crate::error::{Error, Result};
use crate::{files, out};

/// Shows a recognized file or folder; returns false for any other.
pub fn inspect(args: &Inspect) -> Result<bool> {
    let path = &args.file;
    if files::is_stdin(path) {
        return Ok(false);
    }
    if path.is_dir() {
        return if asset::is_asset(path) { core_ai(args) } else { folder(args) };
    }
    if gguf::File::recognize(path).unwrap_or(false) {
        return language_model(args);
    }
    // The reader of programs reports what cannot be opened.
    let Ok(Some((kind, length))) = bundle::file(path) else { return Ok(false) };
    let (file, name) = (files::read(path)?, path.display().to_string());
    let summary = match kind {
        FileKind::Blob => blob(&file).map_err(|e| e.to_string()),
        _ => FileSummary::read(kind, &file).map_err(|e| e.to_string()),
    };
    let summary = summary.map_err(|e| Error::new(format!("{name}: looks like {}, but {e}", kind.name())))?;
    let next = next(kind, &name);
    if args.json {
        out::line(json!({"file": name, "kind": kind, "bytes": length, "next": next, "content": summary}))?;
    } else {
        out::print(format_args!("{name}: {}, {length} bytes\n{summary}\n{next}\n", kind.name()))?;
    }
    Ok(true)
}

/// Shows a Core AI model.
fn core_ai(args: &Inspect) -> Result<bool> {
    let name = args.file.display().to_string();
    let failed = |e| Error::new(format!("{name}: {e}"));
    let asset = Asset::open(&args.file).map_err(failed)?;
    asset.check_hash().map_err(failed)?;
    let summary = Summary::of(&asset.program().map_err(failed)?);
    let (bytes, metadata) = (asset.bytes().len(), asset.metadata());
    if args.json {
        out::line(
            json!({"file": name, "kind": "aimodel", "bytes": bytes, "metadata": metadata, "content": summary.json()}),
        )?;
        return Ok(true);
    }
    let producer = metadata["producer"].as_str().map(|p| format!(", by {}", printable(p))).unwrap_or_default();
    out::print(format_args!("{name}: a Core AI model{producer}, {bytes} bytes\n{summary}"))?;
    Ok(true)
}

/// Shows a GGUF file.
fn language_model(args: &Inspect) -> Result<bool> {
    let file = gguf::File::open(&args.file).map_err(|e| Error::new(e.to_string()))?;
    let (name, bytes, summary) =
        (args.file.display().to_string(), file.bytes().len(), gguf::GgufSummary::of(file.header()));
    let next = format!("`ferrane generate --checkpoint {name}` continues a text with it.");
    if args.json {
        out::line(json!({"file": name, "kind": "gguf", "bytes": bytes, "next": next, "content": summary.json()}))?;
    } else {
        out::print(format_args!("{name}: a language model, {bytes} bytes\n{summary}\n{next}\n"))?;
    }
    Ok(true)
}

/// The records of a weight file.
fn blob(file: &[u8]) -> std::result::Result<FileSummary, blob::BlobError> {
    let records = blob::records(file)?;
    let dtype = |code| blob::from_code(code).map_or(format!("type {code}"), |d| d.to_string());
    let data: Vec<Value> =
        records.iter().map(|(at, r)| json!({"offset": at, "type": dtype(r.code), "bytes": r.size})).collect();
    let mut summary = FileSummary::new(json!({"records": data}));
    summary.line(format!("{} record{}", records.len(), if records.len() == 1 { "" } else { "s" }));
    summary.list("records", records.iter().map(|(at, r)| format!("at {at}: {}, {} bytes", dtype(r.code), r.size)));
    Ok(summary)
}

/// The commands that continue from a file.
fn next(kind: FileKind, name: &str) -> String {
    match kind {
        FileKind::Hwx => format!(
            "`ferrane disasm {name}` shows what each task does, `ferrane hwx convert` writes programs of M1 for the Linux driver, \
             `ferrane hwx unpack` their weights."
        ),
        FileKind::Anec => format!(
            "`ferrane disasm {name}` shows what each task does; `ferrane hwx convert` puts a container around it."
        ),
        FileKind::E5 => {
            "Its bundle may hold compiled programs: `ferrane inspect` of the bundle's folder finds them.".into()
        }
        FileKind::CoremlData | FileKind::Analytics => {
            "It belongs to a compiled model: give `ferrane inspect` the folder, .mlmodelc, for its program.".into()
        }
        FileKind::Network => {
            format!("On a Mac `ferrane compile --aot {name} --out built` has Apple's compiler compile it.")
        }
        FileKind::EspressoNet => {
            "Ferrane runs no Espresso networks: convert the original model to an ML Program.".into()
        }
        FileKind::EspressoPacked => "It is packed with LZFSE, which Ferrane does not unpack.".into(),
        FileKind::EspressoWeights => {
            "The network in the same folder, net.plist or model.espresso.net, says what the blobs are.".into()
        }
        FileKind::Blob => {
            "The program that refers to it has shapes and names: `ferrane inspect` of its text or folder.".into()
        }
    }
}

/// Shows a folder without a program in it, if it has recognized files.
fn folder(args: &Inspect) -> Result<bool> {
    let path: &Path = &args.file;
    if ["model.mil", "Manifest.json"].iter().any(|name| path.join(name).is_file()) {
        return Ok(false);
    }
    let (found, more) = bundle::scan(path).map_err(|e| files::failed(path, e))?;
    // Weights alone are no bundle: they belong to a program elsewhere.
    if found.iter().all(|f| f.kind == FileKind::Blob) {
        return Ok(false);
    }
    let next = "Each of these can be given to `ferrane inspect`, and compiled programs to `ferrane disasm`.";
    let name = path.display().to_string();
    if args.json {
        let one = |f: &FoundFile| json!({"file": f.path.display().to_string(), "kind": f.kind, "bytes": f.length});
        let list: Vec<Value> = found.iter().map(one).collect();
        out::line(json!({"file": name, "kind": "folder", "next": next, "files": list, "more": more}))?;
        return Ok(true);
    }
    out::line(format_args!(
        "{name}: a folder with {} recognized file{}",
        found.len(),
        if found.len() == 1 { "" } else { "s" }
    ))?;
    for f in &found {
        out::line(format_args!("  {}: {}, {} bytes", f.path.display(), f.kind.name(), f.length))?;
    }
    if more {
        out::line("  … and files that were not read: the folder is too large")?;
    }
    out::line(format_args!("\n{next}"))?;
    Ok(true)
}
