//! The device under examination, and what every probe does with it: compile, run, compare.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_device::{
    Artifact, Bindings, CompileOptions, Device, Error, ErrorKind, Executable, Layout, Port, Request, Result, Source,
    Surface,
};
use ferrane_emulator::{Emulator, Numerics, Options};

use crate::{Draft, Info, Spelling};

/// Opens the device under examination anew; the text is further options, `dispatch=direct` for example.
pub type Open<'a> = Box<dyn Fn(&str) -> Result<Device> + 'a>;

/// Bytes that no claim holds too few for a surface.
pub(crate) const ROOMY: usize = 1 << 16;

/// What the bytes of an output are before an evaluation: a NaN, in fp16 and in fp32.
const POISON: u8 = 0x7f;

/// How far results may lie from exact ones: the error of a function's table, doubled, and some steps of fp16 for sums.
const TOLERANCE: f32 = 0.02;

/// What came of a program.
#[derive(Debug)]
pub enum Attempt {
    /// The compiler did not take it.
    Refused(Error),
    /// It was not loaded, or its evaluation failed.
    Failed(Error),
    /// The outputs, in the order of the draft.
    Ran(Vec<Vec<f32>>),
}

/// How results compare with exact ones.
#[derive(Debug)]
pub(crate) enum Judgement {
    Refused(Error),
    Failed(Error),
    /// The outputs are as they were before: nothing ran.
    Untouched,
    /// The largest difference is beyond what rounding does.
    Wrong(f32),
    Right(f32),
}

/// The device under examination.
pub struct Place<'a> {
    open: Open<'a>,
    device: Device,
    oracle: Device,
    spelling: Option<Spelling>,
    compiles: usize,
    stop: &'a AtomicBool,
}

/// A program with its surfaces bound.
pub(crate) struct Bound {
    pub executable: Executable,
    pub inputs: Vec<Surface>,
    pub outputs: Vec<Surface>,
    pub request: Request,
}

