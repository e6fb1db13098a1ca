//! The private C functions of the sensors, with the types that public callers declare.
//!
//! No header of Apple's has them. The types are those of macmon (`sources.rs` of version 0.10) and
//! SiliconScope (`CIOReport`), which agree where both have a function; of IOHID, those of macmon
//! and of sysinfo 0.38 (`unix/apple/macos/ffi.rs`). A function whose name begins with `Copy` or
//! `Create` after the library's prefix returns a reference for the caller; one with `Get` does not
//! (CoreFoundation's naming rule).
//!
//! All objects are those of CoreFoundation, which take Objective-C's messages `retain` and
//! `release`, so an object stands for each of them here.

use std::ffi::c_void;

use objc2::runtime::AnyObject;

/// The functions of `libIOReport.dylib`.
#[derive(Clone, Copy)]
pub struct ReportFunctions {
    /// `IOReportCopyAllChannels`: a dictionary with the list `IOReportChannels`. Both arguments
    /// are 0.
    pub copy_all: unsafe extern "C-unwind" fn(u64, u64) -> *mut AnyObject,
    /// `IOReportCreateSubscription`: null; a mutable dictionary like that of `copy_all`; where the
    /// dictionary of the accepted channels is written, with a reference for the caller; 0; null.
    pub subscribe: unsafe extern "C-unwind" fn(
        *const c_void,
        *const AnyObject,
        *mut *mut AnyObject,
        u64,
        *const AnyObject,
    ) -> *mut AnyObject,
    /// `IOReportCreateSamples`: the subscription, the accepted channels, null; a dictionary like
    /// that of `copy_all`.
    pub samples: unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject, *const AnyObject) -> *mut AnyObject,
    /// `IOReportCreateSamplesDelta`: an earlier and a later sample, null; a dictionary like a
    /// sample.
    pub delta: unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject, *const AnyObject) -> *mut AnyObject,
    /// `IOReportChannelGetGroup`: a string or null.
    pub group: unsafe extern "C-unwind" fn(*const AnyObject) -> *mut AnyObject,
    /// `IOReportChannelGetSubGroup`: a string or null.
    pub sub_group: unsafe extern "C-unwind" fn(*const AnyObject) -> *mut AnyObject,
    /// `IOReportChannelGetChannelName`: a string or null.
    pub name: unsafe extern "C-unwind" fn(*const AnyObject) -> *mut AnyObject,
    /// `IOReportChannelGetUnitLabel`: a string, which may end in spaces, or null.
    pub unit: unsafe extern "C-unwind" fn(*const AnyObject) -> *mut AnyObject,
    /// `IOReportChannelGetFormat`: 1 is one number, 2 the time in each state (`IOReportTypes.h` of
    /// xnu). Some callers declare a wider result; the number fits in a byte.
    pub format: unsafe extern "C-unwind" fn(*const AnyObject) -> u8,
    /// `IOReportSimpleGetIntegerValue`; the second argument is 0. What is no number is the least
    /// integer.
    pub integer: unsafe extern "C-unwind" fn(*const AnyObject, i32) -> i64,
    /// `IOReportStateGetCount`.
    pub state_count: unsafe extern "C-unwind" fn(*const AnyObject) -> i32,
    /// `IOReportStateGetNameForIndex`: a string or null.
    pub state_name: unsafe extern "C-unwind" fn(*const AnyObject, i32) -> *mut AnyObject,
    /// `IOReportStateGetResidency`.
    pub residency: unsafe extern "C-unwind" fn(*const AnyObject, i32) -> i64,
}

/// The functions of IOHID's event system in `IOKit.framework`, which its public headers leave out.
#[derive(Clone, Copy)]
pub struct ThermalFunctions {
    /// `IOHIDEventSystemClientCreate`: null is the default allocator.
    pub create: unsafe extern "C-unwind" fn(*const c_void) -> *mut AnyObject,
    /// `IOHIDEventSystemClientSetMatching`: the client, a dictionary of properties. Some callers
    /// declare a result, which no caller uses.
    pub matching: unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject),
    /// `IOHIDEventSystemClientCopyServices`: a list or null.
    pub services: unsafe extern "C-unwind" fn(*const AnyObject) -> *mut AnyObject,
    /// `IOHIDServiceClientCopyProperty`: the service, the name of a property; any object or null.
    pub property: unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject) -> *mut AnyObject,
    /// `IOHIDServiceClientCopyEvent`: the service, the kind of the event, 0, 0; an event or null.
    pub event: unsafe extern "C-unwind" fn(*const AnyObject, i64, i32, i64) -> *mut AnyObject,
    /// `IOHIDEventGetFloatValue`: the event, the field.
    pub value: unsafe extern "C-unwind" fn(*const AnyObject, u32) -> f64,
}
