//! Devices: opened by name, and the one that is used where none is named.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use ferrane::Device;
use ferrane_host::sync::lock;

use crate::arg::{self, Out, TextOut};
use crate::handle::HandleTable;
use crate::status::{FerraneStatus, Result, guard};

/// A device. The handle is no address; it may be used from any thread.
pub struct FerraneDevice {
    _private: [u8; 0],
}

static DEVICES: HandleTable<Device> = HandleTable::new("device");

/// The process's device, with the name that it was opened by.
static DEFAULT: Mutex<Option<(String, Device)>> = Mutex::new(None);

/// What [`DEFAULT`] is where nobody says another.
const EMULATOR: &str = "emulator";

/// Opens the process's device if it is not open under this name already.
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

/// The device of a handle; null is the process's.
pub(crate) fn device(handle: *mut FerraneDevice) -> Result<Device> {
    if handle.is_null() { init(None) } else { DEVICES.get(handle).map(|device| Device::clone(&device)) }
}

/// Chooses the process's device: what is used where a device is null, and by the functions
/// ane_bridge_*. Names are those of ferrane_open. Null keeps the device that is open, and opens
/// "emulator" if there is none. Kernels that were compiled before stay on their device. Calling it
/// is not needed: the first use opens "emulator".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_init(name: *const c_char) -> FerraneStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { arg::optional_text("name", name)? };
        init(name).map(|_| ())
    })
}

/// Opens a device: "emulator" (on any computer), "ane" (the Neural Engine of a Mac),
/// "ane-or-emulator"; options follow a question mark, as in
/// "emulator?numerics=exact&machine=m4-macos15-inmem". The error of an unknown name or option lists
/// the known ones. End the handle with ferrane_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_open(name: *const c_char, device: *mut *mut FerraneDevice) -> FerraneStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let (out, name) = unsafe { (Out::handle("device", device)?, arg::text("name", name)?) };
        out.set(DEVICES.insert(Arc::new(ferrane::open(name)?))?);
        Ok(())
    })
}

/// Ends the handle of a device; null does nothing. Kernels that were compiled on it keep working.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_close(device: *mut FerraneDevice) -> FerraneStatus {
    guard(|| if device.is_null() { Ok(()) } else { DEVICES.remove(device).map(|_| ()) })
}

/// Copies what a device calls itself, "emulator (fast)" for example. Null is the process's device.
/// `length` gets the length without the zero byte at the end, and may be null; with a capacity of 0
/// only the length is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_device_name(
    device: *mut FerraneDevice,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: the caller's promise.
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

    /// A panic below comes out of the C functions as a status, and the library works on.
    #[test]
    fn panics_stay_inside() {
        let broken = Broken(ferrane::open("emulator").unwrap().profile().clone());
        let device: *mut FerraneDevice = DEVICES.insert(Arc::new(Device::new(broken))).unwrap();
        let mil = "program(1.3) {}";
        let mut kernel: *mut ANEKernelHandle = std::ptr::null_mut();
        // SAFETY: every pointer is to what the functions say.
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
