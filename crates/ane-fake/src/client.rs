//! The client. Selectors and types as in apple-runtime §5, §8, §12.

use std::sync::Arc;

use ferrane_ane::runtime::throw;
use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{ClassType, DefinedClass, define_class, msg_send};

use crate::foundation::{Object, dictionary, make};
use crate::instance::FakeInstanceParameters;
use crate::model::{Core, FakeInner, answer, evaluate};
use crate::program::{ENGINE, failure};
use crate::session::{Call, CallFailure, count};

/// The domain of failures that do not come from a program (apple-runtime §14).
const GENERIC: &str = "com.apple.appleneuralengine.generic";

/// The model of an object. The in-memory model instead of it lacks a method that clients call.
fn core(model: Option<&AnyObject>) -> Option<&Arc<Core>> {
    let model = model?;
    let Some(inner) = model.downcast_ref::<FakeInner>() else {
        let class = model.class().name().to_string_lossy();
        throw("NSInvalidArgumentException", &format!("-[{class} getUUID]: unrecognized selector sent to instance"));
    };
    inner.ivars().as_ref()
}

/// The failure for a directory with MIL: it has no Espresso network.
fn espresso() -> CallFailure {
    failure("com.apple.appleneuralengine.espresso", -1, "Cannot load network 'model.espresso.net'")
}

fn run(
    call: Call,
    model: Option<&AnyObject>,
    options: Option<&AnyObject>,
    request: Option<&AnyObject>,
    error: *mut *mut AnyObject,
) -> Bool {
    let core = core(model);
    evaluate(call, || core.cloned().ok_or_else(espresso), options, request, error)
}

fn directory(model: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
    answer(core(model).map(drop).ok_or_else(espresso), error)
}

/// A model from a directory has no symbols, so the driver finds none to chain.
fn prepare(model: Option<&AnyObject>, own: bool, chain: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
    let refused = || failure(ENGINE, 15, "ANEProgramChainingPrepare() Failed: Program chaining prepare error");
    let called = count(Call::PrepareChaining);
    answer(called.and_then(|()| core(model).ok_or_else(refused)?.prepare_chain(own, chain)), error)
}

/// Like `ready`, returns NO without an error if the call fails.
fn enqueue(model: Option<&AnyObject>, set: Option<&AnyObject>) -> Bool {
    Bool::new(core(model).is_some_and(|core| count(Call::EnqueueSets).is_ok() && core.enqueue_set(set)))
}

fn ready(model: Option<&AnyObject>, inputs: Option<&AnyObject>) -> Bool {
    Bool::new(core(model).is_some_and(|core| count(Call::BuffersReady).is_ok() && core.buffers_ready(inputs)))
}

