//! Classes for chaining. Selectors and types as in apple-runtime §8.

use std::collections::VecDeque;

use ferrane_ane::runtime::throw;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{ClassType, DefinedClass, Message as _, define_class};

use crate::events::{Mark, signals};
use crate::foundation::{Object, elements, given, make, number};
use crate::request::{Binding, FakeSurfaceObject, IoSurface};
use crate::surface;

/// The arguments of a chaining request.
pub(crate) struct Parts {
    inputs: Vec<Object>,
    sets: Vec<Object>,
    signals: Vec<Mark>,
}

impl Parts {
    pub(crate) fn is_whole(&self) -> bool {
        !self.inputs.is_empty() && !self.sets.is_empty()
    }
}

/// The destination of the outputs of one run of a procedure, and the value to signal afterward.
#[derive(Clone, Copy)]
pub(crate) struct Enqueued {
    procedure: u32,
    set: usize,
    signal: Option<u64>,
}

/// A chain that was prepared for a model.
pub(crate) struct Prepared {
    request: Retained<FakeChainingRequest>,
    queue: VecDeque<Enqueued>,
}

// SAFETY: the objects are immutable after construction and are used under the model's lock.
unsafe impl Send for Prepared {}

/// A run with all arguments: a procedure, its inputs and outputs, and the value to signal.
pub(crate) struct ReadyRun<'a> {
    pub(crate) procedure: u64,
    pub(crate) inputs: Vec<Binding>,
    pub(crate) outputs: Vec<Binding>,
    raised: Option<u64>,
    signals: &'a [Mark],
}

impl ReadyRun<'_> {
    pub(crate) fn raise(&self) {
        if let Some(value) = self.raised {
            self.signals.iter().for_each(|mark| mark.raise(value));
        }
    }
}

impl Prepared {
    /// Prepares a complete request.
    pub(crate) fn of(request: Option<&AnyObject>) -> Option<Prepared> {
        let request = request?.downcast_ref::<FakeChainingRequest>()?;
        request.ivars().is_whole().then(|| Prepared { request: request.retain(), queue: VecDeque::new() })
    }

    /// Queues an output set; false if the request does not have it.
    pub(crate) fn enqueue(&mut self, set: Option<&AnyObject>) -> bool {
        let set = set.and_then(|s| s.downcast_ref::<FakeOutputSetEnqueue>()).map(|s| *s.ivars());
        let known = set.filter(|s| s.set < self.request.ivars().sets.len());
        self.queue.extend(known);
        known.is_some()
    }

    /// The next run; `None` if no set is queued, or if an input is not in the request.
    pub(crate) fn ready(&mut self, inputs: Option<&AnyObject>) -> Option<ReadyRun<'_>> {
        let (procedure, indices) = inputs?.downcast_ref::<FakeInputBuffersReady>()?.ivars();
        let next = self.queue.pop_front().filter(|e| e.procedure == *procedure)?;
        let parts = self.request.ivars();
        let binding = |buffer: &Object| {
            let (symbol, surface) = buffer.downcast_ref::<FakeBuffer>()?.ivars();
            Some(Binding::of(*symbol, surface.clone()))
        };
        let inputs = indices.iter().map(|i| binding(parts.inputs.get(*i as usize)?)).collect::<Option<_>>()?;
        let set = parts.sets.get(next.set)?.downcast_ref::<FakeOutputSets>()?;
        let outputs = set.ivars().iter().map(binding).collect::<Option<_>>()?;
        let procedure = u64::from(*procedure);
        Some(ReadyRun { procedure, inputs, outputs, raised: next.signal, signals: &parts.signals })
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEBuffer"]
    #[ivars = (u64, Object)]
    struct FakeBuffer;

