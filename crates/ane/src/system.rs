//! The system: its identity, and the C functions of IOSurface and of the sensors.
//!
//! On a Mac they are looked up at run time. With the feature `objc-runtime` another system can be
//! injected, once per process ([`inject`]).

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use ferrane_device::Result;
#[cfg(target_vendor = "apple")]
use ferrane_device::{Error, ErrorKind};
use objc2::runtime::AnyObject;

use crate::sensors::functions::{ReportFunctions, ThermalFunctions};

/// The C functions of IOSurface, with the types of Apple's headers, and `CFRelease`.
#[derive(Clone, Copy)]
pub struct SurfaceFunctions {
    /// `IOSurfaceCreate`.
    pub create: unsafe extern "C" fn(*const AnyObject) -> *mut c_void,
    /// `IOSurfaceGetBaseAddress`.
    pub base_address: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    /// `IOSurfaceGetAllocSize`.
    pub alloc_size: unsafe extern "C" fn(*mut c_void) -> usize,
    /// `IOSurfaceLock`.
    pub lock: unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> i32,
    /// `IOSurfaceUnlock`.
    pub unlock: unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> i32,
    /// `CFRelease`.
    pub release: unsafe extern "C" fn(*const c_void),
}

/// `ANECCompile`: two dictionaries, and a block that receives a 32-bit status and a dictionary; as
/// published callers declare it.
pub type CompileFunction = unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject, *const c_void) -> i32;

/// A system with an engine.
#[derive(Clone)]
pub struct System {
    /// The suffix of device names after `ane`: empty, or ` (fake)`.
    pub suffix: &'static str,
    /// The system, such as `macOS 15.5`.
    pub os: String,
    /// The build of the system, such as `24F74`.
    pub build: String,
    /// The processor, such as `Apple M4 Pro`.
    pub chip: String,
    /// The default folder of compiled programs for the option `cache`; `None` for no cache.
    pub cache: Option<PathBuf>,
    /// The E5 runtime's cache folder, which must be writable (apple-runtime §9).
    pub e5_cache: fn() -> PathBuf,
    /// Whether a C function with this name exists, once Core ML is open.
    pub symbol: fn(&CStr) -> bool,
    /// The compiler's C function, if it exists.
    pub compiler: fn() -> Option<CompileFunction>,
    /// The recovery time of the compile service after a failed compile (apple-runtime §14).
    pub recovery: Duration,
    /// The C functions of IOSurface.
    pub surfaces: SurfaceFunctions,
    /// The C functions of IOReport, if all of them exist.
    pub reports: fn() -> Result<ReportFunctions>,
    /// The C functions of IOHID's event system, if all of them exist.
    pub thermal: fn() -> Result<ThermalFunctions>,
}

static SYSTEM: OnceLock<System> = OnceLock::new();

/// Injects a system whose classes are registered in the runtime of this crate. Only the first call
/// has an effect.
///
/// # Safety
/// The C functions must behave like Apple's, and the bound classes ([`crate::bind::table`])
/// must use their arguments only as Apple's are documented to.
#[cfg(not(target_vendor = "apple"))]
pub unsafe fn inject(system: System) {
    let _ = SYSTEM.set(system);
}

/// The injected system, if there is one.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn find() -> Option<&'static System> {
    SYSTEM.get()
}

/// System and build as text for messages.
pub(crate) fn words() -> String {
    SYSTEM.get().map_or_else(|| "this system".into(), |s| format!("{} ({})", s.os, s.build))
}

/// Whether a C function with this name exists.
pub(crate) fn has_symbol(name: &CStr) -> bool {
    SYSTEM.get().is_some_and(|system| (system.symbol)(name))
}

/// Opens Core ML, which provides the classes and functions of the E5 path. If it cannot be opened,
/// they are reported as missing.
pub(crate) fn open_core_ml() {
    #[cfg(target_vendor = "apple")]
    let _ = apple::library(apple::CORE_ML);
}

/// This Mac, with the private framework opened.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if a library or a function is missing.
#[cfg(target_vendor = "apple")]
pub(crate) fn find() -> Result<&'static System> {
    if let Some(system) = SYSTEM.get() {
        return Ok(system);
    }
    let system = apple::system()?;
    Ok(SYSTEM.get_or_init(|| system))
}

#[cfg(target_vendor = "apple")]
mod apple {
    use std::ptr::NonNull;

