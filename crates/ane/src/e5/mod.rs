//! The second path: a program through Core ML's E5 runtime (apple-runtime §9), behind the same
//! seam.
//!
//! The recipe: MIL text in a file, a container borrowed from a compiled model, a compile on this
//! machine, a library, an engine for each function, predictions. The model that is borrowed from is
//! [`ferrane_mil::boundary::outline`]: the program's ports and nothing behind them, written as a
//! package and compiled by Core ML, since all that is wanted of it is a container and the
//! description of the ports. The runtime takes fp32 at its boundary, so the program gets casts
//! around it; callers see the program's own ports, and their elements are converted before and
//! after. Ports of fp32 and int32 are arrays over the surfaces themselves.
//!
//! The one decision: nothing is believed that this runtime says of success. It is known to report
//! it where nothing ran; see [`proof`].
//!
//! None of this has met a Mac. Open is, beside the rest: where `@model_path` of a text leads that
//! Core ML is given by itself (here: to the text's own folder, where the weights are), and whether
//! an outline is container enough for every program.

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

/// The methods that the recipe is made of.
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

/// What programs of a device share.
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

/// The engine, reached through the E5 runtime.
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

/// The runtime fails in odd ways where it cannot write its cache, so that is seen to first.
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
        // Core ML reports no strides: arrays say their own.
        let procedures = ports::procedures(None, &self.declared, 1)?;
        Ok(Arc::new(Running::new(self.shared.clone(), self.assembly.clone(), procedures)?))
    }
}
