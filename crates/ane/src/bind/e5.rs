//! The classes of the E5 runtime (apple-runtime §9), which are private classes of Core ML.
//!
//! Selectors are those of the published recipe. The recipe gives no types: they come from published
//! class listings (`prepare…` takes a 64-bit number, a library's handle is a pointer to
//! `e5rt_program_library`), and are compared with the system's before the first call, as for every
//! class.
//!
//! Streams, pools and operations are bound as far as they are known. Operations made by hand
//! silently compute nothing, so only tests make them; [`Engine::predict`] computes.

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

/// The published C functions of the runtime, by name only. Their arguments are not known, so they
/// are looked up and never called.
pub const FUNCTIONS: [&CStr; 4] = [
    c"e5rt_program_library_create",
    c"e5rt_execution_stream_create",
    c"e5rt_async_event_create",
    c"e5rt_async_event_signal",
];

/// The [`FUNCTIONS`], each with whether this system has it. All are missing before a device was
/// opened.
pub fn functions() -> [(&'static CStr, bool); 4] {
    system::open_core_ml();
    FUNCTIONS.map(|name| (name, system::has_symbol(name)))
}

/// `struct e5rt_program_library`, known by address only. No function to free one is published, so
/// it is never freed.
#[repr(C)]
pub struct LibraryHandle {
    _opaque: [u8; 0],
}

// SAFETY: a reference to this type is a pointer to the opaque struct, which is what the encoding
// says.
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
    /// A compiled model from which other objects borrow their context.
    Container = c"MLProgramE5Container" {
        /// Takes the path of a `.mlmodelc`.
        pub make at(path: &Text, configuration: &Configuration) -> Option<Container> = c"initWithModelAssetPath:configuration:", "@@:@@";
    }
}

class! {
    /// The compilation of MIL text on this machine.
    Compilation = c"MLE5ProgramLibraryOnDeviceAOTCompilationImpl" {
        /// Takes the URL of a text file.
        pub make of(text: &Url, container: &Container, configuration: &Configuration) -> Option<Compilation> = c"initWithMILTextAtURL:container:configuration:", "@@:@@@";
        /// Compiles. The runtime owns the handle.
        pub fetch compile(anew: bool) -> NonNull<LibraryHandle> = c"createProgramLibraryHandleWithRespecialization:error:", "^{e5rt_program_library=}@:B^@";
    }
}

class! {
    /// The functions of a compiled program.
    Library = c"MLE5ProgramLibrary" {
        /// Takes a compilation.
        pub make with(compilation: &Compilation, container: &Container, configuration: &Configuration) -> Option<Library> = c"initWithImpl:container:configuration:", "@@:@@@";
    }
}

class! {
    /// One function, prepared for predictions.
    Engine = c"MLE5Engine" {
        /// Takes a library. Names and shapes in the description must be those of the function.
        pub make with(library: &Library, description: &Description, configuration: &Configuration, function: &Text, class_probabilities: Option<&Text>, defaults: Option<&Map>, compiler: Option<&Object>) -> Option<Engine> = c"initWithProgramLibrary:modelDescription:configuration:functionName:classProbabilitiesFeatureName:optionalInputDefaultValues:compilerVersionInfo:", "@@:@@@@@@@";
        /// Allocates resources for this many concurrent predictions.
        pub attempt prepare(concurrency: i64) -> () = c"prepareWithConcurrencyHint:error:", "B@:q^@";
        /// Runs the function; the result is an object of the protocol `MLFeatureProvider`.
        pub fetch predict(features: &Features, options: &PredictionOptions) -> Object = c"predictionFromFeatures:options:error:", "@@:@@^@";
        /// The library that the function belongs to.
        pub method library() -> Option<Library> = c"programLibrary", "@@:";
        /// The pool of its streams.
        pub method streams() -> Option<StreamPool> = c"streamPool", "@@:";
        /// The pool of its operations; its class depends on the shapes of the ports.
        pub method operations() -> Option<Object> = c"operationPool", "@@:";
    }
}

class! {
    /// A pool of unused streams.
    StreamPool = c"MLE5ExecutionStreamPool" {
        /// Takes a stream from the pool, or makes a new one.
        pub method take() -> Option<Stream> = c"takeOut", "@@:";
        /// Returns a stream to the pool.
        pub method put_back(stream: &Stream) -> () = c"putBack:", "v@:@";
    }
}

class! {
    /// A sequence of operations.
    Stream = c"MLE5ExecutionStream" {
        /// The operations of the stream.
        pub method operations() -> Option<List> = c"operations", "@@:";
        /// Sets the operations of a stream that has not run since it was reset.
        pub method set_operations(operations: &List) -> () = c"setOperations:", "v@:@";
        /// Runs the stream. Adding operations afterward requires a reset first.
        pub attempt execute(features: &Features, options: &PredictionOptions) -> () = c"executeForInputFeatures:options:error:", "B@:@@^@";
    }
}

class! {
    /// One function as an operation of a stream.
    Operation = c"MLE5ExecutionStreamOperation" {
        /// Makes an operation by hand; such an operation computes nothing and reports no error.
        pub make with(library: &Library, function: &Text, description: &Description, configuration: &Configuration, label: Option<&Text>, signpost: u64) -> Option<Operation> = c"initWithProgramLibrary:functionName:modelDescription:configuration:debugLabel:modelSignpostId:", "@@:@@@@@Q";
        /// Binds the ports; refused while the operation is in a running stream.
        pub attempt bind(features: &Features, options: &PredictionOptions) -> () = c"prepareForInputFeatures:options:error:", "B@:@@^@";
        /// The outputs of the last run.
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
