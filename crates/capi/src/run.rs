//! Runs: data transfer to and from ports, evaluations, submissions.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use ferrane::{ErrorKind, Port, Surface};

use crate::arg::{self, Out};
use crate::flight::{Callback, FerraneDone};
use crate::kernel::{ANEKernelHandle, KERNELS, LoadedKernel};
use crate::port::{PortIndex, packed_bytes};
use crate::status::{CallFailure, FerraneStatus, Result, guard};

fn sized(port: &Port, bytes: usize) -> Result<()> {
    let wanted = packed_bytes(port);
    if bytes == wanted {
        return Ok(());
    }
    let text = format!("{bytes} bytes for `{}`, which has {wanted}", port.name);
    Err(CallFailure::of(ErrorKind::Binding, text))
}

/// A surface with fewer bytes than its layout spans, which no device allocates.
fn short(surface: &Surface) -> CallFailure {
    let text = format!("a surface of {} bytes is too small for its layout", surface.layout().allocation);
    CallFailure::of(ErrorKind::Binding, text)
}

/// Copies packed elements into a surface, row by row where the device pads them.
pub(crate) fn write(kernel: &LoadedKernel, place: &PortIndex, data: &[u8]) -> Result<()> {
    sized(place.find(&kernel.procedure)?.1, data.len())?;
    let surface = kernel.surface(place)?;
    let mut access = surface.write()?;
    surface.layout().unpack(data, access.bytes_mut()).ok_or_else(|| short(&surface))
}

/// Copies the elements of a surface, packed.
pub(crate) fn read(kernel: &LoadedKernel, place: &PortIndex, data: &mut [MaybeUninit<u8>]) -> Result<()> {
    sized(place.find(&kernel.procedure)?.1, data.len())?;
    let surface = kernel.surface(place)?;
    let access = surface.read()?;
    let mut rest = data;
    let fill = |row: &[u8]| {
        if let Some((now, later)) = std::mem::take(&mut rest).split_at_mut_checked(row.len()) {
            arg::fill(now, row);
            rest = later;
        }
    };
    surface.layout().pack_to(access.bytes(), fill).ok_or_else(|| short(&surface))
}

/// Copies the elements of a surface to another of as many bytes, whose rows may have another
/// length.
pub(crate) fn copy(src: &LoadedKernel, from: &PortIndex, dst: &LoadedKernel, to: &PortIndex) -> Result<()> {
    let bytes = packed_bytes(from.find(&src.procedure)?.1);
    sized(to.find(&dst.procedure)?.1, bytes)?;
    let surface = src.surface(from)?;
    let access = surface.read()?;
    let packed = surface.layout().pack(access.bytes()).ok_or_else(|| short(&surface))?;
    // The two may be one and the same memory.
    drop(access);
    write(dst, to, &packed)
}

/// Runs a kernel and waits.
pub(crate) fn evaluate(kernel: *mut ANEKernelHandle) -> Result<()> {
    let kernel = KERNELS.get(kernel)?;
    kernel.bound().request.evaluate()?;
    Ok(())
}

/// Writes all elements of a port: `bytes` is the value in FerranePort. An input or state keeps its
/// value from run to run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_write(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    data: *const c_void,
    bytes: usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `data` has `bytes` bytes.
        let data = unsafe { arg::slice("data", data.cast::<u8>(), bytes)? };
        write(&*KERNELS.get(kernel)?, &PortIndex { kind, index }, data)
    })
}

/// Reads all elements of a port: `bytes` is the value in FerranePort.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_read(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    data: *mut c_void,
    bytes: usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `data` has room for `bytes` bytes.
        let data = unsafe { arg::room("data", data.cast::<u8>(), bytes)? };
        read(&*KERNELS.get(kernel)?, &PortIndex { kind, index }, data)
    })
}

/// Writes all `count` elements of an fp16 or fp32 port from fp32 values, rounded to nearest even.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_write_f32(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    values: *const f32,
    count: usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `values` has `count` values.
        let values = unsafe { arg::slice("values", values, count)? };
        Ok(KERNELS.get(kernel)?.surface(&PortIndex { kind, index })?.write_f32(values)?)
    })
}

/// Reads all `count` elements of an fp16 or fp32 port as fp32 values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_read_f32(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    values: *mut f32,
    count: usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `values` has room for `count` values.
        let values = unsafe { arg::room("values", values, count)? };
        let surface = KERNELS.get(kernel)?.surface(&PortIndex { kind, index })?;
        let elements = surface.layout().elements();
        if elements != count {
            return Err(CallFailure::of(ErrorKind::Layout, format!("{count} values for a surface of {elements}")));
        }
        arg::fill(values, &surface.read_f32()?);
        Ok(())
    })
}

/// Runs a kernel and waits. Returns FERRANE_BUSY while the kernel's memory is in use by a run in
/// flight or by another thread.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_eval(kernel: *mut ANEKernelHandle) -> FerraneStatus {
    guard(|| evaluate(kernel))
}

/// Queues a run. `done` may be null; it receives `user`. If this call fails, `done` is not called.
/// A kernel has one run in flight at a time, because its memory is in use; ferrane_clone makes more
/// kernels. A device runs submissions in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_submit(
    kernel: *mut ANEKernelHandle,
    done: FerraneDone,
    user: *mut c_void,
) -> FerraneStatus {
    guard(|| {
        let kernel = KERNELS.get(kernel)?;
        let callback = done.map(|done| Callback { done, user });
        let (flight, bound, held) = (kernel.flights.begin(), kernel.bound(), kernel.clone());
        bound.request.submit_then(move |result| {
            flight.end(result.map(|_| ()).map_err(CallFailure::from), callback);
            drop(held);
        })?;
        Ok(())
    })
}

/// Waits until no run of the kernel is in flight and its callbacks have returned. Returns the
/// status of the last run.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_wait(kernel: *mut ANEKernelHandle) -> FerraneStatus {
    guard(|| KERNELS.get(kernel)?.flights.wait())
}

/// Returns in `in_flight` whether a run of the kernel is in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_in_flight(kernel: *mut ANEKernelHandle, in_flight: *mut bool) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `in_flight` is writable.
        let out = unsafe { Out::new("in_flight", in_flight)? };
        out.set(KERNELS.get(kernel)?.flights.any());
        Ok(())
    })
}
