//! Requests and what they are made of (apple-runtime §2, §6, §7).

use super::block::HandlerBlock;
use super::class;
use super::events::SharedEvents;
use super::foundation::{Data, List, Number};
use super::object::{IoSurface, Object};

class! {
    /// The engine's object of a surface.
    SurfaceObject = c"_ANEIOSurfaceObject" {
        /// Of a surface, which it keeps.
        pub class with(surface: &IoSurface) -> Option<SurfaceObject> = c"objectWithIOSurface:", "@@:^{__IOSurface=}";
    }
}

class! {
    /// Surfaces with their symbols, and a procedure; good for any number of evaluations.
    Request = c"_ANERequest" {
        /// Lists of [`SurfaceObject`]s and of their symbols; `weights` has no effect on any system
        /// that was tried, `stats` is nil or a list of [`StatsSurface`]s.
        pub class with(inputs: &List, input_symbols: &List, outputs: &List, output_symbols: &List, weights: Option<&Object>, stats: Option<&List>, procedure: &Number) -> Option<Request> = c"requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:", "@@:@@@@@@@";
        /// The same with events. Such a request is evaluated asynchronously, and its handler is
        /// called without asking whether there is one: without [`Request::on_end`] the process ends
        /// (published measurements on an M1 Max).
        pub class with_events(inputs: &List, input_symbols: &List, outputs: &List, output_symbols: &List, weights: Option<&Object>, stats: Option<&List>, procedure: &Number, events: &SharedEvents) -> Option<Request> = c"requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:sharedEvents:", "@@:@@@@@@@@";
        /// Whom to tell that an asynchronous evaluation has ended; the block is copied.
        pub method on_end(handler: &HandlerBlock<'_>) -> () = c"setCompletionHandler:", "v@:@?";
    }
}

class! {
    /// Counters of an evaluation. `alloc` and `init` give nil; counters stayed nil wherever they
    /// were tried.
    PerformanceStats = c"_ANEPerformanceStats" {
        /// Of a time on the engine, in ns.
        pub class with_time(time: u64) -> Option<PerformanceStats> = c"statsWithHardwareExecutionNS:", "@@:Q";
        /// Of parts: what was read before, the time in ns, and the engine's own bytes.
        pub class reconstructed(read: Option<&Data>, time: u64, raw: Option<&Data>) -> Option<PerformanceStats> = c"statsWithReconstructed:hardwareExecutionNS:aneStatsRawData:", "@@:@Q@";
        /// The driver's bits for a mask of the framework's.
        pub class driver_mask(mask: u32) -> u32 = c"driverMaskForANEFMask:", "I@:I";
        /// The time on the engine, in ns.
        pub method time() -> u64 = c"hwExecutionTime", "Q@:";
        /// The counters.
        pub method counters() -> Option<Data> = c"perfCounterData", "@@:";
        /// The counters as the engine wrote them.
        pub method raw() -> Option<Data> = c"pStatsRawData", "@@:";
    }
}

class! {
    /// A surface that counters are written to: what a request's list of counters is made of.
    /// Nothing was seen in one.
    StatsSurface = c"_ANEPerformanceStatsIOSurface" {
        /// Of a surface and what it is for.
        pub class with(surface: &IoSurface, kind: i64) -> Option<StatsSurface> = c"objectWithIOSurface:statType:", "@@:^{__IOSurface=}q";
        /// What it is for.
        pub method kind() -> i64 = c"statType", "q@:";
    }
}
