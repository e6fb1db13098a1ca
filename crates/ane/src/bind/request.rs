//! Requests and their parts (apple-runtime §2, §6, §7).

use super::block::HandlerBlock;
use super::class;
use super::events::SharedEvents;
use super::foundation::{Data, List, Number};
use super::object::{IoSurface, Object};

class! {
    /// The engine's wrapper of a surface.
    SurfaceObject = c"_ANEIOSurfaceObject" {
        /// Wraps a surface, which it retains.
        pub class with(surface: &IoSurface) -> Option<SurfaceObject> = c"objectWithIOSurface:", "@@:^{__IOSurface=}";
    }
}

class! {
    /// Surfaces with their symbols, and a procedure; reusable for any number of evaluations.
    Request = c"_ANERequest" {
        /// Takes lists of [`SurfaceObject`]s and of their symbols. `weights` has no effect on any
        /// system that was tried; `stats` is nil or a list of [`StatsSurface`]s.
        pub class with(inputs: &List, input_symbols: &List, outputs: &List, output_symbols: &List, weights: Option<&Object>, stats: Option<&List>, procedure: &Number) -> Option<Request> = c"requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:", "@@:@@@@@@@";
        /// The same with events. Such a request is evaluated asynchronously, and its handler is
        /// called without a check for nil: without [`Request::on_end`] the process ends (published
        /// measurements on an M1 Max).
        pub class with_events(inputs: &List, input_symbols: &List, outputs: &List, output_symbols: &List, weights: Option<&Object>, stats: Option<&List>, procedure: &Number, events: &SharedEvents) -> Option<Request> = c"requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:sharedEvents:", "@@:@@@@@@@@";
        /// Sets the handler for the end of an asynchronous evaluation; the block is copied.
        pub method on_end(handler: &HandlerBlock<'_>) -> () = c"setCompletionHandler:", "v@:@?";
    }
}

class! {
    /// Counters of an evaluation. `alloc` and `init` return nil; counters stayed nil wherever they
    /// were tried.
    PerformanceStats = c"_ANEPerformanceStats" {
        /// Takes a time on the engine, in nanoseconds.
        pub class with_time(time: u64) -> Option<PerformanceStats> = c"statsWithHardwareExecutionNS:", "@@:Q";
        /// Takes the counters that were read before, the time in nanoseconds, and the engine's raw
        /// bytes.
        pub class reconstructed(read: Option<&Data>, time: u64, raw: Option<&Data>) -> Option<PerformanceStats> = c"statsWithReconstructed:hardwareExecutionNS:aneStatsRawData:", "@@:@Q@";
        /// The driver's bits for a mask of the framework.
        pub class driver_mask(mask: u32) -> u32 = c"driverMaskForANEFMask:", "I@:I";
        /// The time on the engine, in nanoseconds.
        pub method time() -> u64 = c"hwExecutionTime", "Q@:";
        /// The processed counters.
        pub method counters() -> Option<Data> = c"perfCounterData", "@@:";
        /// The counters as the engine wrote them.
        pub method raw() -> Option<Data> = c"pStatsRawData", "@@:";
    }
}

class! {
    /// A surface that counters are written to, for a request's list of counters. None was observed
    /// to receive data.
    StatsSurface = c"_ANEPerformanceStatsIOSurface" {
        /// Takes a surface and its kind.
        pub class with(surface: &IoSurface, kind: i64) -> Option<StatsSurface> = c"objectWithIOSurface:statType:", "@@:^{__IOSurface=}q";
        /// The kind of counters.
        pub method kind() -> i64 = c"statType", "q@:";
    }
}
