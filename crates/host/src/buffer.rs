//! Byte buffers: shared ones with a run-time access state, and plain aligned ones.
//!
//! [`SharedBytes`] is the memory of a surface: several owners, aligned to 128 bytes, zeroed. One
//! atomic word decides at run time who may access it: idle, *n* readers, or one writer. Access is
//! by guard; a guard shares ownership of the memory, so it has no lifetime and can travel in a
//! request to another thread. Taking a guard allocates nothing.
//!
//! [`AlignedBuf`] is owned memory for arenas and scratch.
//!
//! Invariant: a `&mut [u8]` exists only inside the one [`WriteGuard`], a `&[u8]` only inside
//! [`ReadGuard`]s, and the state word is changed by the guards alone.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, PodCastError};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, Ordering};
use memmap2::MmapMut;

/// Alignment of every buffer in bytes: two cache lines, at least the width of the widest vector
/// load.
pub const ALIGN: usize = 128;

/// The size of a huge page, and the least size of a buffer that asks for them.
const HUGE_PAGE: usize = 2 << 20;

/// Unused bytes from which a buffer comes from the system, too: the allocator writes its zeros.
const PADDING: usize = 64 << 10;

/// State word of a buffer with a writer; any smaller value counts readers.
const WRITER: u32 = u32::MAX;

/// The memory could not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate {len} bytes")]
pub struct AllocError {
    /// Requested size in bytes; `usize::MAX` if the size overflowed.
    pub len: usize,
}

/// Who has access to a buffer at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No guard exists: any guard can be taken.
    Idle,
    /// Number of read guards that exist.
    Readers(u32),
    /// A write guard exists.
    Writer,
}

/// Zeroed memory of a fixed size, freed on drop.
///
/// Large memory on Linux comes from the system, which zeroes a page when it is first touched. So
/// what is never touched, such as the padding of a surface, takes no memory, and the threads that
/// fill a buffer share the work.
struct HeapBytes {
    ptr: NonNull<u8>,
    owner: HeapOwner,
}

/// Where the memory comes from.
enum HeapOwner {
    /// The allocator, with this layout.
    Allocator(Layout),
    /// A mapping without a file, held only to be dropped.
    System { _map: MmapMut },
}

// SAFETY: `HeapBytes` is the sole owner of plain bytes; it has no thread affinity and gives no
// access by itself.
unsafe impl Send for HeapBytes {}
// SAFETY: as above; `&HeapBytes` allows nothing but reading the pointer.
unsafe impl Sync for HeapBytes {}

impl HeapBytes {
    /// `len` bytes, of which only the first `used` will be touched.
    fn zeroed(len: usize, used: usize) -> Result<Self, AllocError> {
        let failed = AllocError { len };
        // At least one line, and whole lines, so that a zero-length buffer needs no special case.
        let size = len.max(1).checked_next_multiple_of(ALIGN).ok_or(failed)?;
        if cfg!(target_os = "linux") && (len >= HUGE_PAGE || len.saturating_sub(used) >= PADDING) {
            // A mapping begins with a page, so there is room for the alignment to a huge one.
            let mut map = MmapMut::map_anon(size.checked_add(HUGE_PAGE).ok_or(failed)?).map_err(|_| failed)?;
            let start = map.as_ptr().align_offset(HUGE_PAGE);
            let bytes = map.get_mut(start..start.saturating_add(size)).ok_or(failed)?;
            let ptr = NonNull::from(bytes).cast();
            // Before the first write, which decides on the pages.
            advise_huge_pages(ptr, used.min(size));
            return Ok(Self { ptr, owner: HeapOwner::System { _map: map } });
        }
        let layout = Layout::from_size_align(size, ALIGN).map_err(|_| failed)?;
        // SAFETY: the layout's size is at least `ALIGN`, so not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        Ok(Self { ptr: NonNull::new(ptr).ok_or(failed)?, owner: HeapOwner::Allocator(layout) })
    }
}

