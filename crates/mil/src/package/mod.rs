//! Containers of programs: `.mlpackage`, `.mlmodel`, `.mlmodelc`, and MIL text with its weight
//! files (coreml-containers, weight-blob).
//!
//! [`open`] detects the form of the container at a path and returns the [`Program`] with its
//! description; [`write()`] writes one in the form that the name of the file selects, and
//! [`write_package`], [`write_model`] and [`write_text`] write a certain form. Weight files are
//! mapped, never read or copied: opening costs no more than reading the message of the model.
//! Containers are untrusted: a path that leads out of the folder is refused, nesting is bounded (64
//! blocks, 32 types and values), and memory is bounded by the size of the file.
//!
//! Invariant: protobuf is another spelling of the same program. The program that is read equals
//! that of the text of the compiled model, up to the order of arguments, and writing it gives the
//! same message again.
//!
//! ```
//! use ferrane_mil::package::{Form, WriteOptions, open, write_package};
//! use ferrane_mil::{Builder, DataType, Opset, Type};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
//! let y = b.op("relu", "y", [("x", x.into())])?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let path = folder.path().join("model.mlpackage");
//! write_package(&program, &path, &WriteOptions::default())?;
//! let opened = open(&path)?;
//! assert_eq!(opened.form, Form::Package);
//! assert_eq!(opened.program.functions[0].ops[0].name, "relu");
//! # Ok(())
//! # }
//! ```

mod annotate;
mod checked;
mod decode;
mod describe;
mod encode;
mod error;
mod manifest;
mod model;
mod proto;
mod shapes;
mod value;
mod write;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use ferrane_diag::{Diagnostics, Source};
use ferrane_host::map::Mapped;
use prost::Message as _;

pub use annotate::annotate;
pub use checked::{Care, Checked, open_checked, read_checked};
pub use describe::{ColorSpace, Description, Feature, FeatureType, ImageType, Ports};
pub use error::PackageError;
pub use shapes::{AllowedShapes, ExtentRange, InputShape, ShapeChoice, ShapeError, choose_shapes, input_shapes};
pub use write::{WriteOptions, Written, write, write_as, write_model, write_package, write_text};

use crate::opset::{Opset, OpsetTag};
use crate::program::Program;
use crate::text::{Options, parse_with};
use crate::weights::{Strictness, Weights};

/// The form of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A `.mlpackage` folder.
    Package,
    /// A bare `.mlmodel`.
    Model,
    /// A `.mlmodelc` folder.
    Compiled,
    /// A file of MIL text.
    Text,
    /// An ONNX model, which `ferrane-onnx` reads.
    Onnx,
    /// A Core AI model, which `ferrane-coreai` reads and writes.
    CoreAi,
}

impl Form {
    /// The form for a reader: `a package`.
    pub fn title(self) -> &'static str {
        match self {
            Form::Package => "a package",
            Form::Model => "a model",
            Form::Compiled => "a compiled model",
            Form::Text => "MIL text",
            Form::Onnx => "an ONNX model",
            Form::CoreAi => "a Core AI model",
        }
    }

    /// The form for a program: `mlpackage`.
    pub fn name(self) -> &'static str {
        match self {
            Form::Package => "mlpackage",
            Form::Model => "mlmodel",
            Form::Compiled => "mlmodelc",
            Form::Text => "text",
            Form::Onnx => "onnx",
            Form::CoreAi => "aimodel",
        }
    }

    /// The form in which a program is written to a path, selected by its extension.
    ///
    /// # Errors
    /// [`PackageError::Unrecognized`] for any other extension than those of text, packages, models
    /// and Core AI models.
    pub fn of_target(path: impl AsRef<Path>) -> Result<Form, PackageError> {
        let path = path.as_ref();
        let reason = match path.extension().and_then(|e| e.to_str()) {
            Some("mil") => return Ok(Form::Text),
            Some("mlpackage") => return Ok(Form::Package),
            Some("mlmodel") => return Ok(Form::Model),
            Some("aimodel") => return Ok(Form::CoreAi),
            Some("mlmodelc") => "compiled models are Apple's to write; give a .mlpackage",
            _ => "unknown kind of file; give a name that ends in .mil, .mlpackage, .mlmodel or .aimodel",
        };
        Err(PackageError::Unrecognized { path: path.to_path_buf(), reason: reason.to_string() })
    }
}

