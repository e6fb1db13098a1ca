//! Surfaces: memory shared with a machine, with a layout and an access state.
//!
//! The access state lives in the memory itself ([`SharedBytes`]): idle, n readers, or one writer. A
//! request in flight holds the same guards as a reader on the CPU does, so a surface that the
//! machine writes cannot be read half-written.

use std::fmt;
use std::sync::Arc;

use ferrane_host::buffer::{ReadGuard, SharedBytes, WriteGuard};
use ferrane_host::f16;
use ferrane_mil::DataType;

use crate::{Error, ErrorKind, Layout, Result, Tensor};

/// The handle of a backend's memory or event in the underlying system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// Plain memory of this process, without a handle.
    Heap,
    /// An `IOSurfaceRef`, as an address.
    IoSurface(usize),
    /// A kernel buffer object.
    BufferObject(u64),
    /// A shared event (`MTLSharedEvent`, `IOSurfaceSharedEvent`), as an address.
    SharedEvent(usize),
}

/// Memory that a backend allocated.
pub trait Memory: Send + Sync {
    /// The bytes, with their access state.
    fn bytes(&self) -> &SharedBytes;
    /// The handle in the underlying system.
    fn foreign(&self) -> Foreign {
        Foreign::Heap
    }
    /// Called before the CPU accesses the bytes (locks of IOSurface).
    ///
    /// # Errors
    /// The system refused the lock.
    fn begin_cpu(&self, _write: bool) -> Result<()> {
        Ok(())
    }
    /// Called after the CPU accessed the bytes.
    fn end_cpu(&self, _write: bool) {}
}

/// Memory with a layout. Clones share the memory.
#[derive(Clone)]
pub struct Surface {
    memory: Arc<dyn Memory>,
    layout: Arc<Layout>,
}

impl fmt::Debug for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surface").field("layout", &self.layout).field("foreign", &self.memory.foreign()).finish()
    }
}

impl Surface {
    /// Joins memory and layout.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the layout is invalid ([`Layout::check`]) or the memory is smaller
    /// than its span.
    pub fn new(memory: Arc<dyn Memory>, layout: Layout) -> Result<Surface> {
        layout.check()?;
        if memory.bytes().len() < layout.span() {
            let (have, need) = (memory.bytes().len(), layout.span());
            return Err(Error::new(
                ErrorKind::Layout,
                format!("memory of {have} bytes for a layout that spans {need}"),
            ));
        }
        Ok(Surface { memory, layout: Arc::new(layout) })
    }

    /// The layout of the elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory, shared between clones.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// True if both share memory.
    pub fn same_memory(&self, other: &Surface) -> bool {
        self.memory.bytes().same(other.memory.bytes())
    }

    /// Acquires read access for the CPU.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while there is a writer.
    pub fn read(&self) -> Result<ReadAccess> {
        let guard = self.memory.bytes().try_read().ok_or_else(|| Error::busy("read", "written"))?;
        self.memory.begin_cpu(false)?;
        Ok(ReadAccess { guard, surface: self.clone() })
    }

    /// Acquires write access for the CPU.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while there is a reader or a writer.
    pub fn write(&self) -> Result<WriteAccess> {
        let guard = self.memory.bytes().try_write().ok_or_else(|| Error::busy("written", "in use"))?;
        self.memory.begin_cpu(true)?;
        Ok(WriteAccess { guard, surface: self.clone() })
    }

    /// Writes a tensor of the surface's element type and number of elements.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for another type or number of elements, [`ErrorKind::Busy`].
    pub fn write_tensor(&self, tensor: &Tensor) -> Result<()> {
        let layout = &*self.layout;
        if layout.dtype != tensor.dtype() || layout.elements() != tensor.len() {
            let message =
                format!("{} {:?} for a surface of {} {:?}", tensor.dtype(), tensor.shape(), layout.dtype, layout.shape);
            return Err(Error::new(ErrorKind::Binding, message));
        }
        let mut access = self.write()?;
        layout.unpack(tensor.bytes(), access.bytes_mut()).ok_or_else(|| small(layout))
    }

