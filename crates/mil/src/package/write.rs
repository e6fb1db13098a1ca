//! Writers of packages, models and text.
//!
//! Invariant: a target is written completely or not at all. Files are written to the folder of the
//! target under a temporary name and renamed when complete; a failed write leaves nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write as _};
use std::path::{Component, Path, PathBuf};

use ferrane_host::fs::{AtomicFile, AtomicFolder, Durability, FinishedFile};
use prost::Message as _;

use super::describe::Description;
use super::encode::{Encoder, Store, WeightFile};
use super::error::PackageError;
use super::model::{self, ModelEnvelope};
use super::{Form, manifest, specification_version};
use crate::program::{Arg, Constant, Payload, Program};
use crate::weights::{Bytes, WeightId};

/// The largest protobuf message in bytes.
const MAX_MODEL: usize = i32::MAX as usize;
/// Why text is written without the description.
const NO_DESCRIPTION: &str = "text cannot hold it";

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
    check_target(path.as_ref(), options.overwrite)?;
    let beside = AtomicFolder::create(path.as_ref()).map_err(PackageError::io(path.as_ref()))?;
    let folder = beside.path().join("Data").join("com.apple.CoreML");
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
    put(&beside.path().join("Manifest.json"), manifest::write(&bytes, weights.is_some()).as_bytes())?;
    published(beside.commit(options.overwrite), path.as_ref())
}

/// Writes a bare `.mlmodel`: every constant lies in the message.
///
/// # Errors
/// As [`write_package`]; also where the message would be larger than 2 GiB.
pub fn write_model(program: &Program, path: impl AsRef<Path>, options: &WriteOptions<'_>) -> Result<(), PackageError> {
    let (bytes, _) = encode(program, Store::Inline, options, "a model")?;
    let file = complete(path.as_ref(), &bytes, options.overwrite, Durability::Cached)?;
    publish(file, path.as_ref(), options.overwrite)
}

/// Writes the text of a program and the blob files that it uses, in the same folder:
/// `@model_path/weights/w.bin` becomes `weights/w.bin` in the text's folder. [`super::open`] reads
/// the same program back. A blob file that has the same bytes already is left as it is.
///
/// # Errors
/// [`PackageError::Exists`] if the text exists, [`PackageError::OtherWeights`] for a blob file with
/// other bytes, [`PackageError::Outside`] for one outside of the folder,
/// [`PackageError::Unwritable`] for one without bytes; errors of the system.
pub fn write_text(program: &Program, path: impl AsRef<Path>, overwrite: bool) -> Result<(), PackageError> {
    let refuse = |reason: String| PackageError::Unwritable { form: "text", reason };
    crate::verify::verify(program).map_err(|e| refuse(e.to_string()))?;
    let used: BTreeSet<&str> =
        records(program).into_iter().filter_map(|id| program.weights.location(id)).map(|(file, _)| file).collect();
    let mut blobs = program.weights.files();
    blobs.retain(|(file, _)| used.contains(file.as_str()));
    if blobs.len() < used.len() {
        return Err(refuse("the bytes of a blob file are not there".into()));
    }
    text_with_blobs(program, path.as_ref(), blobs, overwrite).map(drop)
}

/// What [`write()`] wrote.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The paths of the files and folders, the program last.
    pub files: Vec<PathBuf>,
    /// Why the description is not in them; `None` if it is, or if none was given.
    pub dropped: Option<String>,
}

/// Writes a program in the form that the name of the file selects ([`Form::of_target`]): a package,
/// a bare model, or text with its blob files in the same folder. A description that does not hold
/// for the program, as after a pass that renamed its ports, is left out.
///
/// Unlike [`write_text`], this accepts a program whose blob files were not opened: its text is
/// written without them.
///
/// ```
/// use ferrane_mil::package::{WriteOptions, open, write};
/// # use ferrane_mil::{Builder, DataType, Opset, Type};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let mut b = Builder::new("main", Opset::IOS18);
/// # let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
/// # let y = b.op("relu", "y", [("x", x.into())])?;
/// # write(&b.finish(&[("y", y)])?, folder.path().join("model.mlpackage"), &WriteOptions::default())?;
/// let opened = open(folder.path().join("model.mlpackage"))?;
/// let options = WriteOptions { description: opened.description.as_ref(), ..WriteOptions::default() };
/// let written = write(&opened.program, folder.path().join("model.mil"), &options)?;
/// assert_eq!(written.files, [folder.path().join("model.mil")]);
/// assert_eq!(written.dropped.as_deref(), Some("text cannot hold it"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Form::of_target`] and [`write_as`].
pub fn write(program: &Program, path: impl AsRef<Path>, options: &WriteOptions<'_>) -> Result<Written, PackageError> {
    write_as(program, path.as_ref(), Form::of_target(path.as_ref())?, options)
}

