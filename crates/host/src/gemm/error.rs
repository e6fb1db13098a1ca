//! Errors of matrix products.

use crate::buffer::AllocError;

/// Why a product was refused. Nothing has been written then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GemmError {
    /// A view reaches beyond its data.
    #[error(
        "a {rows}×{cols} view with strides {row_stride}, {col_stride} at {offset} reaches beyond its {len} elements"
    )]
    OutOfBounds {
        /// Rows of the view.
        rows: usize,
        /// Columns of the view.
        cols: usize,
        /// Elements from one row to the next.
        row_stride: isize,
        /// Elements from one column to the next.
        col_stride: isize,
        /// Element at which the view starts.
        offset: usize,
        /// Length of the data in elements.
        len: usize,
    },
    /// Two positions of an output view are the same element, or may be.
    #[error("an output of {rows}×{cols} with strides {row_stride}, {col_stride} overlaps itself")]
    Overlap {
        /// Rows of the view.
        rows: usize,
        /// Columns of the view.
        cols: usize,
        /// Elements from one row to the next.
        row_stride: isize,
        /// Elements from one column to the next.
        col_stride: isize,
    },
    /// The shapes do not multiply.
    #[error("{}×{} times {}×{} does not give {}×{}", lhs.0, lhs.1, rhs.0, rhs.1, out.0, out.1)]
    Shape {
        /// Rows and columns of the left factor.
        lhs: (usize, usize),
        /// Rows and columns of the right factor.
        rhs: (usize, usize),
        /// Rows and columns of the result.
        out: (usize, usize),
    },
    /// The bias does not have one value for each row (or column).
    #[error("a bias of {found} values for {expected} rows or columns")]
    Bias {
        /// Rows or columns of the result.
        expected: usize,
        /// Values in the bias.
        found: usize,
    },
    /// The scales do not have one value for each row (or column).
    #[error("{found} scales for {expected} rows or columns")]
    Scales {
        /// Rows or columns of the result.
        expected: usize,
        /// Values in the scales.
        found: usize,
    },
    /// The codes, scales or palettes of a factor do not have the sizes that its shape wants.
    #[error(
        "the codes of a {rows}×{cols} factor do not have the sizes of its shape, or a number of bits that is not supported"
    )]
    Codes {
        /// Rows of the factor.
        rows: usize,
        /// Columns of the factor.
        cols: usize,
    },
    /// `accumulate` with an fp16 output.
    #[error("only an fp32 output can accumulate")]
    Accumulate,
    /// An image does not have its channels where the convolution has them.
    #[error("the channels of an image are first where they should be last, or last where they should be first")]
    Layout,
    /// Scratch memory could not be allocated.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}
