//! The classes around the E5 runtime (apple-runtime §9), which are Core ML's own and private.
//!
//! Selectors are those of the published recipe. It gives no types: they are those of published
//! class listings (`prepare…` takes a 64-bit number, a library's handle is a pointer to
//! `e5rt_program_library`), and as everywhere they are compared with the system's before the first
//! call.
//!
//! Streams, pools and operations are bound as far as they are known. Operations that are made by
//! hand run as silent no-ops, so nothing but a test makes them: [`Engine::predict`] is the way that
//! computes.

use std::ffi::CStr;
use std::ptr::NonNull;

use ferrane_device::Result;
use objc2::encode::{Encoding, RefEncode};

use super::class;
use super::coreml::{Configuration, Description, Features, PredictionOptions};
use super::foundation::{List, Map, Text, Url};
use super::object::{Object, Ret};
use super::{BoundClass, Method};
use crate::system;

/// The C functions of the runtime that are published, by name only: without their arguments nobody
/// can call them, so they are looked for and never called.
pub const FUNCTIONS: [&CStr; 4] = [
    c"e5rt_program_library_create",
    c"e5rt_execution_stream_create",
    c"e5rt_async_event_create",
    c"e5rt_async_event_signal",
];

/// [`FUNCTIONS`], and whether this system has each. Nothing is there before a device was opened.
pub fn functions() -> [(&'static CStr, bool); 4] {
    system::open_core_ml();
    FUNCTIONS.map(|name| (name, system::has_symbol(name)))
}

/// `struct e5rt_program_library`, known by address only. No function that gives one back is
/// published, so it is never freed.
#[repr(C)]
pub struct LibraryHandle {
    _opaque: [u8; 0],
}

// SAFETY: the encoding of a pointer to the opaque struct.
unsafe impl RefEncode for LibraryHandle {
    const ENCODING_REF: Encoding = Encoding::Pointer(&Encoding::Struct("e5rt_program_library", &[]));
}

impl Ret for Option<NonNull<LibraryHandle>> {
    type Raw = *mut LibraryHandle;

    unsafe fn from_raw(_: &Method, raw: *mut LibraryHandle, _: bool) -> Result<Option<NonNull<LibraryHandle>>> {
        Ok(NonNull::new(raw))
    }
}

class! {
    /// A compiled model that others borrow their surroundings from.
    Container = c"MLProgramE5Container" {
        /// Of the path of a `.mlmodelc`.
        pub make at(path: &Text, configuration: &Configuration) -> Option<Container> = c"initWithModelAssetPath:configuration:", "@@:@@";
    }
}

class! {
    /// A compile of MIL text on this machine.
    Compilation = c"MLE5ProgramLibraryOnDeviceAOTCompilationImpl" {
        /// Of a file of text.
        pub make of(text: &Url, container: &Container, configuration: &Configuration) -> Option<Compilation> = c"initWithMILTextAtURL:container:configuration:", "@@:@@@";
        /// Compiles; the handle is the runtime's own.
        pub fetch compile(anew: bool) -> NonNull<LibraryHandle> = c"createProgramLibraryHandleWithRespecialization:error:", "^{e5rt_program_library=}@:B^@";
    }
}

class! {
    /// The functions of a compiled program.
    Library = c"MLE5ProgramLibrary" {
        /// Of a compile.
        pub make with(compilation: &Compilation, container: &Container, configuration: &Configuration) -> Option<Library> = c"initWithImpl:container:configuration:", "@@:@@@";
    }
}

class! {
    /// One function, ready to run.
    Engine = c"MLE5Engine" {
        /// Of a library. The names and shapes of the description are the function's.
        pub make with(library: &Library, description: &Description, configuration: &Configuration, function: &Text, class_probabilities: Option<&Text>, defaults: Option<&Map>, compiler: Option<&Object>) -> Option<Engine> = c"initWithProgramLibrary:modelDescription:configuration:functionName:classProbabilitiesFeatureName:optionalInputDefaultValues:compilerVersionInfo:", "@@:@@@@@@@";
        /// Makes room for so many predictions at once.
        pub attempt prepare(concurrency: i64) -> () = c"prepareWithConcurrencyHint:error:", "B@:q^@";
        /// Runs, and gives an object of the protocol `MLFeatureProvider`.
        pub fetch predict(features: &Features, options: &PredictionOptions) -> Object = c"predictionFromFeatures:options:error:", "@@:@@^@";
        /// Its library.
        pub method library() -> Option<Library> = c"programLibrary", "@@:";
        /// Its streams.
        pub method streams() -> Option<StreamPool> = c"streamPool", "@@:";
        /// Its operations, a pool whose class depends on the shapes of the ports.
        pub method operations() -> Option<Object> = c"operationPool", "@@:";
    }
}

class! {
    /// Streams that are not in use.
    StreamPool = c"MLE5ExecutionStreamPool" {
        /// One of them, or a new one.
        pub method take() -> Option<Stream> = c"takeOut", "@@:";
        /// Gives one back.
        pub method put_back(stream: &Stream) -> () = c"putBack:", "v@:@";
    }
}

class! {
    /// Operations in order.
    Stream = c"MLE5ExecutionStream" {
        /// What it runs.
        pub method operations() -> Option<List> = c"operations", "@@:";
        /// Sets it, on a stream that has not run since it was reset.
        pub method set_operations(operations: &List) -> () = c"setOperations:", "v@:@";
        /// Runs. What more is added afterward wants a reset first.
        pub attempt execute(features: &Features, options: &PredictionOptions) -> () = c"executeForInputFeatures:options:error:", "B@:@@^@";
    }
}

class! {
    /// One function in a stream.
    Operation = c"MLE5ExecutionStreamOperation" {
        /// By hand: such a one computes nothing and says nothing.
        pub make with(library: &Library, function: &Text, description: &Description, configuration: &Configuration, label: Option<&Text>, signpost: u64) -> Option<Operation> = c"initWithProgramLibrary:functionName:modelDescription:configuration:debugLabel:modelSignpostId:", "@@:@@@@@Q";
        /// Binds its ports; refused while it is in a stream that runs it.
        pub attempt bind(features: &Features, options: &PredictionOptions) -> () = c"prepareForInputFeatures:options:error:", "B@:@@^@";
        /// What it left.
        pub method outputs() -> Option<Object> = c"outputFeatures", "@@:";
    }
}

pub(super) fn methods() -> Vec<&'static Method> {
    let lists = [
        Container::methods(),
        Compilation::methods(),
        Library::methods(),
        Engine::methods(),
        StreamPool::methods(),
        Stream::methods(),
        Operation::methods(),
    ];
    lists.into_iter().flatten().collect()
}
