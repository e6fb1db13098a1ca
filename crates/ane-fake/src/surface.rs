//! The C functions of IOSurface over heap memory, and `CFRelease`.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicIsize, Ordering};

use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::foundation::{FakeDictionary, make, number};
use crate::session::{Call, count};

/// The memory of a surface and the number of its current locks.
struct Surface {
    /// Whole 16-byte words, to align the base address.
    memory: Box<[UnsafeCell<u128>]>,
    size: usize,
    locks: AtomicIsize,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "IOSurface"]
    #[ivars = Surface]
    struct FakeSurface;
);

pub(crate) fn register() {
    let _ = FakeSurface::class();
}

/// The memory of a surface reference, if it is one.
pub(crate) fn memory(surface: *mut c_void) -> Option<(*mut u8, usize)> {
    // SAFETY: a non-null reference comes from `create`, so it is a live object.
    let object = unsafe { surface.cast::<AnyObject>().as_ref() }?.downcast_ref::<FakeSurface>()?;
    let ivars = object.ivars();
    Some((ivars.memory.as_ptr().cast_mut().cast(), ivars.size))
}

fn locks(surface: *mut c_void) -> Option<&'static AtomicIsize> {
    // SAFETY: as in `memory`; the caller keeps the surface alive during the call.
    let object: &'static AnyObject = unsafe { surface.cast::<AnyObject>().as_ref() }?;
    Some(&object.downcast_ref::<FakeSurface>()?.ivars().locks)
}

/// `IOSurfaceCreate`: null unless the dictionary is that of a flat byte buffer (apple-runtime §7).
///
/// # Safety
/// `properties` must be a dictionary or null.
pub unsafe extern "C" fn create(properties: *const AnyObject) -> *mut c_void {
    let null = std::ptr::null_mut();
    if count(Call::CreateSurface).is_err() {
        return null;
    }
    // SAFETY: `properties` is null or a live object by this function's contract.
    let Some(properties) = (unsafe { properties.as_ref() }).and_then(|p| p.downcast_ref::<FakeDictionary>()) else {
        return null;
    };
    let get = |key: &str| properties.get(key).and_then(|v| number(Some(&v)));
    let size = get("IOSurfaceAllocSize").unwrap_or(0);
    let flat = get("IOSurfaceWidth") == Some(size)
        && get("IOSurfaceBytesPerRow") == Some(size)
        && get("IOSurfaceHeight") == Some(1)
        && get("IOSurfaceBytesPerElement") == Some(1)
        && get("IOSurfacePixelFormat") == Some(0);
    if !flat || size == 0 || size > 1 << 32 {
        return null;
    }
    let words = (size as usize).div_ceil(16);
    let memory = (0..words).map(|_| UnsafeCell::new(0)).collect();
    let locks = AtomicIsize::new(0);
    let surface: Retained<FakeSurface> = make!(FakeSurface, Surface { memory, size: size as usize, locks });
    Retained::into_raw(surface).cast()
}

/// `IOSurfaceGetBaseAddress`.
///
/// # Safety
/// `surface` must be a surface of this fake or null.
pub unsafe extern "C" fn base_address(surface: *mut c_void) -> *mut c_void {
    memory(surface).map_or(std::ptr::null_mut(), |(base, _)| base.cast())
}

/// `IOSurfaceGetAllocSize`.
///
/// # Safety
/// `surface` must be a surface of this fake or null.
pub unsafe extern "C" fn alloc_size(surface: *mut c_void) -> usize {
    memory(surface).map_or(0, |(_, size)| size)
}

/// `IOSurfaceLock`.
///
/// # Safety
/// `surface` must be a surface of this fake or null.
pub unsafe extern "C" fn lock(surface: *mut c_void, _options: u32, _seed: *mut u32) -> i32 {
    match locks(surface) {
        Some(locks) => {
            locks.fetch_add(1, Ordering::Relaxed);
            0
        }
        None => -1,
    }
}

/// `IOSurfaceUnlock`: an error without a lock.
///
/// # Safety
/// `surface` must be a surface of this fake or null.
pub unsafe extern "C" fn unlock(surface: *mut c_void, _options: u32, _seed: *mut u32) -> i32 {
    match locks(surface) {
        Some(locks) if locks.fetch_sub(1, Ordering::Relaxed) > 0 => 0,
        _ => -1,
    }
}

/// `CFRelease`.
///
/// # Safety
/// `object` is an object that the caller owns a count of.
pub unsafe extern "C" fn release(object: *const c_void) {
    // SAFETY: the caller owns a reference to a live object by this function's contract, which is
    // given up here.
    drop(unsafe { Retained::from_raw(object.cast_mut().cast::<AnyObject>()) });
}

/// Locks that are out on a surface: a matched caller leaves none.
pub fn locks_out(surface: usize) -> isize {
    locks(surface as *mut c_void).map_or(0, |l| l.load(Ordering::Relaxed))
}
