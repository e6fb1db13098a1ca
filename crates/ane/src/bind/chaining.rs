//! Classes for chaining (apple-runtime §8). No published program has run a chain on a model from
//! MIL text.

use super::class;
use super::foundation::{List, Number};
use super::object::{IoSurface, Object};
use super::request::SurfaceObject;

class! {
    /// A surface with its symbol.
    Buffer = c"_ANEBuffer" {
        /// `source` is 0 for a buffer of the engine, 1 for an output, 2 for unknown.
        pub class with(surface: &SurfaceObject, symbol: &Number, source: i64) -> Option<Buffer> = c"bufferWithIOSurfaceObject:symbolIndex:source:", "@@:@@q";
    }
}

class! {
    /// The output buffers of one step of a chain.
    OutputSets = c"_ANEIOSurfaceOutputSets" {
        /// Takes a non-null surface for counters (64 bytes suffice) and a list of [`Buffer`]s.
        pub class with(stats: &IoSurface, outputs: &List) -> Option<OutputSets> = c"objectWithstatsSurRef:outputBuffer:", "@@:^{__IOSurface=}@";
    }
}

class! {
    /// A request for a chain of steps.
    ChainingRequest = c"_ANEChainingRequest" {
        /// Takes lists of [`Buffer`]s and of [`OutputSets`]. The symbols of loop-backs and the
        /// procedure must be nil: numbers and lists raise an exception.
        pub class with(inputs: &List, outputs: &List, loop_input: Option<&Object>, loop_output: Option<&Object>, procedure: Option<&Object>, signals: Option<&List>, transaction: Option<&Number>, delay: Option<&Number>, pool: Option<&Number>) -> Option<ChainingRequest> = c"chainingRequestWithInputs:outputSets:lbInputSymbolId:lbOutputSymbolId:procedureIndex:signalEvents:transactionHandle:fwEnqueueDelay:memoryPoolId:", "@@:@@@@@@@@@";
        /// True if it has buffers and output sets.
        pub method validate() -> bool = c"validate", "B@:";
    }
}

class! {
    /// The notification that inputs of a chain are ready.
    InputBuffersReady = c"_ANEInputBuffersReady" {
        /// Takes a procedure, lists of numbers for the buffers and their free values, and a delay.
        pub class with(procedure: u32, buffers: &List, free: &List, delay: u64) -> Option<InputBuffersReady> = c"inputBuffersWithProcedureIndex:inputBufferInfoIndex:inputFreeValue:executionDelay:", "@@:I@@Q";
    }
}

class! {
    /// The choice of an output set for a step of a chain.
    OutputSetEnqueue = c"_ANEOutputSetEnqueue" {
        /// Takes a procedure, a set, and the value that is signaled when it is full.
        pub class with(procedure: u32, set: u32, signal: u64, no_signal: bool, open_loop: bool) -> Option<OutputSetEnqueue> = c"outputSetWithProcedureIndex:setIndex:signalValue:signalNotRequired:isOpenLoop:", "@@:IIQBB";
    }
}
