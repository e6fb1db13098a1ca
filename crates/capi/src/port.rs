//! The ports of a kernel: kind and index, name, element type, shape, size.

use std::ffi::{c_char, c_int};

use ferrane::mil::DataType;
use ferrane::{ErrorKind, Executable, Port, Procedure};

use crate::arg::{self, Out, TextOut, too_small};
use crate::kernel::{ANEKernelHandle, KERNELS};
use crate::status::{CallFailure, FerraneStatus, Result, guard};

/// The kind of an input.
pub const FERRANE_INPUT: c_int = 0;
/// The kind of an output.
pub const FERRANE_OUTPUT: c_int = 1;
/// The kind of a state, which runs read and write.
pub const FERRANE_STATE: c_int = 2;

/// An element type. Numbers below 100 are those of blob files (weight-blob §1).
pub type FerraneDtype = i32;

/// IEEE half precision, 16 bits.
pub const FERRANE_FP16: FerraneDtype = 1;
/// IEEE single precision, 32 bits.
pub const FERRANE_FP32: FerraneDtype = 2;
/// An unsigned integer of 8 bits.
pub const FERRANE_UINT8: FerraneDtype = 3;
/// A signed integer of 8 bits.
pub const FERRANE_INT8: FerraneDtype = 4;
/// The upper half of IEEE single precision.
pub const FERRANE_BF16: FerraneDtype = 5;
/// A signed integer of 16 bits.
pub const FERRANE_INT16: FerraneDtype = 6;
/// An unsigned integer of 16 bits.
pub const FERRANE_UINT16: FerraneDtype = 7;
/// A signed integer of 32 bits.
pub const FERRANE_INT32: FerraneDtype = 14;
/// An unsigned integer of 32 bits.
pub const FERRANE_UINT32: FerraneDtype = 15;
/// A float of 8 bits, 4 of them exponent, without infinities.
pub const FERRANE_FP8_E4M3FN: FerraneDtype = 16;
/// A float of 8 bits, 5 of them exponent.
pub const FERRANE_FP8_E5M2: FerraneDtype = 17;
/// A byte, 0 or 1. Ports only.
pub const FERRANE_BOOL: FerraneDtype = 100;
/// IEEE double precision. Ports only.
pub const FERRANE_FP64: FerraneDtype = 101;
/// A signed integer of 64 bits. Ports only.
pub const FERRANE_INT64: FerraneDtype = 102;
/// An unsigned integer of 64 bits. Ports only.
pub const FERRANE_UINT64: FerraneDtype = 103;

/// Element types of whole bytes with their numbers.
const DTYPES: [(DataType, FerraneDtype); 15] = [
    (DataType::Fp16, FERRANE_FP16),
    (DataType::Fp32, FERRANE_FP32),
    (DataType::UInt8, FERRANE_UINT8),
    (DataType::Int8, FERRANE_INT8),
    (DataType::Bf16, FERRANE_BF16),
    (DataType::Int16, FERRANE_INT16),
    (DataType::UInt16, FERRANE_UINT16),
    (DataType::Int32, FERRANE_INT32),
    (DataType::UInt32, FERRANE_UINT32),
    (DataType::Fp8E4M3Fn, FERRANE_FP8_E4M3FN),
    (DataType::Fp8E5M2, FERRANE_FP8_E5M2),
    (DataType::Bool, FERRANE_BOOL),
    (DataType::Fp64, FERRANE_FP64),
    (DataType::Int64, FERRANE_INT64),
    (DataType::UInt64, FERRANE_UINT64),
];

/// The element type with this number, if blob files support it.
pub(crate) fn blob_dtype(number: FerraneDtype) -> Result<DataType> {
    let found = DTYPES.iter().find(|(_, n)| *n == number && *n < 100).map(|(dtype, _)| *dtype);
    found
        .ok_or_else(|| CallFailure::argument(format!("{number} is not an element type of blob files with whole bytes")))
}

/// The kind and index of a port, as given by C.
pub(crate) struct PortIndex {
    pub kind: c_int,
    pub index: usize,
}

impl PortIndex {
    /// The port, and its index among all ports of the procedure.
    pub(crate) fn find<'a>(&self, procedure: &'a Procedure) -> Result<(usize, &'a Port)> {
        let before = match self.kind {
            FERRANE_INPUT => 0,
            FERRANE_OUTPUT => procedure.inputs.len(),
            _ => procedure.inputs.len() + procedure.outputs.len(),
        };
        let port = ports(procedure, self.kind)?.get(self.index).ok_or_else(|| self.unknown(procedure))?;
        Ok((before + self.index, port))
    }

    /// The error for an index that is out of range.
    pub(crate) fn unknown(&self, procedure: &Procedure) -> CallFailure {
        let (kind, ports) = match self.kind {
            FERRANE_INPUT => ("input", &procedure.inputs),
            FERRANE_OUTPUT => ("output", &procedure.outputs),
            _ => ("state", &procedure.states),
        };
        let (index, count, function) = (self.index, ports.len(), &procedure.name);
        CallFailure::of(ErrorKind::Binding, format!("no {kind} {index}: `{function}` has {count}"))
    }
}

