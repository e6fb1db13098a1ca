//! Descriptor, model, and the program of a loaded model (apple-runtime §2, §8, §11, §12).

use ferrane_device::Result;

use super::chaining::{InputBuffersReady, OutputSetEnqueue};
use super::class;
use super::client::Client;
use super::foundation::{Data, Map, Text, Url};
use super::object::Object;
use super::request::Request;

class! {
    /// Text and weights before compilation.
    Descriptor = c"_ANEInMemoryModelDescriptor" {
        /// Takes UTF-8 text, weights
        /// `{"@model_path/weights/x.bin": {"offset": number, "data": data}}` (empty, never nil) and
        /// a binary property list or nil. Returns nil if the text is not MIL.
        pub class with_text(mil: &Data, weights: &Map, options: Option<&Data>) -> Option<Descriptor> = c"modelWithMILText:weights:optionsPlist:", "@@:@@@";
        /// The same, or a network of another kind (macOS 26; apple-runtime §12).
        pub make new(text: &Data, weights: &Map, options: Option<&Data>, is_mil: bool) -> Option<Descriptor> = c"initWithNetworkText:weights:optionsPlist:isMILModel:", "@@:@@@B";
    }
}

class! {
    /// A model made from a descriptor.
    InMemoryModel = c"_ANEInMemoryModel" {
        /// Makes a model of a descriptor.
        pub class with(descriptor: &Descriptor) -> Option<InMemoryModel> = c"inMemoryModelWithDescriptor:", "@@:@";
        /// Makes a model of a descriptor; the selector is misspelled in the framework.
        pub make new(descriptor: &Descriptor) -> Option<InMemoryModel> = c"initWithDesctiptor:", "@@:@";
        /// A hash of text and weights: the name of the directory in which the caller stages files.
        pub method identifier() -> Result<Text> = c"hexStringIdentifier", "@@:";
        /// Compiles the staged files. `options` is empty, never nil.
        pub attempt compile(qos: u32, options: &Map) -> () = c"compileWithQoS:options:error:", "B@:I@^@";
        /// Loads the compiled model.
        pub attempt load(qos: u32, options: &Map) -> () = c"loadWithQoS:options:error:", "B@:I@^@";
        /// Runs a request and waits.
        pub attempt evaluate(qos: u32, options: &Map, request: &Request) -> () = c"evaluateWithQoS:options:request:error:", "B@:I@@^@";
        /// Unloads the model from the engine.
        pub attempt unload(qos: u32) -> () = c"unloadWithQoS:error:", "B@:I^@";
        /// The state: 1 created or unloaded, 2 compiled, 3 loaded, 5 error.
        pub method state() -> u64 = c"state", "Q@:";
        /// The attributes of a loaded model (apple-runtime §11).
        pub method attributes() -> Option<Map> = c"modelAttributes", "@@:";
        /// The inner model, which clients accept.
        pub method model() -> Option<Model> = c"model", "@@:";
        /// The inner program, once loaded.
        pub method program() -> Option<Program> = c"program", "@@:";
        /// The driver's handle of the loaded program.
        pub method program_handle() -> u64 = c"programHandle", "Q@:";
        /// The driver's handle of intermediate memory; 0 for simple programs.
        pub method intermediate_buffer() -> u64 = c"intermediateBufferHandle", "Q@:";
        /// The number of requests that may be in flight; a `char` in published dumps.
        pub method queue_depth() -> i8 = c"queueDepth", "c@:";
        /// The mask of counters to collect.
        pub method perf_stats_mask() -> u32 = c"perfStatsMask", "I@:";
        /// The number that identifies it in traces.
        pub method string_id() -> u64 = c"string_id", "Q@:";
        /// True for a model from MIL text.
        pub method is_mil() -> bool = c"isMILModel", "B@:";
        /// True if the system's own cache has it compiled.
        pub method is_compiled() -> bool = c"compiledModelExists", "B@:";
        /// Removes it from the system's own cache.
        pub method purge() -> () = c"purgeCompiledModel", "v@:";
        /// Sets the mask of counters to collect; see [`PerformanceStats`](super::PerformanceStats).
        pub method set_perf_stats_mask(mask: u32) -> () = c"setPerfStatsMask:", "v@:I";
        /// The descriptor that it was made from.
        pub method descriptor() -> Option<Descriptor> = c"descriptor", "@@:";
        /// The directory of its files, once they exist.
        pub method url() -> Option<Url> = c"modelURL", "@@:";
        /// The name of the file with the compiler's options.
        pub method options_file() -> Option<Text> = c"compilerOptionsFileName", "@@:";
        /// The client that it uses.
        pub method connection() -> Option<Client> = c"sharedConnection", "@@:";
        /// Writes the files that the caller otherwise stages, and returns where (macOS 26;
        /// apple-runtime §12).
        pub method save_files() -> Option<Object> = c"saveModelFiles", "@@:";
        /// Maps the surfaces of a request in advance; it returned NO wherever it was tried.
        pub attempt map_surfaces(request: &Request, cached: bool) -> () = c"mapIOSurfacesWithRequest:cacheInference:error:", "B@:@B^@";
    }
}

