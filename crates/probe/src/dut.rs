//! The device under test, and what every probe does with it: compile, run, compare.
//!
//! Errors are sorted here. An error about the program or its surfaces is a measurement
//! ([`Attempt::Refused`], [`Attempt::Failed`]); any other error (a spent budget, no memory, an
//! examination that was stopped) says nothing about the program and ends the probe.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_device::{
    Artifact, Bindings, Call, CompileOptions, Device, Error, ErrorKind, Executable, Layout, Port, ProgramSource,
    Request, Result, Surface, Tensor,
};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};

use crate::program::{BuildInfo, ProbeProgram, Spelling};

/// Opens the device under test again. The text adds options, `dispatch=direct` for example.
pub type OpenDevice<'a> = Box<dyn Fn(&str) -> Result<Device> + 'a>;

/// A surface size in bytes that every claim considers large enough.
pub(crate) const ROOMY: usize = 1 << 16;

/// The bytes of an output before an evaluation. As fp16 and as fp32 they are NaN.
const POISON: u8 = 0x7f;

/// How far a result may be from the exact one, absolute and relative: twice the error of a function
/// table, and a few fp16 roundings of sums.
const TOLERANCE: f32 = 0.02;

/// What happened to a program.
#[derive(Debug)]
pub enum Attempt {
    /// The compiler refused it.
    Refused(Error),
    /// It compiled, and its load or its evaluation failed.
    Failed(Error),
    /// It ran. The outputs, in the order of the program.
    Ran(Vec<Vec<f32>>),
}

/// How the results of a program compare with exact arithmetic.
#[derive(Debug)]
pub(crate) enum Judgment {
    Refused(Error),
    Failed(Error),
    /// The outputs are unchanged: nothing was written.
    Untouched,
    /// The largest difference, larger than rounding explains.
    Wrong(f32),
    /// The largest difference, within the tolerance.
    Right(f32),
}

/// The device under test, with the emulator in exact arithmetic to compare with.
pub struct DeviceUnderTest<'a> {
    open: OpenDevice<'a>,
    device: Device,
    oracle: Device,
    spelling: Option<Spelling>,
    compiles: usize,
    stop: &'a AtomicBool,
}

/// A loaded program with its surfaces bound.
///
/// Probes choose the sizes of surfaces, read outputs that nothing wrote, evaluate one request many
/// times and pass one program's output to the next, so they keep surfaces and request.
pub(crate) struct PreparedProgram {
    pub executable: Executable,
    pub inputs: Vec<Surface>,
    pub outputs: Vec<Surface>,
    pub request: Request,
}