impl<'a> Place<'a> {
    /// Opens the device; `stop` ends the examination at the next compile.
    ///
    /// # Errors
    /// The device could not be opened.
    pub fn new(open: Open<'a>, stop: &'a AtomicBool) -> Result<Place<'a>> {
        let device = open("")?;
        let mut options = Options::default();
        options.numerics = Numerics::Exact;
        let oracle = Device::new(Emulator::new(options));
        Ok(Place { open, device, oracle, spelling: None, compiles: 0, stop })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The same device with further options.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] if it has no such option.
    pub fn with(&self, options: &str) -> Result<Device> {
        (self.open)(options)
    }

    /// Opens it anew, in place of the one that was.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn reopen(&mut self) -> Result<()> {
        self.device = (self.open)("")?;
        Ok(())
    }

    /// Counts compiles that went another way than [`Place::attempt`].
    pub(crate) fn count(&mut self, compiles: usize) {
        self.compiles += compiles;
    }

    /// Successful compiles so far.
    pub fn compiles(&self) -> usize {
        self.compiles
    }

    /// True once the examination is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn go_on(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::new(ErrorKind::Unavailable, "the examination was stopped")) } else { Ok(()) }
    }

    /// The first spelling that the machine reads, the newest first.
    ///
    /// # Errors
    /// It reads none of them.
    pub fn spelling(&mut self) -> Result<Spelling> {
        if let Some(found) = self.spelling {
            return Ok(found);
        }
        let mut last = None;
        for tried in Spelling::TRIED {
            match self.compile_as(&plain(), &tried, Info::Line) {
                Ok(_) => {
                    self.spelling = Some(tried);
                    return Ok(tried);
                }
                Err(error) => last = Some(refusal(error)?),
            }
        }
        let message = "the device compiles not even an addition, in no spelling";
        let error = Error::new(ErrorKind::Unsupported, message);
        Err(match last {
            Some(cause) => error.with_source(cause),
            None => error,
        })
    }

    /// Compiles a draft in a spelling.
    pub(crate) fn compile_as(&mut self, draft: &Draft, spelling: &Spelling, info: Info) -> Result<Artifact> {
        self.go_on()?;
        let text = draft.text(spelling, info)?;
        let source = Source::Text { mil: text.as_bytes(), weights: &draft.weights };
        let artifact = self.device.compile(source, &CompileOptions::labelled("probe"))?;
        self.compiles += 1;
        Ok(artifact)
    }

    /// Compiles a draft.
    pub(crate) fn compile(&mut self, draft: &Draft) -> Result<Artifact> {
        let spelling = self.spelling()?;
        if !draft.fits(&spelling) {
            let message = format!("the machine reads {} at most, and the op is newer", spelling.opset);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        self.compile_as(draft, &spelling, Info::Line)
    }

    /// Whether it compiles; what says nothing about the program is an error.
    pub(crate) fn compiles_draft(&mut self, draft: &Draft) -> Result<std::result::Result<(), Error>> {
        match self.compile(draft) {
            Ok(_) => Ok(Ok(())),
            Err(error) => Ok(Err(refusal(error)?)),
        }
    }

    /// Binds surfaces that are larger than any claim wants them.
    pub(crate) fn bind(&self, executable: Executable, draft: &Draft) -> Result<Bound> {
        self.bind_with(executable, draft, |_, largest| largest)
    }

    /// Binds surfaces of chosen sizes; what the closure is given is the port and the size that suits all ports.
    pub(crate) fn bind_with(
        &self,
        executable: Executable,
        draft: &Draft,
        size: impl Fn(&Port, usize) -> usize,
    ) -> Result<Bound> {
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
        let inputs = draft.inputs.iter().map(|(name, ..)| surface(name)).collect::<Result<Vec<_>>>()?;
        let outputs = draft.outputs.iter().map(surface).collect::<Result<Vec<_>>>()?;
        let mut bindings = Bindings::new();
        for ((name, ..), surface) in draft.inputs.iter().zip(&inputs) {
            bindings = bindings.bind(name, surface);
        }
        for (name, surface) in draft.outputs.iter().zip(&outputs) {
            bindings = bindings.bind(name, surface);
        }
        let request = executable.prepare(bindings)?;
        Ok(Bound { executable, inputs, outputs, request })
    }

    /// Compiles, loads, runs.
    ///
    /// # Errors
    /// What says nothing about the program: a spent budget, no memory, an op newer than the machine's opsets.
    pub fn attempt(&mut self, draft: &Draft, inputs: &[Vec<f32>]) -> Result<Attempt> {
        let artifact = match self.compile(draft) {
            Ok(artifact) => artifact,
            Err(error) => return Ok(Attempt::Refused(refusal(error)?)),
        };
        let run = || {
            let bound = self.bind(artifact.load()?, draft)?;
            bound.run(inputs)
        };
        match run() {
            Ok(outputs) => Ok(Attempt::Ran(outputs)),
            Err(error) => Ok(Attempt::Failed(failure(error)?)),
        }
    }

    /// Runs a program of one output and gives it.
    pub(crate) fn one(&mut self, draft: &Draft, inputs: &[Vec<f32>]) -> Result<Vec<f32>> {
        match self.attempt(draft, inputs)? {
            Attempt::Ran(outputs) => Ok(outputs.into_iter().next().unwrap_or_default()),
            Attempt::Refused(error) | Attempt::Failed(error) => Err(error),
        }
    }

    /// What exact arithmetic makes of it.
    pub(crate) fn exact(&self, draft: &Draft, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
        let text = draft.text(&Spelling::TRIED[0], Info::Line)?;
        let source = Source::Text { mil: text.as_bytes(), weights: &draft.weights };
        let executable = self.oracle.compile(source, &CompileOptions::labelled("oracle"))?.load()?;
        let mut bindings = Bindings::new();
        for ((name, ..), values) in draft.inputs.iter().zip(inputs) {
            let surface = self.oracle.surface(&executable.port(name)?.layout)?;
            surface.write_f32(values)?;
            bindings = bindings.bind(name, &surface);
        }
        let mut outputs = Vec::new();
        for name in &draft.outputs {
            let surface = self.oracle.surface(&executable.port(name)?.layout)?;
            bindings = bindings.bind(name, &surface);
            outputs.push(surface);
        }
        executable.prepare(bindings)?.evaluate()?;
        outputs.iter().map(Surface::read_f32).collect()
    }

    /// Runs it and compares with exact arithmetic.
    pub(crate) fn judge(&mut self, draft: &Draft, inputs: &[Vec<f32>]) -> Result<Judgement> {
        let found = match self.attempt(draft, inputs)? {
            Attempt::Refused(error) => return Ok(Judgement::Refused(error)),
            Attempt::Failed(error) => return Ok(Judgement::Failed(error)),
            Attempt::Ran(found) => found,
        };
        if found.iter().all(|output| output.iter().all(|v| v.is_nan())) {
            return Ok(Judgement::Untouched);
        }
        let exact = self.exact(draft, inputs)?;
        let pairs = found.iter().flatten().zip(exact.iter().flatten());
        let (mut most, mut wrong) = (0.0f32, false);
        for (found, exact) in pairs {
            let difference = (found - exact).abs();
            // A NaN is no number, however far.
            wrong |= difference.is_nan() || difference > TOLERANCE + TOLERANCE * exact.abs();
            most = if difference.is_nan() { f32::INFINITY } else { most.max(difference) };
        }
        Ok(if wrong { Judgement::Wrong(most) } else { Judgement::Right(most) })
    }
}

impl Bound {
    /// Writes the inputs, spoils the outputs, evaluates, reads.
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

/// The error, if it is about the program; else it ends the probe.
pub(crate) fn refusal(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::InvalidProgram | ErrorKind::Unsupported => Ok(error),
        _ => Err(error),
    }
}

/// The error, if it is about the program or its surfaces; else it ends the probe.
pub(crate) fn failure(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::Load | ErrorKind::Evaluate => Ok(error),
        _ => Err(error),
    }
}

/// The usual shape: channels and columns that no claim has trouble with.
pub(crate) const SHAPE: [usize; 4] = [1, 64, 1, 64];
/// Its elements.
pub(crate) const ELEMENTS: usize = 64 * 64;

/// x + x.
pub(crate) fn plain() -> Draft {
    Draft::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "r", "add(x = x, y = x)").output(&["r"])
}

/// Numbers between a quarter and one and a quarter that fp16 holds.
pub(crate) fn ramp(elements: usize) -> Vec<f32> {
    (0..elements).map(|i| 0.25 + (i * 7 % 17) as f32 / 16.0).collect()
}
