//! Requests and what they are made of (apple-runtime §2, §6, §7).

use super::class;
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
        /// Lists of [`SurfaceObject`]s and of their symbols; `weights` has no effect on any system that was tried, `stats` is nil or
        /// a list of [`PerformanceStats`].
        pub class with(inputs: &List, input_symbols: &List, outputs: &List, output_symbols: &List, weights: Option<&Object>, stats: Option<&List>, procedure: &Number) -> Option<Request> = c"requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:", "@@:@@@@@@@";
    }
}

class! {
    /// Counters of an evaluation. `alloc` and `init` give nil; counters stayed nil wherever they were tried.
    PerformanceStats = c"_ANEPerformanceStats" {
        /// Of a time on the engine, in ns.
        pub class with_time(time: u64) -> Option<PerformanceStats> = c"statsWithHardwareExecutionNS:", "@@:Q";
        /// The time on the engine, in ns.
        pub method time() -> u64 = c"hwExecutionTime", "Q@:";
        /// The counters.
        pub method counters() -> Option<Data> = c"perfCounterData", "@@:";
        /// The counters as the engine wrote them.
        pub method raw() -> Option<Data> = c"pStatsRawData", "@@:";
    }
}
