//! The C functions of IOHID's event system that temperatures are read with.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

use ferrane_ane::runtime::throw;
use ferrane_host::sync::lock;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::foundation::{FakeDictionary, Object, array, make, number, number_object, string, text};
use crate::session::{Call, count};

/// What a service has as its product.
#[derive(Clone, Copy)]
enum ProductProperty {
    Name(&'static str),
    Number,
    None,
}

/// The sensors: a product and a temperature, `None` where there is no event.
const SERVICES: [(ProductProperty, Option<f64>); 9] = [
    (ProductProperty::Name("PMU tdie1"), Some(38.25)),
    (ProductProperty::Name("ANE MTR Temp Sensor1"), Some(41.5)),
    (ProductProperty::Name("PMU tcal"), Some(-1.0)),
    (ProductProperty::Name("gas gauge battery"), Some(0.0)),
    (ProductProperty::Name("PMU2 tdev1"), Some(150.5)),
    (ProductProperty::Name("NAND CH0 temp"), Some(f64::NAN)),
    (ProductProperty::Name("pACC MTR Temp Sensor0"), None),
    (ProductProperty::Number, Some(30.0)),
    (ProductProperty::None, Some(30.0)),
];

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "FakeEventClient"]
    #[ivars = Mutex<Option<[u64; 2]>>]
    struct FakeClient;
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "FakeEventService"]
    #[ivars = usize]
    struct FakeService;
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "FakeEvent"]
    #[ivars = f64]
    struct FakeEvent;
);

pub(crate) fn register() {
    let _ = (FakeClient::class(), FakeService::class(), FakeEvent::class());
}

/// # Safety
/// `service` must be null or a live object.
unsafe fn service(service: *const AnyObject) -> Option<(ProductProperty, Option<f64>)> {
    // SAFETY: null or a live object by this function's contract.
    let index = unsafe { service.as_ref() }?.downcast_ref::<FakeService>()?.ivars();
    SERVICES.get(*index).copied()
}

/// `IOHIDEventSystemClientCreate`.
pub(crate) unsafe extern "C-unwind" fn create(_: *const c_void) -> *mut AnyObject {
    if count(Call::CreateEventClient).is_err() {
        return ptr::null_mut();
    }
    let client: Retained<FakeClient> = make!(FakeClient, Mutex::new(None));
    Retained::into_raw(client).cast()
}

/// `IOHIDEventSystemClientSetMatching`.
pub(crate) unsafe extern "C-unwind" fn matching(client: *const AnyObject, properties: *const AnyObject) {
    // SAFETY: IOHID's contract: a live client and a dictionary.
    let (client, properties) = unsafe { (client.as_ref(), properties.as_ref()) };
    let properties = properties.and_then(|p| p.downcast_ref::<FakeDictionary>());
    let (Some(client), Some(properties)) = (client.and_then(|c| c.downcast_ref::<FakeClient>()), properties) else {
        throw("NSInvalidArgumentException", "no client, or no dictionary");
    };
    let value = |key| properties.get(key).and_then(|value| number(Some(&value))).unwrap_or(0);
    *lock(client.ivars()) = Some([value("PrimaryUsagePage"), value("PrimaryUsage")]);
}

/// `IOHIDEventSystemClientCopyServices`: null unless it was asked for temperature sensors.
pub(crate) unsafe extern "C-unwind" fn services(client: *const AnyObject) -> *mut AnyObject {
    // SAFETY: IOHID's contract: a live client.
    let client = unsafe { client.as_ref() }.and_then(|c| c.downcast_ref::<FakeClient>());
    let asked = client.and_then(|client| *lock(client.ivars()));
    if count(Call::CopyServices).is_err() || asked != Some([0xff00, 5]) {
        return ptr::null_mut();
    }
    let all = (0..SERVICES.len()).map(|index| -> Retained<FakeService> { make!(FakeService, index) });
    Retained::into_raw(array(all))
}

/// `IOHIDServiceClientCopyProperty`.
pub(crate) unsafe extern "C-unwind" fn property(of: *const AnyObject, key: *const AnyObject) -> *mut AnyObject {
    // SAFETY: IOHID's contract: a live service and a string.
    let (of, key) = unsafe { (service(of), text(key.as_ref())) };
    let product = match (of, key.as_deref()) {
        (Some((product, _)), Some("Product")) => product,
        _ => ProductProperty::None,
    };
    let value: Object = match product {
        ProductProperty::Name(name) => string(name).into_super().into(),
        ProductProperty::Number => number_object(7),
        ProductProperty::None => return ptr::null_mut(),
    };
    Retained::into_raw(value)
}

/// `IOHIDServiceClientCopyEvent`: null for other kinds than 15.
pub(crate) unsafe extern "C-unwind" fn event(of: *const AnyObject, kind: i64, _: i32, _: i64) -> *mut AnyObject {
    // SAFETY: IOHID's contract: a live service.
    match unsafe { service(of) } {
        Some((_, Some(celsius))) if kind == 15 => {
            let event: Retained<FakeEvent> = make!(FakeEvent, celsius);
            Retained::into_raw(event).cast()
        }
        _ => ptr::null_mut(),
    }
}

/// `IOHIDEventGetFloatValue`: 0 for other fields than the level of a temperature.
pub(crate) unsafe extern "C-unwind" fn value(event: *const AnyObject, field: u32) -> f64 {
    // SAFETY: IOHID's contract: a live event.
    let event = unsafe { event.as_ref() }.and_then(|e| e.downcast_ref::<FakeEvent>());
    event.filter(|_| field == 15 << 16).map_or(0.0, |event| *event.ivars())
}
