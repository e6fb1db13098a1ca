//! The functions of the reference's bridge, with its names and signatures (bridge-c-api), on the
//! process's device. Functions for weights as inputs have the names and signatures of the
//! reference's pull request 22.
//!
//! Their handles are ordinary kernels, so ports, errors and submissions work on them. Conditions
//! that the reference does not check are checked here: sizes, indices, null. Its defects are fixed:
//! int8 blobs have their headers, and ane_bridge_free_blob exists.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use ferrane::{ErrorKind, Port};

use crate::arg::{self, Out};
use crate::blob::{self, Matrix};
use crate::device::init;
use crate::kernel::{self, ANEKernelHandle, KERNELS, LoadedKernel};
use crate::port::{FERRANE_INPUT, FERRANE_OUTPUT, PortIndex, packed_bytes};
use crate::run;
use crate::status::{CallFailure, Result, guard, guarded};

/// The path at which a program finds the one blob file of ane_bridge_compile.
const ONE_FILE: &str = "@model_path/weights/weight.bin";

fn check_sizes(kind: &str, ports: &[Port], sizes: &[usize]) -> Result<()> {
    if ports.len() != sizes.len() {
        let text = format!("{} {kind} sizes for a program of {}", sizes.len(), ports.len());
        return Err(CallFailure::of(ErrorKind::Binding, text));
    }
    match ports.iter().zip(sizes).find(|(port, size)| packed_bytes(port) != **size) {
        None => Ok(()),
        Some((port, size)) => {
            let text = format!("{size} bytes for {kind} `{}`, which has {}", port.name, packed_bytes(port));
            Err(CallFailure::of(ErrorKind::Binding, text))
        }
    }
}

fn checked(mil: &[u8], files: &[(&str, &[u8])], inputs: &[usize], outputs: &[usize]) -> Result<LoadedKernel> {
    let kernel = kernel::compile(init(None)?, mil, files)?;
    check_sizes("input", &kernel.procedure.inputs, inputs)?;
    check_sizes("output", &kernel.procedure.outputs, outputs)?;
    Ok(kernel)
}

fn compile(mil: &[u8], files: &[(&str, &[u8])], inputs: &[usize], outputs: &[usize]) -> Result<*mut ANEKernelHandle> {
    KERNELS.insert(Arc::new(checked(mil, files, inputs, outputs)?))
}

/// The input that is the weight with index `idx`.
fn weight(kernel: &LoadedKernel, idx: c_int) -> Result<PortIndex> {
    let index = arg::count("idx", idx)?;
    let before = kernel.procedure.inputs.len().saturating_sub(kernel.weights);
    if index < kernel.weights {
        return Ok(PortIndex { kind: FERRANE_INPUT, index: before + index });
    }
    Err(CallFailure::of(
        ErrorKind::Binding,
        format!("no weight {index}: the kernel was compiled with {}", kernel.weights),
    ))
}

/// Opens the process's device ("emulator", unless ferrane_init chose another). Returns 0, or -1
/// after a failure. Further calls have no effect.
#[unsafe(no_mangle)]
pub extern "C" fn ane_bridge_init() -> c_int {
    guarded(-1, || init(None).map(|_| 0))
}

/// Compiles MIL text with at most one blob file, which the program finds as
/// @model_path/weights/weight.bin; there is no file if `weights` is null or empty. The sizes are
/// the bytes of each input and output, in the order of the ports, and must be correct. Returns null
/// after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_compile(
    mil_text: *const c_char,
    mil_len: usize,
    weight_data: *const u8,
    weight_len: usize,
    n_inputs: c_int,
    input_sizes: *const usize,
    n_outputs: c_int,
    output_sizes: *const usize,
) -> *mut ANEKernelHandle {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: by the contract of the C interface, each array has as many elements as the call
        // says.
        let (mil, weights, inputs, outputs) = unsafe {
            let len = if weight_data.is_null() { 0 } else { weight_len };
            (
                arg::slice("mil_text", mil_text.cast::<u8>(), mil_len)?,
                arg::slice("weight_data", weight_data, len)?,
                arg::slice("input_sizes", input_sizes, arg::count("n_inputs", n_inputs)?)?,
                arg::slice("output_sizes", output_sizes, arg::count("n_outputs", n_outputs)?)?,
            )
        };
        let one = [(ONE_FILE, weights)];
        compile(mil, if weights.is_empty() { &[] } else { &one }, inputs, outputs)
    })
}

