//! The classes of the E5 runtime. Selectors as in apple-runtime §9, types as in published class
//! listings.
//!
//! Steps in another order than the recipe's fail, and so do descriptions, texts and features that
//! disagree. Operations made by hand report success and give zeros.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use ferrane_device::{Bindings, CompileOptions, Port, ProgramSource, Request, Surface};
use ferrane_host::sync::lock;
use objc2::encode::{Encoding, RefEncode};
use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::coreml::{
    FakeConfiguration, FakeDescription, FakeFeatureValue, FakeFeatures, FakeMultiArray, FakeOptions, Ports, found,
    init, refused,
};
use crate::foundation::{Object, elements, given, make, path, text};
use crate::model::answer;
use crate::program::EMULATOR;
use crate::session::{Call, CallFailure, Silence, count, e5_cache, predictions, spend};

/// Whether the fake's system has this C function of the runtime.
pub(crate) fn has_function(name: &CStr) -> bool {
    [c"e5rt_program_library_create", c"e5rt_execution_stream_create"].contains(&name)
}

/// `e5rt_program_library`, for its type encoding.
#[repr(C)]
struct LibraryHandle {
    _opaque: [u8; 0],
}

// SAFETY: a reference to this type is a pointer to the opaque struct, which is what the encoding
// says.
unsafe impl RefEncode for LibraryHandle {
    const ENCODING_REF: Encoding = Encoding::Pointer(&Encoding::Struct("e5rt_program_library", &[]));
}

fn of<T: objc2::DowncastTarget>(object: Option<&AnyObject>) -> Option<Retained<T>> {
    // SAFETY: a live object, which is retained.
    unsafe { Retained::retain(std::ptr::from_ref(object?).cast_mut()) }?.downcast().ok()
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLProgramE5Container"]
    #[ivars = PathBuf]
    struct FakeContainer;

    impl FakeContainer {
        #[unsafe(method_id(initWithModelAssetPath:configuration:))]
        fn at(
            this: Allocated<Self>,
            path: Option<&AnyObject>,
            configuration: Option<&AnyObject>,
        ) -> Option<Retained<Self>> {
            given(|| {
                let path = PathBuf::from(text(path)?);
                of::<FakeConfiguration>(configuration)?;
                path.join("model.mil").exists().then_some(())?;
                init!(this, path)
            })
        }
    }
);

/// A function that the emulator runs.
struct Compiled {
    ports: Ports,
    inputs: Vec<(Port, Surface)>,
    outputs: Vec<(Port, Surface)>,
    request: Request,
}

type Functions = BTreeMap<String, Arc<Mutex<Compiled>>>;

/// A text file, and its compiled functions.
struct Text {
    path: PathBuf,
    functions: OnceLock<Functions>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLE5ProgramLibraryOnDeviceAOTCompilationImpl"]
    #[ivars = Text]
    struct FakeCompilation;

    impl FakeCompilation {
        #[unsafe(method_id(initWithMILTextAtURL:container:configuration:))]
        fn of_text(
            this: Allocated<Self>,
            url: Option<&AnyObject>,
            container: Option<&AnyObject>,
            configuration: Option<&AnyObject>,
        ) -> Option<Retained<Self>> {
            given(|| {
                let path = path(url)?;
                of::<FakeContainer>(container)?;
                of::<FakeConfiguration>(configuration)?.is_e5().then_some(())?;
                init!(this, Text { path, functions: OnceLock::new() })
            })
        }

        #[unsafe(method(createProgramLibraryHandleWithRespecialization:error:))]
        fn create(&self, _anew: Bool, error: *mut *mut AnyObject) -> *mut LibraryHandle {
            let compiled = count(Call::CreateLibrary).and_then(|()| compile(&self.ivars().path));
            match found(compiled, error) {
                Some(functions) => {
                    let functions = self.ivars().functions.get_or_init(|| functions);
                    std::ptr::from_ref(functions).cast_mut().cast()
                }
                None => std::ptr::null_mut(),
            }
        }
    }
);

