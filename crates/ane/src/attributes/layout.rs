//! Converts the five axes that the engine reports for a port to the layout of the program's tensor.
//!
//! The engine represents every tensor by batches, channels, depth, height and width (claim C027),
//! each with a stride in bytes; padded rows begin at multiples of 64 bytes (apple-runtime §11). A
//! program's tensor may have any rank. Axes of extent 1 carry no information and are dropped on
//! both sides. The remaining extents must be equal and in the same order, except that one axis of
//! the engine may correspond to several of the program's, and several adjacent axes of the engine
//! without gaps to one of the program's.

use ferrane_device::{Layout, Result};
use ferrane_mil::DataType;

use super::{Tree, odd};

/// Extents and strides of a port, outermost first: batches, channels, depth, height, width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// The extents in elements.
    pub extents: [usize; 5],
    /// The strides in bytes.
    pub strides: [usize; 5],
    /// The element type; `None` for an unknown word.
    pub dtype: Option<DataType>,
}

/// The words for element types, as in compiled networks (hwx §1).
const TYPES: &[(&str, DataType)] = &[
    ("Float16", DataType::Fp16),
    ("Float32", DataType::Fp32),
    ("Int8", DataType::Int8),
    ("UInt8", DataType::UInt8),
    ("Int16", DataType::Int16),
    ("UInt16", DataType::UInt16),
    ("Int32", DataType::Int32),
];

impl Axes {
    /// Reads an entry of `LiveInputList` or `LiveOutputList`; `name` is for messages.
    ///
    /// # Errors
    /// [`ferrane_device::ErrorKind::Load`] if a number is missing or negative, or the port
    /// interleaves channels.
    pub fn read(entry: &Tree, name: &str) -> Result<Axes> {
        let number = |key: &str| {
            let found = entry.get(key).and_then(Tree::size);
            found.ok_or_else(|| odd(format_args!("no `{key}` of the port `{name}`")))
        };
        let or_one = |key: &str| entry.get(key).map_or(Ok(1), |_| number(key));
        if or_one("Interleave")? != 1 {
            return Err(odd(format_args!("channels of the port `{name}` that are interleaved")));
        }
        let dtype = entry.get("Type").and_then(Tree::text);
        let dtype = dtype.and_then(|word| TYPES.iter().find(|(w, _)| *w == word).map(|(_, t)| *t));
        let extents = [or_one("Batches")?, number("Channels")?, or_one("Depth")?, number("Height")?, number("Width")?];
        let (row, plane) = (number("RowStride")?, number("PlaneStride")?);
        let or = |key: &str, other: usize| entry.get(key).map_or(Ok(other), |_| number(key));
        // A model without depth has no stride for it.
        let depth = or("DepthStride", plane)?;
        let whole = plane.checked_mul(extents[1]).ok_or_else(|| odd(format_args!("a huge port `{name}`")))?;
        let element = dtype.and_then(DataType::bytes).unwrap_or(1);
        Ok(Axes { extents, strides: [or("BatchStride", whole)?, plane, depth, row, element], dtype })
    }
}

