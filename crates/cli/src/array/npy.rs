//! NumPy's `.npy` files: a magic number, a header that is a Python dictionary, the elements.
//!
//! Our own reader and writer, because the crates for it bring a Python parser, big integers or `ndarray`, and what is needed is one
//! line of header. Format versions 1 to 3, little- and big-endian, rows or columns first.

use ferrane::mil::DataType;

use super::{Array, elements};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers are padded to a multiple of this.
const ALIGNMENT: usize = 64;

/// Reads a file.
pub fn read(file: &[u8]) -> Result<Array, String> {
    let rest = file.strip_prefix(MAGIC).ok_or("no .npy file: it does not begin with \\x93NUMPY")?;
    let cut = || "the file ends within its header".to_string();
    let (start, len): (usize, usize) = match (rest.first(), rest.get(2..4), rest.get(2..6)) {
        (Some(1), Some(n), _) => (4, u16::from_le_bytes([n[0], n[1]]) as usize),
        (Some(2 | 3), _, Some(n)) => (6, u32::from_le_bytes([n[0], n[1], n[2], n[3]]) as usize),
        (Some(1..=3), _, _) | (None, _, _) => return Err(cut()),
        (Some(version), _, _) => return Err(format!("version {version} of the format is not known")),
    };
    let end = start.checked_add(len).ok_or_else(cut)?;
    let header = std::str::from_utf8(rest.get(start..end).ok_or_else(cut)?).map_err(|_| "the header is no text")?;
    let (dtype, swapped) = dtype(field(header, "descr")?)?;
    let fortran = field(header, "fortran_order")?.starts_with("True");
    let shape = shape(field(header, "shape")?)?;
    let width = dtype.bytes().unwrap_or(1);
    let count = elements(&shape).and_then(|n| n.checked_mul(width));
    let data = &rest[end..];
    let Some(data) = count.and_then(|n| data.get(..n)) else {
        return Err(format!("{dtype} {shape:?} does not fit into the {} bytes behind the header", data.len()));
    };
    let mut bytes = data.to_vec();
    if swapped {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if fortran {
        bytes = rows_first(&bytes, &shape, width);
    }
    Array::from_bytes(dtype, &shape, &bytes)
}

/// Writes a file. bf16, which NumPy does not have, is written as fp32.
pub fn write(array: &Array) -> Vec<u8> {
    let widened = array.to(DataType::Fp32).ok().filter(|_| array.dtype == DataType::Bf16);
    let array = widened.as_ref().unwrap_or(array);
    let descr = match array.dtype {
        DataType::Fp16 => "<f2",
        DataType::Fp64 => "<f8",
        DataType::Bool => "|b1",
        DataType::Int8 => "|i1",
        DataType::UInt8 => "|u1",
        DataType::Int16 => "<i2",
        DataType::UInt16 => "<u2",
        DataType::Int32 => "<i4",
        DataType::UInt32 => "<u4",
        DataType::Int64 => "<i8",
        DataType::UInt64 => "<u8",
        _ => "<f4",
    };
    let extents: String = array.shape.iter().map(|d| format!("{d}, ")).collect();
    // (3,) is a tuple of one, () of none.
    let extents = if array.shape.len() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}), }}");
    let before = MAGIC.len() + 4;
    header.push_str(&" ".repeat((before + header.len() + 1).next_multiple_of(ALIGNMENT) - before - header.len() - 1));
    header.push('\n');
    let mut file = MAGIC.to_vec();
    file.extend([1, 0]);
    // A header is short: a rank is at most what a program can have.
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(array.to_bytes());
    file
}

/// What stands behind a key of the header.
fn field<'a>(header: &'a str, key: &str) -> Result<&'a str, String> {
    let missing = || format!("the header has no '{key}'");
    let at = header.find(&format!("'{key}'")).ok_or_else(missing)?;
    header[at..].split_once(':').map(|(_, rest)| rest.trim_start()).ok_or_else(missing)
}

