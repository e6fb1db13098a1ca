//! NumPy's `.npy` files: a magic number, a header that is a Python dictionary, the elements.
//!
//! A reader and writer of our own, because the crates for it bring a Python parser with a stack
//! guard in C, big integers or `ndarray`, and what is needed is one line of header. Format versions
//! 1 to 3, little- and big-endian, rows or columns first.

use ferrane_device::Tensor;
use ferrane_mil::DataType;

use crate::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers are padded to a multiple of this.
const ALIGNMENT: usize = 64;

fn bad(message: impl Into<String>) -> Error {
    Error::Format(message.into())
}

/// The product of extents and width, if it can be.
fn size(shape: &[usize], width: usize) -> Option<usize> {
    shape.iter().try_fold(width, |n, &d| n.checked_mul(d))
}

/// What a header says.
struct Header {
    dtype: DataType,
    /// True if the bytes of each element are in big-endian order.
    swapped: bool,
    /// The first axis varies fastest.
    columns_first: bool,
    shape: Vec<usize>,
    /// Where the elements begin in the file.
    data: usize,
}

impl Header {
    fn read(file: &[u8]) -> Result<Header> {
        let rest =
            file.strip_prefix(MAGIC).ok_or_else(|| bad("not an .npy file: it does not begin with \\x93NUMPY"))?;
        let cut = || bad("the file ends within its header");
        let (start, len): (usize, usize) = match (rest.first(), rest.get(2..4), rest.get(2..6)) {
            (Some(1), Some(n), _) => (4, u16::from_le_bytes([n[0], n[1]]) as usize),
            (Some(2 | 3), _, Some(n)) => (6, u32::from_le_bytes([n[0], n[1], n[2], n[3]]) as usize),
            (Some(1..=3), _, _) | (None, _, _) => return Err(cut()),
            (Some(version), _, _) => return Err(bad(format!("version {version} of the format is not known"))),
        };
        let end = start.checked_add(len).ok_or_else(cut)?;
        let text =
            std::str::from_utf8(rest.get(start..end).ok_or_else(cut)?).map_err(|_| bad("the header is not text"))?;
        let (dtype, swapped) = dtype(field(text, "descr")?)?;
        let columns_first = field(text, "fortran_order")?.starts_with("True");
        Ok(Header { dtype, swapped, columns_first, shape: shape(field(text, "shape")?)?, data: MAGIC.len() + end })
    }

    /// Bytes of the elements.
    fn bytes(&self) -> Option<usize> {
        size(&self.shape, self.dtype.bytes().unwrap_or(1))
    }
}

/// How long a file is, by the header that it begins with: header and elements.
pub(crate) fn length(file: &[u8]) -> Result<usize> {
    let header = Header::read(file)?;
    let length = header.bytes().and_then(|n| n.checked_add(header.data));
    length.ok_or_else(|| bad(format!("{} {:?} has more bytes than can be addressed", header.dtype, header.shape)))
}

/// Reads the tensor of a file.
pub(crate) fn read(file: &[u8]) -> Result<Tensor> {
    let header = Header::read(file)?;
    let (dtype, shape) = (header.dtype, &header.shape);
    let width = dtype.bytes().unwrap_or(1);
    let data = &file[header.data..];
    let Some(data) = header.bytes().and_then(|n| data.get(..n)) else {
        return Err(bad(format!("{dtype} {shape:?} does not fit into the {} bytes after the header", data.len())));
    };
    let mut bytes = data.to_vec();
    if header.swapped {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if dtype == DataType::Bool {
        bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    if header.columns_first {
        bytes = rows_first(&bytes, shape, width);
    }
    Ok(Tensor::new(dtype, shape.clone(), bytes)?)
}

/// The name of an element type.
fn code(dtype: DataType) -> Option<&'static str> {
    Some(match dtype {
        DataType::Fp16 => "<f2",
        DataType::Fp32 => "<f4",
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
        _ => return None,
    })
}

/// The bytes of a file with the tensor. Floats that NumPy does not have are written as fp32.
pub(crate) fn write(tensor: &Tensor) -> Result<Vec<u8>> {
    let widened = match code(tensor.dtype()) {
        None => Some(tensor.cast(DataType::Fp32)?),
        Some(_) => None,
    };
    let tensor = widened.as_ref().unwrap_or(tensor);
    let descr = code(tensor.dtype()).unwrap_or("<f4");
    let extents: String = tensor.shape().iter().map(|d| format!("{d}, ")).collect();
    // (3,) is a tuple of one, () of none.
    let extents = if tensor.shape().len() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}), }}");
    let before = MAGIC.len() + 4;
    header.push_str(&" ".repeat((before + header.len() + 1).next_multiple_of(ALIGNMENT) - before - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| bad("a shape of too many axes for an .npy header"))?;
    let mut file = MAGIC.to_vec();
    file.extend([1, 0]);
    file.extend(length.to_le_bytes());
    file.extend(header.bytes());
    file.extend_from_slice(tensor.bytes());
    Ok(file)
}

