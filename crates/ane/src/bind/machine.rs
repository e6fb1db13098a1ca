//! The machine: its engine, queues and driver (apple-runtime §2, §8, §12).

use super::class;
use super::foundation::Text;
use super::model::Model;
use super::request::Request;

class! {
    /// Information about the engine.
    DeviceInfo = c"_ANEDeviceInfo" {
        /// The compiler's name of the chip: `h16`, `h15g` (apple-runtime §13).
        pub class sub_type() -> Option<Text> = c"aneSubType", "@@:";
        /// The compiler's name of the chip with the letter of its size: `h16g`. Like the counts
        /// below, it is known from published dumps.
        pub class architecture() -> Option<Text> = c"aneArchitectureType", "@@:";
        /// The number of engines.
        pub class engines() -> u32 = c"numANEs", "I@:";
        /// The number of cores of each engine.
        pub class cores() -> u32 = c"numANECores", "I@:";
    }
}

class! {
    /// Qualities of service and the queues that serve them. Published dumps give the types;
    /// programs pass 21.
    QosMapper = c"_ANEQoSMapper" {
        /// Background work.
        pub class background() -> u32 = c"aneBackgroundTaskQoS", "I@:";
        /// Utility work.
        pub class utility() -> u32 = c"aneUtilityTaskQoS", "I@:";
        /// Work of the default class.
        pub class usual() -> u32 = c"aneDefaultTaskQoS", "I@:";
        /// Work that a user requested.
        pub class user_initiated() -> u32 = c"aneUserInitiatedTaskQoS", "I@:";
        /// Work that a user waits for.
        pub class user_interactive() -> u32 = c"aneUserInteractiveTaskQoS", "I@:";
        /// Work at real-time priority.
        pub class real_time() -> u32 = c"aneRealTimeTaskQoS", "I@:";
        /// The index of the queue that serves a quality of service.
        pub class queue(qos: u32) -> u64 = c"queueIndexForQoS:", "Q@:I";
        /// The priority of programs with a quality of service.
        pub class priority(qos: u32) -> i32 = c"programPriorityForQoS:", "i@:I";
        /// The quality of service with a priority.
        pub class of_priority(priority: i32) -> u32 = c"qosForProgramPriority:", "I@:i";
        /// The priority of real-time programs.
        pub class real_time_priority() -> i32 = c"realTimeProgramPriority", "i@:";
        /// The index of the real-time queue.
        pub class real_time_queue() -> u64 = c"realTimeQueueIndex", "Q@:";
    }
}

class! {
    /// The driver's side of a loaded program.
    DeviceController = c"_ANEDeviceController" {
        /// The controller of a program's handle; nil in every published attempt.
        pub class with(handle: u64) -> Option<DeviceController> = c"controllerWithProgramHandle:", "@@:Q";
        /// Opens the driver; calls are counted.
        pub method start() -> () = c"start", "v@:";
        /// Closes the driver when the count reaches zero.
        pub method stop() -> () = c"stop", "v@:";
        /// The handle of the program.
        pub method program_handle() -> u64 = c"programHandle", "Q@:";
        /// True if the process has Apple's own entitlements.
        pub method is_privileged() -> bool = c"isPrivileged", "B@:";
    }
}

class! {
    /// The mapper of surfaces for a program. Mapping returned NO wherever it was tried.
    SurfacesMapper = c"_ANEProgramIOSurfacesMapper" {
        /// The mapper of a program's handle.
        pub class with(handle: u64) -> Option<SurfacesMapper> = c"mapperWithProgramHandle:", "@@:Q";
        /// Maps the surfaces of a request; the driver may keep them for later requests.
        pub attempt map(model: &Model, request: &Request, cached: bool) -> () = c"mapIOSurfacesWithModel:request:cacheInference:error:", "B@:@@B^@";
    }
}
