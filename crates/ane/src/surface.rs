//! Memory in IOSurfaces.
//!
//! A surface is a flat byte buffer (apple-runtime §7). It is locked while the CPU accesses it, and
//! the access state of `ferrane_device` excludes the CPU while a request uses it.

use std::ptr::NonNull;
use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Foreign, Layout, Memory, Result};
use ferrane_host::buffer::SharedBytes;

use crate::bind::foundation::{map, number};
use crate::bind::{IoSurface, Wrap as _};
use crate::system::SurfaceFunctions;

/// `kIOSurfaceLockReadOnly`.
const READ_ONLY: u32 = 1;

/// Surfaces above this many bytes (those of whole weight matrices) are made global (apple-runtime
/// §7).
const GLOBAL: usize = 16 << 20;

/// An owned reference to a surface.
struct Owned {
    functions: SurfaceFunctions,
    surface: NonNull<IoSurface>,
}

// SAFETY: IOSurface's functions may be called from any thread, and the reference is released once.
unsafe impl Send for Owned {}
// SAFETY: IOSurface's functions may be called from several threads at once.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this value owns one reference and releases it.
        unsafe { (self.functions.release)(self.surface.as_ptr().cast()) }
    }
}

/// The memory of a `ferrane_device::Surface`.
pub(crate) struct SurfaceMemory {
    owned: Arc<Owned>,
    bytes: SharedBytes,
}

impl SurfaceMemory {
    /// Allocates a surface for a layout; its size is a multiple of `alignment` bytes.
    pub(crate) fn new(functions: SurfaceFunctions, layout: &Layout, alignment: usize) -> Result<SurfaceMemory> {
        let none = || Error::new(ErrorKind::OutOfMemory, format!("no surface of {} bytes", layout.allocation));
        // A surface of zero bytes is not possible.
        let size = layout.allocation.max(1).checked_next_multiple_of(alignment.max(1)).ok_or_else(none)?;
        let bytes = size as u64;
        let mut properties = vec![
            ("IOSurfaceWidth", bytes),
            ("IOSurfaceBytesPerRow", bytes),
            ("IOSurfaceAllocSize", bytes),
            ("IOSurfaceHeight", 1),
            ("IOSurfaceBytesPerElement", 1),
            ("IOSurfacePixelFormat", 0),
        ];
        if size > GLOBAL {
            properties.push(("IOSurfaceIsGlobal", 1));
        }
        let entries = properties.into_iter().map(|(key, value)| Ok((key, number(value)?.object().clone())));
        let properties = map(entries.collect::<Result<Vec<_>>>()?)?;
        // SAFETY: the argument is a dictionary that is only read.
        let surface = unsafe { (functions.create)(properties.object().as_ptr()) };
        let surface = NonNull::new(surface.cast::<IoSurface>()).ok_or_else(none)?;
        let owned = Arc::new(Owned { functions, surface });
        let raw = surface.as_ptr().cast();
        // SAFETY: `raw` is a live surface, owned by `owned`.
        let (base, have) = unsafe { ((functions.base_address)(raw), (functions.alloc_size)(raw)) };
        let base = NonNull::new(base.cast::<u8>()).filter(|_| have >= size);
        let base =
            base.ok_or_else(|| Error::new(ErrorKind::System, format!("a surface of {size} bytes came out smaller")))?;
        // SAFETY: `base` is the address of `have` bytes that the system zeroed; it is fixed while
        // the surface lives, and `owned` keeps it alive. Only this memory hands out guards for the
        // bytes, and the engine accesses them only while a request holds the guards.
        let bytes = unsafe { SharedBytes::from_raw(base, have, owned.clone()) };
        Ok(SurfaceMemory { owned, bytes })
    }
}

impl Memory for SurfaceMemory {
    fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    fn foreign(&self) -> Foreign {
        Foreign::IoSurface(self.owned.surface.as_ptr() as usize)
    }

    fn begin_cpu(&self, write: bool) -> Result<()> {
        let options = if write { 0 } else { READ_ONLY };
        // SAFETY: the surface is alive; a null pointer requests no seed.
        match unsafe { (self.owned.functions.lock)(self.owned.surface.as_ptr().cast(), options, std::ptr::null_mut()) }
        {
            0 => Ok(()),
            code => Err(Error::from_raw("IOReturn", i64::from(code), "IOSurfaceLock")),
        }
    }

    fn end_cpu(&self, write: bool) {
        let options = if write { 0 } else { READ_ONLY };
        // SAFETY: the surface is alive. A failure to unlock is ignored: the bytes are written in
        // any case.
        unsafe {
            (self.owned.functions.unlock)(self.owned.surface.as_ptr().cast(), options, std::ptr::null_mut());
        }
    }
}

/// The surface of a foreign handle, if it is one.
pub(crate) fn behind(foreign: Foreign) -> Option<NonNull<IoSurface>> {
    match foreign {
        Foreign::IoSurface(address) => NonNull::new(address as *mut IoSurface),
        _ => None,
    }
}
