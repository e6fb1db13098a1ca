//! Kernels: a loaded program with its own surfaces, one for each port of a procedure.

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

/// A kernel: a compiled and loaded program with memory for its ports. The type has the name in the
/// reference's bridge. The handle is not an address; it may be used from any thread.
pub struct ANEKernelHandle {
    _private: [u8; 0],
}

/// A blob file for ferrane_compile.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FerraneWeight {
    /// The path in the program, such as "@model_path/weights/weight.bin"; UTF-8, terminated by a
    /// zero byte.
    pub name: *const c_char,
    /// The contents of the file.
    pub data: *const u8,
    /// The size of the file in bytes.
    pub len: usize,
}

pub(crate) static KERNELS: HandleTable<LoadedKernel> = HandleTable::new("kernel");

/// The number of successful compiles of the process.
static COMPILES: AtomicI32 = AtomicI32::new(0);

/// A loaded program with one of its procedures, and the bound surfaces.
pub(crate) struct LoadedKernel {
    device: Device,
    executable: Executable,
    pub procedure: Procedure,
    /// The number of inputs that are weights: the last ones. The bridge's functions for weights
    /// number them from 0.
    pub weights: usize,
    bound: Mutex<Arc<BoundSurfaces>>,
    pub flights: Arc<Flights>,
}

/// The surfaces in the order of the procedure's ports, and the request over them.
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
        // The bound surfaces are replaced as a whole.
        lock(&self.bound)
    }

    /// The surfaces that are bound now.
    pub(crate) fn bound(&self) -> Arc<BoundSurfaces> {
        self.lock().clone()
    }

    /// The surface of a port.
    pub(crate) fn surface(&self, place: &PortIndex) -> Result<Surface> {
        let (at, _) = place.find(&self.procedure)?;
        let found = self.lock().surfaces.get(at).cloned();
        found.ok_or_else(|| place.unknown(&self.procedure))
    }

    /// Binds another surface to a port.
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
/// Counts the compile if everything succeeds.
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

/// Compiles and loads a program: MIL text, UTF-8, `mil_len` bytes without a terminating zero byte,
/// and the blob files that it names, which are copied. A null device means the process's. The
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
        // SAFETY: by the contract of the C interface, `mil` has `mil_len` bytes, `weights` has its
        // number of entries, and each entry has a terminated name and `len` bytes.
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

/// Makes another kernel on the same loaded program, with its own memory: for several runs in
/// flight, or for another function of the program. A null name means the function of the given
/// kernel. Nothing is compiled. Free it with ferrane_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferrane_clone(
    kernel: *mut ANEKernelHandle,
    function: *const c_char,
    clone: *mut *mut ANEKernelHandle,
) -> FerraneStatus {
    guard(|| {
        // SAFETY: by the contract of the C interface, `clone` is writable and `function` is null or
        // a terminated string.
        let (out, function) = unsafe { (Out::handle("clone", clone)?, arg::optional_text("function", function)?) };
        let kernel = KERNELS.get(kernel)?;
        let procedure = procedure_ports(&kernel.executable, Some(function.unwrap_or(&kernel.procedure.name)))?;
        let mut made = LoadedKernel::new(kernel.device.clone(), kernel.executable.clone(), procedure)?;
        made.weights = kernel.weights.min(made.procedure.inputs.len());
        out.set(KERNELS.insert(Arc::new(made))?);
        Ok(())
    })
}

/// Makes a port of a kernel use the memory of another kernel's port from now on, so an output that
/// is the next kernel's input needs no copy. Type, shape and strides must be the same; memory that
/// a kernel writes cannot be bound to it twice. The memory lives as long as a kernel uses it.
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

/// Frees a kernel; null has no effect. A run in flight completes first, and its callback is still
/// called; the program is unloaded with its last kernel.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_free(kernel: *mut ANEKernelHandle) -> FerraneStatus {
    guard(|| free(kernel))
}

/// Frees a kernel after its run in flight, if any.
pub(crate) fn free(kernel: *mut ANEKernelHandle) -> Result<()> {
    if kernel.is_null() { Ok(()) } else { KERNELS.remove(kernel).map(|_| ()) }
}

/// The number of programs that the process has compiled and loaded since it started or the count
/// was reset. An engine was observed to allow about 119 per process (apple-runtime §3).
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_compile_count() -> c_int {
    COMPILES.load(Ordering::Relaxed)
}

/// Sets the count to zero. This does not restore the engine's budget.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_reset_compile_count() {
    COMPILES.store(0, Ordering::Relaxed);
}