/// As ane_bridge_compile, with several blob files under the names in the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_compile_multi_weights(
    mil_text: *const c_char,
    mil_len: usize,
    weight_names: *const *const c_char,
    weight_datas: *const *const u8,
    weight_lens: *const usize,
    n_weights: c_int,
    n_inputs: c_int,
    input_sizes: *const usize,
    n_outputs: c_int,
    output_sizes: *const usize,
) -> *mut ANEKernelHandle {
    guarded(std::ptr::null_mut(), || {
        let n_weights = arg::count("n_weights", n_weights)?;
        // SAFETY: by the contract of the C interface, each list has as many entries as the call
        // says, names are terminated, and each file has its number of bytes.
        let (mil, files, inputs, outputs) = unsafe {
            let names = arg::slice("weight_names", weight_names, n_weights)?;
            let datas = arg::slice("weight_datas", weight_datas, n_weights)?;
            let lens = arg::slice("weight_lens", weight_lens, n_weights)?;
            let mut files = Vec::new();
            for ((name, data), len) in names.iter().zip(datas).zip(lens) {
                files.push((arg::text("weight_names", *name)?, arg::slice("weight_datas", *data, *len)?));
            }
            (
                arg::slice("mil_text", mil_text.cast::<u8>(), mil_len)?,
                files,
                arg::slice("input_sizes", input_sizes, arg::count("n_inputs", n_inputs)?)?,
                arg::slice("output_sizes", output_sizes, arg::count("n_outputs", n_outputs)?)?,
            )
        };
        compile(mil, &files, inputs, outputs)
    })
}

/// Compiles MIL text whose last `n_weights` inputs are weights. They can be written at run time
/// without another compile. The sizes are the bytes of each input, each weight and the one output,
/// and must be correct. Returns null after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_compile_dyn(
    mil_text: *const c_char,
    mil_len: usize,
    n_inputs: c_int,
    input_sizes: *const usize,
    n_weights: c_int,
    weight_sizes: *const usize,
    output_size: usize,
) -> *mut ANEKernelHandle {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: by the contract of the C interface, each array has as many elements as the call
        // says.
        let (mil, inputs, weights) = unsafe {
            (
                arg::slice("mil_text", mil_text.cast::<u8>(), mil_len)?,
                arg::slice("input_sizes", input_sizes, arg::count("n_inputs", n_inputs)?)?,
                arg::slice("weight_sizes", weight_sizes, arg::count("n_weights", n_weights)?)?,
            )
        };
        let mut kernel = checked(mil, &[], &[inputs, weights].concat(), &[output_size])?;
        kernel.weights = weights.len();
        KERNELS.insert(Arc::new(kernel))
    })
}

/// Runs a kernel and waits. Returns false after a failure.
#[unsafe(no_mangle)]
pub extern "C" fn ane_bridge_eval(kernel: *mut ANEKernelHandle) -> bool {
    guarded(false, || run::evaluate(kernel).map(|()| true))
}

/// Writes all bytes of an input. After a failure, nothing was written; ferrane_last_status returns
/// the status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_write_input(
    kernel: *mut ANEKernelHandle,
    idx: c_int,
    data: *const c_void,
    bytes: usize,
) {
    guard(|| {
        // SAFETY: by the contract of the C interface, `data` has `bytes` bytes.
        let data = unsafe { arg::slice("data", data.cast::<u8>(), bytes)? };
        let place = PortIndex { kind: FERRANE_INPUT, index: arg::count("idx", idx)? };
        run::write(&*KERNELS.get(kernel)?, &place, data)
    });
}

/// Writes all bytes of a weight of ane_bridge_compile_dyn; the first weight has index 0. After a
/// failure, nothing was written; ferrane_last_status returns the status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_write_weight(
    kernel: *mut ANEKernelHandle,
    idx: c_int,
    fp16_data: *const c_void,
    bytes: usize,
) {
    guard(|| {
        // SAFETY: by the contract of the C interface, `fp16_data` has `bytes` bytes.
        let data = unsafe { arg::slice("fp16_data", fp16_data.cast::<u8>(), bytes)? };
        let kernel = KERNELS.get(kernel)?;
        run::write(&kernel, &weight(&kernel, idx)?, data)
    });
}

/// Writes all `count` elements of a weight from fp32 values, rounded to nearest even; otherwise as
/// ane_bridge_write_weight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_write_weight_f32(
    kernel: *mut ANEKernelHandle,
    idx: c_int,
    fp32_data: *const f32,
    count: usize,
) {
    guard(|| {
        // SAFETY: by the contract of the C interface, `fp32_data` has `count` values.
        let values = unsafe { arg::slice("fp32_data", fp32_data, count)? };
        let kernel = KERNELS.get(kernel)?;
        Ok(kernel.surface(&weight(&kernel, idx)?)?.write_f32(values)?)
    });
}

/// Copies an output of one kernel to an input of another, which must have as many bytes.
/// ferrane_share avoids the copy. After a failure, nothing was copied; ferrane_last_status returns
/// the status.
#[unsafe(no_mangle)]
pub extern "C" fn ane_bridge_copy_io(
    src: *mut ANEKernelHandle,
    src_out_idx: c_int,
    dst: *mut ANEKernelHandle,
    dst_in_idx: c_int,
) {
    guard(|| {
        let (src, dst) = (KERNELS.get(src)?, KERNELS.get(dst)?);
        let from = PortIndex { kind: FERRANE_OUTPUT, index: arg::count("src_out_idx", src_out_idx)? };
        let to = PortIndex { kind: FERRANE_INPUT, index: arg::count("dst_in_idx", dst_in_idx)? };
        run::copy(&src, &from, &dst, &to)
    });
}

