//! Memory in IOSurfaces.
//!
//! A surface is a flat byte buffer (apple-runtime §7). It is locked while the CPU looks at it, and the access state of the seam
//! keeps the CPU away while a request has it.

use std::ptr::NonNull;
use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Foreign, Layout, Memory, Result};
use ferrane_host::buffer::SharedBytes;

use crate::framework::Framework;
use crate::framework::iosurface::IoSurface;

/// One counted reference to a surface.
struct Owned {
    framework: Arc<Framework>,
    surface: NonNull<IoSurface>,
}

// SAFETY: IOSurface's functions may be called from any thread, and the reference is given back once.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        self.framework.surfaces.release(self.surface);
    }
}

/// The memory of a seam surface.
pub(crate) struct SurfaceMemory {
    owned: Arc<Owned>,
    bytes: SharedBytes,
}

impl SurfaceMemory {
    pub(crate) fn new(framework: &Arc<Framework>, layout: &Layout) -> Result<SurfaceMemory> {
        // There is no surface without bytes.
        let size = layout.allocation.max(1);
        let foundation = &framework.foundation;
        let properties = framework.surfaces.properties(size as u64);
        let keys: Vec<_> = properties.iter().map(|(key, _)| (*key).clone()).collect();
        let values = properties.iter().map(|(_, value)| foundation.number(*value)).collect::<Result<Vec<_>>>()?;
        let surface = framework.surfaces.create(&foundation.dictionary(&keys, &values)?)?;
        let owned = Arc::new(Owned { framework: framework.clone(), surface });
        let (base, have) = framework
            .surfaces
            .bytes(surface)
            .filter(|(_, have)| *have >= size)
            .ok_or_else(|| Error::new(ErrorKind::System, format!("a surface of {size} bytes came out smaller")))?;
        // SAFETY: the base address of a surface is fixed while it lives, which `owned` sees to; the bytes are zeroed by the
        // system. Only this memory hands out guards for them, and the engine touches them only while a request holds the guards.
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
        self.owned.framework.surfaces.lock(self.owned.surface, write)
    }

    fn end_cpu(&self, write: bool) {
        self.owned.framework.surfaces.unlock(self.owned.surface, write);
    }
}