/// Asks for huge pages, which many systems give only to memory that asks for them. A network reads
/// and writes tens of megabytes in each evaluation, more than the TLB covers with small pages. The
/// part of a huge page at the end stays as it is, so that no more becomes resident than is used.
#[cfg(target_os = "linux")]
fn advise_huge_pages(ptr: NonNull<u8>, len: usize) {
    // SAFETY: the pages are part of one mapping, and the advice changes no contents. An error means
    // that the kernel has no huge pages, which costs nothing but time.
    unsafe { libc::madvise(ptr.as_ptr().cast(), len / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}

impl Drop for HeapBytes {
    fn drop(&mut self) {
        if let HeapOwner::Allocator(layout) = self.owner {
            // SAFETY: `ptr` came from the allocator with this very layout and is freed once, here.
            unsafe { dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}

/// What keeps the bytes of a [`SharedBytes`] alive. Held only to be dropped.
enum Owner {
    Heap { _memory: HeapBytes },
    Foreign { _owner: Arc<dyn Any + Send + Sync> },
}

struct SharedInner {
    ptr: NonNull<u8>,
    len: usize,
    state: AtomicU32,
    _owner: Owner,
}

// SAFETY: the bytes are reached only through guards, which the atomic state makes exclusive
// (writer) or shared (readers); the owner is `Send + Sync` itself.
unsafe impl Send for SharedInner {}
// SAFETY: as above.
unsafe impl Sync for SharedInner {}

/// Shared bytes with a run-time access state. Clones are the same memory.
#[derive(Clone)]
pub struct SharedBytes {
    shared: Arc<SharedInner>,
}

impl SharedBytes {
    /// `len` zero bytes, aligned to [`ALIGN`].
    ///
    /// # Errors
    /// [`AllocError`] if the memory cannot be allocated.
    pub fn new(len: usize) -> Result<Self, AllocError> {
        Self::padded(len, len)
    }

    /// As [`SharedBytes::new`], of which only the first `used` bytes will be touched. The others
    /// take no memory on systems that allocate it page by page.
    ///
    /// # Errors
    /// As [`SharedBytes::new`].
    pub fn padded(len: usize, used: usize) -> Result<Self, AllocError> {
        let memory = HeapBytes::zeroed(len, used)?;
        let shared =
            SharedInner { ptr: memory.ptr, len, state: AtomicU32::new(0), _owner: Owner::Heap { _memory: memory } };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Bytes that something else owns, such as a locked `IOSurface`.
    ///
    /// # Safety
    /// - `ptr` is valid for reads and writes of `len` bytes, all initialized, for as long as
    ///   `owner` lives, and from any thread; `len` is at most `isize::MAX`.
    /// - While a guard of this buffer exists, nothing else writes the bytes, and while a
    ///   [`WriteGuard`] exists, nothing else reads them. (A device that fills the surface does so
    ///   while its request holds the guard and does not use the guard's slice.)
    /// - No other `SharedBytes` (but clones of this one) covers any of these bytes.
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        let shared = SharedInner { ptr, len, state: AtomicU32::new(0), _owner: Owner::Foreign { _owner: owner } };
        Self { shared: Arc::new(shared) }
    }

    /// Length in bytes; fixed for the life of the buffer.
    pub fn len(&self) -> usize {
        self.shared.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte, for a system call or device that takes addresses. It may access
    /// the bytes only while a guard exists that allows it.
    pub fn address(&self) -> NonNull<u8> {
        self.shared.ptr
    }

    /// The access state at this moment. Another thread may change it immediately.
    pub fn state(&self) -> Access {
        match self.shared.state.load(Ordering::Relaxed) {
            0 => Access::Idle,
            WRITER => Access::Writer,
            n => Access::Readers(n),
        }
    }

    /// Whether both are the same memory.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Shared access, or `None` while there is a writer.
    pub fn try_read(&self) -> Option<ReadGuard> {
        self.shared
            .state
            // Acquire pairs with the Release of a writer's drop: its bytes are visible to us.
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| (n < WRITER - 1).then(|| n + 1))
            .ok()
            .map(|_| ReadGuard { shared: Arc::clone(&self.shared) })
    }

    /// Sole access, or `None` while there is any reader or writer.
    pub fn try_write(&self) -> Option<WriteGuard> {
        self.shared
            .state
            // Acquire pairs with the Release of the last guard's drop: its reads and writes are
            // over.
            .compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| WriteGuard { shared: Arc::clone(&self.shared) })
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBytes").field("len", &self.len()).field("state", &self.state()).finish()
    }
}

/// Shared access to the bytes of a [`SharedBytes`], released on drop.
#[derive(Debug)]
pub struct ReadGuard {
    shared: Arc<SharedInner>,
}

/// Sole access to the bytes of a [`SharedBytes`], released on drop.
#[derive(Debug)]
pub struct WriteGuard {
    shared: Arc<SharedInner>,
}

impl fmt::Debug for SharedInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInner").field("len", &self.len).finish_non_exhaustive()
    }
}

impl ReadGuard {
    /// The bytes as elements of `T`.
    ///
    /// # Errors
    /// If the length is no multiple of `T`'s size (or foreign memory is not aligned for `T`).
    pub fn as_slice<T: Pod>(&self) -> Result<&[T], PodCastError> {
        bytemuck::try_cast_slice(self)
    }

    /// The buffer this guard belongs to.
    pub fn buffer(&self) -> SharedBytes {
        SharedBytes { shared: Arc::clone(&self.shared) }
    }
}

impl WriteGuard {
    /// The bytes as elements of `T`.
    ///
    /// # Errors
    /// If the length is no multiple of `T`'s size (or foreign memory is not aligned for `T`).
    pub fn as_slice<T: Pod>(&self) -> Result<&[T], PodCastError> {
        bytemuck::try_cast_slice(self)
    }

    /// The bytes as elements of `T`, to be changed.
    ///
    /// # Errors
    /// If the length is no multiple of `T`'s size (or foreign memory is not aligned for `T`).
    pub fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T], PodCastError> {
        bytemuck::try_cast_slice_mut(self)
    }

    /// The buffer this guard belongs to.
    pub fn buffer(&self) -> SharedBytes {
        SharedBytes { shared: Arc::clone(&self.shared) }
    }
}

impl Deref for ReadGuard {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is `len` initialized bytes kept alive by `shared`. While this guard
        // exists the state counts it, so no `WriteGuard` exists and nothing writes.
        unsafe { slice::from_raw_parts(self.shared.ptr.as_ptr(), self.shared.len) }
    }
}