/// As [`write()`], in a form of the caller's choice, whatever the name of the file.
///
/// # Errors
/// [`PackageError::Unrecognized`] for a form that is only read; as [`write_package`],
/// [`write_model`] and [`write_text`].
pub fn write_as(
    program: &Program,
    path: impl AsRef<Path>,
    form: Form,
    options: &WriteOptions<'_>,
) -> Result<Written, PackageError> {
    let path = path.as_ref();
    check_target(path, options.overwrite)?;
    match form {
        Form::Text => {
            let files = text_with_blobs(program, path, program.weights.files(), options.overwrite)?;
            return Ok(Written { files, dropped: options.description.map(|_| NO_DESCRIPTION.to_string()) });
        }
        Form::CoreAi => {
            let reason = "`ferrane::model::write_as` writes Core AI models; give a .mil, .mlpackage or .mlmodel";
            return Err(PackageError::Unrecognized { path: path.to_path_buf(), reason: reason.to_string() });
        }
        Form::Compiled | Form::Onnx => {
            let reason = format!("{} is not written; give a .mil, .mlpackage or .mlmodel", form.title());
            return Err(PackageError::Unrecognized { path: path.to_path_buf(), reason });
        }
        Form::Package | Form::Model => {}
    }
    let write = |options: &WriteOptions<'_>| match form {
        Form::Model => write_model(program, path, options),
        _ => write_package(program, path, options),
    };
    let dropped = match write(options) {
        Err(error @ PackageError::Unwritable { .. }) if options.description.is_some() => {
            write(&WriteOptions { description: None, ..*options })?;
            Some(error.to_string())
        }
        written => written.map(|()| None)?,
    };
    Ok(Written { files: vec![path.to_path_buf()], dropped })
}

/// Writes text, and those of its blob files that are not there already. The text comes last, so
/// that its files exist when it does.
fn text_with_blobs(
    program: &Program,
    path: &Path,
    blobs: Vec<(String, Bytes)>,
    overwrite: bool,
) -> Result<Vec<PathBuf>, PackageError> {
    check_target(path, overwrite)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files: Vec<(PathBuf, Bytes)> = Vec::new();
    for (name, bytes) in blobs {
        let target = folder.join(blob_target(&name)?);
        match fs::read(&target).ok() {
            Some(there) if there == *bytes => {}
            Some(_) if !overwrite => return Err(PackageError::OtherWeights { path: target }),
            _ => files.push((target, bytes)),
        }
    }
    files.push((path.to_path_buf(), crate::text::print(program).into_bytes().into()));
    for parent in files.iter().filter_map(|(file, _)| file.parent()).filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(PackageError::io(parent))?;
    }
    let whole = |(file, bytes): &(PathBuf, Bytes)| complete(file, bytes, overwrite, Durability::Synced);
    let ready = files.iter().map(whole).collect::<Result<Vec<_>, _>>()?;
    let paths: Vec<PathBuf> = files.into_iter().map(|(file, _)| file).collect();
    ready.into_iter().zip(&paths).try_for_each(|(file, target)| publish(file, target, overwrite))?;
    Ok(paths)
}

/// The path of a blob file relative to the folder of its text. A name from a file must not lead out
/// of that folder.
fn blob_target(name: &str) -> Result<&Path, PackageError> {
    let relative = Path::new(name.strip_prefix("@model_path/").unwrap_or(name));
    let is_plain = relative.components().all(|c| matches!(c, Component::Normal(_)));
    if is_plain && relative.file_name().is_some() {
        Ok(relative)
    } else {
        Err(PackageError::Outside { name: name.to_string() })
    }
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
    let bytes = model::write(&ModelEnvelope {
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
fn complete(
    target: &Path,
    bytes: &[u8],
    overwrite: bool,
    durability: Durability,
) -> Result<FinishedFile, PackageError> {
    check_target(target, overwrite)?;
    let written = AtomicFile::create(target).and_then(|mut file| {
        file.write_all(bytes)?;
        file.finish(durability)
    });
    written.map_err(PackageError::io(target))
}

fn publish(file: FinishedFile, target: &Path, overwrite: bool) -> Result<(), PackageError> {
    published(if overwrite { file.publish() } else { file.publish_new() }, target)
}

/// The error of a name that could not be given.
fn published(result: std::io::Result<()>, target: &Path) -> Result<(), PackageError> {
    result.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => PackageError::Exists { path: target.to_path_buf() },
        _ => PackageError::io(target)(e),
    })
}