/// The text after a key of the header.
fn field<'a>(header: &'a str, key: &str) -> Result<&'a str> {
    let missing = || bad(format!("the header has no '{key}'"));
    let at = header.find(&format!("'{key}'")).ok_or_else(missing)?;
    header[at..].split_once(':').map(|(_, rest)| rest.trim_start()).ok_or_else(missing)
}

/// The element type, and whether its bytes are big-endian.
fn dtype(descr: &str) -> Result<(DataType, bool)> {
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
        _ => return Err(bad(format!("elements of NumPy's type {name} are not supported; save numbers or bools"))),
    };
    match order {
        "<" | "|" | "=" => Ok((dtype, false)),
        ">" => Ok((dtype, true)),
        _ => Err(bad(format!("NumPy's type {name} has no byte order"))),
    }
}

/// Parses `(2, 3)`.
fn shape(text: &str) -> Result<Vec<usize>> {
    let inner = text.strip_prefix('(').and_then(|t| t.split_once(')'));
    let (inner, _) = inner.ok_or_else(|| bad("the shape in the header is not a tuple"))?;
    let extents = inner.split(',').map(str::trim).filter(|d| !d.is_empty());
    extents.map(|d| d.trim_end_matches('L').parse().map_err(|_| bad(format!("`{d}` is not an extent")))).collect()
}

/// Elements in column-major order, as row-major.
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
    use super::*;

    /// As `numpy.save` writes it (NumPy 2.2.6).
    fn file(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
        let header = format!("{header:117}\n");
        [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), data].concat()
    }

    fn ints(tensor: Tensor) -> (Vec<usize>, Vec<i64>) {
        (tensor.shape().to_vec(), tensor.to_i64().unwrap())
    }

    #[test]
    fn reads_what_numpy_writes() {
        let plain = read(&file("<i2", "False", "(2, 3)", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 255, 255])).unwrap();
        assert_eq!(ints(plain), (vec![2, 3], vec![1, 2, 3, 4, 5, -1]));
        let columns = read(&file("|u1", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6])).unwrap();
        assert_eq!(ints(columns), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
        let big = read(&file(">f4", "False", "()", &[0x3f, 0x80, 0, 0])).unwrap();
        assert_eq!((big.shape(), big.to_f32()), (&[][..], vec![1.0]));
        assert_eq!(read(&file("<f8", "False", "(0,)", &[])).unwrap().shape(), [0]);
        assert_eq!(ints(read(&file("|b1", "False", "(2,)", &[0, 7])).unwrap()).1, [0, 1]);
    }

    #[test]
    fn writes_numpys_own_form_and_reads_it_back() {
        let tensor = Tensor::fp16(&[3], &[1.0, -2.0, 0.5]).unwrap();
        let written = write(&tensor).unwrap();
        assert_eq!(written, file("<f2", "False", "(3,)", &[0, 0x3c, 0, 0xc0, 0, 0x38]));
        assert_eq!(read(&written).unwrap(), tensor);
        for shape in [vec![], vec![1, 3], vec![3, 1, 1]] {
            let n = shape.iter().product();
            let tensor = Tensor::bool(&shape, &vec![true; n]).unwrap();
            assert_eq!(read(&write(&tensor).unwrap()).unwrap(), tensor);
        }
        let narrow = Tensor::from_f64(DataType::Bf16, &[2], [1.0, 3.0]).unwrap();
        assert_eq!(read(&write(&narrow).unwrap()).unwrap(), narrow.cast(DataType::Fp32).unwrap());
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
