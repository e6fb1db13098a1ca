//! Compiles a program to engines: the first seven steps of the published recipe.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrane_device::staging::Staged;
use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::boundary::outline;
use ferrane_mil::package::{WriteOptions, write_package};
use ferrane_mil::{Function, Program};

use super::E5Context;
use crate::bind::coreml::{ComputeUnits, Configuration, CoreModel, Description};
use crate::bind::e5::{Compilation, Container, Engine, Library};
use crate::bind::foundation::{Map, Text, path_text, text, url};
use crate::{cache, compile};

/// The argument of `prepareWithConcurrencyHint:` in the recipe.
const CONCURRENCY: i64 = 1;

/// The value of `experimentalMLE5EngineUsage` that selects the E5 runtime.
const E5_USAGE: isize = 1;

/// A compiled program with the objects that its engines are made of.
pub(super) struct Assembly {
    key: String,
    program: Program,
    configuration: Configuration,
    borrowed: Vec<Borrowed>,
    compilation: Compilation,
    /// The text and the borrowed models. Dropped last.
    _staged: Staged,
}

/// Objects of a compiled model with the ports of a function.
struct Borrowed {
    function: String,
    container: Container,
    description: Description,
}

fn none<T>(made: Option<T>, what: &str) -> Result<T> {
    made.ok_or_else(|| Error::new(ErrorKind::System, format!("Core ML makes no {what}")))
}

/// The names of features, sorted.
fn names(features: &Map) -> Result<Vec<String>> {
    let keys = features.keys()??.elements()?.into_iter();
    let mut names = keys.map(|key| key.cast::<Text>()?.read()).collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

impl Borrowed {
    /// Writes the outline of a function as a package, lets Core ML compile it, and takes container
    /// and description from the result.
    fn of(function: &Function, folder: &Path, configuration: &Configuration) -> Result<Borrowed> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let bad = |e: String| Error::new(ErrorKind::Unsupported, format!("the E5 path: `{}`: {e}", function.name));
        let outline = outline(function).map_err(|e| bad(e.to_string()))?;
        // Programs of equal content share the folder.
        let name = format!("ports-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let package = folder.join(&name).with_extension("mlpackage");
        write_package(&outline, &package, &WriteOptions::default()).map_err(|e| bad(e.to_string()))?;
        let compiled = CoreModel::compiled(&package)?;
        // The result is in a temporary folder of Core ML; the caller must move it.
        let model = folder.join(&name).with_extension("mlmodelc");
        std::fs::rename(&compiled, &model).map_err(|e| {
            let message = format!("cannot move {} to {}", compiled.display(), model.display());
            Error::new(ErrorKind::System, message).with_source(e)
        })?;
        // Loaded only for its description, so on the CPU.
        let loaded = CoreModel::load(&url(&model)?, &Configuration::of(ComputeUnits::Cpu)?)?;
        let description = loaded.description()??;
        let ports = |ids: &[ferrane_mil::ValueId]| {
            let mut names: Vec<String> = ids.iter().map(|v| function.value(*v).name.clone()).collect();
            names.sort();
            names
        };
        let described = (names(&description.inputs()??)?, names(&description.outputs()??)?);
        if described != (ports(&function.inputs), ports(&function.body().outputs)) {
            return Err(bad(format!("Core ML describes other ports: {described:?}")));
        }
        let container = none(Container::at(&path_text(&model)?, configuration)?, "container")?;
        Ok(Borrowed { function: function.name.clone(), container, description })
    }
}

impl Assembly {
    /// Stages and compiles a program whose ports are tensors.
    ///
    /// # Errors
    /// Core ML's error.
    pub(super) fn new(shared: &E5Context, program: Program) -> Result<Assembly> {
        let mil = ferrane_mil::print(&program).into_bytes();
        let files = program.weights.files();
        let weights: Vec<(String, &[u8])> = files.iter().map(|(path, bytes)| (path.clone(), &bytes[..])).collect();
        let system = shared.system;
        let key = format!("e5-{}", cache::key(&mil, &weights, &system.chip, &system.build, 0));
        let staged = Staged::new(&std::env::temp_dir(), &key, &mil, &weights, false)?;

        let configuration = Configuration::of(ComputeUnits::CpuAndEngine)?;
        configuration.set_e5_usage(E5_USAGE)?;
        let borrow = |f| Borrowed::of(f, staged.folder(), &configuration);
        let borrowed = program.functions.iter().map(borrow).collect::<Result<Vec<_>>>()?;
        let first = borrowed.first().ok_or_else(|| Error::new(ErrorKind::InvalidProgram, "no function"))?;
        let source = url(&staged.folder().join("model.mil"))?;
        let compilation = none(Compilation::of(&source, &first.container, &configuration)?, "compile of the text")?;
        compile::paced(&shared.profile, system.recovery, || compilation.compile(false).map(drop))?;
        drop(files);
        Ok(Assembly { key, program, configuration, borrowed, compilation, _staged: staged })
    }

    /// A key of program and weights.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The program that was compiled, with its casts.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// A prepared engine for each function.
    ///
    /// # Errors
    /// Core ML's error.
    pub(super) fn engines(&self) -> Result<Vec<Engine>> {
        let mut engines = Vec::new();
        let mut library = None;
        for Borrowed { function, container, description } in &self.borrowed {
            let library = match &library {
                Some(library) => library,
                None => {
                    let made = Library::with(&self.compilation, container, &self.configuration)?;
                    library.insert(none(made, "library")?)
                }
            };
            let name = text(function)?;
            let engine = Engine::with(library, description, &self.configuration, &name, None, None, None)?;
            let engine = none(engine, "engine")?;
            engine.prepare(CONCURRENCY)?;
            engines.push(engine);
        }
        Ok(engines)
    }
}
