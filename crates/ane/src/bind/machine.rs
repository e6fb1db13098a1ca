//! The machine: what engine it is, its queues, its driver (apple-runtime §2, §8, §12).

use super::class;
use super::foundation::Text;
use super::model::Model;
use super::request::Request;

class! {
    /// What engine this is.
    DeviceInfo = c"_ANEDeviceInfo" {
        /// The compiler's name of the chip: `h16`, `h15g` (apple-runtime §13).
        pub class sub_type() -> Option<Text> = c"aneSubType", "@@:";
        /// The same with the letter of its size: `h16g`. This and the counts are of published
        /// dumps.
        pub class architecture() -> Option<Text> = c"aneArchitectureType", "@@:";
        /// How many engines there are.
        pub class engines() -> u32 = c"numANEs", "I@:";
        /// Cores of each engine.
        pub class cores() -> u32 = c"numANECores", "I@:";
    }
}

class! {
    /// Names of qualities of service, and the queues that serve them. Published dumps give the
    /// types; 21 is what programs pass.
    QosMapper = c"_ANEQoSMapper" {
        /// Background work.
        pub class background() -> u32 = c"aneBackgroundTaskQoS", "I@:";
        /// Utility work.
        pub class utility() -> u32 = c"aneUtilityTaskQoS", "I@:";
        /// Work without a name.
        pub class usual() -> u32 = c"aneDefaultTaskQoS", "I@:";
        /// Work that a user asked for.
        pub class user_initiated() -> u32 = c"aneUserInitiatedTaskQoS", "I@:";
        /// Work that a user waits for.
        pub class user_interactive() -> u32 = c"aneUserInteractiveTaskQoS", "I@:";
        /// Work at real-time priority.
        pub class real_time() -> u32 = c"aneRealTimeTaskQoS", "I@:";
        /// The index of the queue that serves it.
        pub class queue(qos: u32) -> u64 = c"queueIndexForQoS:", "Q@:I";
        /// The priority of programs of it.
        pub class priority(qos: u32) -> i32 = c"programPriorityForQoS:", "i@:I";
        /// The reverse.
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
        /// That of a program's handle; nil in every published try.
        pub class with(handle: u64) -> Option<DeviceController> = c"controllerWithProgramHandle:", "@@:Q";
        /// Opens the driver, counted.
        pub method start() -> () = c"start", "v@:";
        /// Closes it with the last count.
        pub method stop() -> () = c"stop", "v@:";
        /// The handle.
        pub method program_handle() -> u64 = c"programHandle", "Q@:";
        /// True with Apple's own entitlements.
        pub method is_privileged() -> bool = c"isPrivileged", "B@:";
    }
}

class! {
    /// Surfaces mapped for a program. Mapping answered NO wherever it was tried.
    SurfacesMapper = c"_ANEProgramIOSurfacesMapper" {
        /// Of a program's handle.
        pub class with(handle: u64) -> Option<SurfacesMapper> = c"mapperWithProgramHandle:", "@@:Q";
        /// Maps the surfaces of a request; the driver may keep them for later requests.
        pub attempt map(model: &Model, request: &Request, cached: bool) -> () = c"mapIOSurfacesWithModel:request:cacheInference:error:", "B@:@@B^@";
    }
}
