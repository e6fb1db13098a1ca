//! Programs named on the command line.

use std::io::{ErrorKind, IsTerminal as _};
use std::path::Path;

use ferrane::diag::did_you_mean;
use ferrane::mil::classifier::{self, Classifier};
use ferrane::mil::package::{
    Description, Form, PackageError, ShapeChoice, choose_shapes, input_shapes, open_checked, read_checked,
};
use ferrane::mil::{Function, Program, specialize};
use ferrane::onnx;
use ferrane::tensor_io::{Fit, TensorSource, given_shapes, with_images};

pub use ferrane::mil::package::{Care, Checked};

use crate::error::{Error, Result};
use crate::files;

/// Opens a file, or standard input for `-`. The diagnostics have what is wrong with text, and what
/// MIL cannot express of an ONNX model; what is wrong with a container is an error. The options are
/// those of an ONNX model, see [`extents`].
pub fn open(path: &Path, care: Care, options: &onnx::Options) -> Result<Checked> {
    if onnx::is_model(path) {
        if !path.exists() {
            return Err(files::failed(path, "no such file"));
        }
        return onnx::open_checked(path, options).map_err(|e| files::failed(path, e));
    }
    if files::is_stdin(path) {
        return Ok(read_checked("-", &files::read_text(path)?, care));
    }
    match open_checked(path, care) {
        Err(PackageError::Io { path: at, source }) if at == path && source.kind() == ErrorKind::NotFound => {
            Err(files::failed(path, "no such file"))
        }
        found => Ok(found?),
    }
}

/// The numbers that `--shape` gives to the named extents of an ONNX model. For other files the
/// option chooses among the shapes that a description allows (see [`shaped`]).
pub fn extents(path: &Path, shapes: &[String]) -> Result<onnx::Options> {
    let add = |options: onnx::Options, list: &String| {
        options.dimension_list(list).map_err(|e| Error::new(format!("--shape {list}: {e}")))
    };
    let shapes = if onnx::is_model(path) { shapes } else { &[] };
    shapes.iter().try_fold(onnx::Options::default(), add)
}

/// As [`extents`], for commands that choose no shapes of other files.
pub fn named_extents(path: &Path, shapes: &[String]) -> Result<onnx::Options> {
    match shapes.first().filter(|_| !onnx::is_model(path)) {
        Some(list) => Err(files::failed(path, format_args!("--shape {list}: the file is not an ONNX model"))),
        None => extents(path, shapes),
    }
}

/// A program, and what came with it.
pub struct Loaded {
    /// The form that the file had.
    pub form: Form,
    /// The program, right as far as the [`Care`] asked for.
    pub program: Program,
    /// What a package says about itself; text says nothing.
    pub description: Option<Description>,
}

/// Opens a file that must hold a program; prints warnings to standard error.
pub fn load(path: &Path, care: Care, options: &onnx::Options) -> Result<Loaded> {
    let opened = open(path, care, options)?;
    let color = std::io::stderr().is_terminal();
    let shown = opened.diagnostics.render(&opened.source, color);
    match opened.program {
        Some(program) => {
            if !shown.is_empty() {
                crate::out::note(shown.trim_end());
            }
            Ok(Loaded { form: opened.form, program, description: opened.description })
        }
        None => Err(Error::new(format!("{}: the program is not right:\n{}", path.display(), shown.trim_end()))),
    }
}

/// The function of that name; without one, `main`, or the first one.
pub fn function<'a>(program: &'a Program, name: Option<&str>) -> Result<&'a Function> {
    let names = || program.functions.iter().map(|f| f.name.as_str());
    let found = match name {
        Some(name) => program.function(name),
        None => program.function("main").or(program.functions.first()),
    };
    found.ok_or_else(|| match name {
        Some(name) => {
            let near = did_you_mean(name, names());
            let known: Vec<&str> = names().collect();
            Error::new(format!("--function {name}: no such function{near} (there are {})", known.join(", ")))
        }
        None => Error::new("the program has no function"),
    })
}

/// A function that can run: its inputs have extents, and its outputs are tensors.
pub struct Runnable {
    /// The program, with the function for the chosen shapes.
    pub program: Program,
    /// Name of the function.
    pub function: String,
    /// What a package says about the program.
    pub description: Option<Description>,
    /// The labels of the output that holds probabilities, if the function is a classifier.
    pub classifier: Option<Classifier>,
    /// The values of the inputs.
    pub sources: Vec<(String, TensorSource)>,
}

impl Runnable {
    /// The function that runs.
    pub fn function(&self) -> Result<&Function> {
        function(&self.program, Some(&self.function))
    }
}

/// Makes a function of a program one that can run.
pub fn runnable(
    loaded: Loaded,
    name: Option<&str>,
    shapes: &[String],
    sources: Vec<(String, TensorSource)>,
    fit: Fit,
) -> Result<Runnable> {
    let Loaded { form, program, description } = loaded;
    // The extents of an ONNX model are chosen already.
    let shapes = if form == Form::Onnx { &[] } else { shapes };
    let entry = function(&program, name)?;
    let (name, sources) = (entry.name.clone(), with_images(sources, entry, description.as_ref(), fit));
    let program = shaped(program, &name, description.as_ref(), shapes, &sources)?;
    let (program, classifier) = match classifier::detach(&program, &name)? {
        Some((program, classifier)) => (program, Some(classifier)),
        None => (program, None),
    };
    Ok(Runnable { program, function: name, description, classifier, sources })
}

/// The program with the shapes of a function's inputs that `--shape` chooses, the values have, or
/// the description has as the default.
pub fn shaped(
    program: Program,
    name: &str,
    description: Option<&Description>,
    shapes: &[String],
    sources: &[(String, TensorSource)],
) -> Result<Program> {
    let mut choices: Vec<ShapeChoice> = Vec::new();
    for text in shapes {
        for choice in ShapeChoice::parse_list(text).map_err(|e| Error::new(format!("--shape {text}: {e}")))? {
            if choices.iter().any(|c| c.name == choice.name) {
                return Err(Error::new(format!("--shape {text}: `{}` is given twice", choice.name)));
            }
            choices.push(choice);
        }
    }
    let entry = function(&program, Some(name))?;
    let inputs = input_shapes(entry, description);
    let chosen = choose_shapes(&inputs, &choices, &given_shapes(entry, sources)?)?;
    if chosen.is_empty() {
        return Ok(program);
    }
    Ok(specialize(&program, name, &chosen, &ferrane::emulator("emulator")?)?)
}
