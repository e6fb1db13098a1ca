//! Kernels: a loaded program with surfaces of its own, one for each port of a procedure.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ferrane::mil::Weights;
use ferrane::{Bindings, CompileOptions, Device, Executable, Port, Procedure, ProgramSource, Request, Surface};
use ferrane_host::sync::lock;

use crate::arg::{self, Out};
use crate::device::{FerraneDevice, device};
use crate::flight::Flights;
use crate::handle::HandleTable;
use crate::port::{PortIndex, procedure_ports};
use crate::status::{FerraneStatus, Result, guard};

/// A kernel: a compiled and loaded program with memory for its ports. The name is that of the
/// reference's bridge. The handle is no address; it may be used from any thread.
pub struct ANEKernelHandle {
    _private: [u8; 0],
}

/// A blob file for ferrane_compile.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FerraneWeight {
    /// The path that the program uses, "@model_path/weights/weight.bin" for example; UTF-8, ends
    /// with a zero byte.
    pub name: *const c_char,
    /// The file.
    pub data: *const u8,
    /// Its size in bytes.
    pub len: usize,
}

pub(crate) static KERNELS: HandleTable<LoadedKernel> = HandleTable::new("kernel");

/// Successful compiles of the process.
static COMPILES: AtomicI32 = AtomicI32::new(0);

/// A loaded program, the procedure meant, and what is bound to it.
pub(crate) struct LoadedKernel {
    device: Device,
    executable: Executable,
    pub procedure: Procedure,
    /// How many of the inputs are weights: the last ones. The bridge's functions for weights count
    /// from the first of them.
    pub weights: usize,
    bound: Mutex<Arc<BoundSurfaces>>,
    pub flights: Arc<Flights>,
}

/// Surfaces in the order of the procedure's ports, and the request over them.
pub(crate) struct BoundSurfaces {
    surfaces: Vec<Surface>,
    pub request: Request,
}

impl BoundSurfaces {
    fn new(executable: &Executable, procedure: &Procedure, surfaces: Vec<Surface>) -> Result<BoundSurfaces> {
        let start = Bindings::new().procedure(&procedure.name);
        let bind = |bindings: Bindings, (port, surface): (&Port, &Surface)| bindings.bind(&port.name, surface);
        let request = executable.prepare(procedure.ports().zip(&surfaces).fold(start, bind))?;
        Ok(BoundSurfaces { surfaces, request })
    }
}

impl LoadedKernel {
    fn new(device: Device, executable: Executable, procedure: Procedure) -> Result<LoadedKernel> {
        let surfaces = procedure.ports().map(|p| device.surface(&p.layout)).collect::<ferrane::Result<Vec<_>>>()?;
        let bound = Mutex::new(Arc::new(BoundSurfaces::new(&executable, &procedure, surfaces)?));
        Ok(LoadedKernel { device, executable, procedure, weights: 0, bound, flights: Arc::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<BoundSurfaces>> {
        // What is bound is replaced as a whole.
        lock(&self.bound)
    }

    /// What is bound now.
    pub(crate) fn bound(&self) -> Arc<BoundSurfaces> {
        self.lock().clone()
    }

    /// The surface at a place.
    pub(crate) fn surface(&self, place: &PortIndex) -> Result<Surface> {
        let (at, _) = place.find(&self.procedure)?;
        let found = self.lock().surfaces.get(at).cloned();
        found.ok_or_else(|| place.unknown(&self.procedure))
    }

    /// Binds another surface at a place.
    fn rebind(&self, place: &PortIndex, surface: Surface) -> Result<()> {
        let (at, _) = place.find(&self.procedure)?;
        let mut bound = self.lock();
        let mut surfaces = bound.surfaces.clone();
        if let Some(old) = surfaces.get_mut(at) {
            *old = surface;
        }
        *bound = Arc::new(BoundSurfaces::new(&self.executable, &self.procedure, surfaces)?);
        Ok(())
    }
}

/// Compiles MIL text with its blob files, loads it, and makes a kernel of its first procedure.
/// Counts if all went well.
pub(crate) fn compile(device: Device, mil: &[u8], files: &[(&str, &[u8])]) -> Result<LoadedKernel> {
    let mut weights = Weights::new();
    for (name, file) in files {
        weights.open_file(name, file.to_vec());
    }
    let source = ProgramSource::Text { mil, weights: &weights };
    let executable = device.compile(source, &CompileOptions::default())?.load()?;
    let procedure = procedure_ports(&executable, None)?;
    let kernel = LoadedKernel::new(device, executable, procedure)?;
    COMPILES.fetch_add(1, Ordering::Relaxed);
    Ok(kernel)
}

/// Compiles a program and loads it: MIL text, UTF-8, `mil_len` bytes without a zero byte at the
/// end, and the blob files that it names, which are copied. A null device is the process's. The
/// kernel is bound to the program's first function and has zeroed memory for each port. Free it
/// with ferrane_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_compile(
    device: *mut FerraneDevice,
    mil: *const c_char,
    mil_len: usize,
    weights: *const FerraneWeight,
    n_weights: usize,
    kernel: *mut *mut ANEKernelHandle,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: the caller's promise, for the text, the list, and what each entry of it points
        // to.
        let (out, mil, files) = unsafe {
            let out = Out::handle("kernel", kernel)?;
            let mil = arg::slice("mil", mil.cast::<u8>(), mil_len)?;
            let entry = |w: &FerraneWeight| {
                Ok((arg::text("weights.name", w.name)?, arg::slice("weights.data", w.data, w.len)?))
            };
            let files = arg::slice("weights", weights, n_weights)?.iter().map(entry).collect::<Result<Vec<_>>>()?;
            (out, mil, files)
        };
        let compiled = compile(self::device(device)?, mil, &files)?;
        out.set(KERNELS.insert(Arc::new(compiled))?);
        Ok(())
    })
}

