//! `ferrane recording show` and `ferrane recording extract`: what is in a recording, as words and
//! as files.

use std::fs;
use std::path::Path;

use ferrane::Tensors;
use ferrane::recording::{self, Recording};
use ferrane::tensor_io::{Format, write as tensor_file};
use serde_json::{Value, json};

use crate::args::{RecordingExtract, RecordingShow};
use crate::error::{Error, Result};
use crate::{files, out};

/// Names of the files that an extraction writes beside the weights.
const PROGRAM: &str = "program.mil";
const WORDS: &str = "recording.json";

/// Runs `show`.
pub fn run(args: &RecordingShow) -> Result<()> {
    args.files.iter().try_for_each(|file| {
        let recording = recording::open(file).map_err(|e| files::failed(file, e))?;
        let text = String::from_utf8_lossy(&recording.text);
        if args.json {
            let mut object = super::object(&recording);
            object["file"] = json!(file.display().to_string());
            if args.text {
                object["text"] = Value::from(text);
            }
            return out::line(object);
        }
        show(file, &recording)?;
        if args.text { out::print(super::clean(&text)) } else { Ok(()) }
    })
}

fn show(file: &Path, recording: &Recording) -> Result<()> {
    let header = &recording.header;
    let (name, function) = (super::clean(&header.program.name), super::clean(&header.program.function));
    let (bytes, version) = (recording.text.len(), header.version);
    out::line(format_args!("{}: {name} `{function}`, {bytes} bytes of MIL", file.display()))?;
    let (opened, writer) = (super::clean(&header.machine.device), super::clean(&header.ferrane));
    out::line(format_args!("  machine  {} (opened as {opened})", super::machine(&header.machine)))?;
    out::line(format_args!("  written  by Ferrane {writer}, format version {version}"))?;
    for (path, bytes) in &recording.weights {
        out::line(format_args!("  weights  {}  {} bytes", super::clean(path), bytes.len()))?;
    }
    let tensors = |what: &str, list: &Tensors| {
        list.iter().try_for_each(|(name, t)| {
            out::line(format_args!("  {what:7}  {}  {}", super::clean(name), super::shape(t)))
        })
    };
    tensors("input", &recording.inputs)?;
    tensors("state", &recording.states)?;
    super::told(recording).into_iter().try_for_each(out::line)
}

/// Runs `extract`.
pub fn extract(args: &RecordingExtract) -> Result<()> {
    let recording = recording::open(&args.file).map_err(|e| files::failed(&args.file, e))?;
    let folder = &args.out;
    // Nothing that is there can be overwritten, and no link leads out of the folder.
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => return Err(files::failed(folder, "is not empty; name a new folder")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
        }
        Err(e) => return Err(files::failed(folder, e)),
    }
    let write = |path: &Path, bytes: &[u8]| {
        let path = folder.join(path);
        if path.exists() {
            return Err(files::failed(&path, "is in the recording twice"));
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| files::failed(parent, e))?;
        }
        files::replace(&path, bytes)?;
        out::line(path.display())
    };
    write(Path::new(PROGRAM), &recording.text)?;
    for (path, bytes) in recording.blobs().map_err(|e| files::failed(&args.file, e))? {
        write(&path, bytes)?;
    }
    let lists = [
        ("inputs", &recording.inputs),
        ("states", &recording.states),
        ("outputs", &recording.outputs),
        ("after", &recording.left),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        let bytes = tensor_file(Format::Safetensors, list).map_err(|e| files::failed(&args.file, e))?;
        write(Path::new(&format!("{name}.safetensors")), &bytes)?;
    }
    let words = serde_json::to_string_pretty(&super::object(&recording)).map_err(|e| Error::new(e.to_string()))?;
    write(Path::new(WORDS), format!("{words}\n").as_bytes())
}
