//! Descriptor, model, and what a loaded model has inside (apple-runtime §2, §8, §11, §12).

use ferrane_device::Result;

use super::chaining::{InputBuffersReady, OutputSetEnqueue};
use super::class;
use super::client::Client;
use super::foundation::{Data, Map, Text, Url};
use super::object::Object;
use super::request::Request;

class! {
    /// Text and weights, not compiled.
    Descriptor = c"_ANEInMemoryModelDescriptor" {
        /// From UTF-8 text, weights `{"@model_path/weights/x.bin": {"offset": number, "data":
        /// data}}` (empty, never nil) and a binary property list or nil. Nil where the text is no
        /// MIL.
        pub class with_text(mil: &Data, weights: &Map, options: Option<&Data>) -> Option<Descriptor> = c"modelWithMILText:weights:optionsPlist:", "@@:@@@";
        /// The same, or a network of another kind; macOS 26 (apple-runtime §12).
        pub make new(text: &Data, weights: &Map, options: Option<&Data>, is_mil: bool) -> Option<Descriptor> = c"initWithNetworkText:weights:optionsPlist:isMILModel:", "@@:@@@B";
    }
}

class! {
    /// A model made from a descriptor.
    InMemoryModel = c"_ANEInMemoryModel" {
        /// Of a descriptor.
        pub class with(descriptor: &Descriptor) -> Option<InMemoryModel> = c"inMemoryModelWithDescriptor:", "@@:@";
        /// The same; the selector is misspelled in the framework.
        pub make new(descriptor: &Descriptor) -> Option<InMemoryModel> = c"initWithDesctiptor:", "@@:@";
        /// A hash of text and weights; the name of the directory that the caller stages files in.
        pub method identifier() -> Result<Text> = c"hexStringIdentifier", "@@:";
        /// Compiles what is staged. `options` is empty, never nil.
        pub attempt compile(qos: u32, options: &Map) -> () = c"compileWithQoS:options:error:", "B@:I@^@";
        /// Loads what was compiled.
        pub attempt load(qos: u32, options: &Map) -> () = c"loadWithQoS:options:error:", "B@:I@^@";
        /// Runs a request and waits.
        pub attempt evaluate(qos: u32, options: &Map, request: &Request) -> () = c"evaluateWithQoS:options:request:error:", "B@:I@@^@";
        /// Takes it off the engine.
        pub attempt unload(qos: u32) -> () = c"unloadWithQoS:error:", "B@:I^@";
        /// Where it stands: 1 created or unloaded, 2 compiled, 3 loaded, 5 error.
        pub method state() -> u64 = c"state", "Q@:";
        /// What it says of itself once loaded (apple-runtime §11).
        pub method attributes() -> Option<Map> = c"modelAttributes", "@@:";
        /// The model inside, which clients take.
        pub method model() -> Option<Model> = c"model", "@@:";
        /// The program inside, once loaded.
        pub method program() -> Option<Program> = c"program", "@@:";
        /// The driver's handle of the loaded program.
        pub method program_handle() -> u64 = c"programHandle", "Q@:";
        /// The driver's handle of intermediate memory; 0 for simple programs.
        pub method intermediate_buffer() -> u64 = c"intermediateBufferHandle", "Q@:";
        /// Requests that may be in flight; a `char` in published dumps.
        pub method queue_depth() -> i8 = c"queueDepth", "c@:";
        /// Which counters are wanted.
        pub method perf_stats_mask() -> u32 = c"perfStatsMask", "I@:";
        /// The number that traces name it by.
        pub method string_id() -> u64 = c"string_id", "Q@:";
        /// True for a model of MIL text.
        pub method is_mil() -> bool = c"isMILModel", "B@:";
        /// True if the system's own cache has it compiled.
        pub method is_compiled() -> bool = c"compiledModelExists", "B@:";
        /// Removes it from the system's own cache.
        pub method purge() -> () = c"purgeCompiledModel", "v@:";
        /// Which counters are wanted, see [`PerformanceStats`](super::PerformanceStats).
        pub method set_perf_stats_mask(mask: u32) -> () = c"setPerfStatsMask:", "v@:I";
        /// What it was made of.
        pub method descriptor() -> Option<Descriptor> = c"descriptor", "@@:";
        /// Where its files are, once they are there.
        pub method url() -> Option<Url> = c"modelURL", "@@:";
        /// The name of the file with the compiler's options.
        pub method options_file() -> Option<Text> = c"compilerOptionsFileName", "@@:";
        /// The client that it uses.
        pub method connection() -> Option<Client> = c"sharedConnection", "@@:";
        /// Writes the files that the caller is else to stage, and says where; macOS 26
        /// (apple-runtime §12).
        pub method save_files() -> Option<Object> = c"saveModelFiles", "@@:";
        /// Maps the surfaces of a request beforehand; it answered NO wherever it was tried.
        pub attempt map_surfaces(request: &Request, cached: bool) -> () = c"mapIOSurfacesWithRequest:cacheInference:error:", "B@:@B^@";
    }
}

class! {
    /// A model as clients take it.
    Model = c"_ANEModel" {
        /// Of a directory and a key. MIL directories cannot be loaded this way: the client looks
        /// for an Espresso network.
        pub class at(url: &Url, key: &Text) -> Option<Model> = c"modelAtURL:key:", "@@:@@";
        /// Where it stands, see [`InMemoryModel::state`].
        pub method state() -> u64 = c"state", "Q@:";
        /// What it says of itself once loaded.
        pub method attributes() -> Option<Map> = c"modelAttributes", "@@:";
        /// The program inside, once loaded.
        pub method program() -> Option<Program> = c"program", "@@:";
        /// The driver's handle of the loaded program.
        pub method program_handle() -> u64 = c"programHandle", "Q@:";
        /// The driver's handle of intermediate memory.
        pub method intermediate_buffer() -> u64 = c"intermediateBufferHandle", "Q@:";
        /// Requests that may be in flight.
        pub method queue_depth() -> i8 = c"queueDepth", "c@:";
        /// Which counters are wanted.
        pub method perf_stats_mask() -> u32 = c"perfStatsMask", "I@:";
        /// The number that traces name it by.
        pub method string_id() -> u64 = c"string_id", "Q@:";
        /// What clients know it by; the in-memory model has none, which is why clients do not take
        /// that.
        pub method uuid() -> Option<Object> = c"getUUID", "@@:";
    }
}

class! {
    /// The program of a loaded model.
    Program = c"_ANEProgramForEvaluation" {
        /// Runs a request and waits. apple-runtime §5 gives `int` for the queue's index, a text for
        /// the model's id and BOOL for the status; the encoding that the runtime itself reports,
        /// `B76@0:8@16@24I32Q36Q44@52^I60^@68` in published dumps, has two u64 and a u32. The
        /// latter is bound: it is what the callee reads.
        pub(crate) attempt process(request: &Request, model: Option<&Model>, qos: u32, queue: u64, string_id: u64, options: &Map, status: *mut u32) -> () = c"processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:", "B@:@@IQQ@^I^@";
        /// What [`Client::buffers_ready_direct`](super::Client::buffers_ready_direct) sends on.
        pub attempt buffers_ready(inputs: &InputBuffersReady, model: &Model, options: &Map) -> () = c"processInputBuffers:model:options:error:", "B@:@@@^@";
        /// What [`Client::enqueue_sets_direct`](super::Client::enqueue_sets_direct) sends on.
        pub attempt enqueue_set(set: &OutputSetEnqueue, model: &Model, options: &Map) -> () = c"processOutputSet:model:options:error:", "B@:@@@^@";
    }
}
