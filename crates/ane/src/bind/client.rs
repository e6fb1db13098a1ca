//! The connection to the engine's daemon and driver (apple-runtime §5, §8, §12).
//!
//! Calls with `do` in their selector talk to the driver without the daemon.

use super::chaining::{ChainingRequest, InputBuffersReady, OutputSetEnqueue};
use super::class;
use super::foundation::{Map, Text};
use super::instance::InstanceParameters;
use super::model::Model;
use super::object::Object;
use super::request::Request;

class! {
    /// A client.
    Client = c"_ANEClient" {
        /// The one that the process shares.
        pub class shared() -> Option<Client> = c"sharedConnection", "@@:";
        /// A client that may skip the daemon.
        pub make restricted(allowed: bool) -> Option<Client> = c"initWithRestrictedAccessAllowed:", "@@:B";
        /// Runs a request and waits.
        pub attempt evaluate(model: &Model, options: &Map, request: &Request, qos: u32) -> () = c"evaluateWithModel:options:request:qos:error:", "B@:@@@I^@";
        /// Runs a request without the daemon.
        pub attempt evaluate_direct(model: &Model, options: &Map, request: &Request, qos: u32) -> () = c"doEvaluateDirectWithModel:options:request:qos:error:", "B@:@@@I^@";
        /// Runs a request at real-time priority.
        pub attempt evaluate_real_time(model: &Model, options: &Map, request: &Request) -> () = c"evaluateRealTimeWithModel:options:request:error:", "B@:@@@^@";
        /// Opens the bracket of real-time requests. It answers NO, and they work all the same.
        pub method begin_real_time() -> bool = c"beginRealTimeTask", "B@:";
        /// Closes it.
        pub method end_real_time() -> bool = c"endRealTimeTask", "B@:";
        /// Loads a model for real-time requests.
        pub attempt load_real_time(model: &Model, options: &Map, qos: u32) -> () = c"loadRealTimeModel:options:qos:error:", "B@:@@I^@";
        /// Takes it off again.
        pub attempt unload_real_time(model: &Model, options: &Map, qos: u32) -> () = c"unloadRealTimeModel:options:qos:error:", "B@:@@I^@";
        /// Compiles a model of a directory.
        pub attempt compile(model: &Model, options: &Map, qos: u32) -> () = c"compileModel:options:qos:error:", "B@:@@I^@";
        /// Loads it.
        pub attempt load(model: &Model, options: &Map, qos: u32) -> () = c"loadModel:options:qos:error:", "B@:@@I^@";
        /// Takes it off.
        pub attempt unload(model: &Model, options: &Map, qos: u32) -> () = c"unloadModel:options:qos:error:", "B@:@@I^@";
        /// Loads it without the daemon.
        pub attempt load_direct(model: &Model, options: &Map, qos: u32) -> () = c"doLoadModel:options:qos:error:", "B@:@@I^@";
        /// Takes it off without the daemon.
        pub attempt unload_direct(model: &Model, options: &Map, qos: u32) -> () = c"doUnloadModel:options:qos:error:", "B@:@@I^@";
        /// Loads one more instance of a model that is loaded.
        pub attempt load_instance(model: &Model, options: &Map, parameters: &InstanceParameters, qos: u32) -> () = c"loadModelNewInstance:options:modelInstParams:qos:error:", "B@:@@@I^@";
        /// The same without the daemon.
        pub attempt load_instance_direct(model: &Model, options: &Map, parameters: &InstanceParameters, qos: u32) -> () = c"doLoadModelNewInstance:options:modelInstParams:qos:error:", "B@:@@@I^@";
        /// Prepares a chain; code 15 where the model has no symbols, as every model of MIL text had
        /// that was tried.
        pub attempt prepare_chaining(model: &Model, options: &Map, chain: &ChainingRequest, qos: u32) -> () = c"prepareChainingWithModel:options:chainingReq:qos:error:", "B@:@@@I^@";
        /// Tells where outputs of a prepared chain go.
        pub attempt enqueue_sets(model: &Model, set: &OutputSetEnqueue, options: &Map, qos: u32) -> () = c"enqueueSetsWithModel:outputSet:options:qos:error:", "B@:@@@I^@";
        /// Tells that inputs of a prepared chain are there.
        pub attempt buffers_ready(model: &Model, inputs: &InputBuffersReady, options: &Map, qos: u32) -> () = c"buffersReadyWithModel:inputBuffers:options:qos:error:", "B@:@@@I^@";
        /// Prepares a chain without the daemon.
        pub attempt prepare_chaining_direct(model: &Model, options: &Map, chain: &ChainingRequest, qos: u32) -> () = c"doPrepareChainingWithModel:options:chainingReq:qos:error:", "B@:@@@I^@";
        /// Tells where outputs go, without the daemon.
        pub attempt enqueue_sets_direct(model: &Model, set: &OutputSetEnqueue, options: &Map, qos: u32) -> () = c"doEnqueueSetsWithModel:outputSet:options:qos:error:", "B@:@@@I^@";
        /// Tells that inputs are there, without the daemon.
        pub attempt buffers_ready_direct(model: &Model, inputs: &InputBuffersReady, options: &Map, qos: u32) -> () = c"doBuffersReadyWithModel:inputBuffers:options:qos:error:", "B@:@@@I^@";
        /// Tells the scheduler how a model will be used; every hint that was tried was refused.
        pub attempt session_hint(model: &Model, hint: &Text, options: &Map, report: Option<&Object>) -> () = c"sessionHintWithModel:hint:options:report:error:", "B@:@@@@^@";
        /// Tells the system's statistics that an evaluation failed.
        pub method report_failure(model: &Model, reason: u32, queue: u64) -> () = c"reportEvaluateFailure:failureReason:qIdx:", "v@:@IQ";
        /// Its connections to the daemon, by name.
        pub method connections() -> Option<Object> = c"connections", "@@:";
        /// Those over which models were loaded.
        pub method loading_connections() -> Option<Object> = c"connectionsUsedForLoadingModels", "@@:";
        /// The one over which a model would be loaded.
        pub method connection_for(model: &Model, options: &Map) -> Option<Object> = c"connectionForLoadingModel:options:", "@@:@@";
        /// The client of a virtual machine; nil on a Mac itself.
        pub method virtual_client() -> Option<VirtualClient> = c"virtualClient", "@@:";
        /// True if the system's own cache has the model compiled.
        pub method is_compiled(model: &Model) -> bool = c"compiledModelExistsFor:", "B@:@";
        /// The same by its hash.
        pub method is_compiled_hash(hash: &Text) -> bool = c"compiledModelExistsMatchingHash:", "B@:@";
        /// Removes the model from the system's own cache.
        pub method purge(model: &Model) -> () = c"purgeCompiledModel:", "v@:@";
        /// The same by its hash.
        pub method purge_hash(hash: &Text) -> () = c"purgeCompiledModelMatchingHash:", "v@:@";
        /// NO, always.
        pub method echo(value: &Text) -> bool = c"echo:", "B@:@";
    }
}

class! {
    /// The way to the engine from inside a virtual machine.
    VirtualClient = c"_ANEVirtualClient" {
        /// The one that the process shares; nil on a Mac itself.
        pub class shared() -> Option<VirtualClient> = c"sharedConnection", "@@:";
    }
}