/// Makes another kernel on the same loaded program, with memory of its own: for several runs in
/// flight, or for another function of the program. A null name is the function of the given kernel.
/// Nothing is compiled. Free it with ferrane_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_clone(
    kernel: *mut ANEKernelHandle,
    function: *const c_char,
    clone: *mut *mut ANEKernelHandle,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let (out, function) = unsafe { (Out::handle("clone", clone)?, arg::optional_text("function", function)?) };
        let kernel = KERNELS.get(kernel)?;
        let procedure = procedure_ports(&kernel.executable, Some(function.unwrap_or(&kernel.procedure.name)))?;
        let mut made = LoadedKernel::new(kernel.device.clone(), kernel.executable.clone(), procedure)?;
        made.weights = kernel.weights.min(made.procedure.inputs.len());
        out.set(KERNELS.insert(Arc::new(made))?);
        Ok(())
    })
}

/// Lets a port of a kernel use the memory of another kernel's port from now on: an output that is
/// the next kernel's input needs no copy. Type, shape and strides must be the same; memory that a
/// kernel writes cannot be bound to it twice. The memory lives as long as a kernel uses it.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_share(
    kernel: *mut ANEKernelHandle,
    kind: c_int,
    index: usize,
    from: *mut ANEKernelHandle,
    from_kind: c_int,
    from_index: usize,
) -> FerraneStatus {
    guard(|| {
        let (kernel, from) = (KERNELS.get(kernel)?, KERNELS.get(from)?);
        let surface = from.surface(&PortIndex { kind: from_kind, index: from_index })?;
        kernel.rebind(&PortIndex { kind, index }, surface)
    })
}

/// Ends a kernel; null does nothing. A run in flight ends first and its callback is still called;
/// the program is unloaded with the last kernel on it.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_free(kernel: *mut ANEKernelHandle) -> FerraneStatus {
    guard(|| free(kernel))
}

/// Ends a kernel.
pub(crate) fn free(kernel: *mut ANEKernelHandle) -> Result<()> {
    if kernel.is_null() { Ok(()) } else { KERNELS.remove(kernel).map(|_| ()) }
}

/// How many programs the process has compiled and loaded since it started or the count was reset.
/// An engine was seen to allow about 119 to a process (apple-runtime §3).
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_compile_count() -> c_int {
    COMPILES.load(Ordering::Relaxed)
}

/// Sets the count to zero. It gives no budget back.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_reset_compile_count() {
    COMPILES.store(0, Ordering::Relaxed);
}
