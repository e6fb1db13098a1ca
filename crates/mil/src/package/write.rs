//! Writers of packages, models and text.
//!
//! Invariant: a target is written completely or not at all. Files are written to the folder of the
//! target under a temporary name and renamed when complete; a failed write leaves nothing.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ferrane_host::fs::{AtomicFile, Durability, FinishedFile};
use prost::Message as _;

use super::describe::Description;
use super::encode::{Encoder, Store, WeightFile};
use super::error::PackageError;
use super::model::{self, Model};
use super::{manifest, specification_version};
use crate::program::{Arg, Constant, Payload, Program};
use crate::weights::WeightId;

/// The largest protobuf message in bytes.
const MAX_MODEL: usize = i32::MAX as usize;

/// Options of the writers.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions<'a> {
    /// Replace what is at the path.
    pub overwrite: bool,
    /// The description to write, for example that of the package that the program was read from; if
    /// `None`, it is derived from the ports.
    pub description: Option<&'a Description>,
    /// The specification version; if `None`, the lowest that has the program's opsets and ports.
    pub specification_version: Option<i32>,
}

/// Writes a `.mlpackage` folder: the manifest, the model, and one weight file with every constant
/// of at least ten elements, as coremltools does. Payloads are not copied. Equal programs give
/// equal bytes.
///
/// # Errors
/// [`PackageError::Exists`]; [`PackageError::Unwritable`] if a package cannot hold the program;
/// errors of the system.
pub fn write_package(
    program: &Program,
    path: impl AsRef<Path>,
    options: &WriteOptions<'_>,
) -> Result<(), PackageError> {
    const FORM: &str = "a package";
    let (bytes, store) = encode(program, Store::File(WeightFile::default()), options, FORM)?;
    let weights = match &store {
        Store::File(file) if !file.is_empty() => Some(file),
        _ => None,
    };
    let beside = Beside::new(path.as_ref(), options.overwrite)?;
    let folder = beside.path.join("Data").join("com.apple.CoreML");
    fs::create_dir_all(&folder).map_err(PackageError::io(&folder))?;
    put(&folder.join("model.mlmodel"), &bytes)?;
    if let Some(weights) = weights {
        let folder = folder.join("weights");
        fs::create_dir(&folder).map_err(PackageError::io(&folder))?;
        let path = folder.join("weight.bin");
        let written = File::create(&path).map(BufWriter::new).and_then(|mut out| {
            weights.write(&mut out)?;
            out.flush()
        });
        written.map_err(PackageError::io(&path))?;
    }
    put(&beside.path.join("Manifest.json"), manifest::write(&bytes, weights.is_some()).as_bytes())?;
    beside.finish()
}

/// Writes a bare `.mlmodel`: every constant lies in the message.
///
/// # Errors
/// As [`write_package`]; also where the message would be larger than 2 GiB.
pub fn write_model(program: &Program, path: impl AsRef<Path>, options: &WriteOptions<'_>) -> Result<(), PackageError> {
    let (bytes, _) = encode(program, Store::Inline, options, "a model")?;
    publish(complete(path.as_ref(), &bytes, options.overwrite)?, path.as_ref(), options.overwrite)
}