    /// Reads the elements as a tensor, without padding.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while it is being written.
    pub fn read_tensor(&self) -> Result<Tensor> {
        let layout = &*self.layout;
        let access = self.read()?;
        let packed = layout.pack(access.bytes()).ok_or_else(|| small(layout))?;
        Tensor::new(layout.dtype, layout.shape.clone(), packed)
    }

    /// Writes an fp16 or fp32 surface from fp32 values in row-major order, rounding to nearest
    /// even.
    ///
    /// # Errors
    /// Wrong number of values or element type ([`ErrorKind::Layout`]), or busy.
    pub fn write_f32(&self, values: &[f32]) -> Result<()> {
        let layout = &*self.layout;
        if layout.elements() != values.len() {
            let message = format!("{} values for a surface of {}", values.len(), layout.elements());
            return Err(Error::new(ErrorKind::Layout, message));
        }
        self.floats("written from fp32")?;
        self.write_tensor(&Tensor::from_f32(layout.dtype, &layout.shape, values)?)
    }

    /// The elements of an fp16 or fp32 surface as fp32, row-major.
    ///
    /// # Errors
    /// Other element types ([`ErrorKind::Layout`]), or busy.
    pub fn read_f32(&self) -> Result<Vec<f32>> {
        self.floats("read as fp32")?;
        Ok(self.read_tensor()?.to_f32())
    }

    fn floats(&self, how: &str) -> Result<()> {
        match self.layout.dtype {
            DataType::Fp16 | DataType::Fp32 => Ok(()),
            other => Err(Error::new(ErrorKind::Layout, format!("a surface of {other} cannot be {how}"))),
        }
    }
}

/// The error for memory that is smaller than the span of a layout; surfaces cannot be created with
/// it.
fn small(layout: &Layout) -> Error {
    Error::new(ErrorKind::Layout, format!("the memory is smaller than {} {:?}", layout.dtype, layout.shape))
}

/// Read access of the CPU to a surface.
pub struct ReadAccess {
    guard: ReadGuard,
    surface: Surface,
}

impl ReadAccess {
    /// The layout of the elements.
    pub fn layout(&self) -> &Layout {
        &self.surface.layout
    }

    /// All bytes of the memory.
    pub fn bytes(&self) -> &[u8] {
        &self.guard
    }

    /// The bytes of the `i`-th row, with all axes except the last flattened; `None` past the end.
    pub fn row(&self, i: usize) -> Option<&[u8]> {
        let range = self.surface.layout.row(i)?;
        self.guard.get(range)
    }

    /// All fp16 words of the memory; strides of the layout divided by 2 are indices.
    pub fn f16s(&self) -> &[f16] {
        let bytes: &[u8] = &self.guard;
        bytemuck::cast_slice(&bytes[..bytes.len() & !1])
    }
}

impl Drop for ReadAccess {
    fn drop(&mut self) {
        self.surface.memory.end_cpu(false);
    }
}

/// Write access of the CPU to a surface.
pub struct WriteAccess {
    guard: WriteGuard,
    surface: Surface,
}

impl WriteAccess {
    /// The layout of the elements.
    pub fn layout(&self) -> &Layout {
        &self.surface.layout
    }

    /// All bytes of the memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.guard
    }

    /// The bytes of the `i`-th row, with all axes except the last flattened; `None` past the end.
    pub fn row_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        let range = self.surface.layout.row(i)?;
        self.guard.get_mut(range)
    }

    /// All fp16 words of the memory; strides of the layout divided by 2 are indices.
    pub fn f16s_mut(&mut self) -> &mut [f16] {
        let bytes: &mut [u8] = &mut self.guard;
        let even = bytes.len() & !1;
        bytemuck::cast_slice_mut(&mut bytes[..even])
    }
}

impl Drop for WriteAccess {
    fn drop(&mut self) {
        self.surface.memory.end_cpu(true);
    }
}