/// The element type, and whether its bytes are in the other order.
fn dtype(descr: &str) -> Result<(DataType, bool), String> {
    let name = descr.strip_prefix('\'').and_then(|d| d.split('\'').next()).unwrap_or(descr);
    let (order, code) = name.split_at(name.char_indices().nth(1).map_or(name.len(), |(i, _)| i));
    let dtype = match code {
        "f2" => DataType::Fp16,
        "f4" => DataType::Fp32,
        "f8" => DataType::Fp64,
        "b1" => DataType::Bool,
        "i1" => DataType::Int8,
        "u1" => DataType::UInt8,
        "i2" => DataType::Int16,
        "u2" => DataType::UInt16,
        "i4" => DataType::Int32,
        "u4" => DataType::UInt32,
        "i8" => DataType::Int64,
        "u8" => DataType::UInt64,
        _ => return Err(format!("elements of NumPy's type {name} are not supported; save numbers or bools")),
    };
    match order {
        "<" | "|" | "=" => Ok((dtype, false)),
        ">" => Ok((dtype, true)),
        _ => Err(format!("NumPy's type {name} has no byte order")),
    }
}

/// `(2, 3)`.
fn shape(text: &str) -> Result<Vec<usize>, String> {
    let inner = text.strip_prefix('(').and_then(|t| t.split_once(')')).ok_or("the header's shape is no tuple")?.0;
    let extents = inner.split(',').map(str::trim).filter(|d| !d.is_empty());
    extents.map(|d| d.trim_end_matches('L').parse().map_err(|_| format!("`{d}` is no extent"))).collect()
}

/// Elements that lie columns first, rows first.
fn rows_first(bytes: &[u8], shape: &[usize], width: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0usize; shape.len()];
    for _ in 0..bytes.len() / width {
        let (mut at, mut step) = (0, 1);
        for (i, d) in index.iter().zip(shape) {
            at += i * step;
            step *= d;
        }
        out.extend_from_slice(&bytes[at * width..(at + 1) * width]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Numbers;
    use super::*;

    /// As `numpy.save` writes it (NumPy 2.2.6).
    fn file(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
        let header = format!("{header:117}\n");
        [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), data].concat()
    }

    #[test]
    fn reads_what_numpy_writes() {
        let ints = |array: Array| (array.shape, array.numbers);
        let plain = read(&file("<i2", "False", "(2, 3)", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 255, 255])).unwrap();
        assert_eq!(ints(plain), (vec![2, 3], Numbers::Ints(vec![1, 2, 3, 4, 5, -1])));
        let columns = read(&file("|u1", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6])).unwrap();
        assert_eq!(ints(columns), (vec![2, 3], Numbers::Ints(vec![1, 2, 3, 4, 5, 6])));
        let big = read(&file(">f4", "False", "()", &[0x3f, 0x80, 0, 0])).unwrap();
        assert_eq!((big.shape, big.numbers), (vec![], Numbers::Floats(vec![1.0])));
        assert_eq!(read(&file("<f8", "False", "(0,)", &[])).unwrap().shape, [0]);
    }

    #[test]
    fn writes_what_it_reads_in_numpys_own_form() {
        let array = Array { dtype: DataType::Fp16, shape: vec![3], numbers: Numbers::Floats(vec![1.0, -2.0, 0.5]) };
        let written = write(&array);
        assert_eq!(written, file("<f2", "False", "(3,)", &[0, 0x3c, 0, 0xc0, 0, 0x38]));
        assert_eq!(read(&written).unwrap(), array);
        for shape in [vec![], vec![1, 3], vec![3, 1, 1]] {
            let n = elements(&shape).unwrap();
            let array = Array { dtype: DataType::Bool, shape, numbers: Numbers::Ints(vec![1; n]) };
            assert_eq!(read(&write(&array)).unwrap(), array);
        }
    }

    #[test]
    fn broken_files_are_refused() {
        let good = file("<f4", "False", "(2,)", &[0; 8]);
        for cut in 0..good.len() {
            assert!(read(&good[..cut]).is_err(), "{cut}");
        }
        for (descr, shape) in [("<c8", "(2,)"), ("<U4", "(2,)"), ("f4", "(2,)"), ("<f4", "2"), ("<f4", "(-2,)")] {
            assert!(read(&file(descr, "False", shape, &[0; 8])).is_err(), "{descr} {shape}");
        }
        for shape in ["(99999999999999999999,)", "(4294967296, 4294967296, 4)", "(3,)"] {
            assert!(read(&file("<f4", "False", shape, &[0; 8])).is_err(), "{shape}");
        }
    }
}