/// An instance needs procedures with weights, and a model with symbols in the driver; a model from
/// MIL text has none.
fn new_instance(model: Option<&AnyObject>, parameters: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
    core(model);
    let words = match parameters.and_then(|p| p.downcast_ref::<FakeInstanceParameters>()) {
        Some(_) => "Program load new instance failure status=0x20004",
        None => "model instance parameters are missing",
    };
    answer(Err(failure(ENGINE, 6, words)), error)
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEVirtualClient"]
    #[ivars = ()]
    struct FakeVirtualClient;

    impl FakeVirtualClient {
        #[unsafe(method_id(sharedConnection))]
        fn shared() -> Option<Retained<FakeVirtualClient>> {
            // The fake is not a virtual machine.
            None
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEClient"]
    // True for a client that the caller created.
    #[ivars = bool]
    pub(crate) struct FakeClient;

    impl FakeClient {
        #[unsafe(method_id(sharedConnection))]
        fn shared() -> Option<Retained<FakeClient>> {
            Some(make!(FakeClient, false))
        }

        #[unsafe(method_id(initWithRestrictedAccessAllowed:))]
        fn restricted(this: Allocated<Self>, _allowed: Bool) -> Option<Retained<Self>> {
            let this = this.set_ivars(true);
            // SAFETY: `init` of NSObject returns the object that `alloc` made.
            Some(unsafe { msg_send![super(this), init] })
        }

        #[unsafe(method(evaluateWithModel:options:request:qos:error:))]
        fn evaluate(&self, model: Option<&AnyObject>, options: Option<&AnyObject>, request: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            run(Call::Evaluate, model, options, request, error)
        }

        #[unsafe(method(doEvaluateDirectWithModel:options:request:qos:error:))]
        fn evaluate_direct(&self, model: Option<&AnyObject>, options: Option<&AnyObject>, request: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            run(Call::EvaluateDirect, model, options, request, error)
        }

        #[unsafe(method(evaluateRealTimeWithModel:options:request:error:))]
        fn evaluate_real_time(&self, model: Option<&AnyObject>, options: Option<&AnyObject>, request: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
            run(Call::EvaluateRealTime, model, options, request, error)
        }

        #[unsafe(method(beginRealTimeTask))]
        fn begin(&self) -> Bool {
            let _ = count(Call::BeginRealTime);
            Bool::NO
        }

        #[unsafe(method(endRealTimeTask))]
        fn end(&self) -> Bool {
            let _ = count(Call::EndRealTime);
            Bool::NO
        }

        #[unsafe(method(loadRealTimeModel:options:qos:error:))]
        fn load_real_time(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            directory(model, error)
        }

        #[unsafe(method(unloadRealTimeModel:options:qos:error:))]
        fn unload_real_time(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            directory(model, error)
        }

        #[unsafe(method(compileModel:options:qos:error:))]
        fn compile(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            directory(model, error)
        }

        #[unsafe(method(loadModel:options:qos:error:))]
        fn load(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            directory(model, error)
        }

        #[unsafe(method(unloadModel:options:qos:error:))]
        fn unload(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            directory(model, error)
        }

        #[unsafe(method(doLoadModel:options:qos:error:))]
        fn load_direct(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            directory(model, error)
        }

        #[unsafe(method(doUnloadModel:options:qos:error:))]
        fn unload_direct(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            directory(model, error)
        }

        #[unsafe(method(prepareChainingWithModel:options:chainingReq:qos:error:))]
        fn prepare_chaining(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, chain: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            prepare(model, *self.ivars(), chain, error)
        }

        #[unsafe(method(enqueueSetsWithModel:outputSet:options:qos:error:))]
        fn enqueue_sets(&self, model: Option<&AnyObject>, set: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, _error: *mut *mut AnyObject) -> Bool {
            enqueue(model, set)
        }

        #[unsafe(method(buffersReadyWithModel:inputBuffers:options:qos:error:))]
        fn buffers_ready(&self, model: Option<&AnyObject>, inputs: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, _error: *mut *mut AnyObject) -> Bool {
            ready(model, inputs)
        }

        #[unsafe(method(doPrepareChainingWithModel:options:chainingReq:qos:error:))]
        fn prepare_chaining_direct(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, chain: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            prepare(model, *self.ivars(), chain, error)
        }

        #[unsafe(method(doEnqueueSetsWithModel:outputSet:options:qos:error:))]
        fn enqueue_sets_direct(&self, model: Option<&AnyObject>, set: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, _error: *mut *mut AnyObject) -> Bool {
            enqueue(model, set)
        }

        #[unsafe(method(doBuffersReadyWithModel:inputBuffers:options:qos:error:))]
        fn buffers_ready_direct(&self, model: Option<&AnyObject>, inputs: Option<&AnyObject>, _options: Option<&AnyObject>, _qos: u32, _error: *mut *mut AnyObject) -> Bool {
            ready(model, inputs)
        }

        #[unsafe(method(loadModelNewInstance:options:modelInstParams:qos:error:))]
        fn load_instance(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, parameters: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            new_instance(model, parameters, error)
        }

        #[unsafe(method(doLoadModelNewInstance:options:modelInstParams:qos:error:))]
        fn load_instance_direct(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>, parameters: Option<&AnyObject>, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            new_instance(model, parameters, error)
        }

        #[unsafe(method(sessionHintWithModel:hint:options:report:error:))]
        fn session_hint(&self, model: Option<&AnyObject>, _hint: Option<&AnyObject>, _options: Option<&AnyObject>, _report: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
            // Every hint is refused.
            core(model);
            answer(Err(failure(GENERIC, 2, "sessionHintWithModel:hint:options:report:error: not supported")), error)
        }

        #[unsafe(method(reportEvaluateFailure:failureReason:qIdx:))]
        fn report_failure(&self, model: Option<&AnyObject>, _reason: u32, _queue: u64) {
            core(model);
            let _ = count(Call::ReportFailure);
        }

        #[unsafe(method_id(connections))]
        fn connections(&self) -> Option<Object> {
            Some(dictionary(Vec::new()))
        }

        #[unsafe(method_id(connectionsUsedForLoadingModels))]
        fn loading_connections(&self) -> Option<Object> {
            Some(dictionary(Vec::new()))
        }

        #[unsafe(method_id(connectionForLoadingModel:options:))]
        fn connection_for(&self, model: Option<&AnyObject>, _options: Option<&AnyObject>) -> Option<Object> {
            core(model);
            None
        }

        #[unsafe(method_id(virtualClient))]
        fn virtual_client(&self) -> Option<Retained<FakeVirtualClient>> {
            None
        }

        #[unsafe(method(compiledModelExistsFor:))]
        fn is_compiled(&self, model: Option<&AnyObject>) -> Bool {
            Bool::new(core(model).is_some())
        }

        #[unsafe(method(compiledModelExistsMatchingHash:))]
        fn is_compiled_hash(&self, _hash: Option<&AnyObject>) -> Bool {
            Bool::NO
        }

        #[unsafe(method(purgeCompiledModel:))]
        fn purge(&self, model: Option<&AnyObject>) {
            core(model);
        }

        #[unsafe(method(purgeCompiledModelMatchingHash:))]
        fn purge_hash(&self, _hash: Option<&AnyObject>) {}

        #[unsafe(method(echo:))]
        fn echo(&self, _value: Option<&AnyObject>) -> Bool {
            Bool::NO
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeClient::class(), FakeVirtualClient::class());
}
