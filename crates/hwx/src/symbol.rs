//! Names of convolution weights in the symbol table.
//!
//! The compiler names each lane of a kernel `K`, 64 hexadecimal digits, `_ne_` and the lane's
//! number. For a 1×1 convolution of H16 whose weights come from a blob file, the digits are the
//! SHA-256 of a record of 235 bytes that describes the origin and the shape of the weights, not
//! their values (spec: hwx.md 1.6; verified on every such sample).

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::weights::FilterShape;

/// The name of a kernel without the lane: `K` and the digits.
///
/// `file` is the name of the blob file, such as `weight.bin`; `data` is the offset of the first
/// weight in it (after the metadata, so 64 more than the offset in a program's text).
///
/// # Errors
/// E0705 for kernels larger than 1×1, whose record is not known.
pub fn filter_name(file: &str, data: u64, shape: FilterShape) -> Result<String> {
    if (shape.kh, shape.kw) != (1, 1) {
        return Err(Error::kernel(None, "how the compiler names kernels larger than 1×1 is not known"));
    }
    let stem = file.split('.').next().unwrap_or(file);
    let (cout, cin) = (u64::from(shape.cout), u64::from(shape.cin));
    let mut record = Vec::new();
    record.extend_from_slice(stem.as_bytes());
    record.extend_from_slice(file.as_bytes());
    record.push(b'0');
    for number in [data, 2 * shape.len()] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record.extend_from_slice(&[0; 5]);
    record.extend_from_slice(b"desc");
    record.extend_from_slice(&[0; 40]);
    for number in [cout, cin, 1, 1, 1, cin, 1, 1, 1, 1, 0, 0] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    for number in [1u32, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record.extend_from_slice(&cout.div_ceil(16).min(32).to_le_bytes());
    record.push(0);
    let mut name = "K".to_string();
    for byte in Sha256::digest(&record) {
        let _ = write!(name, "{byte:02X}");
    }
    Ok(name)
}

/// The symbol of a lane of a kernel.
pub fn lane_name(kernel: &str, lane: usize) -> String {
    format!("{kernel}_ne_{lane}")
}
