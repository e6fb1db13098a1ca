//! Surface objects, requests, counters. Selectors and types as in apple-runtime §2, §6.

use std::ffi::c_void;
use std::sync::Mutex;

use ferrane_host::sync::lock;
use objc2::encode::{Encoding, RefEncode};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, Message as _, define_class};

use crate::events::{Copied, FakeSharedEvents, Literal};
use crate::foundation::{Object, bytes, elements, given, make, number};
use crate::surface;

/// `__IOSurface`, for its type encoding.
#[repr(C)]
pub(crate) struct IoSurface {
    _opaque: [u8; 0],
}

// SAFETY: Apple's headers declare a pointer to an opaque struct, which is what the encoding says.
unsafe impl RefEncode for IoSurface {
    const ENCODING_REF: Encoding = Encoding::Pointer(&Encoding::Struct("__IOSurface", &[]));
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEIOSurfaceObject"]
    #[ivars = Object]
    pub(crate) struct FakeSurfaceObject;

    impl FakeSurfaceObject {
        #[unsafe(method_id(objectWithIOSurface:))]
        fn with_surface(surface: *mut IoSurface) -> Option<Retained<FakeSurfaceObject>> {
            given(|| {
                surface::memory(surface.cast())?;
                // SAFETY: the pointer was recognized above as a live surface, which is retained.
                let kept = unsafe { Retained::retain(surface.cast::<AnyObject>()) }?;
                Some(make!(FakeSurfaceObject, kept))
            })
        }
    }
);

/// A surface with its symbol.
pub(crate) struct Binding {
    pub(crate) symbol: u64,
    object: Object,
}

impl Binding {
    /// Binds a surface object to a symbol.
    pub(crate) fn of(symbol: u64, object: Object) -> Binding {
        Binding { symbol, object }
    }

    pub(crate) fn surface(&self) -> *mut c_void {
        let object = self.object.downcast_ref::<FakeSurfaceObject>();
        object.map_or(std::ptr::null_mut(), |o| Retained::as_ptr(o.ivars()).cast_mut().cast())
    }
}

/// The surfaces of a request, and the procedure.
pub(crate) struct RequestBindings {
    pub(crate) inputs: Vec<Binding>,
    pub(crate) outputs: Vec<Binding>,
    pub(crate) procedure: u64,
    /// Events of the request; with events it is evaluated asynchronously.
    pub(crate) events: Option<Retained<FakeSharedEvents>>,
    pub(crate) ended: Mutex<Option<Copied>>,
}

/// A list of surfaces and a list of their indices.
type SurfacesWithIndices<'a> = (Option<&'a AnyObject>, Option<&'a AnyObject>);

/// A request; `None` if an argument has the wrong class.
fn request(
    inputs: SurfacesWithIndices<'_>,
    outputs: SurfacesWithIndices<'_>,
    procedure: Option<&AnyObject>,
    events: Option<&AnyObject>,
) -> Option<Retained<FakeRequest>> {
    let (inputs, outputs) = (bind(inputs.0, inputs.1)?, bind(outputs.0, outputs.1)?);
    let procedure = number(procedure)?;
    let events = match events {
        None => None,
        Some(events) => Some(events.downcast_ref::<FakeSharedEvents>()?.retain()),
    };
    let ended = Mutex::new(None);
    Some(make!(FakeRequest, RequestBindings { inputs, outputs, procedure, events, ended }))
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANERequest"]
    #[ivars = RequestBindings]
    pub(crate) struct FakeRequest;

    impl FakeRequest {
        #[unsafe(method_id(requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:))]
        fn request_with(
            inputs: Option<&AnyObject>,
            input_indices: Option<&AnyObject>,
            outputs: Option<&AnyObject>,
            output_indices: Option<&AnyObject>,
            _weights_buffer: Option<&AnyObject>,
            _perf_stats: Option<&AnyObject>,
            procedure: Option<&AnyObject>,
        ) -> Option<Retained<FakeRequest>> {
            given(|| request((inputs, input_indices), (outputs, output_indices), procedure, None))
        }

        #[unsafe(method_id(requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:sharedEvents:))]
        fn request_with_events(
            inputs: Option<&AnyObject>,
            input_indices: Option<&AnyObject>,
            outputs: Option<&AnyObject>,
            output_indices: Option<&AnyObject>,
            _weights_buffer: Option<&AnyObject>,
            _perf_stats: Option<&AnyObject>,
            procedure: Option<&AnyObject>,
            events: Option<&AnyObject>,
        ) -> Option<Retained<FakeRequest>> {
            given(|| request((inputs, input_indices), (outputs, output_indices), procedure, events))
        }

        #[unsafe(method(setCompletionHandler:))]
        fn on_end(&self, handler: *const Literal) {
            // SAFETY: `handler` is a live block or nil.
            let copied = unsafe { Copied::of(handler) };
            *lock(&self.ivars().ended) = copied;
        }
    }
);

fn bind(surfaces: Option<&AnyObject>, indices: Option<&AnyObject>) -> Option<Vec<Binding>> {
    let (surfaces, indices) = (elements(surfaces)?, elements(indices)?);
    if surfaces.len() != indices.len() {
        return None;
    }
    let binding = |(object, index): (&Object, &Object)| {
        object.downcast_ref::<FakeSurfaceObject>()?;
        Some(Binding { symbol: number(Some(index))?, object: object.clone() })
    };
    surfaces.iter().zip(indices).map(binding).collect()
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEPerformanceStats"]
    #[ivars = u64]
    struct FakeStats;

    impl FakeStats {
        #[unsafe(method_id(statsWithHardwareExecutionNS:))]
        fn with_time(time: u64) -> Retained<FakeStats> {
            make!(FakeStats, time)
        }

        #[unsafe(method_id(statsWithReconstructed:hardwareExecutionNS:aneStatsRawData:))]
        fn reconstructed(read: Option<&AnyObject>, time: u64, raw: Option<&AnyObject>) -> Option<Retained<FakeStats>> {
            // A data object or nil.
            let data = |part: Option<&AnyObject>| part.is_none() || bytes(part).is_some();
            (data(read) && data(raw)).then(|| make!(FakeStats, time))
        }

        #[unsafe(method(driverMaskForANEFMask:))]
        fn driver_mask(mask: u32) -> u32 {
            // The mapping of one observed system: bit 1 of the framework is bit 2 of the driver.
            (mask & 0x1) | (mask & 0x2) << 1
        }

        #[unsafe(method(hwExecutionTime))]
        fn time(&self) -> u64 {
            *self.ivars()
        }

        #[unsafe(method_id(perfCounterData))]
        fn counters(&self) -> Option<Object> {
            None
        }

        #[unsafe(method_id(pStatsRawData))]
        fn raw(&self) -> Option<Object> {
            None
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEPerformanceStatsIOSurface"]
    #[ivars = i64]
    struct FakeStatsSurface;

    impl FakeStatsSurface {
        #[unsafe(method_id(objectWithIOSurface:statType:))]
        fn with(surface: *mut IoSurface, kind: i64) -> Option<Retained<FakeStatsSurface>> {
            surface::memory(surface.cast()).map(|_| make!(FakeStatsSurface, kind))
        }

        #[unsafe(method(statType))]
        fn kind(&self) -> i64 {
            *self.ivars()
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeSurfaceObject::class(), FakeRequest::class(), FakeStats::class(), FakeStatsSurface::class());
}