    use super::*;

    const ENGINE: &CStr = c"/System/Library/PrivateFrameworks/AppleNeuralEngine.framework/AppleNeuralEngine";
    const FOUNDATION: &CStr = c"/System/Library/Frameworks/Foundation.framework/Foundation";
    const COMPILER: &CStr = c"/System/Library/PrivateFrameworks/ANECompiler.framework/ANECompiler";
    const SURFACE: &CStr = c"/System/Library/Frameworks/IOSurface.framework/IOSurface";
    pub(super) const CORE_ML: &CStr = c"/System/Library/Frameworks/CoreML.framework/CoreML";
    const CORE: &CStr = c"/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation";
    const REPORT: &CStr = c"/usr/lib/libIOReport.dylib";
    const IOKIT: &CStr = c"/System/Library/Frameworks/IOKit.framework/IOKit";

    /// A recovery time that was observed to suffice (apple-runtime §14).
    const RECOVERY: Duration = Duration::from_secs(15);

    /// Opens a library and keeps it open.
    pub(super) fn library(path: &CStr) -> Result<NonNull<c_void>> {
        // SAFETY: a terminated path; opening a system framework only runs its initializers.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        let missing = || Error::new(ErrorKind::Unavailable, format!("cannot open {}", path.to_string_lossy()));
        NonNull::new(library).ok_or_else(missing)
    }

    fn symbol(library: NonNull<c_void>, name: &CStr) -> Result<*mut c_void> {
        // SAFETY: an open library and a terminated name.
        let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
        let missing = || Error::new(ErrorKind::Unavailable, format!("this system has no {}", name.to_string_lossy()));
        NonNull::new(found).map(NonNull::as_ptr).ok_or_else(missing)
    }

    /// Whether any open library has a symbol with this name.
    fn has_symbol(name: &CStr) -> bool {
        // SAFETY: a terminated name; the address is only compared with null.
        !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
    }

    fn compiler() -> Option<CompileFunction> {
        let function = symbol(library(COMPILER).ok()?, c"ANECCompile").ok()?;
        // SAFETY: the function has the type that published callers declare.
        Some(unsafe { std::mem::transmute::<*mut c_void, CompileFunction>(function) })
    }

