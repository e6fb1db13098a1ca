//! Strided views of matrices: a slice, a shape, and two strides, checked once.
//!
//! The element with the lowest address is the first of the slice; for a view elsewhere, slice
//! first. With a negative stride, element (0, 0) is therefore not the first of the slice but the
//! one from which the strides descend to it. A stride of 0 repeats a row or column; outputs may not
//! have one.

use std::fmt;

use super::error::GemmError;

/// Shape and strides of a view. With a negative stride, element (0, 0) is not the lowest in memory;
/// `origin` is where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub rows: usize,
    pub cols: usize,
    pub row_stride: isize,
    pub col_stride: isize,
}

/// A read-only matrix of `rows` × `cols` elements of `T`. Strides are in elements.
pub struct View<'a, T> {
    data: &'a [T],
    grid: Grid,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

/// A matrix of `rows` × `cols` elements of `T` to be written; no two positions are the same
/// element.
pub struct ViewMut<'a, T> {
    data: &'a mut [T],
    grid: Grid,
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shape only: the data may be millions of elements.
        f.debug_tuple("View").field(&self.grid).finish()
    }
}

impl<T> fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ViewMut").field(&self.grid).finish()
    }
}

impl<'a, T> View<'a, T> {
    /// A view with the given strides.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if an element lies outside `data`.
    pub fn new(
        data: &'a [T],
        rows: usize,
        cols: usize,
        row_stride: isize,
        col_stride: isize,
    ) -> Result<Self, GemmError> {
        let grid = Grid { rows, cols, row_stride, col_stride };
        grid.check(data.len(), 0)?;
        Ok(Self { data, grid })
    }

    /// A dense row-major matrix: element (r, c) at `r * cols + c`.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if `data` is too short.
    pub fn row_major(data: &'a [T], rows: usize, cols: usize) -> Result<Self, GemmError> {
        Self::new(data, rows, cols, cols as isize, 1)
    }

    /// The transposed view of the same data.
    pub fn t(self) -> Self {
        Self { data: self.data, grid: self.grid.t() }
    }

    /// Rows of the matrix, 0 or more.
    pub fn rows(&self) -> usize {
        self.grid.rows
    }

    /// Columns of the matrix, 0 or more.
    pub fn cols(&self) -> usize {
        self.grid.cols
    }

    pub(super) fn grid(&self) -> Grid {
        self.grid
    }

    pub(super) fn data(&self) -> &'a [T] {
        self.data
    }

    pub(super) fn check(&self, offset: usize) -> Result<(), GemmError> {
        self.grid.check(self.data.len(), offset)
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// A view with the given strides.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if an element lies outside `data`; [`GemmError::Overlap`] unless
    /// the stride of one dimension is larger than the extent of the whole other dimension.
    pub fn new(
        data: &'a mut [T],
        rows: usize,
        cols: usize,
        row_stride: isize,
        col_stride: isize,
    ) -> Result<Self, GemmError> {
        let grid = Grid { rows, cols, row_stride, col_stride };
        grid.check(data.len(), 0)?;
        let (lines, line_stride, len, stride) = grid.lines();
        let apart = (len <= 1 || stride != 0)
            && (lines <= 1 || line_stride.unsigned_abs() > len.saturating_sub(1).saturating_mul(stride.unsigned_abs()));
        if rows > 0 && cols > 0 && !apart {
            return Err(GemmError::Overlap { rows, cols, row_stride, col_stride });
        }
        Ok(Self { data, grid })
    }

    /// A dense row-major matrix: element (r, c) at `r * cols + c`.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if `data` is too short.
    pub fn row_major(data: &'a mut [T], rows: usize, cols: usize) -> Result<Self, GemmError> {
        Self::new(data, rows, cols, cols as isize, 1)
    }

    /// The transposed view of the same data.
    pub fn t(self) -> Self {
        Self { grid: self.grid.t(), data: self.data }
    }

    /// Rows of the matrix, 0 or more.
    pub fn rows(&self) -> usize {
        self.grid.rows
    }

    /// Columns of the matrix, 0 or more.
    pub fn cols(&self) -> usize {
        self.grid.cols
    }

    pub(super) fn grid(&self) -> Grid {
        self.grid
    }

    pub(super) fn into_data(self) -> &'a mut [T] {
        self.data
    }

    pub(super) fn check(&self, offset: usize) -> Result<(), GemmError> {
        self.grid.check(self.data.len(), offset)
    }
}

impl Grid {
    /// Index of element (0, 0) of a view whose lowest element is at `offset`.
    pub fn origin(&self, offset: usize) -> usize {
        if self.rows == 0 || self.cols == 0 {
            return offset;
        }
        let back = |count: usize, stride: isize| if stride < 0 { (count - 1) * stride.unsigned_abs() } else { 0 };
        offset + back(self.rows, self.row_stride) + back(self.cols, self.col_stride)
    }

    /// Whether consecutive columns lie closer together than consecutive rows.
    pub fn row_major(&self) -> bool {
        self.rows <= 1 || (self.cols > 1 && self.col_stride.unsigned_abs() <= self.row_stride.unsigned_abs())
    }

    /// The lines along the closer dimension: (lines, stride between lines, elements of a line,
    /// stride in a line).
    pub fn lines(&self) -> (usize, isize, usize, isize) {
        if self.row_major() {
            (self.rows, self.row_stride, self.cols, self.col_stride)
        } else {
            (self.cols, self.col_stride, self.rows, self.row_stride)
        }
    }

    fn t(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride }
    }

    /// Whether every element of a view that starts at `offset` is one of `len`.
    fn check(&self, len: usize, offset: usize) -> Result<(), GemmError> {
        let Self { rows, cols, row_stride, col_stride } = *self;
        let span = |count: usize, stride: isize| (count.max(1) - 1).checked_mul(stride.unsigned_abs());
        let inside = if rows == 0 || cols == 0 {
            // No element, but its address is computed all the same.
            offset <= len
        } else {
            span(rows, row_stride)
                .and_then(|r| span(cols, col_stride)?.checked_add(r))
                .and_then(|last| last.checked_add(offset))
                .is_some_and(|last| last < len)
        };
        if inside { Ok(()) } else { Err(GemmError::OutOfBounds { rows, cols, row_stride, col_stride, offset, len }) }
    }
}
