//! Classes around chaining, and events. Selectors and types as in apple-runtime §6, §8.

use ferrane_ane::runtime::throw;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::foundation::{elements, given, make, number};
use crate::request::{FakeSurfaceObject, IoSurface};
use crate::surface;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEBuffer"]
    #[ivars = ()]
    struct FakeBuffer;

    impl FakeBuffer {
        #[unsafe(method_id(bufferWithIOSurfaceObject:symbolIndex:source:))]
        fn with(surface: Option<&AnyObject>, symbol: Option<&AnyObject>, source: i64) -> Option<Retained<FakeBuffer>> {
            given(|| {
                surface?.downcast_ref::<FakeSurfaceObject>()?;
                number(symbol)?;
                (0..=2).contains(&source).then(|| make!(FakeBuffer, ()))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEIOSurfaceOutputSets"]
    #[ivars = ()]
    struct FakeOutputSets;

    impl FakeOutputSets {
        #[unsafe(method_id(objectWithstatsSurRef:outputBuffer:))]
        fn with(stats: *mut IoSurface, outputs: Option<&AnyObject>) -> Option<Retained<FakeOutputSets>> {
            given(|| {
                surface::memory(stats.cast()).filter(|(_, size)| *size >= 64)?;
                elements(outputs)?.iter().all(|b| b.downcast_ref::<FakeBuffer>().is_some()).then(|| make!(FakeOutputSets, ()))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEChainingRequest"]
    #[ivars = bool]
    struct FakeChainingRequest;

    impl FakeChainingRequest {
        #[unsafe(method_id(chainingRequestWithInputs:outputSets:lbInputSymbolId:lbOutputSymbolId:procedureIndex:signalEvents:transactionHandle:fwEnqueueDelay:memoryPoolId:))]
        fn with(
            inputs: Option<&AnyObject>,
            outputs: Option<&AnyObject>,
            loop_input: Option<&AnyObject>,
            loop_output: Option<&AnyObject>,
            procedure: Option<&AnyObject>,
            _signals: Option<&AnyObject>,
            _transaction: Option<&AnyObject>,
            _delay: Option<&AnyObject>,
            _pool: Option<&AnyObject>,
        ) -> Option<Retained<FakeChainingRequest>> {
            // A number is asked for its count, a list for its value.
            if let Some(given) = loop_input.or(loop_output).or(procedure) {
                let missing = if number(Some(given)).is_some() { "count" } else { "unsignedIntegerValue" };
                let class = given.class().name().to_string_lossy();
                throw(
                    "NSInvalidArgumentException",
                    &format!("-[{class} {missing}]: unrecognized selector sent to instance"),
                );
            }
            let all = |list: Option<&AnyObject>| elements(list).is_some_and(|l| !l.is_empty());
            Some(make!(FakeChainingRequest, all(inputs) && all(outputs)))
        }

        #[unsafe(method(validate))]
        fn validate(&self) -> Bool {
            Bool::new(*self.ivars())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEInputBuffersReady"]
    #[ivars = ()]
    struct FakeInputBuffersReady;

    impl FakeInputBuffersReady {
        #[unsafe(method_id(inputBuffersWithProcedureIndex:inputBufferInfoIndex:inputFreeValue:executionDelay:))]
        fn with(_procedure: u32, buffers: Option<&AnyObject>, free: Option<&AnyObject>, _delay: u64) -> Option<Retained<FakeInputBuffersReady>> {
            elements(buffers).zip(elements(free)).map(|_| make!(FakeInputBuffersReady, ()))
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEOutputSetEnqueue"]
    #[ivars = ()]
    struct FakeOutputSetEnqueue;

    impl FakeOutputSetEnqueue {
        #[unsafe(method_id(outputSetWithProcedureIndex:setIndex:signalValue:signalNotRequired:isOpenLoop:))]
        fn with(_procedure: u32, _set: u32, _signal: u64, _no_signal: Bool, _open_loop: Bool) -> Retained<FakeOutputSetEnqueue> {
            make!(FakeOutputSetEnqueue, ())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANESharedSignalEvent"]
    #[ivars = ()]
    struct FakeSignalEvent;

    impl FakeSignalEvent {
        #[unsafe(method_id(signalEventWithValue:symbolIndex:eventType:sharedEvent:))]
        fn with(_value: u64, _symbol: u32, kind: i64, event: Option<&AnyObject>) -> Option<Retained<FakeSignalEvent>> {
            event.filter(|_| (0..=2).contains(&kind)).map(|_| make!(FakeSignalEvent, ()))
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANESharedWaitEvent"]
    #[ivars = ()]
    struct FakeWaitEvent;

    impl FakeWaitEvent {
        #[unsafe(method_id(waitEventWithValue:sharedEvent:))]
        fn with(_value: u64, event: Option<&AnyObject>) -> Option<Retained<FakeWaitEvent>> {
            event.map(|_| make!(FakeWaitEvent, ()))
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANESharedEvents"]
    #[ivars = ()]
    struct FakeSharedEvents;

    impl FakeSharedEvents {
        #[unsafe(method_id(sharedEventsWithSignalEvents:waitEvents:))]
        fn with(signals: Option<&AnyObject>, waits: Option<&AnyObject>) -> Option<Retained<FakeSharedEvents>> {
            elements(signals).zip(elements(waits)).map(|_| make!(FakeSharedEvents, ()))
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeBuffer::class(), FakeOutputSets::class(), FakeChainingRequest::class());
    let _ = (FakeInputBuffersReady::class(), FakeOutputSetEnqueue::class());
    let _ = (FakeSignalEvent::class(), FakeWaitEvent::class(), FakeSharedEvents::class());
}
