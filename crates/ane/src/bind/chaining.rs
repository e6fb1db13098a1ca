//! Classes around chaining (apple-runtime §8). No published program has run a chain on a model of
//! MIL text.

use super::class;
use super::foundation::{List, Number};
use super::object::{IoSurface, Object};
use super::request::SurfaceObject;

class! {
    /// A surface with its symbol.
    Buffer = c"_ANEBuffer" {
        /// `source` is 0 for the engine, 1 for an output, 2 for unknown.
        pub class with(surface: &SurfaceObject, symbol: &Number, source: i64) -> Option<Buffer> = c"bufferWithIOSurfaceObject:symbolIndex:source:", "@@:@@q";
    }
}

class! {
    /// The outputs of a chain.
    OutputSets = c"_ANEIOSurfaceOutputSets" {
        /// A surface for counters, not null (64 bytes suffice), and a list of [`Buffer`]s.
        pub class with(stats: &IoSurface, outputs: &List) -> Option<OutputSets> = c"objectWithstatsSurRef:outputBuffer:", "@@:^{__IOSurface=}@";
    }
}

class! {
    /// A chain.
    ChainingRequest = c"_ANEChainingRequest" {
        /// Lists of [`Buffer`]s and of [`OutputSets`]. The symbols of loop-backs and the procedure
        /// must be nil: numbers and lists raise.
        pub class with(inputs: &List, outputs: &List, loop_input: Option<&Object>, loop_output: Option<&Object>, procedure: Option<&Object>, signals: Option<&List>, transaction: Option<&Number>, delay: Option<&Number>, pool: Option<&Number>) -> Option<ChainingRequest> = c"chainingRequestWithInputs:outputSets:lbInputSymbolId:lbOutputSymbolId:procedureIndex:signalEvents:transactionHandle:fwEnqueueDelay:memoryPoolId:", "@@:@@@@@@@@@";
        /// True if it has buffers and output sets.
        pub method validate() -> bool = c"validate", "B@:";
    }
}

class! {
    /// Inputs of a chain that are there.
    InputBuffersReady = c"_ANEInputBuffersReady" {
        /// A procedure, lists of numbers for the buffers and their free values, and a delay.
        pub class with(procedure: u32, buffers: &List, free: &List, delay: u64) -> Option<InputBuffersReady> = c"inputBuffersWithProcedureIndex:inputBufferInfoIndex:inputFreeValue:executionDelay:", "@@:I@@Q";
    }
}

class! {
    /// Where the outputs of a chain go.
    OutputSetEnqueue = c"_ANEOutputSetEnqueue" {
        /// A procedure, a set, and the value that is signaled when it is full.
        pub class with(procedure: u32, set: u32, signal: u64, no_signal: bool, open_loop: bool) -> Option<OutputSetEnqueue> = c"outputSetWithProcedureIndex:setIndex:signalValue:signalNotRequired:isOpenLoop:", "@@:IIQBB";
    }
}
