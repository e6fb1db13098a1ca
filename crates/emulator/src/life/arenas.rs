//! Memory for intermediate values.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::buffer::AlignedBuf;
use ferrane_host::sync::lock;

/// Memory for intermediate values, shared by the programs of a device: there are as many arenas as
/// evaluations that ran at the same time, each as large as the largest evaluation that used it.
#[derive(Default)]
pub(crate) struct Arenas {
    /// The arenas that no evaluation uses now.
    free: Mutex<Vec<AlignedBuf>>,
    bytes: AtomicUsize,
}

impl Arenas {
    pub(super) fn take(&self, bytes: usize) -> Result<AlignedBuf> {
        let mut arena = lock(&self.free).pop().unwrap_or_default();
        let before = arena.len();
        let grown = arena.grow(bytes);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
        self.bytes.fetch_add(arena.len(), Ordering::Relaxed);
        grown.map_err(|e| Error::new(ErrorKind::OutOfMemory, e.to_string()))?;
        Ok(arena)
    }

    pub(super) fn give(&self, arena: AlignedBuf) {
        lock(&self.free).push(arena);
    }

    /// Frees the arenas that no evaluation uses now.
    pub(super) fn clear(&self) {
        let free = std::mem::take(&mut *lock(&self.free));
        self.bytes.fetch_sub(free.iter().map(|a| a.len()).sum(), Ordering::Relaxed);
    }

    /// Bytes of all arenas.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
