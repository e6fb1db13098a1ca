//! The second path: a program through Core ML's E5 runtime (apple-runtime §9), with the same device
//! interface.
//!
//! The recipe: MIL text in a file, a container borrowed from a compiled model, a compile on this
//! machine, a library, an engine for each function, predictions. The borrowed model is
//! [`ferrane_mil::boundary::outline`], a program with only the ports, written as a package and
//! compiled by Core ML: only its container and the description of its ports are used. The runtime
//! takes fp32 at its boundary, so casts are added around the program; callers see the program's own
//! ports, and their elements are converted before and after. Ports of fp32 and int32 are arrays
//! over the surfaces themselves.
//!
//! # Success is verified
//!
//! This runtime is known to report success where nothing ran, so success is never trusted; see
//! [`proof`].
//!
//! None of this has run on a Mac. Also open: the folder that `@model_path` of a text means if Core
//! ML reads it directly (assumed here: the text's own folder, where the weights are), and whether
//! an outline suffices as a container for every program.

mod assembly;
mod proof;
mod run;
mod slot;

use std::ffi::CStr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ferrane_device::backend::{Backend, CompileOptions, Compiled, Loaded, ProgramSource};
use ferrane_device::queue::Queue;
use ferrane_device::staging::sweep;
use ferrane_device::{Error, ErrorKind, Layout, Memory, Result};
use ferrane_host::sync::lock;
use ferrane_machine::Profile;
use ferrane_mil::boundary::multiarrays;

use self::assembly::Assembly;
use self::run::Running;
use crate::bind;
use crate::ports::{self, Declared};
use crate::source;
use crate::surface::SurfaceMemory;
use crate::system::System;

/// The methods that the recipe calls.
const NEEDED: [&CStr; 18] = [
    c"compileModelAtURL:error:",
    c"modelWithContentsOfURL:configuration:error:",
    c"modelDescription",
    c"setComputeUnits:",
    c"setExperimentalMLE5EngineUsage:",
    c"initWithModelAssetPath:configuration:",
    c"initWithMILTextAtURL:container:configuration:",
    c"createProgramLibraryHandleWithRespecialization:error:",
    c"initWithImpl:container:configuration:",
    c"initWithProgramLibrary:modelDescription:configuration:functionName:classProbabilitiesFeatureName:optionalInputDefaultValues:compilerVersionInfo:",
    c"prepareWithConcurrencyHint:error:",
    c"predictionFromFeatures:options:error:",
    c"initWithDataPointer:shape:dataType:strides:deallocator:error:",
    c"featureValueWithMultiArray:",
    c"multiArrayValue",
    c"initWithDictionary:error:",
    c"featureValueForName:",
    c"setOutputBackings:",
];

/// The state that programs of a device share.
struct E5Context {
    system: &'static System,
    profile: Profile,
    queue: Queue,
    notes: Mutex<Vec<String>>,
}

impl E5Context {
    fn note(&self, note: String) {
        let mut notes = lock(&self.notes);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// The engine, used through the E5 runtime.
pub(crate) struct E5(Arc<E5Context>);

impl E5 {
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the system lacks a class or a method, or the runtime's cache
    /// cannot be written.
    pub(crate) fn new(system: &'static System, profile: Profile) -> Result<E5> {
        for method in bind::table().into_iter().filter(|m| NEEDED.contains(&m.selector)) {
            method.check()?;
        }
        writable(&(system.e5_cache)())?;
        sweep(&std::env::temp_dir());
        let queue = Queue::new("ferrane-ane-e5", profile.queue_depth.value);
        Ok(E5(Arc::new(E5Context { system, profile, queue, notes: Mutex::default() })))
    }
}

/// The runtime's failures are misleading if it cannot write its cache, so that is checked first.
fn writable(folder: &Path) -> Result<()> {
    let probe = folder.join(format!(".ferrane-{}", std::process::id()));
    let write = || {
        std::fs::create_dir_all(folder)?;
        std::fs::write(&probe, b"")?;
        std::fs::remove_file(&probe)
    };
    write().map_err(|e| {
        let folder = folder.display();
        let message = format!(
            "the E5 runtime keeps what it compiles in {folder}, which cannot be written; make it writable, or use `path=inmem`"
        );
        Error::new(ErrorKind::Unavailable, message).with_source(e)
    })
}

impl Backend for E5 {
    fn name(&self) -> String {
        format!("ane{} (e5)", self.0.system.suffix)
    }

    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        let program = &*source::program(&source, &options.label)?;
        let declared = ports::declared(program)?;
        let refused = |e| Error::new(ErrorKind::Unsupported, format!("the E5 path: {e}")).labeled(&options.label);
        let wide = multiarrays(program).map_err(refused)?;
        let assembly = Assembly::new(&self.0, wide)?;
        Ok(Box::new(Program { shared: self.0.clone(), declared, assembly: Arc::new(assembly) }))
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(SurfaceMemory::new(self.0.system.surfaces, layout, 1)?))
    }

    fn notes(&self) -> Vec<String> {
        lock(&self.0.notes).clone()
    }
}

struct Program {
    shared: Arc<E5Context>,
    declared: Vec<Declared>,
    assembly: Arc<Assembly>,
}

impl Compiled for Program {
    fn key(&self) -> &str {
        self.assembly.key()
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        // Core ML reports no strides; each array has its own.
        let procedures = ports::procedures(None, &self.declared, 1)?;
        Ok(Arc::new(Running::new(self.shared.clone(), self.assembly.clone(), procedures)?))
    }
}
