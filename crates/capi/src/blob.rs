//! Blob files (weight-blob §1): records of any type, fp16 from fp32, int8 with scales.
//!
//! Headers follow the format: number of records, actual type, size and offset. The metadata of the
//! first record is at 64, which is the offset in a program's text.
//!
//! A blob is registered by its address until it is freed, so freeing any other address is an error.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex};

use ferrane::mil::DataType;
use ferrane::mil::weights::blob::Writer;
use ferrane_arith::{Rounding, quantize};
use ferrane_host::convert::{f32_to_f16, f32_to_f16_transposed};
use ferrane_host::f16;
use ferrane_host::sync::lock;

use crate::arg::{self, Out};
use crate::port::{FerraneDtype, blob_dtype};
use crate::status::{CallFailure, FERRANE_INVALID_HANDLE, FerraneStatus, Result, guard};

/// Elements of one type, for ferrane_blob.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FerraneTensor {
    /// The type of the elements; its number must be below 100.
    pub dtype: FerraneDtype,
    /// The elements, row-major without gaps.
    pub data: *const c_void,
    /// The size in bytes, a multiple of the element size.
    pub bytes: usize,
}

/// One scale for all values.
pub const FERRANE_PER_TENSOR: c_int = 0;
/// One scale for each row (axis 0, the output channels of a weight).
pub const FERRANE_PER_CHANNEL: c_int = 1;

static BLOBS: LazyLock<Mutex<HashMap<usize, Vec<u8>>>> = LazyLock::new(Mutex::default);

/// Transfers a blob to C until it is freed.
pub(crate) fn lend(mut blob: Vec<u8>) -> *mut u8 {
    // Moving a vector does not move its memory.
    let pointer = blob.as_mut_ptr();
    lock(&BLOBS).insert(pointer.addr(), blob);
    pointer
}

/// Frees a blob; null has no effect.
pub(crate) fn free_blob(blob: *mut c_void) -> Result<()> {
    let found = lock(&BLOBS).remove(&blob.addr());
    if found.is_some() || blob.is_null() {
        return Ok(());
    }
    Err(CallFailure {
        status: FERRANE_INVALID_HANDLE,
        text: "there is no blob of this library at this address, or it was freed".into(),
        remedy: "Free each blob once, with the address that the call gave.",
    })
}

/// The number of values of a nonempty matrix.
pub(crate) fn area(rows: usize, cols: usize) -> Result<usize> {
    // All results have at most eight bytes per value.
    let area = rows.checked_mul(cols).filter(|n| *n > 0 && *n <= isize::MAX as usize / 8);
    area.ok_or_else(|| CallFailure::argument(format!("a matrix of {rows} × {cols}")))
}

/// A vector of `count` values, or an error if memory is exhausted.
fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let failed = |_| CallFailure::of(ferrane::ErrorKind::OutOfMemory, format!("no memory for {count} values"));
    values.try_reserve_exact(count).map_err(failed)?;
    values.resize(count, value);
    Ok(values)
}

/// The values of a matrix, checked against its size.
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    cols: usize,
}

impl Matrix<'_> {
    /// `rows` × `cols` values in row-major order.
    pub(crate) unsafe fn new<'a>(values: *const f32, rows: usize, cols: usize) -> Result<Matrix<'a>> {
        // SAFETY: the same contract as `arg::slice` for `rows * cols` values.
        let values = unsafe { arg::slice("src", values, area(rows, cols)?)? };
        Ok(Matrix { values, rows, cols })
    }

    /// One fp16 record, rounded to nearest even.
    pub(crate) fn fp16(&self, transposed: bool) -> Result<Vec<u8>> {
        let mut half = filled(f16::ZERO, self.values.len())?;
        if transposed {
            f32_to_f16_transposed(self.values, self.cols, &mut half, self.rows, self.rows, self.cols);
        } else {
            f32_to_f16(self.values, &mut half);
        }
        let mut writer = Writer::new();
        writer.add(DataType::Fp16, &fp16_bytes(&half), half.len());
        Ok(writer.finish())
    }

    /// One int8 record, followed by the scales as an fp16 record if `with_scales`. Returns the
    /// blob, the scales, and the offset of the second record.
    ///
    /// A scale is max |w| / 127, or 1 if all values are zero; codes are round(w / scale), half away
    /// from zero (int8 §2). Stored scales are rounded to fp16 before the codes are computed, so
    /// codes and stored scales match.
    pub(crate) fn int8(&self, per_channel: bool, with_scales: bool) -> Result<(Vec<u8>, Vec<f32>, u64)> {
        if let Some(at) = self.values.iter().position(|v| !v.is_finite()) {
            return Err(CallFailure::argument(format!("value {at} is {}", self.values[at])));
        }
        let group = if per_channel { self.cols } else { self.values.len() };
        let (mut codes, mut scales) = (filled(0u8, self.values.len())?, Vec::new());
        for (values, codes) in self.values.chunks(group).zip(codes.chunks_mut(group)) {
            let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
            let mut scale = if largest == 0.0 { 1.0 } else { largest / 127.0 };
            if with_scales {
                let half = f16::from_f32(scale).max(f16::from_bits(1));
                if !half.is_finite() {
                    return Err(CallFailure::argument(format!("the scale {scale} is beyond fp16")));
                }
                scale = half.to_f32();
            }
            // The smallest fp32 numbers divided by 127 give zero.
            scale = scale.max(f32::from_bits(1));
            for (value, code) in values.iter().zip(codes) {
                *code = quantize(Rounding::Away, *value, scale, 0.0, -128, 127) as i8 as u8;
            }
            scales.push(scale);
        }
        let mut writer = Writer::new();
        writer.add(DataType::Int8, &codes, codes.len());
        let mut offset = 0;
        if with_scales {
            let half: Vec<f16> = scales.iter().map(|s| f16::from_f32(*s)).collect();
            offset = writer.add(DataType::Fp16, &fp16_bytes(&half), half.len());
        }
        Ok((writer.finish(), scales, offset))
    }
}

