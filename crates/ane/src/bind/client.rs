//! The connection to the engine's daemon and driver (apple-runtime §5, §8, §12).
//!
//! Selectors that begin with `do` reach the driver without the daemon.

use super::chaining::{ChainingRequest, InputBuffersReady, OutputSetEnqueue};
use super::class;
use super::foundation::{Map, Text};
use super::instance::InstanceParameters;
use super::model::Model;
use super::object::Object;
use super::request::Request;

class! {
    /// A connection to the daemon.
    Client = c"_ANEClient" {
        /// The connection that the process shares.
        pub class shared() -> Option<Client> = c"sharedConnection", "@@:";
        /// A connection that may bypass the daemon if `allowed`.
        pub make restricted(allowed: bool) -> Option<Client> = c"initWithRestrictedAccessAllowed:", "@@:B";
        /// Runs a request and waits.
        pub attempt evaluate(model: &Model, options: &Map, request: &Request, qos: u32) -> () = c"evaluateWithModel:options:request:qos:error:", "B@:@@@I^@";
        /// Runs a request without the daemon.
        pub attempt evaluate_direct(model: &Model, options: &Map, request: &Request, qos: u32) -> () = c"doEvaluateDirectWithModel:options:request:qos:error:", "B@:@@@I^@";
        /// Runs a request at real-time priority.
        pub attempt evaluate_real_time(model: &Model, options: &Map, request: &Request) -> () = c"evaluateRealTimeWithModel:options:request:error:", "B@:@@@^@";
        /// Begins a section of real-time requests. It returns NO, and such requests work
        /// nevertheless.
        pub method begin_real_time() -> bool = c"beginRealTimeTask", "B@:";
        /// Ends the section of real-time requests.
        pub method end_real_time() -> bool = c"endRealTimeTask", "B@:";
        /// Loads a model for real-time requests.
        pub attempt load_real_time(model: &Model, options: &Map, qos: u32) -> () = c"loadRealTimeModel:options:qos:error:", "B@:@@I^@";
        /// Unloads a model that was loaded for real-time requests.
        pub attempt unload_real_time(model: &Model, options: &Map, qos: u32) -> () = c"unloadRealTimeModel:options:qos:error:", "B@:@@I^@";
        /// Compiles a model from a directory.
        pub attempt compile(model: &Model, options: &Map, qos: u32) -> () = c"compileModel:options:qos:error:", "B@:@@I^@";
        /// Loads a compiled model.
        pub attempt load(model: &Model, options: &Map, qos: u32) -> () = c"loadModel:options:qos:error:", "B@:@@I^@";
        /// Unloads a model.
        pub attempt unload(model: &Model, options: &Map, qos: u32) -> () = c"unloadModel:options:qos:error:", "B@:@@I^@";
        /// Loads a model without the daemon.
        pub attempt load_direct(model: &Model, options: &Map, qos: u32) -> () = c"doLoadModel:options:qos:error:", "B@:@@I^@";
        /// Unloads a model without the daemon.
        pub attempt unload_direct(model: &Model, options: &Map, qos: u32) -> () = c"doUnloadModel:options:qos:error:", "B@:@@I^@";
        /// Loads another instance of a loaded model.
        pub attempt load_instance(model: &Model, options: &Map, parameters: &InstanceParameters, qos: u32) -> () = c"loadModelNewInstance:options:modelInstParams:qos:error:", "B@:@@@I^@";
        /// Loads another instance without the daemon.
        pub attempt load_instance_direct(model: &Model, options: &Map, parameters: &InstanceParameters, qos: u32) -> () = c"doLoadModelNewInstance:options:modelInstParams:qos:error:", "B@:@@@I^@";
        /// Prepares a chain. Fails with code 15 if the model has no symbols, which was the case for
        /// every model from MIL text that was tried.
        pub attempt prepare_chaining(model: &Model, options: &Map, chain: &ChainingRequest, qos: u32) -> () = c"prepareChainingWithModel:options:chainingReq:qos:error:", "B@:@@@I^@";
        /// Selects the output set for a step of a prepared chain.
        pub attempt enqueue_sets(model: &Model, set: &OutputSetEnqueue, options: &Map, qos: u32) -> () = c"enqueueSetsWithModel:outputSet:options:qos:error:", "B@:@@@I^@";
        /// Announces that inputs of a prepared chain are ready.
        pub attempt buffers_ready(model: &Model, inputs: &InputBuffersReady, options: &Map, qos: u32) -> () = c"buffersReadyWithModel:inputBuffers:options:qos:error:", "B@:@@@I^@";
        /// Prepares a chain without the daemon.
        pub attempt prepare_chaining_direct(model: &Model, options: &Map, chain: &ChainingRequest, qos: u32) -> () = c"doPrepareChainingWithModel:options:chainingReq:qos:error:", "B@:@@@I^@";
        /// Selects an output set without the daemon.
        pub attempt enqueue_sets_direct(model: &Model, set: &OutputSetEnqueue, options: &Map, qos: u32) -> () = c"doEnqueueSetsWithModel:outputSet:options:qos:error:", "B@:@@@I^@";
        /// Announces that inputs are ready, without the daemon.
        pub attempt buffers_ready_direct(model: &Model, inputs: &InputBuffersReady, options: &Map, qos: u32) -> () = c"doBuffersReadyWithModel:inputBuffers:options:qos:error:", "B@:@@@I^@";
        /// Gives the scheduler a hint about the use of a model; every hint that was tried was
        /// refused.
        pub attempt session_hint(model: &Model, hint: &Text, options: &Map, report: Option<&Object>) -> () = c"sessionHintWithModel:hint:options:report:error:", "B@:@@@@^@";
        /// Reports a failed evaluation to the system's statistics.
        pub method report_failure(model: &Model, reason: u32, queue: u64) -> () = c"reportEvaluateFailure:failureReason:qIdx:", "v@:@IQ";
        /// The connections to the daemon, by name.
        pub method connections() -> Option<Object> = c"connections", "@@:";
        /// The connections over which models were loaded.
        pub method loading_connections() -> Option<Object> = c"connectionsUsedForLoadingModels", "@@:";
        /// The connection over which a model would be loaded.
        pub method connection_for(model: &Model, options: &Map) -> Option<Object> = c"connectionForLoadingModel:options:", "@@:@@";
        /// The client of a virtual machine; nil on a Mac itself.
        pub method virtual_client() -> Option<VirtualClient> = c"virtualClient", "@@:";
        /// True if the system's own cache has the model compiled.
        pub method is_compiled(model: &Model) -> bool = c"compiledModelExistsFor:", "B@:@";
        /// True if the system's own cache has a compiled model with this hash.
        pub method is_compiled_hash(hash: &Text) -> bool = c"compiledModelExistsMatchingHash:", "B@:@";
        /// Removes the model from the system's own cache.
        pub method purge(model: &Model) -> () = c"purgeCompiledModel:", "v@:@";
        /// Removes the model with this hash from the system's own cache.
        pub method purge_hash(hash: &Text) -> () = c"purgeCompiledModelMatchingHash:", "v@:@";
        /// Always NO.
        pub method echo(value: &Text) -> bool = c"echo:", "B@:@";
    }
}

class! {
    /// The connection to the engine from inside a virtual machine.
    VirtualClient = c"_ANEVirtualClient" {
        /// The connection that the process shares; nil on a Mac itself.
        pub class shared() -> Option<VirtualClient> = c"sharedConnection", "@@:";
    }
}