fn ports(procedure: &Procedure, kind: c_int) -> Result<&[Port]> {
    match kind {
        FERRANE_INPUT => Ok(&procedure.inputs),
        FERRANE_OUTPUT => Ok(&procedure.outputs),
        FERRANE_STATE => Ok(&procedure.states),
        _ => Err(CallFailure::argument(format!("{kind} is not a kind of port"))),
    }
}

/// The procedure with this name, or the first.
pub(crate) fn procedure_ports(executable: &Executable, name: Option<&str>) -> Result<Procedure> {
    let procedure = match name {
        Some(name) => executable.procedure(name)?.clone(),
        None => executable
            .procedures()
            .first()
            .cloned()
            .ok_or_else(|| CallFailure::of(ErrorKind::Binding, "the program has no procedure"))?,
    };
    Ok(procedure)
}

/// The size of a port's elements in bytes, row-major without gaps.
pub(crate) fn packed_bytes(port: &Port) -> usize {
    port.layout.elements().saturating_mul(port.layout.element_bytes())
}

/// The properties of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FerranePort {
    /// The type of the elements.
    pub dtype: FerraneDtype,
    /// The number of axes; see ferrane_port_shape.
    pub rank: usize,
    /// The number of elements.
    pub elements: usize,
    /// The bytes that ferrane_write and ferrane_read transfer: the elements row-major without gaps,
    /// regardless of the device's layout.
    pub bytes: usize,
}

/// The number of ports of a kind (FERRANE_INPUT, FERRANE_OUTPUT, FERRANE_STATE) of a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_port_count(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    count: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `count` is writable.
        let out = unsafe { Out::new("count", count)? };
        out.set(ports(&KERNELS.get(kernel)?.procedure, kind)?.len());
        Ok(())
    })
}

/// The properties of a port. Ports are in the order that the device reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_port(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    port: *mut FerranePort,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `port` is writable.
        let out = unsafe { Out::new("port", port)? };
        let kernel = KERNELS.get(kernel)?;
        let (_, port) = PortIndex { kind, index }.find(&kernel.procedure)?;
        let layout = &port.layout;
        let number = DTYPES.iter().find(|(dtype, _)| *dtype == layout.dtype).map(|(_, number)| *number);
        let unknown =
            || CallFailure::of(ErrorKind::Unsupported, format!("elements of {} have no number", layout.dtype));
        let dtype = number.ok_or_else(unknown)?;
        let (rank, elements) = (layout.shape.len(), layout.elements());
        out.set(FerranePort { dtype, rank, elements, bytes: packed_bytes(port) });
        Ok(())
    })
}

/// Copies the name of a port; buffer and length as in ferrane_device_name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_port_name(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `buffer` has room for `capacity` bytes and
        // `length` is null or writable.
        let out = unsafe { TextOut::new(buffer, capacity, length)? };
        let kernel = KERNELS.get(kernel)?;
        let (_, port) = PortIndex { kind, index }.find(&kernel.procedure)?;
        out.set(&port.name)
    })
}

/// Copies the extents of a port, outermost first. `capacity` is the number of elements of `shape`,
/// at least the port's rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_port_shape(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    shape: *mut usize,
    capacity: usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `shape` has room for `capacity` elements.
        let room = unsafe { arg::room("shape", shape, capacity)? };
        let kernel = KERNELS.get(kernel)?;
        let (_, port) = PortIndex { kind, index }.find(&kernel.procedure)?;
        let extents = &port.layout.shape;
        let short = || too_small("extents", capacity, extents.len());
        arg::fill(room.get_mut(..extents.len()).ok_or_else(short)?, extents);
        Ok(())
    })
}

/// Finds the port with this kind and name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_port_index(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    name: *const c_char,
    index: *mut usize,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `name` is a terminated string and `index` is
        // writable.
        let (name, out) = unsafe { (arg::text("name", name)?, Out::new("index", index)?) };
        let kernel = KERNELS.get(kernel)?;
        let ports = ports(&kernel.procedure, kind)?;
        let unknown = || {
            let known: Vec<&str> = ports.iter().map(|p| p.name.as_str()).collect();
            CallFailure::of(
                ErrorKind::Binding,
                format!("no port `{name}` of this kind; there are {}", known.join(", ")),
            )
        };
        out.set(ports.iter().position(|p| p.name == name).ok_or_else(unknown)?);
        Ok(())
    })
}
