//! The C functions of IOSurface, found at run time.

use std::ffi::c_void;
use std::ptr::NonNull;

use ferrane_device::{Error, ErrorKind, Result};
use objc2::encode::{Encoding, RefEncode};
use objc2::runtime::AnyObject;

#[cfg(not(target_vendor = "apple"))]
use super::Foundation;
use super::Object;

/// `struct __IOSurface`, known by address only.
#[repr(C)]
pub(crate) struct IoSurface {
    _opaque: [u8; 0],
}

// SAFETY: the encoding that Apple's headers give a pointer to the opaque struct.
unsafe impl RefEncode for IoSurface {
    const ENCODING_REF: Encoding = Encoding::Pointer(&Encoding::Struct("__IOSurface", &[]));
}

type Create = unsafe extern "C" fn(*const AnyObject) -> *mut c_void;
type Address = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Size = unsafe extern "C" fn(*mut c_void) -> usize;
type Lock = unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> i32;
type Release = unsafe extern "C" fn(*const c_void);

/// `kIOSurfaceLockReadOnly`.
const READ_ONLY: u32 = 1;

/// The functions, and the keys of a surface's properties.
pub(crate) struct IoSurfaces {
    create: Create,
    base: Address,
    size: Size,
    lock: Lock,
    unlock: Lock,
    release: Release,
    /// Width, BytesPerRow, AllocSize; then Height, BytesPerElement; then PixelFormat.
    keys: [Object; 6],
}

/// Opens a library; it stays open.
#[cfg(target_vendor = "apple")]
pub(crate) fn library(path: &std::ffi::CStr) -> Result<NonNull<c_void>> {
    // SAFETY: a terminated path; opening a system framework runs its initialisers only.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    let missing = || Error::new(ErrorKind::Unavailable, format!("cannot open {}", path.to_string_lossy()));
    NonNull::new(library).ok_or_else(missing)
}

#[cfg(target_vendor = "apple")]
fn symbol(library: NonNull<c_void>, name: &std::ffi::CStr) -> Result<NonNull<c_void>> {
    // SAFETY: an open library and a terminated name.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    let missing = || Error::new(ErrorKind::Unavailable, format!("this system has no {}", name.to_string_lossy()));
    NonNull::new(found).ok_or_else(missing)
}

/// The object that a constant of a framework holds.
#[cfg(target_vendor = "apple")]
fn constant(library: NonNull<c_void>, name: &std::ffi::CStr) -> Result<Object> {
    let place = symbol(library, name)?.cast::<*mut AnyObject>();
    // SAFETY: the symbol is a `CFStringRef` constant, which is an NSString.
    let object = unsafe { objc2::rc::Retained::retain(*place.as_ptr()) };
    Object::new(object, ErrorKind::Unavailable, "a constant of IOSurface is empty")
}

impl IoSurfaces {
    /// Those of macOS.
    #[cfg(target_vendor = "apple")]
    pub(crate) fn system() -> Result<IoSurfaces> {
        let surface = library(c"/System/Library/Frameworks/IOSurface.framework/IOSurface")?;
        let core = library(c"/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation")?;
        macro_rules! function {
            ($library:expr, $name:literal, $ty:ty) => {
                // SAFETY: the function has this type in Apple's headers.
                unsafe { std::mem::transmute::<*mut c_void, $ty>(symbol($library, $name)?.as_ptr()) }
            };
        }
        Ok(IoSurfaces {
            create: function!(surface, c"IOSurfaceCreate", Create),
            base: function!(surface, c"IOSurfaceGetBaseAddress", Address),
            size: function!(surface, c"IOSurfaceGetAllocSize", Size),
            lock: function!(surface, c"IOSurfaceLock", Lock),
            unlock: function!(surface, c"IOSurfaceUnlock", Lock),
            release: function!(core, c"CFRelease", Release),
            keys: [
                constant(surface, c"kIOSurfaceWidth")?,
                constant(surface, c"kIOSurfaceBytesPerRow")?,
                constant(surface, c"kIOSurfaceAllocSize")?,
                constant(surface, c"kIOSurfaceHeight")?,
                constant(surface, c"kIOSurfaceBytesPerElement")?,
                constant(surface, c"kIOSurfacePixelFormat")?,
            ],
        })
    }

    /// The fake's.
    #[cfg(not(target_vendor = "apple"))]
    pub(crate) fn fake() -> Result<IoSurfaces> {
        use ferrane_ane_fake::surface;
        let foundation = Foundation::new()?;
        let key = |name: &str| foundation.string(&format!("IOSurface{name}"));
        Ok(IoSurfaces {
            create: surface::create,
            base: surface::base_address,
            size: surface::alloc_size,
            lock: surface::lock,
            unlock: surface::unlock,
            release: surface::release,
            keys: [
                key("Width")?,
                key("BytesPerRow")?,
                key("AllocSize")?,
                key("Height")?,
                key("BytesPerElement")?,
                key("PixelFormat")?,
            ],
        })
    }

    /// The keys for the flat byte buffer of apple-runtime §7, with their values for `bytes` bytes.
    pub(crate) fn properties(&self, bytes: u64) -> [(&Object, u64); 6] {
        let [width, row, size, height, element, format] = &self.keys;
        [(width, bytes), (row, bytes), (size, bytes), (height, 1), (element, 1), (format, 0)]
    }

    /// A surface of these properties; the caller owns it and gives it to [`IoSurfaces::release`].
    pub(crate) fn create(&self, properties: &Object) -> Result<NonNull<IoSurface>> {
        // SAFETY: a dictionary, which is only read.
        let surface = unsafe { (self.create)(properties.raw()) };
        let failed = || Error::new(ErrorKind::OutOfMemory, "the system makes no surface of that size");
        NonNull::new(surface.cast()).ok_or_else(failed)
    }

    /// Where the bytes are, and how many.
    pub(crate) fn bytes(&self, surface: NonNull<IoSurface>) -> Option<(NonNull<u8>, usize)> {
        let raw = surface.as_ptr().cast();
        // SAFETY: a live surface, which the caller owns.
        let (base, size) = unsafe { ((self.base)(raw), (self.size)(raw)) };
        Some((NonNull::new(base.cast())?, size))
    }

    /// Locks for the CPU.
    pub(crate) fn lock(&self, surface: NonNull<IoSurface>, write: bool) -> Result<()> {
        let options = if write { 0 } else { READ_ONLY };
        // SAFETY: a live surface; no seed is wanted.
        match unsafe { (self.lock)(surface.as_ptr().cast(), options, std::ptr::null_mut()) } {
            0 => Ok(()),
            code => Err(Error::from_raw("IOReturn", i64::from(code), "IOSurfaceLock")),
        }
    }

    /// Ends a lock with the same options.
    pub(crate) fn unlock(&self, surface: NonNull<IoSurface>, write: bool) {
        let options = if write { 0 } else { READ_ONLY };
        // SAFETY: as in `lock`. A failure leaves nothing to do: the bytes are written either way.
        unsafe { (self.unlock)(surface.as_ptr().cast(), options, std::ptr::null_mut()) };
    }

    /// Gives the surface back.
    pub(crate) fn release(&self, surface: NonNull<IoSurface>) {
        // SAFETY: the caller owned one count and gives it up.
        unsafe { (self.release)(surface.as_ptr().cast()) }
    }
}