fn fp16_bytes(values: &[f16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// One int8 record with these codes.
pub(crate) fn int8_blob(codes: &[i8]) -> Vec<u8> {
    let bytes: Vec<u8> = codes.iter().map(|c| *c as u8).collect();
    let mut writer = Writer::new();
    writer.add(DataType::Int8, &bytes, bytes.len());
    writer.finish()
}

/// Makes a blob file of several records. `offsets`, if not null, receives the offset of each
/// record, for use in a program's text. Free the blob with ferrane_free_blob.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_blob(
    tensors: *const FerraneTensor,
    n_tensors: usize,
    offsets: *mut u64,
    blob: *mut *mut u8,
    len: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `tensors` has `count` entries, `offsets` is
        // null or has room for as many, and `blob` and `len` are writable.
        let (tensors, offsets, blob, len) = unsafe {
            let (blob, len) = (Out::handle("blob", blob)?, Out::new("len", len)?);
            let room = if offsets.is_null() { 0 } else { n_tensors };
            (arg::slice("tensors", tensors, n_tensors)?, arg::room("offsets", offsets, room)?, blob, len)
        };
        let mut writer = Writer::new();
        let mut places = Vec::new();
        for tensor in tensors {
            let dtype = blob_dtype(tensor.dtype)?;
            // SAFETY: by the contract of the C interface, each `data` has `bytes` bytes.
            let data = unsafe { arg::slice("tensors.data", tensor.data.cast::<u8>(), tensor.bytes)? };
            let size = dtype.bytes().unwrap_or(1);
            if !data.len().is_multiple_of(size) {
                return Err(CallFailure::argument(format!(
                    "{} bytes are not a whole number of elements of {dtype}",
                    data.len()
                )));
            }
            places.push(writer.add(dtype, data, data.len() / size));
        }
        arg::fill(offsets, &places);
        let file = writer.finish();
        len.set(file.len());
        blob.set(lend(file));
        Ok(())
    })
}

/// Makes a blob file of one fp16 record from `rows` × `cols` fp32 values, rounded to nearest even.
/// If `transposed` is not 0, the transposed matrix is stored. Free the blob with ferrane_free_blob.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_blob_fp16(
    src: *const f32,
    rows: usize,
    cols: usize,
    transposed: c_int,
    blob: *mut *mut u8,
    len: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `src` has `rows * cols` values, and `blob`
        // and `len` are writable.
        let (blob, len, matrix) =
            unsafe { (Out::handle("blob", blob)?, Out::new("len", len)?, Matrix::new(src, rows, cols)?) };
        let file = matrix.fp16(transposed != 0)?;
        len.set(file.len());
        blob.set(lend(file));
        Ok(())
    })
}

/// Makes a blob file of one int8 record from `rows` × `cols` fp32 values: round(w / scale), half
/// away from zero, with the scale max |w| / 127 (1 if all values are zero) of all values
/// (FERRANE_PER_TENSOR) or of each row (FERRANE_PER_CHANNEL). `scales` receives the one scale or
/// the `rows` scales. If `scales_offset` is not null, the scales are rounded to fp16 and stored as
/// a second record, whose offset it receives. Free the blob with ferrane_free_blob.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_blob_int8(
    src: *const f32,
    rows: usize,
    cols: usize,
    granularity: c_int,
    scales: *mut f32,
    scales_offset: *mut u64,
    blob: *mut *mut u8,
    len: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `blob` and `len` are writable.
        let (blob, len) = unsafe { (Out::handle("blob", blob)?, Out::new("len", len)?) };
        let per_channel = match granularity {
            FERRANE_PER_TENSOR => false,
            FERRANE_PER_CHANNEL => true,
            other => return Err(CallFailure::argument(format!("{other} is not a granularity"))),
        };
        // SAFETY: by the contract of the C interface, `src` has `rows * cols` values, `scales` has
        // room for one scale or `rows`, and `scales_offset` is null or writable.
        let (place, matrix, room) = unsafe {
            let matrix = Matrix::new(src, rows, cols)?;
            let room = arg::room("scales", scales, if per_channel { rows } else { 1 })?;
            (Out::optional("scales_offset", scales_offset)?, matrix, room)
        };
        let (file, found, offset) = matrix.int8(per_channel, place.is_some())?;
        arg::fill(room, &found);
        if let Some(place) = place {
            place.set(offset);
        }
        len.set(file.len());
        blob.set(lend(file));
        Ok(())
    })
}