class! {
    /// A model in the form that clients accept.
    Model = c"_ANEModel" {
        /// Takes a directory and a key. Directories with MIL text cannot be loaded this way: the
        /// client looks for an Espresso network.
        pub class at(url: &Url, key: &Text) -> Option<Model> = c"modelAtURL:key:", "@@:@@";
        /// The state; see [`InMemoryModel::state`].
        pub method state() -> u64 = c"state", "Q@:";
        /// The attributes of a loaded model.
        pub method attributes() -> Option<Map> = c"modelAttributes", "@@:";
        /// The inner program, once loaded.
        pub method program() -> Option<Program> = c"program", "@@:";
        /// The driver's handle of the loaded program.
        pub method program_handle() -> u64 = c"programHandle", "Q@:";
        /// The driver's handle of intermediate memory.
        pub method intermediate_buffer() -> u64 = c"intermediateBufferHandle", "Q@:";
        /// The number of requests that may be in flight.
        pub method queue_depth() -> i8 = c"queueDepth", "c@:";
        /// The mask of counters to collect.
        pub method perf_stats_mask() -> u32 = c"perfStatsMask", "I@:";
        /// The number that identifies it in traces.
        pub method string_id() -> u64 = c"string_id", "Q@:";
        /// The identifier that clients use. The in-memory model has none, so clients do not accept
        /// it.
        pub method uuid() -> Option<Object> = c"getUUID", "@@:";
    }
}

class! {
    /// The program of a loaded model.
    Program = c"_ANEProgramForEvaluation" {
        /// Runs a request and waits. apple-runtime §5 gives `int` for the queue's index, a text for
        /// the model's id and BOOL for the status. The encoding that the runtime reports in
        /// published dumps, `B76@0:8@16@24I32Q36Q44@52^I60^@68`, has two u64 and a u32; it
        /// describes what the callee reads, so it is bound.
        pub(crate) attempt process(request: &Request, model: Option<&Model>, qos: u32, queue: u64, string_id: u64, options: &Map, status: *mut u32) -> () = c"processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:", "B@:@@IQQ@^I^@";
        /// The target of [`Client::buffers_ready_direct`](super::Client::buffers_ready_direct).
        pub attempt buffers_ready(inputs: &InputBuffersReady, model: &Model, options: &Map) -> () = c"processInputBuffers:model:options:error:", "B@:@@@^@";
        /// The target of [`Client::enqueue_sets_direct`](super::Client::enqueue_sets_direct).
        pub attempt enqueue_set(set: &OutputSetEnqueue, model: &Model, options: &Map) -> () = c"processOutputSet:model:options:error:", "B@:@@@^@";
    }
}