/// Reads all bytes of an output. After a failure, nothing was read; ferrane_last_status returns the
/// status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_read_output(
    kernel: *mut ANEKernelHandle,
    idx: c_int,
    data: *mut c_void,
    bytes: usize,
) {
    guard(|| {
        // SAFETY: by the contract of the C interface, `data` has room for `bytes` bytes.
        let data = unsafe { arg::room("data", data.cast::<u8>(), bytes)? };
        let place = PortIndex { kind: FERRANE_OUTPUT, index: arg::count("idx", idx)? };
        run::read(&*KERNELS.get(kernel)?, &place, data)
    });
}

/// Frees a kernel; null has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn ane_bridge_free(kernel: *mut ANEKernelHandle) {
    guard(|| kernel::free(kernel));
}

/// The same as ferrane_compile_count.
#[unsafe(no_mangle)]
pub extern "C" fn ane_bridge_get_compile_count() -> c_int {
    kernel::ferrane_compile_count()
}

/// The same as ferrane_reset_compile_count.
#[unsafe(no_mangle)]
pub extern "C" fn ane_bridge_reset_compile_count() {
    kernel::ferrane_reset_compile_count();
}

/// Transfers a blob to C.
fn lend(blob: Vec<u8>, len: &Out<usize>) -> *mut u8 {
    len.set(blob.len());
    blob::lend(blob)
}

unsafe fn fp16(src: *const f32, rows: c_int, cols: c_int, out_len: *mut usize, transposed: bool) -> *mut u8 {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: `src` has `rows * cols` values and `out_len` is writable, by this function's
        // contract.
        let (matrix, len) = unsafe {
            let matrix = Matrix::new(src, arg::count("rows", rows)?, arg::count("cols", cols)?)?;
            (matrix, Out::new("out_len", out_len)?)
        };
        Ok(lend(matrix.fp16(transposed)?, &len))
    })
}

/// Makes a blob file of one fp16 record, 128 + 2·rows·cols bytes. Free it with
/// ane_bridge_free_blob. Returns null after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_build_weight_blob(
    src: *const f32,
    rows: c_int,
    cols: c_int,
    out_len: *mut usize,
) -> *mut u8 {
    // SAFETY: by the contract of the C interface, `src` has `rows * cols` values and `out_len` is
    // writable.
    unsafe { fp16(src, rows, cols, out_len, false) }
}

/// As ane_bridge_build_weight_blob, with the transposed matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_build_weight_blob_transposed(
    src: *const f32,
    rows: c_int,
    cols: c_int,
    out_len: *mut usize,
) -> *mut u8 {
    // SAFETY: by the contract of the C interface, `src` has `rows * cols` values and `out_len` is
    // writable.
    unsafe { fp16(src, rows, cols, out_len, true) }
}

/// Makes a blob file of one int8 record, 128 + rows·cols bytes, including the file header that the
/// reference omits. Free it with ane_bridge_free_blob. Returns null after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_build_weight_blob_int8(
    src: *const i8,
    rows: c_int,
    cols: c_int,
    out_len: *mut usize,
) -> *mut u8 {
    guarded(std::ptr::null_mut(), || {
        let area = blob::area(arg::count("rows", rows)?, arg::count("cols", cols)?)?;
        // SAFETY: by the contract of the C interface, `src` has `rows * cols` codes and `out_len`
        // is writable.
        let (codes, len) = unsafe { (arg::slice("src", src, area)?, Out::new("out_len", out_len)?) };
        Ok(lend(blob::int8_blob(codes), &len))
    })
}

/// Makes a blob file of one int8 record from fp32 values with one scale, max |w| / 127 (1 if all
/// values are zero); ferrane_blob_int8 supports a scale for each row. Free it with
/// ane_bridge_free_blob. Returns null after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ane_bridge_build_weight_blob_quantized(
    src: *const f32,
    rows: c_int,
    cols: c_int,
    out_scale: *mut f32,
    out_len: *mut usize,
) -> *mut u8 {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: by the contract of the C interface, `src` has `rows * cols` values, and the
        // result pointers are writable.
        let (matrix, scale, len) = unsafe {
            let matrix = Matrix::new(src, arg::count("rows", rows)?, arg::count("cols", cols)?)?;
            (matrix, Out::new("out_scale", out_scale)?, Out::new("out_len", out_len)?)
        };
        let (file, scales, _) = matrix.int8(false, false)?;
        scale.set(scales.first().copied().unwrap_or(1.0));
        Ok(lend(file, &len))
    })
}

/// Frees a blob; null has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn ane_bridge_free_blob(blob: *mut c_void) {
    guard(|| blob::free_blob(blob));
}
