//! Read-only mapped files: weights, token streams, packages.
//!
//! A [`Mapped`] is cheap to clone and keeps the mapping alive. Bytes are reached as `&[u8]`, or as
//! a checked typed view of a byte range.
//!
//! Invariant: no process writes to or truncates the file while it is mapped. Ferrane's own writers
//! write under a temporary name and rename, so their files never change in place. For files of
//! other programs the caller guarantees it; it cannot be checked here.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// A read-only mapping of a file, or a part of one. Clones share it.
#[derive(Clone, Debug)]
pub struct Mapped {
    map: Arc<Mmap>,
    /// Inside of the mapping.
    range: Range<usize>,
}

/// Why a typed view of mapped bytes was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The range does not lie inside the bytes.
    #[error("{count} elements of {size} bytes at byte {offset} do not fit into {len} bytes")]
    OutOfBounds {
        /// First byte of the range.
        offset: usize,
        /// Number of requested elements.
        count: usize,
        /// Size of one element in bytes.
        size: usize,
        /// Length of the mapped bytes.
        len: usize,
    },
    /// The range does not start at a multiple of the element's alignment.
    #[error("byte {offset} is not aligned to {align}")]
    Misaligned {
        /// First byte of the range.
        offset: usize,
        /// Alignment of the element type.
        align: usize,
    },
}

impl Mapped {
    /// Maps the file at `path`. An empty file gives zero bytes. The caller guarantees that no
    /// process changes the file in place while it is mapped: if the file shrinks, reading the
    /// missing part ends the process.
    ///
    /// # Errors
    /// Whatever the system reports on opening or mapping; a directory is an error.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only, and nothing hands out a mutable view of it.
        // That the file does not change underneath is the contract in the module documentation: our
        // writers replace mapped files by renaming, and a caller that opens a file of another
        // program guarantees it for that file.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { range: 0..map.len(), map: Arc::new(map) })
    }

    /// A part of it, which shares the mapping; `None` if the range does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start + range.start;
        Some(Self { map: self.map.clone(), range: start..start + range.len() })
    }

    /// Releases the memory that holds these bytes, and the rest of the pages that they are on. They
    /// are read from the file again when they are next used. Without effect where the system has no
    /// such call.
    pub fn release(&self) {
        #[cfg(unix)]
        // SAFETY: pages of a private read-only mapping of a file are never changed, so the system
        // drops only copies of what the file holds; a slice into them reads the same bytes
        // afterwards. A refusal by the system leaves the pages in memory.
        let _ = unsafe {
            use memmap2::UncheckedAdvice;
            self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, self.range.start, self.range.len())
        };
    }

    /// `count` elements of `T` starting at byte `offset`.
    ///
    /// # Errors
    /// [`ViewError`] if the range is not inside the file or not aligned for `T`.
    pub fn view<T: Pod>(&self, offset: usize, count: usize) -> Result<&[T], ViewError> {
        view(self, offset, count)
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // The range was checked when it was made.
        &self.map[self.range.clone()]
    }
}

/// `count` elements of `T` starting at byte `offset` of `bytes`.
///
/// # Errors
/// [`ViewError`] if the range is not inside `bytes` or not aligned for `T`.
pub fn view<T: Pod>(bytes: &[u8], offset: usize, count: usize) -> Result<&[T], ViewError> {
    let size = size_of::<T>();
    let range = count
        .checked_mul(size)
        .and_then(|n| offset.checked_add(n))
        .and_then(|end| bytes.get(offset..end))
        .ok_or(ViewError::OutOfBounds { offset, count, size, len: bytes.len() })?;
    bytemuck::try_cast_slice(range).map_err(|_| ViewError::Misaligned { offset, align: align_of::<T>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn maps_and_views() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1, 0, 2, 0, 3, 0, 0]).unwrap();
        let map = Mapped::open(file.path()).unwrap();
        assert_eq!(map.len(), 7);
        assert_eq!(map.view::<u16>(0, 3).unwrap(), &[1u16.to_le(), 2u16.to_le(), 3u16.to_le()]);
        assert_eq!(map.view::<u16>(2, 0).unwrap(), &[] as &[u16]);
        assert!(matches!(map.view::<u16>(2, 3), Err(ViewError::OutOfBounds { .. })));
        assert!(matches!(map.view::<u16>(1, 2), Err(ViewError::Misaligned { offset: 1, align: 2 })));
        assert!(matches!(map.view::<u32>(4, usize::MAX / 2), Err(ViewError::OutOfBounds { .. })));
        let other = map.clone();
        let part = map.slice(2..5).and_then(|p| p.slice(1..3)).unwrap();
        assert!(map.slice(2..8).is_none() && map.slice(1..6).unwrap().slice(0..6).is_none());
        drop(map);
        assert_eq!((other[4], &part[..]), (3, &[0u8, 3][..]));
    }

    #[test]
    fn released_bytes_are_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..300_000u32).map(|i| ((i * 7919) >> 5) as u8).collect();
        file.write_all(&bytes).unwrap();
        let map = Mapped::open(file.path()).unwrap();
        assert_eq!(map[..], bytes);
        map.slice(5000..250_001).unwrap().release();
        map.slice(7..7).unwrap().release();
        assert_eq!(map[..], bytes);
        map.release();
        assert_eq!(map[..], bytes);
    }

    /// The resident bytes of the mapping of a file. Emulators of other processors do not count
    /// them.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn resident(file: &Path) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_file = maps.lines().skip_while(|line| !line.ends_with(file.to_str().unwrap()));
        let line = of_file.clone().find(|line| line.starts_with("Rss:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn released_bytes_take_no_memory() {
        const SIZE: usize = 4 << 20;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![3; SIZE]).unwrap();
        let map = Mapped::open(file.path()).unwrap();
        assert!(map.iter().all(|&b| b == 3));
        assert_eq!(resident(file.path()), SIZE);
        map.slice(SIZE / 2..SIZE).unwrap().release();
        assert_eq!(resident(file.path()), SIZE / 2);
        map.release();
        assert_eq!(resident(file.path()), 0);
    }

    #[test]
    fn empty_and_missing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let map = Mapped::open(file.path()).unwrap();
        map.release();
        assert!(map.is_empty());
        assert_eq!(Mapped::open("/no/such/file").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