/// Frees a blob of this library; null has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_free_blob(blob: *mut c_void) -> FerraneStatus {
    guard(|| free_blob(blob))
}

#[cfg(test)]
mod tests {
    use ferrane::mil::Strictness;
    use ferrane::mil::weights::blob::{find, records};

    use super::*;

    fn matrix(values: &[f32], rows: usize) -> Matrix<'_> {
        Matrix { values, rows, cols: values.len() / rows }
    }

    fn payload(file: &[u8], offset: u64, dtype: DataType, elements: usize) -> &[u8] {
        &file[find(file, offset, dtype, elements, Strictness::Strict).unwrap().0]
    }

    /// The bytes of weight-blob §2, without the defects of weight-blob §4.
    #[test]
    fn headers_are_right() {
        let values: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let file = matrix(&values, 2).fp16(false).unwrap();
        assert_eq!(file.len(), 128 + 12);
        assert_eq!((file[0], file[4], &file[64..69]), (1, 2, &[0xEF, 0xBE, 0xAD, 0xDE, 1][..]));
        assert_eq!((file[72], file[80]), (12, 128));
        let half = |file: &[u8]| -> Vec<f32> {
            let words = payload(file, 64, DataType::Fp16, 6).chunks(2);
            words.map(|w| f16::from_le_bytes([w[0], w[1]]).to_f32()).collect()
        };
        assert_eq!(half(&file), values);
        assert_eq!(half(&matrix(&values, 2).fp16(true).unwrap()), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let file = int8_blob(&[-128, 0, 127]);
        assert_eq!((file.len(), file[68], file[72], file[80]), (131, 4, 3, 128));
        assert_eq!(payload(&file, 64, DataType::Int8, 3), [0x80, 0, 0x7F]);
    }

    #[test]
    fn scales_of_all_or_of_each_row() {
        // Row 0 up to 12.7, row 1 zero, row 2 with a half: 0.5 / 1 is rounded away from zero.
        let values = [12.7, -0.05, 0.0, 0.0, 127.0, -0.5];
        let (file, scales, _) = matrix(&values, 3).int8(true, false).unwrap();
        assert_eq!(scales, [12.7 / 127.0, 1.0, 1.0]);
        let codes = |file: &[u8]| payload(file, 64, DataType::Int8, 6).iter().map(|c| *c as i8).collect::<Vec<_>>();
        // 0.05 / 0.1 is slightly above or below a half in fp32: either neighbor is at most half a
        // scale away.
        assert_eq!(codes(&file)[0], 127);
        assert!((f32::from(codes(&file)[1]) * scales[0] + 0.05).abs() <= scales[0] / 2.0 * 1.000_001);
        assert_eq!(codes(&file)[2..], [0, 0, 127, -1]);
        let (file, scales, _) = matrix(&values, 3).int8(false, false).unwrap();
        assert_eq!((scales, codes(&file)), (vec![1.0], vec![13, 0, 0, 0, 127, -1]));
        assert_eq!(records(&file).unwrap().len(), 1);
    }

    #[test]
    fn stored_scales_are_those_of_the_codes() {
        let values = [1.0, 0.3, 1e-9, -1e-9];
        let (file, scales, offset) = matrix(&values, 2).int8(true, true).unwrap();
        assert_eq!(offset, 192, "after 4 codes at 128, aligned to 64");
        assert_eq!(records(&file).unwrap().len(), 2);
        let stored: Vec<f32> = payload(&file, offset, DataType::Fp16, 2)
            .chunks(2)
            .map(|w| f16::from_le_bytes([w[0], w[1]]).to_f32())
            .collect();
        assert_eq!(stored, scales);
        assert_eq!(scales[0], f16::from_f32(1.0 / 127.0).to_f32());
        // Below fp16 the smallest scale is used, and the codes are 0.
        assert_eq!(scales[1], f16::from_bits(1).to_f32());
        assert_eq!(payload(&file, 64, DataType::Int8, 4)[2..], [0, 0]);
        assert!(matrix(&[1e9], 1).int8(false, true).unwrap_err().text.contains("beyond fp16"));
        assert!(matrix(&[1e9], 1).int8(false, false).is_ok());
        assert_eq!(matrix(&[0.0, f32::NAN], 1).int8(false, false).unwrap_err().text, "value 1 is NaN");
        let (_, scales, _) = matrix(&[f32::from_bits(1)], 1).int8(false, false).unwrap();
        assert!(scales[0] > 0.0);
    }
}
