//! Devices: opened by name, and the default device of the process.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use ferrane::Device;
use ferrane_host::sync::lock;

use crate::arg::{self, Out, TextOut};
use crate::handle::HandleTable;
use crate::status::{FerraneStatus, Result, guard};

/// A device. The handle is not an address; it may be used from any thread.
pub struct FerraneDevice {
    _private: [u8; 0],
}

static DEVICES: HandleTable<Device> = HandleTable::new("device");

/// The process's device, with the name by which it was opened.
static DEFAULT: Mutex<Option<(String, Device)>> = Mutex::new(None);

/// The name of the process's device by default.
const EMULATOR: &str = "emulator";

/// Opens the process's device unless it is already open under this name.
pub(crate) fn init(name: Option<&str>) -> Result<Device> {
    let mut default = lock(&DEFAULT);
    if let Some((opened, device)) = &*default
        && name.is_none_or(|n| n == opened)
    {
        return Ok(device.clone());
    }
    let name = name.unwrap_or(EMULATOR);
    let device = ferrane::open(name)?;
    *default = Some((name.to_string(), device.clone()));
    Ok(device)
}

/// The device of a handle; null means the process's.
pub(crate) fn device(handle: *mut FerraneDevice) -> Result<Device> {
    if handle.is_null() { init(None) } else { DEVICES.get(handle).map(|device| Device::clone(&device)) }
}

/// Chooses the process's device: the one for calls with a null device, and for the functions
/// ane_bridge_*. Names are those of ferrane_open. Null keeps an open device, and otherwise opens
/// "emulator". Kernels that were compiled before stay on their device. This call is optional: the
/// first use opens "emulator".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_init(name: *const c_char) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `name` is null or a terminated string.
        let name = unsafe { arg::optional_text("name", name)? };
        init(name).map(|_| ())
    })
}

/// Opens a device: "emulator" (on any computer), "ane" (the Neural Engine of a Mac),
/// "ane-or-emulator". Options follow a question mark, as in
/// "emulator?numerics=exact&machine=m4-macos15-inmem". The error for an unknown name or option
/// lists the known ones. Release the handle with ferrane_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_open(name: *const c_char, device: *mut *mut FerraneDevice) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `device` is writable and `name` is a
        // terminated string.
        let (out, name) = unsafe { (Out::handle("device", device)?, arg::text("name", name)?) };
        out.set(DEVICES.insert(Arc::new(ferrane::open(name)?))?);
        Ok(())
    })
}

/// Releases the handle of a device; null has no effect. Kernels that were compiled on it keep
/// working.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_close(device: *mut FerraneDevice) -> FerraneStatus {
    guard(|| if device.is_null() { Ok(()) } else { DEVICES.remove(device).map(|_| ()) })
}

/// Copies the name of a device, such as "emulator (fast)". Null means the process's device.
/// `length`, if not null, receives the length without the terminating zero byte; with a capacity of
/// 0 only the length is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_device_name(
    device: *mut FerraneDevice,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `buffer` has room for `capacity` bytes and
        // `length` is null or writable.
        let out = unsafe { TextOut::new(buffer, capacity, length)? };
        out.set(&self::device(device)?.name())
    })
}

#[cfg(test)]
mod tests {
    use ferrane_device::backend::{Backend, Compiled};
    use ferrane_device::{CompileOptions, ErrorKind, Layout, Memory, ProgramSource};
    use ferrane_machine::Profile;

    use super::*;
    use crate::kernel::{ANEKernelHandle, ferrane_compile};
    use crate::status::{FERRANE_INTERNAL, FERRANE_OK, ferrane_last_status};

    /// A backend with a bug.
    struct Broken(Profile);

    impl Backend for Broken {
        fn name(&self) -> String {
            panic!("no name")
        }
        fn profile(&self) -> &Profile {
            &self.0
        }
        fn compile(&self, _: ProgramSource<'_>, _: &CompileOptions) -> ferrane_device::Result<Box<dyn Compiled>> {
            let none: [u8; 0] = [];
            panic!("there are {} ways to compile", none.len())
        }
        fn allocate(&self, _: &Layout) -> ferrane_device::Result<Arc<dyn Memory>> {
            Err(ferrane_device::Error::new(ErrorKind::OutOfMemory, "none"))
        }
    }

    /// A panic in a backend becomes a status of the C function, and the library keeps working.
    #[test]
    fn panics_stay_inside() {
        let broken = Broken(ferrane::open("emulator").unwrap().profile().clone());
        let device: *mut FerraneDevice = DEVICES.insert(Arc::new(Device::new(broken))).unwrap();
        let mil = "program(1.3) {}";
        let mut kernel: *mut ANEKernelHandle = std::ptr::null_mut();
        // SAFETY: every pointer is valid for its parameter.
        unsafe {
            let (text, len) = (mil.as_ptr().cast(), mil.len());
            let none = std::ptr::null();
            assert_eq!(ferrane_compile(device, text, len, none, 0, &mut kernel), FERRANE_INTERNAL);
            assert!(kernel.is_null());
            let said = std::ffi::CStr::from_ptr(crate::status::ferrane_last_error()).to_str().unwrap();
            assert_eq!(said, "Ferrane failed inside: there are 0 ways to compile");
            let mut length = 0;
            assert_eq!(ferrane_device_name(device, std::ptr::null_mut(), 0, &mut length), FERRANE_INTERNAL);
            assert_eq!(ferrane_device_name(std::ptr::null_mut(), std::ptr::null_mut(), 0, &mut length), FERRANE_OK);
        }
        assert_eq!((ferrane_close(device), ferrane_last_status()), (FERRANE_OK, FERRANE_OK));
    }
}
