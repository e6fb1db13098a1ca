//! The machine, its queues and its driver. Selectors and types as in apple-runtime §2, §8, §12 and
//! in published dumps.

use std::sync::atomic::{AtomicI64, Ordering};

use ferrane_ane::runtime::throw;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::foundation::{FakeString, make, string};

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEDeviceInfo"]
    #[ivars = ()]
    struct FakeDeviceInfo;

    impl FakeDeviceInfo {
        #[unsafe(method_id(aneSubType))]
        fn sub_type() -> Retained<FakeString> {
            string("h16")
        }

        #[unsafe(method_id(aneArchitectureType))]
        fn architecture() -> Retained<FakeString> {
            string("h16g")
        }

        #[unsafe(method(numANEs))]
        fn engines() -> u32 {
            1
        }

        #[unsafe(method(numANECores))]
        fn cores() -> u32 {
            16
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEQoSMapper"]
    #[ivars = ()]
    struct FakeQosMapper;

    impl FakeQosMapper {
        #[unsafe(method(aneBackgroundTaskQoS))]
        fn background() -> u32 {
            9
        }

        #[unsafe(method(aneUtilityTaskQoS))]
        fn utility() -> u32 {
            17
        }

        #[unsafe(method(aneDefaultTaskQoS))]
        fn default() -> u32 {
            21
        }

        #[unsafe(method(aneUserInitiatedTaskQoS))]
        fn user_initiated() -> u32 {
            25
        }

        #[unsafe(method(aneUserInteractiveTaskQoS))]
        fn user_interactive() -> u32 {
            33
        }

        #[unsafe(method(aneRealTimeTaskQoS))]
        fn real_time() -> u32 {
            49
        }

        #[unsafe(method(queueIndexForQoS:))]
        fn queue(qos: u32) -> u64 {
            u64::from(qos != 49)
        }

        #[unsafe(method(programPriorityForQoS:))]
        fn priority(qos: u32) -> i32 {
            if qos == 49 { 1 } else { 5 }
        }

        #[unsafe(method(qosForProgramPriority:))]
        fn of_priority(priority: i32) -> u32 {
            if priority == 1 { 49 } else { 21 }
        }

        #[unsafe(method(realTimeProgramPriority))]
        fn real_time_priority() -> i32 {
            1
        }

        #[unsafe(method(realTimeQueueIndex))]
        fn real_time_queue() -> u64 {
            0
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEDeviceController"]
    #[ivars = (u64, AtomicI64)]
    struct FakeController;

    impl FakeController {
        #[unsafe(method_id(controllerWithProgramHandle:))]
        fn with(handle: u64) -> Option<Retained<FakeController>> {
            (handle != 0).then(|| make!(FakeController, (handle, AtomicI64::new(0))))
        }

        #[unsafe(method(start))]
        fn start(&self) {
            self.ivars().1.fetch_add(1, Ordering::Relaxed);
        }

        #[unsafe(method(stop))]
        fn stop(&self) {
            // It was closed more often than opened.
            if self.ivars().1.fetch_sub(1, Ordering::Relaxed) <= 0 {
                throw("NSInternalInconsistencyException", "stop without start");
            }
        }

        #[unsafe(method(programHandle))]
        fn program_handle(&self) -> u64 {
            self.ivars().0
        }

        #[unsafe(method(isPrivileged))]
        fn is_privileged(&self) -> Bool {
            Bool::NO
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEProgramIOSurfacesMapper"]
    #[ivars = ()]
    struct FakeMapper;

    impl FakeMapper {
        #[unsafe(method_id(mapperWithProgramHandle:))]
        fn with(handle: u64) -> Option<Retained<FakeMapper>> {
            (handle != 0).then(|| make!(FakeMapper, ()))
        }

        #[unsafe(method(mapIOSurfacesWithModel:request:cacheInference:error:))]
        fn map(
            &self,
            _model: Option<&AnyObject>,
            _request: Option<&AnyObject>,
            _cached: Bool,
            _error: *mut *mut AnyObject,
        ) -> Bool {
            Bool::NO
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeDeviceInfo::class(), FakeQosMapper::class(), FakeController::class(), FakeMapper::class());
}