/// The layout of a program's tensor that has these axes.
///
/// # Errors
/// [`ferrane_device::ErrorKind::Load`] if element type or extents differ from the program's.
pub fn layout(name: &str, dtype: DataType, shape: &[usize], axes: &Axes) -> Result<Layout> {
    let differs = || {
        let (extents, strides) = (&axes.extents, &axes.strides);
        odd(format_args!(
            "the port `{name}` as {extents:?} with strides {strides:?}, and the program has {dtype} {shape:?}"
        ))
    };
    let element = dtype.bytes().ok_or_else(differs)?;
    if axes.dtype.is_some_and(|found| found != dtype) {
        return Err(differs());
    }
    let mut found = axes.extents.iter().zip(&axes.strides).filter(|(e, _)| **e != 1).map(|(e, s)| (*e, *s)).peekable();
    // The width has the stride of the element, regardless of the word for its type.
    let strides_of = |(extent, stride): (usize, usize), last: bool| (extent, if last { element } else { stride });
    let mut strides = vec![0; shape.len()];
    let wanted: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] != 1).collect();
    let mut at = 0;
    while at < wanted.len() {
        let next = found.next().ok_or_else(differs)?;
        let (mut extent, mut stride) = strides_of(next, found.peek().is_none() && axes.extents[4] != 1);
        // Adjacent axes of the engine without gaps are joined, if the program has one axis for
        // them.
        while extent < shape[wanted[at]] {
            let next = found.next().ok_or_else(differs)?;
            let (inner, inner_stride) = strides_of(next, found.peek().is_none() && axes.extents[4] != 1);
            if inner_stride.checked_mul(inner) != Some(stride) {
                return Err(differs());
            }
            extent = extent.checked_mul(inner).ok_or_else(differs)?;
            stride = inner_stride;
        }
        // Several axes of the program correspond to one of the engine; the innermost of them has
        // its stride.
        let mut end = at;
        let mut product = shape[wanted[at]];
        while product < extent && end + 1 < wanted.len() {
            end += 1;
            product = product.checked_mul(shape[wanted[end]]).ok_or_else(differs)?;
        }
        if product != extent {
            return Err(differs());
        }
        for axis in wanted[at..=end].iter().rev() {
            strides[*axis] = stride;
            stride = stride.checked_mul(shape[*axis]).ok_or_else(differs)?;
        }
        at = end + 1;
    }
    if found.next().is_some() {
        return Err(differs());
    }
    // The stride of an axis of extent 1 covers everything inside it, including padding: it equals
    // the stride of the next outer axis or, without one, the size so far.
    let mut inside = 0;
    for axis in (0..shape.len()).rev() {
        let outer = wanted.iter().rev().find(|w| **w < axis).map(|w| strides[*w]);
        if shape[axis] == 1 {
            strides[axis] = if axis + 1 == shape.len() { element } else { outer.unwrap_or(inside) };
        }
        inside = inside.max(strides[axis].checked_mul(shape[axis]).ok_or_else(differs)?);
        if axis + 1 == shape.len() {
            inside = inside.max(axes.strides[3]);
        }
    }
    // The engine reads and writes whole rows and planes.
    let span = axes.extents[..4].iter().zip(&axes.strides).map(|(e, s)| e.checked_mul(*s));
    let mut allocation = inside;
    for bytes in span {
        allocation = allocation.max(bytes.ok_or_else(differs)?);
    }
    let layout = Layout { dtype, shape: shape.to_vec(), strides, allocation };
    layout.check().map_err(|e| differs().with_source(e))?;
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_device::ErrorKind;

    fn axes(extents: [usize; 5], row: usize, plane: usize, batch: usize) -> Axes {
        Axes { extents, strides: [batch, plane, plane, row, 2], dtype: Some(DataType::Fp16) }
    }

    #[test]
    fn the_published_case_has_rows_of_64_bytes() {
        // apple-runtime §11: [1, 4, 1, 4] fp16.
        let entry = [("Batches", 1), ("Channels", 4), ("Depth", 1), ("Height", 1), ("Width", 4), ("Interleave", 1)];
        let strides = [("PlaneCount", 4), ("PlaneStride", 64), ("RowStride", 64), ("BatchStride", 256)];
        let mut entries: Vec<_> =
            entry.into_iter().chain(strides).map(|(k, v)| (k.to_string(), Tree::Number(v))).collect();
        entries.push(("Type".into(), Tree::Text("Float16".into())));
        let axes = Axes::read(&Tree::Map(entries.clone()), "x").unwrap();
        let layout = super::layout("x", DataType::Fp16, &[1, 4, 1, 4], &axes).unwrap();
        assert_eq!(layout, Layout::with_row_alignment(DataType::Fp16, &[1, 4, 1, 4], 64).unwrap());
        let error = super::layout("x", DataType::Fp32, &[1, 4, 1, 4], &axes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Load);
        assert!(error.message().contains("`x`"), "{error}");
        for at in [1, 3, 4, 7, 8] {
            let mut less = entries.clone();
            less.remove(at);
            assert_eq!(Axes::read(&Tree::Map(less), "x").unwrap_err().kind(), ErrorKind::Load);
            let mut negative = entries.clone();
            negative[at].1 = Tree::Number(-1);
            assert_eq!(Axes::read(&Tree::Map(negative), "x").unwrap_err().kind(), ErrorKind::Load);
        }
        entries[5].1 = Tree::Number(8);
        assert!(Axes::read(&Tree::Map(entries), "x").unwrap_err().message().contains("interleaved"));
    }

    #[test]
    fn ranks_meet() {
        let strides = |shape: &[usize], axes: &Axes| layout("x", DataType::Fp16, shape, axes).map(|l| l.strides);
        let rows = axes([1, 3, 1, 2, 5], 64, 128, 384);
        assert_eq!(strides(&[1, 3, 2, 5], &rows).unwrap()[1..], [128, 64, 2]);
        assert_eq!(strides(&[3, 2, 5], &rows).unwrap(), [128, 64, 2]);
        // Planes follow rows without a gap, so both are one axis of the program.
        assert_eq!(strides(&[6, 5], &rows).unwrap(), [64, 2]);
        assert!(strides(&[3, 10], &rows).is_err(), "rows have gaps");
        assert!(strides(&[5, 2, 3], &rows).is_err(), "another order");
        assert!(strides(&[1, 3, 2], &rows).is_err() && strides(&[3, 2, 5, 7], &rows).is_err());
        // One axis of the engine is two of the program's.
        let flat = axes([1, 6, 1, 1, 5], 64, 64, 384);
        assert_eq!(strides(&[2, 3, 5], &flat).unwrap(), [192, 64, 2]);
        // A column: the width is 1, so consecutive elements are in consecutive rows.
        let column = axes([1, 4, 1, 1, 1], 64, 64, 256);
        assert_eq!(strides(&[1, 4, 1, 1], &column).unwrap(), [256, 64, 64, 2]);
        assert!(strides(&[4], &column).is_err(), "the seam requires adjacent elements along the last axis");
        let scalar = axes([1; 5], 64, 64, 64);
        assert_eq!(layout("x", DataType::Fp16, &[], &scalar).unwrap().allocation, 64);
    }

    #[test]
    fn absurd_numbers_are_errors() {
        let huge = usize::MAX / 2;
        for axes in [axes([1, huge, 1, huge, 4], 8, 8, 8), axes([1, 2, 1, 1, 4], huge, huge, huge)] {
            assert!(layout("x", DataType::Fp16, &[huge, huge, 4], &axes).is_err());
            assert!(layout("x", DataType::Fp16, &[2, 4], &axes).is_err());
        }
    }
}