impl Deref for WriteGuard {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is `len` initialized bytes kept alive by `shared`. The state is
        // `WRITER`, so this is the only guard, and `&self` keeps its own mutable slice away.
        unsafe { slice::from_raw_parts(self.shared.ptr.as_ptr(), self.shared.len) }
    }
}

impl DerefMut for WriteGuard {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` of the only guard makes this the only slice.
        unsafe { slice::from_raw_parts_mut(self.shared.ptr.as_ptr(), self.shared.len) }
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.shared.state.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.shared.state.store(0, Ordering::Release);
    }
}

/// Bytes of all [`AlignedBuf`]s of this process.
static ALIGNED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Bytes that all [`AlignedBuf`]s of this process hold now: arenas and scratch.
pub fn aligned_bytes() -> usize {
    ALIGNED.load(std::sync::atomic::Ordering::Relaxed)
}

/// Owned zeroed memory aligned to [`ALIGN`]: arenas and scratch.
pub struct AlignedBuf {
    heap: Option<HeapBytes>,
    len: usize,
}

impl AlignedBuf {
    /// No bytes, nothing allocated.
    pub const fn empty() -> Self {
        Self { heap: None, len: 0 }
    }

    /// `len` zero bytes.
    ///
    /// # Errors
    /// [`AllocError`] if the memory cannot be allocated.
    pub fn new(len: usize) -> Result<Self, AllocError> {
        let heap = Some(HeapBytes::zeroed(len, len)?);
        ALIGNED.fetch_add(len, std::sync::atomic::Ordering::Relaxed);
        Ok(Self { heap, len })
    }

    /// Makes the buffer at least `len` bytes long. Growing drops the old contents and gives zeros;
    /// a buffer that is long enough is left as it is.
    ///
    /// # Errors
    /// [`AllocError`] if the memory cannot be allocated; the buffer is then empty.
    pub fn grow(&mut self, len: usize) -> Result<(), AllocError> {
        if len > self.len {
            // The old memory goes first: an arena that grows must not need both at once.
            *self = Self::empty();
            *self = Self::new(len)?;
        }
        Ok(())
    }

    /// The bytes as elements of `T`.
    ///
    /// # Errors
    /// If the length is no multiple of `T`'s size.
    pub fn as_slice<T: Pod>(&self) -> Result<&[T], PodCastError> {
        bytemuck::try_cast_slice(self)
    }

    /// The bytes as elements of `T`, to be changed.
    ///
    /// # Errors
    /// If the length is no multiple of `T`'s size.
    pub fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T], PodCastError> {
        bytemuck::try_cast_slice_mut(self)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.heap.is_some() {
            ALIGNED.fetch_sub(self.len, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.heap {
            // SAFETY: the heap block has at least `len` bytes, zeroed when allocated, and `self`
            // owns it.
            Some(heap) => unsafe { slice::from_raw_parts(heap.ptr.as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.heap {
            // SAFETY: as in `deref`, and `&mut self` makes this the only slice.
            Some(heap) => unsafe { slice::from_raw_parts_mut(heap.ptr.as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        let bytes = SharedBytes::new(64).unwrap();
        assert_eq!(bytes.state(), Access::Idle);
        let a = bytes.try_read().unwrap();
        let b = bytes.clone().try_read().unwrap();
        assert_eq!(bytes.state(), Access::Readers(2));
        assert!(bytes.try_write().is_none());
        drop(a);
        assert!(bytes.try_write().is_none());
        drop(b);
        let mut w = bytes.try_write().unwrap();
        assert_eq!(bytes.state(), Access::Writer);
        assert!(bytes.try_read().is_none() && bytes.try_write().is_none());
        w.as_mut_slice::<f32>().unwrap()[3] = 2.5;
        drop(w);
        assert_eq!(bytes.state(), Access::Idle);
        assert_eq!(bytes.try_read().unwrap().as_slice::<f32>().unwrap()[3], 2.5);
    }

    #[test]
    fn a_guard_outlives_its_buffer_and_travels() {
        let bytes = SharedBytes::new(8).unwrap();
        let mut guard = bytes.try_write().unwrap();
        drop(bytes);
        std::thread::spawn(move || guard[7] = 9).join().unwrap();
    }

    #[test]
    fn aligned_zeroed_checked() {
        for len in [0, 1, 127, 128, 1000] {
            let bytes = SharedBytes::new(len).unwrap();
            let read = bytes.try_read().unwrap();
            assert_eq!(read.as_ptr() as usize % ALIGN, 0);
            assert!(read.len() == len && read.iter().all(|&b| b == 0));
        }
        // Padding is zeroed, too, and may be touched.
        for (len, used) in [(5 << 20, 1000), (5 << 20, 4 << 20), (100_000, 8), (64, 80)] {
            let bytes = SharedBytes::padded(len, used).unwrap();
            let mut write = bytes.try_write().unwrap();
            let aligned = (write.as_ptr() as usize).is_multiple_of(ALIGN);
            assert!(write.len() == len && aligned && write.iter().all(|&b| b == 0));
            write[len - 1] = 1;
        }
        let odd = SharedBytes::new(7).unwrap();
        assert!(odd.try_read().unwrap().as_slice::<u16>().is_err());
        assert_eq!(SharedBytes::new(usize::MAX).unwrap_err(), AllocError { len: usize::MAX });
        assert!(SharedBytes::new(isize::MAX as usize - 1000).is_err());
    }

    #[test]
    fn foreign_memory_keeps_its_owner() {
        let owner = Arc::new(vec![0u64; 4]);
        let ptr = NonNull::new(owner.as_ptr().cast_mut().cast::<u8>()).unwrap();
        // SAFETY: the vector's 32 bytes live as long as `owner`; the test reads only.
        let bytes = unsafe { SharedBytes::from_raw(ptr, 32, owner.clone()) };
        assert_eq!(Arc::strong_count(&owner), 2);
        let guard = bytes.try_read().unwrap();
        drop(bytes);
        assert_eq!(guard.as_slice::<u64>().unwrap(), &[0; 4]);
        drop(guard);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn one_writer_among_threads() {
        let bytes = SharedBytes::new(8).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < 1000 {
                        if let Some(mut w) = bytes.try_write() {
                            w.as_mut_slice::<u64>().unwrap()[0] += 1;
                            done += 1;
                        } else {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(bytes.try_read().unwrap().as_slice::<u64>().unwrap()[0], 4000);
    }

    #[test]
    fn arena_grows() {
        let mut arena = AlignedBuf::empty();
        assert!(arena.is_empty());
        arena.grow(100).unwrap();
        arena[99] = 1;
        arena.grow(50).unwrap();
        assert_eq!((arena.len(), arena[99]), (100, 1));
        arena.grow(200).unwrap();
        assert!(arena.iter().all(|&b| b == 0));
        assert_eq!(arena.as_mut_slice::<u64>().unwrap().len(), 25);
        assert!(arena.grow(usize::MAX).is_err() && arena.is_empty());
    }
}

/// The access word, run by loom through every order of its steps (CONTRIBUTING.md).
#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::*;

    #[test]
    fn a_writer_is_alone_and_later_guards_see_what_it_wrote() {
        loom::model(|| {
            let bytes = SharedBytes::new(1).unwrap();
            // Stands for the bytes: loom reports an access to it that is not ordered after a write
            // by another thread.
            let cell = Arc::new(UnsafeCell::new(0));
            let write = |bytes: SharedBytes, cell: Arc<UnsafeCell<i32>>| {
                move || {
                    if let Some(guard) = bytes.try_write() {
                        // SAFETY: loom checks this claim, that no other thread has access.
                        cell.with_mut(|value| unsafe { *value += 1 });
                        drop(guard);
                    }
                }
            };
            let reads = {
                let (bytes, cell) = (bytes.clone(), cell.clone());
                move || {
                    if let Some(guard) = bytes.try_read() {
                        // SAFETY: as above, that no thread writes.
                        cell.with(|value| unsafe { assert!((0..=2).contains(&*value)) });
                        drop(guard);
                    }
                }
            };
            let others = [thread::spawn(write(bytes.clone(), cell.clone())), thread::spawn(reads)];
            write(bytes.clone(), cell)();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(bytes.state(), Access::Idle);
        });
    }
}