/// Compiles a text file whose weights are next to it.
fn compile(path: &std::path::Path) -> Result<Functions, CallFailure> {
    let failed = |e: String| refused(format!("E5RT: {e} (13)"));
    let cache = e5_cache();
    std::fs::create_dir_all(&cache).map_err(|e| failed(format!("{}: {e}", cache.display())))?;
    let opened = ferrane_mil::package::open(path).map_err(|e| failed(e.to_string()))?;
    if !spend() {
        return Err(failed("ANECCompile() FAILED".into()));
    }
    let bad = |e: ferrane_device::Error| failed(e.to_string());
    let artifact =
        EMULATOR.compile(ProgramSource::Program(&opened.program), &CompileOptions::default()).map_err(bad)?;
    let executable = artifact.load().map_err(bad)?;
    let mut functions = Functions::new();
    for function in &opened.program.functions {
        let procedure = executable.procedure(&function.name).map_err(bad)?;
        let side = |ports: &[Port]| {
            let place = |port: &Port| Ok((port.clone(), EMULATOR.surface(&port.layout)?));
            ports.iter().map(place).collect::<ferrane_device::Result<Vec<_>>>().map_err(bad)
        };
        let (inputs, outputs) = (side(&procedure.inputs)?, side(&procedure.outputs)?);
        let bindings = Bindings::new().procedure(&function.name);
        let bindings = inputs.iter().chain(&outputs).fold(bindings, |b, (port, s)| b.bind(&port.name, s));
        let request = executable.prepare(bindings).map_err(bad)?;
        let compiled = Compiled { ports: Ports::of(function), inputs, outputs, request };
        functions.insert(function.name.clone(), Arc::new(Mutex::new(compiled)));
    }
    Ok(functions)
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLE5ProgramLibrary"]
    #[ivars = Retained<FakeCompilation>]
    struct FakeLibrary;

    impl FakeLibrary {
        #[unsafe(method_id(initWithImpl:container:configuration:))]
        fn with(
            this: Allocated<Self>,
            compilation: Option<&AnyObject>,
            container: Option<&AnyObject>,
            configuration: Option<&AnyObject>,
        ) -> Option<Retained<Self>> {
            given(|| {
                let compilation = of::<FakeCompilation>(compilation)?;
                of::<FakeContainer>(container)?;
                of::<FakeConfiguration>(configuration)?;
                init!(this, compilation)
            })
        }
    }
);

/// The arguments of an engine.
struct Parts {
    library: Retained<FakeLibrary>,
    description: Retained<FakeDescription>,
    function: String,
    pool: Retained<FakeStreamPool>,
    ready: OnceLock<Arc<Mutex<Compiled>>>,
}

impl Parts {
    /// Prepares the engine: the library must be compiled and have the function, and the description
    /// must be the function's.
    fn prepare(&self) -> Result<(), CallFailure> {
        let functions = self.library.ivars().ivars().functions.get();
        let functions = functions.ok_or_else(|| refused("E5RT: the program library has no handle (2)"))?;
        let none = || refused(format!("E5RT: no function {} (3)", self.function));
        let function = functions.get(&self.function).ok_or_else(none)?;
        if lock(function).ports != *self.description.ivars() {
            return Err(refused("the ports of the program are not those of the model description"));
        }
        let _ = self.ready.set(function.clone());
        Ok(())
    }