impl<'a> DeviceUnderTest<'a> {
    /// Opens the device. Once `stop` is set, the next compile fails and so ends the probe.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn new(open: OpenDevice<'a>, stop: &'a AtomicBool) -> Result<DeviceUnderTest<'a>> {
        let device = open("")?;
        let mut options = EmulatorOptions::default();
        options.numerics = Numerics::Exact;
        let oracle = Device::new(Emulator::new(options));
        Ok(DeviceUnderTest { open, device, oracle, spelling: None, compiles: 0, stop })
    }

    /// The device that is open; [`DeviceUnderTest::reopen`] replaces it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Opens the device with additional options, next to the one that is open.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] if the device has no such option.
    pub fn with(&self, options: &str) -> Result<Device> {
        (self.open)(options)
    }

    /// Replaces the open device by one opened again, for probes that may have poisoned it.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn reopen(&mut self) -> Result<()> {
        self.device = (self.open)("")?;
        Ok(())
    }

    /// Counts compiles that a probe made on a device of [`DeviceUnderTest::with`].
    pub(crate) fn count_compiles(&mut self, compiles: usize) {
        self.compiles += compiles;
    }

    /// Number of successful compiles so far.
    pub fn compiles(&self) -> usize {
        self.compiles
    }

    /// True once the examination should end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn check_stop(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::new(ErrorKind::Unavailable, "the examination was stopped")) } else { Ok(()) }
    }

    /// The newest spelling that the machine reads. It is found once and kept.
    ///
    /// # Errors
    /// The machine reads no spelling that is tried.
    pub fn spelling(&mut self) -> Result<Spelling> {
        if let Some(found) = self.spelling {
            return Ok(found);
        }
        let mut last = None;
        for tried in Spelling::TRIED {
            match self.compile_as(&plain(), &tried, BuildInfo::Line) {
                Ok(_) => {
                    self.spelling = Some(tried);
                    return Ok(tried);
                }
                Err(error) => last = Some(refusal(error)?),
            }
        }
        let message = "the device does not compile even an addition, in any spelling";
        let error = Error::new(ErrorKind::Unsupported, message);
        Err(match last {
            Some(cause) => error.with_source(cause),
            None => error,
        })
    }

    /// Compiles a program in a spelling.
    pub(crate) fn compile_as(
        &mut self,
        program: &ProbeProgram,
        spelling: &Spelling,
        info: BuildInfo,
    ) -> Result<Artifact> {
        self.check_stop()?;
        let text = program.text(spelling, info)?;
        let source = ProgramSource::Text { mil: text.as_bytes(), weights: &program.weights };
        let artifact = self.device.compile(source, &CompileOptions::labeled("probe"))?;
        self.compiles += 1;
        Ok(artifact)
    }

    /// Compiles a program in the spelling that the machine reads.
    pub(crate) fn compile(&mut self, program: &ProbeProgram) -> Result<Artifact> {
        let spelling = self.spelling()?;
        if !program.fits(&spelling) {
            let message = format!("the machine reads opsets up to {}, and the op is newer", spelling.opset);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        self.compile_as(program, &spelling, BuildInfo::Line)
    }

    /// Compiles a program and discards it. The inner error is the compiler's refusal; an error that
    /// says nothing about the program is returned as one.
    pub(crate) fn try_compile(&mut self, program: &ProbeProgram) -> Result<std::result::Result<(), Error>> {
        match self.compile(program) {
            Ok(_) => Ok(Ok(())),
            Err(error) => Ok(Err(refusal(error)?)),
        }
    }

    /// Binds surfaces that are large enough for every claim.
    pub(crate) fn bind(&self, executable: Executable, program: &ProbeProgram) -> Result<PreparedProgram> {
        self.bind_with(executable, program, |_, largest| largest)
    }

    /// Binds surfaces whose sizes in bytes `size` chooses, given the port and a size that suits all
    /// ports. No surface becomes smaller than its layout.
    pub(crate) fn bind_with(
        &self,
        executable: Executable,
        program: &ProbeProgram,
        size: impl Fn(&Port, usize) -> usize,
    ) -> Result<PreparedProgram> {
        let procedure = executable
            .procedures()
            .first()
            .ok_or_else(|| Error::new(ErrorKind::Binding, "the program has no procedure"))?;
        let largest = procedure.ports().map(|p| p.layout.allocation).max().unwrap_or(0);
        let largest = largest.max(1).next_multiple_of(ROOMY);
        let surface = |name: &String| {
            let port = procedure.port(name)?;
            let allocation = size(port, largest).max(port.layout.span());
            self.device.surface(&Layout { allocation, ..port.layout.clone() })
        };
        let inputs = program.inputs.iter().map(|(name, ..)| surface(name)).collect::<Result<Vec<_>>>()?;
        let outputs = program.outputs.iter().map(surface).collect::<Result<Vec<_>>>()?;
        let mut bindings = Bindings::new();
        for ((name, ..), surface) in program.inputs.iter().zip(&inputs) {
            bindings = bindings.bind(name, surface);
        }
        for (name, surface) in program.outputs.iter().zip(&outputs) {
            bindings = bindings.bind(name, surface);
        }
        let request = executable.prepare(bindings)?;
        Ok(PreparedProgram { executable, inputs, outputs, request })
    }

    /// Compiles a program, loads it and evaluates it once.
    ///
    /// # Errors
    /// An error that says nothing about the program: a spent budget, no memory, an op newer than
    /// the machine's opsets.
    pub fn attempt(&mut self, program: &ProbeProgram, inputs: &[Vec<f32>]) -> Result<Attempt> {
        let artifact = match self.compile(program) {
            Ok(artifact) => artifact,
            Err(error) => return Ok(Attempt::Refused(refusal(error)?)),
        };
        let run = || {
            let bound = self.bind(artifact.load()?, program)?;
            bound.run(inputs)
        };
        match run() {
            Ok(outputs) => Ok(Attempt::Ran(outputs)),
            Err(error) => Ok(Attempt::Failed(failure(error)?)),
        }
    }

    /// Runs a program and returns its first output; a refusal or failure is an error.
    pub(crate) fn first_output(&mut self, program: &ProbeProgram, inputs: &[Vec<f32>]) -> Result<Vec<f32>> {
        match self.attempt(program, inputs)? {
            Attempt::Ran(outputs) => Ok(outputs.into_iter().next().unwrap_or_default()),
            Attempt::Refused(error) | Attempt::Failed(error) => Err(error),
        }
    }

    /// The program's outputs in exact arithmetic.
    pub(crate) fn exact(&self, program: &ProbeProgram, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
        let text = program.text(&Spelling::TRIED[0], BuildInfo::Line)?;
        let source = ProgramSource::Text { mil: text.as_bytes(), weights: &program.weights };
        let executable = self.oracle.compile(source, &CompileOptions::labeled("oracle"))?.load()?;
        let mut call = Call::new();
        for ((name, ..), values) in program.inputs.iter().zip(inputs) {
            let layout = &executable.port(name)?.layout;
            call = call.input(name, Tensor::from_f32(layout.dtype, &layout.shape, values)?);
        }
        let returned = executable.call(call)?;
        program.outputs.iter().map(|name| Ok(returned.get(name)?.to_f32())).collect()
    }

    /// Runs a program and compares its outputs with exact arithmetic.
    pub(crate) fn judge(&mut self, program: &ProbeProgram, inputs: &[Vec<f32>]) -> Result<Judgment> {
        let found = match self.attempt(program, inputs)? {
            Attempt::Refused(error) => return Ok(Judgment::Refused(error)),
            Attempt::Failed(error) => return Ok(Judgment::Failed(error)),
            Attempt::Ran(found) => found,
        };
        if found.iter().all(|output| output.iter().all(|v| v.is_nan())) {
            return Ok(Judgment::Untouched);
        }
        let exact = self.exact(program, inputs)?;
        let pairs = found.iter().flatten().zip(exact.iter().flatten());
        let (mut most, mut wrong) = (0.0f32, false);
        for (found, exact) in pairs {
            let difference = (found - exact).abs();
            // No tolerance covers a NaN.
            wrong |= difference.is_nan() || difference > TOLERANCE + TOLERANCE * exact.abs();
            most = if difference.is_nan() { f32::INFINITY } else { most.max(difference) };
        }
        Ok(if wrong { Judgment::Wrong(most) } else { Judgment::Right(most) })
    }
}