    impl FakeBuffer {
        #[unsafe(method_id(bufferWithIOSurfaceObject:symbolIndex:source:))]
        fn with(surface: Option<&AnyObject>, symbol: Option<&AnyObject>, source: i64) -> Option<Retained<FakeBuffer>> {
            given(|| {
                let surface = surface?;
                surface.downcast_ref::<FakeSurfaceObject>()?;
                let symbol = number(symbol)?;
                (0..=2).contains(&source).then(|| make!(FakeBuffer, (symbol, surface.retain())))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEIOSurfaceOutputSets"]
    #[ivars = Vec<Object>]
    struct FakeOutputSets;

    impl FakeOutputSets {
        #[unsafe(method_id(objectWithstatsSurRef:outputBuffer:))]
        fn with(stats: *mut IoSurface, outputs: Option<&AnyObject>) -> Option<Retained<FakeOutputSets>> {
            given(|| {
                surface::memory(stats.cast()).filter(|(_, size)| *size >= 64)?;
                let outputs = elements(outputs)?;
                let all = outputs.iter().all(|b| b.downcast_ref::<FakeBuffer>().is_some());
                all.then(|| make!(FakeOutputSets, outputs.to_vec()))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEChainingRequest"]
    #[ivars = Parts]
    pub(crate) struct FakeChainingRequest;

    impl FakeChainingRequest {
        #[unsafe(method_id(chainingRequestWithInputs:outputSets:lbInputSymbolId:lbOutputSymbolId:procedureIndex:signalEvents:transactionHandle:fwEnqueueDelay:memoryPoolId:))]
        fn with(
            inputs: Option<&AnyObject>,
            outputs: Option<&AnyObject>,
            loop_input: Option<&AnyObject>,
            loop_output: Option<&AnyObject>,
            procedure: Option<&AnyObject>,
            signal_events: Option<&AnyObject>,
            _transaction: Option<&AnyObject>,
            _delay: Option<&AnyObject>,
            _pool: Option<&AnyObject>,
        ) -> Option<Retained<FakeChainingRequest>> {
            // The framework calls a list's method on a number, and a number's on a list.
            if let Some(given) = loop_input.or(loop_output).or(procedure) {
                let missing = if number(Some(given)).is_some() { "count" } else { "unsignedIntegerValue" };
                let class = given.class().name().to_string_lossy();
                throw(
                    "NSInvalidArgumentException",
                    &format!("-[{class} {missing}]: unrecognized selector sent to instance"),
                );
            }
            let list = |list: Option<&AnyObject>| elements(list).unwrap_or_default().to_vec();
            let signals = signals(signal_events).unwrap_or_default();
            Some(make!(FakeChainingRequest, Parts { inputs: list(inputs), sets: list(outputs), signals }))
        }

        #[unsafe(method(validate))]
        fn validate(&self) -> Bool {
            Bool::new(self.ivars().is_whole())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEInputBuffersReady"]
    #[ivars = (u32, Vec<u64>)]
    pub(crate) struct FakeInputBuffersReady;

    impl FakeInputBuffersReady {
        #[unsafe(method_id(inputBuffersWithProcedureIndex:inputBufferInfoIndex:inputFreeValue:executionDelay:))]
        fn with(procedure: u32, buffers: Option<&AnyObject>, free: Option<&AnyObject>, _delay: u64) -> Option<Retained<FakeInputBuffersReady>> {
            given(|| {
                let (buffers, free) = (elements(buffers)?, elements(free)?);
                let indices = buffers.iter().map(|i| number(Some(i))).collect::<Option<Vec<_>>>()?;
                (free.len() == indices.len()).then(|| make!(FakeInputBuffersReady, (procedure, indices)))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEOutputSetEnqueue"]
    #[ivars = Enqueued]
    pub(crate) struct FakeOutputSetEnqueue;

    impl FakeOutputSetEnqueue {
        #[unsafe(method_id(outputSetWithProcedureIndex:setIndex:signalValue:signalNotRequired:isOpenLoop:))]
        fn with(procedure: u32, set: u32, signal: u64, no_signal: Bool, _open_loop: Bool) -> Retained<FakeOutputSetEnqueue> {
            let signal = (!no_signal.as_bool()).then_some(signal);
            make!(FakeOutputSetEnqueue, Enqueued { procedure, set: set as usize, signal })
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeBuffer::class(), FakeOutputSets::class(), FakeChainingRequest::class());
    let _ = (FakeInputBuffersReady::class(), FakeOutputSetEnqueue::class());
}