/// Writes the text of a program and the blob files that it names, in the same folder:
/// `@model_path/weights/w.bin` becomes `weights/w.bin` in the text's folder. [`super::open`] reads
/// the same program back.
///
/// # Errors
/// [`PackageError::Exists`] if the text or one of the files exists; [`PackageError::Unwritable`]
/// for a blob file outside of the folder or without bytes; errors of the system.
pub fn write_text(program: &Program, path: impl AsRef<Path>, overwrite: bool) -> Result<(), PackageError> {
    let path = path.as_ref();
    let refuse = |reason: String| PackageError::Unwritable { form: "text", reason };
    crate::verify::verify(program).map_err(|e| refuse(e.to_string()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let used: BTreeSet<&str> =
        records(program).into_iter().filter_map(|id| program.weights.location(id)).map(|(file, _)| file).collect();
    let mut ready = Vec::new();
    for (file, bytes) in program.weights.files().iter().filter(|(file, _)| used.contains(file.as_str())) {
        let relative = Path::new(file.strip_prefix("@model_path/").unwrap_or(file));
        if !relative.components().all(|c| matches!(c, Component::Normal(_))) {
            return Err(refuse(format!("the blob file \"{file:.100}\" leads out of the folder")));
        }
        let target = folder.join(relative);
        let parent = target.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(PackageError::io(parent))?;
        ready.push((complete(&target, bytes, overwrite)?, target));
    }
    if ready.len() < used.len() {
        return Err(refuse("the bytes of a blob file are not there".into()));
    }
    // The text is written last, so that the files it names exist.
    ready.push((complete(path, crate::text::print(program).as_bytes(), overwrite)?, path.to_path_buf()));
    ready.into_iter().try_for_each(|(file, target)| publish(file, &target, overwrite))
}

/// The records that ops use, in the order of their files and offsets.
pub(super) fn records(program: &Program) -> Vec<WeightId> {
    let ops = program.functions.iter().flat_map(|f| &f.ops);
    let constants = ops.flat_map(|op| {
        let literals = op.args.iter().filter_map(|(_, a)| if let Arg::Const(c) = a { Some(c) } else { None });
        literals.chain(op.attributes.iter().map(|(_, c)| c))
    });
    let record = |c: &Constant| match c {
        Constant::Tensor { payload: Payload::Weight(id), .. } => Some(*id),
        _ => None,
    };
    let mut used: Vec<WeightId> = constants.filter_map(record).collect();
    used.sort_by_key(|id| (program.weights.location(*id), *id));
    used.dedup();
    used
}

fn encode<'p>(
    program: &'p Program,
    store: Store<'p>,
    options: &WriteOptions<'_>,
    form: &'static str,
) -> Result<(Vec<u8>, Store<'p>), PackageError> {
    let refuse = |reason: String| PackageError::Unwritable { form, reason };
    crate::verify::verify(program).map_err(|e| refuse(e.to_string()))?;
    let made;
    let description = match options.description {
        Some(description) => {
            description.agrees(program).map_err(refuse)?;
            description
        }
        None => {
            made = Description::of(program).map_err(refuse)?;
            &made
        }
    };
    let version = match options.specification_version {
        Some(version) => version,
        None => specification_version(program).map_err(refuse)?.max(description.least_version()),
    };
    let mut encoder = Encoder::new(program, store, version);
    let message = encoder.program().map_err(refuse)?;
    let size = message.encoded_len();
    if size > MAX_MODEL {
        return Err(refuse(format!(
            "the model would take {size} bytes, more than a protobuf message can ({MAX_MODEL})"
        )));
    }
    let bytes = model::write(&Model {
        specification_version: version,
        description: &description.bytes_for(program),
        program: &message.encode_to_vec(),
        rest: description.rest.clone(),
    });
    Ok((bytes, encoder.store))
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), PackageError> {
    fs::write(path, bytes).map_err(PackageError::io(path))
}

/// Refuses a path that has no file name, or that exists and may not be replaced.
fn check_target(target: &Path, overwrite: bool) -> Result<&OsStr, PackageError> {
    if !overwrite && target.symlink_metadata().is_ok() {
        return Err(PackageError::Exists { path: target.to_path_buf() });
    }
    target.file_name().ok_or_else(|| {
        let reason = "the path names no file".to_string();
        PackageError::Unrecognized { path: target.to_path_buf(), reason }
    })
}

/// A file with these bytes, ready to be published under the name `target`.
fn complete(target: &Path, bytes: &[u8], overwrite: bool) -> Result<FinishedFile, PackageError> {
    check_target(target, overwrite)?;
    let written = AtomicFile::create(target).and_then(|mut file| {
        file.write_all(bytes)?;
        file.finish(Durability::Cached)
    });
    written.map_err(PackageError::io(target))
}

fn publish(file: FinishedFile, target: &Path, overwrite: bool) -> Result<(), PackageError> {
    let published = if overwrite { file.publish() } else { file.publish_new() };
    published.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => PackageError::Exists { path: target.to_path_buf() },
        _ => PackageError::io(target)(e),
    })
}

/// A temporary folder next to the target. Removed with its contents on drop unless finished.
struct Beside {
    path: PathBuf,
    target: PathBuf,
    overwrite: bool,
}

impl Beside {
    fn new(target: &Path, overwrite: bool) -> Result<Beside, PackageError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = check_target(target, overwrite)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut own = OsString::from(".");
        own.push(name);
        own.push(format!(".{}-{number}.part", std::process::id()));
        let path = target.with_file_name(own);
        // A folder of a process that died, whose process id is in use again.
        remove(&path);
        Ok(Beside { path, target: target.to_path_buf(), overwrite })
    }

    fn finish(self) -> Result<(), PackageError> {
        let io = PackageError::io(&self.target);
        if self.target.symlink_metadata().is_err() {
            return fs::rename(&self.path, &self.target).map_err(io);
        }
        if !self.overwrite {
            return Err(PackageError::Exists { path: self.target.clone() });
        }
        // Renaming cannot replace a folder: the old one is moved away first, and back if the new
        // one cannot be renamed.
        let mut old = self.path.clone().into_os_string();
        old.push(".old");
        let old = PathBuf::from(old);
        remove(&old);
        fs::rename(&self.target, &old).map_err(PackageError::io(&self.target))?;
        if let Err(e) = fs::rename(&self.path, &self.target) {
            // If moving back fails too, the first error is more useful than the second.
            let _ = fs::rename(&old, &self.target);
            return Err(io(e));
        }
        remove(&old);
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // After a finish the path does not exist.
        remove(&self.path);
    }
}

/// Removes a file or folder; does nothing if there is none.
fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(m) if m.is_dir() => drop(fs::remove_dir_all(path)),
        Ok(_) => drop(fs::remove_file(path)),
        Err(_) => {}
    }
}