/// A program that was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Opened {
    /// Form of the container.
    pub form: Form,
    /// The program. Its names, invariants and constants are checked, its types only if it was text;
    /// see [`crate::check`].
    pub program: Program,
    /// The description of the model; `None` for text.
    pub description: Option<Description>,
    /// 6 for iOS 15 to 10 for iOS 26, of a package or model.
    pub specification_version: Option<i32>,
    /// Warnings about the text and the weight files.
    pub warnings: Diagnostics,
}

/// Opens the container at a path. Weight files are read leniently: records are trusted, and
/// contradictions are warnings.
///
/// # Errors
/// A [`PackageError`]: the path is not a container, holds a model of another kind, or is malformed.
pub fn open(path: impl AsRef<Path>) -> Result<Opened, PackageError> {
    open_with(path, Options { strictness: Strictness::Lenient, ..Options::default() })
}

/// As [`open`], with options; `types` applies to text only.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Opened, PackageError> {
    let path = path.as_ref();
    let metadata = std::fs::metadata(path).map_err(PackageError::io(path))?;
    let refuse = |reason: &str| PackageError::Unrecognized { path: path.to_path_buf(), reason: reason.to_string() };
    if metadata.is_dir() {
        if path.join("Manifest.json").exists() {
            return model_file(&manifest::root_model(path)?, Form::Package, options);
        }
        let text = path.join("model.mil");
        if text.exists() {
            return text_file(&text, path, Form::Compiled, options);
        }
        if path.join("coremldata.bin").exists() {
            let kind = match path.join("model.espresso.net").exists() {
                true => "a compiled neural network (Espresso)",
                false => "a compiled model of another kind, without model.mil",
            };
            return Err(PackageError::NotMlProgram { path: path.to_path_buf(), kind: kind.to_string() });
        }
        return Err(refuse("a folder without Manifest.json (a package) and without model.mil (a compiled model)"));
    }
    let bytes = Mapped::open(path).map_err(PackageError::io(path))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    match path.extension().and_then(|e| e.to_str()) {
        Some("mlmodel") => model_file(path, Form::Model, options),
        Some("mil" | "txt") => text_file(path, folder, Form::Text, options),
        // A model starts with its specification version, field 1; text with a word or a comment.
        _ if bytes.first() == Some(&0x08) => model_file(path, Form::Model, options),
        _ if bytes.trim_ascii_start().starts_with(b"program") || bytes.trim_ascii_start().starts_with(b"//") => {
            text_file(path, folder, Form::Text, options)
        }
        _ => Err(refuse("neither a package, a compiled model, a .mlmodel nor MIL text")),
    }
}

fn model_file(path: &Path, form: Form, options: Options) -> Result<Opened, PackageError> {
    let bytes = Mapped::open(path).map_err(PackageError::io(path))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    model_bytes(&bytes, path, form, decode::Decoder::new(Some(folder), &Weights::new(), options))
}

/// Reads the bytes of a `.mlmodel`. Blob files that it names are looked up in `weights`; no other
/// file is opened.
///
/// # Errors
/// As [`open`].
pub fn read_model(bytes: &[u8], weights: &Weights, options: Options) -> Result<Opened, PackageError> {
    let decoder = decode::Decoder::new(None, weights, options);
    model_bytes(bytes, Path::new("model.mlmodel"), Form::Model, decoder)
}

/// `path` is used in messages only.
fn model_bytes(
    bytes: &[u8],
    path: &Path,
    form: Form,
    mut decoder: decode::Decoder<'_>,
) -> Result<Opened, PackageError> {
    let refuse = |reason| PackageError::Model { path: path.to_path_buf(), reason };
    let model = model::read(bytes).map_err(|e| match e {
        model::NotAProgram::Malformed(reason) => refuse(reason),
        model::NotAProgram::Other(kind) => PackageError::NotMlProgram { path: path.to_path_buf(), kind },
    })?;
    let message =
        proto::Program::decode(model.program).map_err(|e| refuse(format!("no protobuf of a program: {e}")))?;
    let mut program = decoder.program(&message).map_err(refuse)?;
    let description = Description::read(model.description, model.rest).map_err(refuse)?;
    (program.version, program.dialect) = description.text_form(&program);
    Ok(Opened {
        form,
        program,
        description: Some(description),
        specification_version: Some(model.specification_version),
        warnings: decoder.diagnostics,
    })
}