impl PreparedProgram {
    /// Writes the inputs, fills the outputs with NaN, evaluates, and reads the outputs.
    pub(crate) fn run(&self, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
        for (surface, values) in self.inputs.iter().zip(inputs) {
            surface.write_f32(values)?;
        }
        for surface in &self.outputs {
            surface.write()?.bytes_mut().fill(POISON);
        }
        self.request.evaluate()?;
        self.outputs.iter().map(Surface::read_f32).collect()
    }
}

/// Passes on a compiler's refusal as a value; any other error ends the probe.
pub(crate) fn refusal(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::InvalidProgram | ErrorKind::Unsupported => Ok(error),
        _ => Err(error),
    }
}

/// Passes on a failed load or evaluation as a value; any other error ends the probe.
pub(crate) fn failure(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::Load | ErrorKind::Evaluate => Ok(error),
        _ => Err(error),
    }
}

/// The usual shape: no claim limits these numbers of channels and columns.
pub(crate) const SHAPE: [usize; 4] = [1, 64, 1, 64];
/// Elements of [`SHAPE`].
pub(crate) const ELEMENTS: usize = 64 * 64;

/// The program x + x.
pub(crate) fn plain() -> ProbeProgram {
    ProbeProgram::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "r", "add(x = x, y = x)").output(&["r"])
}

/// Numbers from 0.25 to 1.25 that are exact in fp16.
pub(crate) fn ramp(elements: usize) -> Vec<f32> {
    (0..elements).map(|i| 0.25 + (i * 7 % 17) as f32 / 16.0).collect()
}
