//! Surfaces: the layout of tensors in memory.
//!
//! Rows and channel planes begin at multiples of 64 bytes, and batches follow each other (spec:
//! hwx.md 3, verified on the tensors of all samples). Strides in a file take precedence:
//! [`SurfaceLayout::of_tensor`] uses them. [`SurfaceLayout::tile`] writes a dense tensor into a
//! surface, [`SurfaceLayout::untile`] reads it back.
//!
//! With an interleave of N, a plane holds N channels whose elements are adjacent at each column. No
//! sample has such a tensor; one has a task that writes memory in this layout, and kernels read
//! from there have it too (docs/hwx.md).

use crate::container::TensorView;
use crate::error::{Error, Result};

/// Alignment of rows and planes in bytes.
pub const ALIGN: u64 = 64;
/// The size of a buffer is a multiple of this many bytes.
pub const PAGE: u64 = 0x4000;

/// The position of each element of a tensor `[N, C, H, W]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurfaceLayout {
    /// The shape `[N, C, H, W]`.
    pub nchw: [u32; 4],
    /// The size of an element in bytes.
    pub element: u64,
    /// The number of channels that are interleaved in a plane.
    pub interleave: u32,
    /// Bytes from row to row.
    pub row: u64,
    /// Bytes from plane to plane.
    pub plane: u64,
    /// Bytes from batch to batch.
    pub batch: u64,
}

impl SurfaceLayout {
    /// The compiler's layout of an fp16 tensor.
    ///
    /// # Errors
    /// E0705 if the size exceeds the address space.
    pub fn fp16(nchw: [u32; 4]) -> Result<SurfaceLayout> {
        let [_, c, h, w] = nchw.map(u64::from);
        let align = |n: u64| n.checked_next_multiple_of(ALIGN);
        let row = align(2 * w);
        let plane = row.and_then(|row| align(row.checked_mul(h)?));
        let batch = plane.and_then(|plane| plane.checked_mul(c));
        let (Some(row), Some(plane), Some(batch)) = (row, plane, batch) else {
            return Err(too_large(nchw));
        };
        SurfaceLayout { nchw, element: 2, interleave: 1, row, plane, batch }.checked()
    }

    /// The layout of a program's tensor.
    ///
    /// # Errors
    /// E0705 if its strides are invalid, or if it has a depth, whose layout is not established.
    pub fn of_tensor(tensor: &TensorView) -> Result<SurfaceLayout> {
        let [n, c, h, w, d] = tensor.nchwd;
        if d > 1 {
            let message = format!("{}: depth {d}: how such a tensor lies is not established", tensor.name);
            return Err(Error::kernel(None, message));
        }
        SurfaceLayout {
            nchw: [n, c, h, w],
            element: tensor.element_size,
            interleave: tensor.interleave.max(1),
            row: tensor.row_stride,
            plane: tensor.plane_stride,
            batch: tensor.batch_stride,
        }
        .checked()
    }

    /// Checks that rows, planes and batches do not overlap and that the size does not overflow.
    fn checked(self) -> Result<SurfaceLayout> {
        let [n, c, h, w] = self.nchw.map(u64::from);
        let fits = |count: u64, inner: u64, outer: u64| count.checked_mul(inner).is_some_and(|bytes| bytes <= outer);
        let column = self.element.checked_mul(self.interleave.into());
        let nested = column.is_some_and(|column| fits(w, column, self.row))
            && fits(h, self.row, self.plane)
            && fits(c.div_ceil(u64::from(self.interleave.max(1))), self.plane, self.batch)
            && fits(n, self.batch, isize::MAX as u64);
        if [n, c, h, w].contains(&0) || self.element == 0 || self.interleave == 0 || !nested {
            let strides = format!("row {:#x}, plane {:#x}, batch {:#x}", self.row, self.plane, self.batch);
            let shape = format!("{:?} of {} bytes, interleave {}", self.nchw, self.element, self.interleave);
            return Err(Error::kernel(None, format!("a tensor {shape} cannot lie in strides of {strides}")));
        }
        Ok(self)
    }

    /// The size in bytes, including padding.
    pub fn bytes(&self) -> u64 {
        u64::from(self.nchw[0]) * self.batch
    }

    /// The size of a buffer for it, in bytes: whole pages.
    pub fn buffer_bytes(&self) -> u64 {
        self.bytes().next_multiple_of(PAGE)
    }

    /// The size of its elements without padding, in bytes.
    pub fn dense_bytes(&self) -> u64 {
        self.nchw.iter().fold(self.element, |bytes, n| bytes * u64::from(*n))
    }

    /// The offset of each row of each channel, and the size of a dense row in bytes.
    fn rows(&self) -> (impl Iterator<Item = usize>, usize) {
        let SurfaceLayout { nchw: [n, c, h, w], element, interleave, row, plane, batch } = *self;
        let side = u64::from(interleave);
        let rows = (0..u64::from(n)).flat_map(move |n| {
            (0..u64::from(c)).flat_map(move |c| {
                let channel = n * batch + c / side * plane + c % side * element;
                (0..u64::from(h)).map(move |h| (channel + h * row) as usize)
            })
        });
        (rows, (u64::from(w) * element) as usize)
    }

    /// The size of an element, and the distance between columns, in bytes.
    fn columns(&self) -> (usize, usize) {
        (self.element as usize, (self.element * u64::from(self.interleave)) as usize)
    }

    fn check(&self, what: &str, found: usize, wanted: u64) -> Result<()> {
        if found as u64 >= wanted {
            return Ok(());
        }
        let message = format!("{what} of {found:#x} bytes; a tensor {:?} has {wanted:#x}", self.nchw);
        Err(Error::kernel(None, message))
    }

    /// Writes a dense row-major tensor into a surface and fills the padding with zeros.
    ///
    /// # Errors
    /// E0705 if a length does not match the layout.
    pub fn tile(&self, dense: &[u8], surface: &mut [u8]) -> Result<()> {
        self.check("a dense tensor", dense.len(), self.dense_bytes())?;
        self.check("a surface", surface.len(), self.bytes())?;
        surface.fill(0);
        let ((rows, width), (element, column)) = (self.rows(), self.columns());
        for (at, row) in rows.zip(dense.chunks_exact(width)) {
            if element == column {
                surface[at..at + width].copy_from_slice(row);
                continue;
            }
            for (at, value) in (at..).step_by(column).zip(row.chunks_exact(element)) {
                surface[at..at + element].copy_from_slice(value);
            }
        }
        Ok(())
    }

    /// Reads a dense row-major tensor from a surface.
    ///
    /// # Errors
    /// E0705 if the length does not match the layout.
    pub fn untile(&self, surface: &[u8]) -> Result<Vec<u8>> {
        self.check("a surface", surface.len(), self.bytes())?;
        let ((rows, width), (element, column)) = (self.rows(), self.columns());
        let mut dense = Vec::with_capacity(self.dense_bytes() as usize);
        for at in rows {
            if element == column {
                dense.extend_from_slice(&surface[at..at + width]);
                continue;
            }
            for at in (at..).step_by(column).take(width / element) {
                dense.extend_from_slice(&surface[at..at + element]);
            }
        }
        Ok(dense)
    }
}

fn too_large(nchw: [u32; 4]) -> Error {
    Error::kernel(None, format!("a tensor {nchw:?} has more bytes than there are addresses"))
}