    fn predict(
        &self,
        features: Option<&AnyObject>,
        options: Option<&AnyObject>,
    ) -> Result<Retained<FakeFeatures>, CallFailure> {
        let compiled = self.ready.get().ok_or_else(|| refused("E5RT: the engine is not prepared (2)"))?;
        let features = of::<FakeFeatures>(features).ok_or_else(|| refused("no features"))?;
        let options = of::<FakeOptions>(options).ok_or_else(|| refused("no options"))?;
        let given: BTreeMap<String, _> = features.arrays().map(|(n, a)| (n.to_string(), a.tensor())).collect();
        let compiled = lock(compiled);
        if given != compiled.ports.inputs {
            return Err(refused(format!("features {given:?} for {:?}", compiled.ports.inputs)));
        }
        let (silence, ignores_backings) = predictions();
        if silence.is_none() {
            let failed = |e: ferrane_device::Error| refused(format!("E5RT: {e} (4)"));
            for (port, surface) in &compiled.inputs {
                let array = features.arrays().find(|(name, _)| *name == port.name).map(|(_, a)| a);
                let array = array.ok_or_else(|| refused(&port.name))?;
                let mut access = surface.write().map_err(failed)?;
                for (to, from) in access.bytes_mut().chunks_exact_mut(4).zip(array.addresses()) {
                    // SAFETY: `from` is an element of the array, whose memory the caller keeps
                    // alive.
                    to.copy_from_slice(&unsafe { from.read_unaligned() }.to_le_bytes());
                }
            }
            compiled.request.evaluate().map_err(failed)?;
        }
        let mut values = BTreeMap::new();
        for (port, surface) in &compiled.outputs {
            let tensor = (port.layout.dtype, port.layout.shape.clone());
            let backing = options.backing(&port.name).filter(|b| !ignores_backings && b.tensor() == tensor);
            let array = backing.unwrap_or_else(|| FakeMultiArray::new(&tensor));
            if silence != Some(Silence::Untouched) {
                let access = surface.read().map_err(|e| refused(e.to_string()))?;
                for (from, to) in access.bytes().chunks_exact(4).zip(array.addresses()) {
                    let word = from.try_into().map_or(0, u32::from_le_bytes);
                    // SAFETY: `to` is an element of the array, whose memory the caller keeps alive.
                    unsafe { to.write_unaligned(if silence.is_some() { 0 } else { word }) };
                }
            }
            values.insert(port.name.clone(), FakeFeatureValue::of(array));
        }
        Ok(FakeFeatures::of(values))
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLE5Engine"]
    #[ivars = Parts]
    struct FakeEngine;

    impl FakeEngine {
        #[unsafe(method_id(initWithProgramLibrary:modelDescription:configuration:functionName:classProbabilitiesFeatureName:optionalInputDefaultValues:compilerVersionInfo:))]
        fn with(
            this: Allocated<Self>,
            library: Option<&AnyObject>,
            description: Option<&AnyObject>,
            configuration: Option<&AnyObject>,
            function: Option<&AnyObject>,
            _class_probabilities: Option<&AnyObject>,
            _defaults: Option<&AnyObject>,
            _compiler: Option<&AnyObject>,
        ) -> Option<Retained<Self>> {
            given(|| {
                let (library, description) = (of::<FakeLibrary>(library)?, of::<FakeDescription>(description)?);
                of::<FakeConfiguration>(configuration)?;
                let function = text(function)?;
                let pool = make!(FakeStreamPool, Mutex::default());
                init!(this, Parts { library, description, function, pool, ready: OnceLock::new() })
            })
        }

        #[unsafe(method(prepareWithConcurrencyHint:error:))]
        fn prepare(&self, _concurrency: i64, error: *mut *mut AnyObject) -> Bool {
            answer(count(Call::PrepareEngine).and_then(|()| self.ivars().prepare()), error)
        }

        #[unsafe(method_id(predictionFromFeatures:options:error:))]
        fn predict(
            &self,
            features: Option<&AnyObject>,
            options: Option<&AnyObject>,
            error: *mut *mut AnyObject,
        ) -> Option<Retained<FakeFeatures>> {
            found(count(Call::Predict).and_then(|()| self.ivars().predict(features, options)), error)
        }

        #[unsafe(method_id(programLibrary))]
        fn library(&self) -> Retained<FakeLibrary> {
            self.ivars().library.clone()
        }

        #[unsafe(method_id(streamPool))]
        fn streams(&self) -> Retained<FakeStreamPool> {
            self.ivars().pool.clone()
        }

        #[unsafe(method_id(operationPool))]
        fn operations(&self) -> Option<Object> {
            None
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLE5ExecutionStreamPool"]
    #[ivars = Mutex<Vec<Retained<FakeStream>>>]
    struct FakeStreamPool;

    impl FakeStreamPool {
        #[unsafe(method_id(takeOut))]
        fn take(&self) -> Retained<FakeStream> {
            let waiting = lock(self.ivars()).pop();
            waiting.unwrap_or_else(|| make!(FakeStream, Mutex::default()))
        }

        #[unsafe(method(putBack:))]
        fn put_back(&self, stream: Option<&AnyObject>) {
            if let Some(stream) = of::<FakeStream>(stream) {
                let state = std::mem::take(&mut *lock(stream.ivars()));
                state.operations().for_each(|o| lock(o.ivars()).in_use = false);
                lock(self.ivars()).push(stream);
            }
        }
    }
);

#[derive(Default)]
struct StreamState {
    operations: Option<Object>,
    ran: bool,
    changed: bool,
}

impl StreamState {
    fn operations(&self) -> impl Iterator<Item = Retained<FakeOperation>> + '_ {
        elements(self.operations.as_deref()).unwrap_or_default().iter().filter_map(|o| of(Some(o)))
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLE5ExecutionStream"]
    #[ivars = Mutex<StreamState>]
    struct FakeStream;

    impl FakeStream {
        #[unsafe(method_id(operations))]
        fn operations(&self) -> Option<Object> {
            lock(self.ivars()).operations.clone()
        }

        #[unsafe(method(setOperations:))]
        fn set_operations(&self, operations: &AnyObject) {
            // SAFETY: a live object, which is retained.
            let kept = unsafe { Retained::retain(std::ptr::from_ref(operations).cast_mut()) };
            let mut state = lock(self.ivars());
            (state.operations, state.changed) = (kept, state.ran);
        }

        #[unsafe(method(executeForInputFeatures:options:error:))]
        fn execute(
            &self,
            features: Option<&AnyObject>,
            options: Option<&AnyObject>,
            error: *mut *mut AnyObject,
        ) -> Bool {
            let run = || {
                of::<FakeFeatures>(features).ok_or_else(|| refused("no features"))?;
                of::<FakeOptions>(options).ok_or_else(|| refused("no options"))?;
                let mut state = lock(self.ivars());
                if state.changed {
                    let text = "Failed to add operation to E5 stream. E5RT: Reset stream to add more operations to stream. (2)";
                    return Err(refused(text));
                }
                state.ran = true;
                for operation in state.operations() {
                    let mut work = lock(operation.ivars());
                    (work.in_use, work.ran) = (true, true);
                }
                Ok(())
            };
            answer(run(), error)
        }
    }
);

/// An operation made by hand.
struct Work {
    description: Retained<FakeDescription>,
    in_use: bool,
    ran: bool,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLE5ExecutionStreamOperation"]
    #[ivars = Mutex<Work>]
    struct FakeOperation;

    impl FakeOperation {
        #[unsafe(method_id(initWithProgramLibrary:functionName:modelDescription:configuration:debugLabel:modelSignpostId:))]
        fn with(
            this: Allocated<Self>,
            library: Option<&AnyObject>,
            function: Option<&AnyObject>,
            description: Option<&AnyObject>,
            configuration: Option<&AnyObject>,
            _label: Option<&AnyObject>,
            _signpost: u64,
        ) -> Option<Retained<Self>> {
            given(|| {
                of::<FakeLibrary>(library)?;
                text(function)?;
                let description = of::<FakeDescription>(description)?;
                of::<FakeConfiguration>(configuration)?;
                init!(this, Mutex::new(Work { description, in_use: false, ran: false }))
            })
        }

        #[unsafe(method(prepareForInputFeatures:options:error:))]
        fn bind(
            &self,
            _features: Option<&AnyObject>,
            _options: Option<&AnyObject>,
            error: *mut *mut AnyObject,
        ) -> Bool {
            let text = "Port bindings cannot be changed while operation is in use in an execution stream";
            let free = if lock(self.ivars()).in_use { Err(refused(format!("E5RT: {text}"))) } else { Ok(()) };
            answer(free, error)
        }

        #[unsafe(method_id(outputFeatures))]
        fn outputs(&self) -> Option<Retained<FakeFeatures>> {
            given(|| {
                let work = lock(self.ivars());
                let outputs = &work.ran.then_some(&work.description)?.ivars().outputs;
                let zeros = |(name, tensor): (&String, _)| (name.clone(), FakeFeatureValue::of(FakeMultiArray::new(tensor)));
                Some(FakeFeatures::of(outputs.iter().map(zeros).collect()))
            })
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeContainer::class(), FakeCompilation::class(), FakeLibrary::class(), FakeEngine::class());
    let _ = (FakeStreamPool::class(), FakeStream::class(), FakeOperation::class());
}