fn text_file(path: &Path, folder: &Path, form: Form, options: Options) -> Result<Opened, PackageError> {
    let text = Mapped::open(path).map_err(PackageError::io(path))?;
    let mut weights = Weights::new();
    for named in blob_paths(&text) {
        let found = decode::blob_path(folder, &named).map_err(PackageError::model(path))?;
        if let Some(found) = found {
            weights.open_file(&named, Mapped::open(&found).map_err(PackageError::io(&found))?);
        }
    }
    let parsed = parse_with(&*text, &weights, options);
    let Some(program) = parsed.program else {
        let text = Source::new(path.to_string_lossy(), &*text);
        return Err(PackageError::Text { text, diagnostics: parsed.diagnostics });
    };
    let description = match form {
        Form::Compiled => compiled_description(folder)?,
        _ => None,
    };
    let (specification_version, description) = description.unzip();
    Ok(Opened { form, program, description, specification_version, warnings: parsed.diagnostics })
}

/// The blob files that text names: its strings that start with `@model_path`. A string that only
/// looks like a path names no file, or the file is not used.
fn blob_paths(text: &[u8]) -> BTreeSet<String> {
    const START: &[u8] = b"\"@model_path/";
    let mut found = BTreeSet::new();
    let mut at = text;
    while let Some(quote) = at.iter().position(|&b| b == b'"') {
        at = &at[quote..];
        if at.starts_with(START)
            && let Some(length) = at[1..].iter().position(|&b| b == b'"')
            && let Ok(path) = std::str::from_utf8(&at[1..1 + length])
        {
            found.insert(path.to_string());
        }
        at = &at[1..];
    }
    found
}

/// Specification version and description from `coremldata.bin` (coreml-containers §4, known from
/// one sample). `None` if there is no such file or its layout differs.
fn compiled_description(folder: &Path) -> Result<Option<(i32, Description)>, PackageError> {
    let path = folder.join("coremldata.bin");
    if !path.exists() {
        return Ok(None);
    }
    let bytes = Mapped::open(&path).map_err(PackageError::io(&path))?;
    let long = |at: usize| {
        let word = bytes.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(word.try_into().ok()?)).ok()
    };
    let find = || {
        // After 28 bytes a string, then the version, then after 40 bytes the description.
        let end = 0x24usize.checked_add(long(0x1c)?)?;
        let version = i32::from_le_bytes(bytes.get(end..end.checked_add(4)?)?.try_into().ok()?);
        let start = end.checked_add(0x28)?;
        let message = bytes.get(start..start.checked_add(long(end.checked_add(0x20)?)?)?)?;
        Some((version, Description::read(message, Vec::new()).ok()?))
    };
    Ok(find())
}

/// The file at a path that is relative to a folder and stays in it, also through links. `None` if
/// there is none.
fn inside(folder: &Path, relative: &str) -> Result<Option<PathBuf>, String> {
    let path = Path::new(relative);
    let plain = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if relative.is_empty() || !plain {
        return Err("leads out of its folder".into());
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(found) = folder.join(path).canonicalize() else { return Ok(None) };
    match folder.canonicalize() {
        Ok(folder) if found.starts_with(&folder) => Ok(Some(found)),
        _ => Err("leads out of its folder".into()),
    }
}

/// The first specification version that has each opset (coreml-containers §2; coremltools 9.0).
const SPECIFICATIONS: [(Opset, i32); 5] =
    [(Opset::IOS15, 6), (Opset::IOS16, 7), (Opset::IOS17, 8), (Opset::IOS18, 9), (Opset(26), 10)];

/// The tag of a body in a package. A tag for which packages have no other name is unchanged.
fn opset_from_core_ml(name: &str) -> OpsetTag {
    Opset::from_core_ml_name(name).map_or_else(|| OpsetTag::from(name), OpsetTag::Known)
}

fn opset_to_core_ml(tag: &OpsetTag) -> String {
    tag.known().and_then(Opset::core_ml_name).map_or_else(|| tag.to_string(), str::to_string)
}

/// The lowest specification version that has every opset of a program.
fn specification_version(program: &Program) -> Result<i32, String> {
    let mut least = SPECIFICATIONS[0].1;
    for (tag, _) in program.functions.iter().flat_map(|f| &f.bodies) {
        let known = SPECIFICATIONS.iter().find(|(opset, _)| tag.known() == Some(*opset));
        let (_, version) =
            known.ok_or_else(|| format!("no specification version is known for the opset `{tag}`; say which one"))?;
        least = least.max(*version);
    }
    Ok(least)
}