    type Of = unsafe extern "C-unwind" fn(*const AnyObject) -> *mut AnyObject;
    type OfTwo = unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject) -> *mut AnyObject;
    type OfThree = unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject, *const AnyObject) -> *mut AnyObject;
    type Subscribe = unsafe extern "C-unwind" fn(
        *const c_void,
        *const AnyObject,
        *mut *mut AnyObject,
        u64,
        *const AnyObject,
    ) -> *mut AnyObject;

    macro_rules! private {
        ($library:expr, $name:literal, $ty:ty) => {
            // SAFETY: the function has the type that public callers declare (`sensors`).
            unsafe { std::mem::transmute::<*mut c_void, $ty>(symbol($library, $name)?) }
        };
    }

    fn reports() -> Result<ReportFunctions> {
        let library = library(REPORT)?;
        Ok(ReportFunctions {
            copy_all: private!(
                library,
                c"IOReportCopyAllChannels",
                unsafe extern "C-unwind" fn(u64, u64) -> *mut AnyObject
            ),
            subscribe: private!(library, c"IOReportCreateSubscription", Subscribe),
            samples: private!(library, c"IOReportCreateSamples", OfThree),
            delta: private!(library, c"IOReportCreateSamplesDelta", OfThree),
            group: private!(library, c"IOReportChannelGetGroup", Of),
            sub_group: private!(library, c"IOReportChannelGetSubGroup", Of),
            name: private!(library, c"IOReportChannelGetChannelName", Of),
            unit: private!(library, c"IOReportChannelGetUnitLabel", Of),
            format: private!(library, c"IOReportChannelGetFormat", unsafe extern "C-unwind" fn(*const AnyObject) -> u8),
            integer: private!(
                library,
                c"IOReportSimpleGetIntegerValue",
                unsafe extern "C-unwind" fn(*const AnyObject, i32) -> i64
            ),
            state_count: private!(
                library,
                c"IOReportStateGetCount",
                unsafe extern "C-unwind" fn(*const AnyObject) -> i32
            ),
            state_name: private!(
                library,
                c"IOReportStateGetNameForIndex",
                unsafe extern "C-unwind" fn(*const AnyObject, i32) -> *mut AnyObject
            ),
            residency: private!(
                library,
                c"IOReportStateGetResidency",
                unsafe extern "C-unwind" fn(*const AnyObject, i32) -> i64
            ),
        })
    }

    fn thermal() -> Result<ThermalFunctions> {
        let library = library(IOKIT)?;
        Ok(ThermalFunctions {
            create: private!(
                library,
                c"IOHIDEventSystemClientCreate",
                unsafe extern "C-unwind" fn(*const c_void) -> *mut AnyObject
            ),
            matching: private!(
                library,
                c"IOHIDEventSystemClientSetMatching",
                unsafe extern "C-unwind" fn(*const AnyObject, *const AnyObject)
            ),
            services: private!(library, c"IOHIDEventSystemClientCopyServices", Of),
            property: private!(library, c"IOHIDServiceClientCopyProperty", OfTwo),
            event: private!(
                library,
                c"IOHIDServiceClientCopyEvent",
                unsafe extern "C-unwind" fn(*const AnyObject, i64, i32, i64) -> *mut AnyObject
            ),
            value: private!(
                library,
                c"IOHIDEventGetFloatValue",
                unsafe extern "C-unwind" fn(*const AnyObject, u32) -> f64
            ),
        })
    }

    /// `~/Library/Caches/<program>`, where the E5 runtime was observed to write.
    fn e5_cache() -> PathBuf {
        let program = std::env::current_exe().ok();
        let name = program.as_deref().and_then(|p| p.file_name()).unwrap_or("ferrane".as_ref());
        std::env::home_dir().unwrap_or_default().join("Library/Caches").join(name)
    }

    /// A text value of the kernel, or an empty text.
    fn sysctl(name: &CStr) -> String {
        let mut text = [0u8; 256];
        let mut length = text.len();
        // SAFETY: a terminated name, and a buffer with as many bytes as `size` says; nothing is
        // set.
        let code = unsafe {
            libc::sysctlbyname(name.as_ptr(), text.as_mut_ptr().cast(), &mut length, std::ptr::null_mut(), 0)
        };
        let text = text.get(..length).filter(|_| code == 0).unwrap_or_default();
        String::from_utf8_lossy(text).trim_end_matches('\0').to_string()
    }

    pub(super) fn system() -> Result<System> {
        library(FOUNDATION)?;
        library(ENGINE)?;
        let (surface, core) = (library(SURFACE)?, library(CORE)?);
        macro_rules! function {
            ($library:expr, $name:literal, $ty:ty) => {
                // SAFETY: Apple's headers declare the function with this type.
                unsafe { std::mem::transmute::<*mut c_void, $ty>(symbol($library, $name)?) }
            };
        }
        type Lock = unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> i32;
        let surfaces = SurfaceFunctions {
            create: function!(surface, c"IOSurfaceCreate", unsafe extern "C" fn(*const AnyObject) -> *mut c_void),
            base_address: function!(
                surface,
                c"IOSurfaceGetBaseAddress",
                unsafe extern "C" fn(*mut c_void) -> *mut c_void
            ),
            alloc_size: function!(surface, c"IOSurfaceGetAllocSize", unsafe extern "C" fn(*mut c_void) -> usize),
            lock: function!(surface, c"IOSurfaceLock", Lock),
            unlock: function!(surface, c"IOSurfaceUnlock", Lock),
            release: function!(core, c"CFRelease", unsafe extern "C" fn(*const c_void)),
        };
        Ok(System {
            suffix: "",
            os: format!("macOS {}", sysctl(c"kern.osproductversion")),
            build: sysctl(c"kern.osversion"),
            chip: sysctl(c"machdep.cpu.brand_string"),
            cache: std::env::home_dir().map(|home| home.join("Library/Caches/ferrane/ane")),
            e5_cache,
            symbol: has_symbol,
            compiler,
            recovery: RECOVERY,
            surfaces,
            reports,
            thermal,
        })
    }
}

impl System {
    /// The name of this machine's profile, such as `m4-pro-macos15`.
    pub(crate) fn profile(&self) -> Option<String> {
        let chip = self.chip.strip_prefix("Apple ")?.to_lowercase().replace(' ', "-");
        let major = self.os.strip_prefix("macOS ")?.split('.').next()?;
        Some(format!("{chip}-macos{major}"))
    }
}
