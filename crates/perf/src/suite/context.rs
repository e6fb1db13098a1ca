//! What every benchmark does with the device: compile, load, bind, warm up, time.

use std::time::{Duration, Instant};

use ferrane_device::{
    BoundProcedure, Call, CompileOptions, Device, ErrorKind, Executable, ProgramSource, Tensor, Tensors,
};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_host::random::Rng;
use ferrane_machine::cost::{CostModel, predict};
use ferrane_mil::{DataType, Program};
use ferrane_probe::{Answer, Attempt, DeviceUnderTest, Probe, ProbeProgram, all_probes, examine};
use ferrane_sensors::{Domain, Interval, Sensors};

use super::fits::{Drawn, Timed, findings};
use super::kernels::{Chain, Kernel};
use super::published::published;
use super::report::{SuiteCheck, SuiteFinding, SuitePower, SuiteResult, SuiteRow, SuiteTimes};
use crate::error::{Error, Result};
use crate::spread::{Repeats, WARM_UP, round};

/// The byte that fills outputs before the first evaluation. As fp16 and as fp32 it is NaN.
const POISON: u8 = 0xFF;
/// Repeats of evaluations that take longer than the time of a row.
const FEW: usize = 3;

/// How the suite measures.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    /// Timed evaluations of a row; if `None`, as many as `time` holds, from 7 to 1000 (3 of an
    /// evaluation that takes longer).
    pub repeat: Option<usize>,
    /// The time for a row's evaluations.
    pub time: Duration,
    /// The seed of random weights and inputs.
    pub seed: u64,
    /// Leave out configurations whose operations exceed this number of billions.
    pub most_gflop: f64,
    /// The model that predicts; if `None`, that of the device's profile.
    pub model: Option<CostModel>,
}

impl Default for SuiteOptions {
    fn default() -> SuiteOptions {
        SuiteOptions { repeat: None, time: Duration::from_millis(300), seed: 1, most_gflop: f64::INFINITY, model: None }
    }
}

/// A device that is measured, and the result that grows.
pub(super) struct Context<'c, 'd> {
    pub dut: &'c mut DeviceUnderTest<'d>,
    pub options: &'c SuiteOptions,
    pub rng: Rng,
    sensors: &'c mut Sensors,
    model: Option<CostModel>,
    chip: String,
    port: Option<DataType>,
    pub result: SuiteResult,
}

/// A program that ran, for more runs of it and for its results.
pub(super) struct Ran {
    pub executable: Executable,
    pub bound: BoundProcedure,
}

impl Ran {
    /// The output that the program names first.
    pub fn output(&self) -> Result<Tensor> {
        let outputs = self.bound.outputs()?;
        let (_, first) = outputs.iter().next().ok_or_else(|| Error::WrongResult("a program without outputs".into()))?;
        Ok(first.clone())
    }
}

impl<'c, 'd> Context<'c, 'd> {
    pub fn new(
        dut: &'c mut DeviceUnderTest<'d>,
        options: &'c SuiteOptions,
        sensors: &'c mut Sensors,
        result: SuiteResult,
    ) -> Context<'c, 'd> {
        let profile = dut.device().profile();
        let model = options.model.clone().or_else(|| CostModel::for_profile(profile).ok());
        let chip = profile.subject.chip.clone();
        Context { rng: Rng::new(options.seed), dut, options, sensors, model, chip, port: None, result }
    }

    pub fn device(&self) -> &Device {
        self.dut.device()
    }

    /// The element type of ports: fp32 with casts, as the reference programs have them, or fp16 on
    /// machines that do not cast (an M1 with macOS 26).
    ///
    /// # Errors
    /// The machine compiles nothing.
    pub fn port(&mut self) -> Result<DataType> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        let (shape, count) = ([1, 64, 1, 64], 64 * 64);
        let program = ProbeProgram::new()
            .word("fp16", "fp16")
            .word("fp32", "fp32")
            .input("x", "fp32", &shape)
            .op("fp16", &shape, "h", "cast(dtype = fp16, x = x)")
            .op("fp32", &shape, "r", "cast(dtype = fp32, x = h)")
            .output(&["r"]);
        let attempt = self.dut.attempt(&program, &[vec![0.5; count]])?;
        let port = if matches!(attempt, Attempt::Ran(_)) { DataType::Fp32 } else { DataType::Fp16 };
        self.port = Some(port);
        Ok(port)
    }

    /// Says why a part was not measured. Several reasons are joined by semicolons.
    pub fn skip(&mut self, why: impl Into<String>) {
        let why = why.into();
        let before = self.result.skipped.take();
        self.result.skipped = Some(before.map_or(why.clone(), |before| format!("{before}; {why}")));
    }

    /// Adds a finding if it is a number.
    pub fn find(&mut self, name: &str, value: f64, unit: &str, from: impl Into<String>) {
        if value.is_finite() {
            self.result.findings.push(SuiteFinding {
                name: name.into(),
                value: round(value),
                predicted: None,
                constant: None,
                unit: unit.into(),
                from: from.into(),
            });
        }
    }

    /// Adds what `draw` draws from the times of all rows.
    pub fn draw(&mut self, draw: fn(&Timed<'_>) -> Vec<Drawn>) {
        let found = findings(&self.result.rows, draw);
        self.result.findings.extend(found);
    }

    /// True if a kernel of this size is left out, which the result then says.
    pub fn too_large(&mut self, flops: f64) -> bool {
        let large = flops > self.options.most_gflop * 1e9;
        if large && !self.result.skipped.as_deref().is_some_and(|why| why.contains("GFLOP")) {
            self.skip(format!("configurations of more than {} GFLOP", self.options.most_gflop));
        }
        large
    }

    /// Measures a kernel and adds its row; `None` if nothing ran, and the row says why.
    ///
    /// # Errors
    /// An error that says nothing about the program, such as a spent budget.
    pub fn kernel(&mut self, mut row: SuiteRow, kernel: &Kernel) -> Result<Option<Ran>> {
        if kernel.flops > 0.0 {
            row.rate("gflop", kernel.flops / 1e9);
        }
        let ran = self.run(&mut row, &kernel.program, &kernel.inputs)?;
        if let Some(ms) = row.ms().filter(|_| kernel.flops > 0.0) {
            row.rate("tflops", kernel.flops / ms / 1e9);
        }
        self.result.rows.push(row);
        Ok(ran)
    }

    /// Compiles a program in the spelling that the machine reads, loads, binds and times it into a
    /// row.
    ///
    /// # Errors
    /// As [`Context::kernel`].
    pub fn run(&mut self, row: &mut SuiteRow, program: &Program, inputs: &Tensors) -> Result<Option<Ran>> {
        if self.dut.is_stopped() {
            return Err(Error::Stopped);
        }
        let spelling = self.dut.spelling()?;
        let program = &Program { version: spelling.version, dialect: spelling.dialect, ..program.clone() };
        let predicted = self.model.as_ref().and_then(|m| predict(program, m).ok());
        row.predicted_ms = predicted.as_ref().map(|p| round(p.total_us / 1e3));
        row.predicted_mj = predicted.and_then(|p| p.energy_mj).map(round);
        row.published = published(&row.kernel, &row.config, &self.chip);
        let mut begun = Instant::now();
        let mut lap = || {
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            begun = Instant::now();
            Some(round(ms))
        };
        let options = CompileOptions::labeled(self.result.name.clone());
        let ran = (|| {
            let artifact = self.device().compile(ProgramSource::Program(program), &options)?;
            row.compile_ms = lap();
            let executable = artifact.load()?;
            row.load_ms = lap();
            let bound = executable.bind(None)?;
            bound.write_inputs(inputs)?;
            for port in &bound.procedure().outputs {
                bound.surface(&port.name)?.write()?.bytes_mut().fill(POISON);
            }
            self.time(row, || bound.evaluate())?;
            Ok(Ran { executable, bound })
        })();
        match ran {
            Ok(ran) => Ok(Some(ran)),
            Err(Error::Device(error)) if about_program(error.kind()) => {
                row.failed = Some(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Times calls into a row, after some that warm up, with the power that the sensors meter.
    ///
    /// # Errors
    /// The first error of `call`.
    pub fn time(
        &mut self,
        row: &mut SuiteRow,
        mut call: impl FnMut() -> ferrane_device::Result<ferrane_device::Stats>,
    ) -> Result<()> {
        let (warm, first) = (Instant::now(), call()?);
        let slow = first.wall > self.options.time;
        let enough = (first.wall * WARM_UP as u32).min(self.options.time / 2);
        while !slow && warm.elapsed() < enough {
            call()?;
        }
        let repeats = match self.options.repeat {
            None if slow => Repeats::Count(FEW),
            count => Repeats::new(count, self.options.time)?,
        };
        let before = self.sensors.read();
        let mut calls = 0;
        if !slow && !before.energy.is_empty() {
            // Reading takes milliseconds, after which a call may be slower than those that follow.
            call()?;
            calls += 1;
        }
        let (mut wall, mut device, since) = (Vec::new(), Vec::new(), Instant::now());
        while repeats.wants_more(wall.len(), since) {
            let begun = Instant::now();
            let stats = call()?;
            wall.push(begun.elapsed());
            device.extend(stats.hardware);
        }
        row.power = power(&self.sensors.read().since(&before), calls + wall.len());
        // A clock of the device's own counts only if every evaluation reported it.
        row.device = (device.len() == wall.len()).then(|| SuiteTimes::new(device));
        row.evaluation = Some(SuiteTimes::new(wall));
        Ok(())
    }

    /// Runs a probe of the doctor, whose raw numbers the benchmark reads.
    ///
    /// # Errors
    /// [`Error::WrongResult`] if there is no such probe.
    pub fn probe(&mut self, name: &str) -> Result<Answer> {
        let named = |p: &&Probe| p.name == name;
        let probe = all_probes().iter().find(named);
        let probe = probe.ok_or_else(|| Error::WrongResult(format!("no probe `{name}`")))?;
        let answer = examine(self.dut, probe);
        if let Some(open) = &answer.open {
            self.skip(open);
        }
        Ok(answer)
    }

    /// Adds a row whose times a probe measured of a program like `chain`: its object of least,
    /// median and most milliseconds.
    pub fn probed(&mut self, mut row: SuiteRow, times: &serde_json::Value, chain: &Chain) {
        let predicted = self.model.as_ref().and_then(|model| Some(model.cost(chain.demands()?).total_us / 1e3));
        row.predicted_ms = predicted.map(round);
        let of = |key: &str| times.get(key).and_then(serde_json::Value::as_f64);
        if let (Some(median_ms), Some(lowest_ms), Some(highest_ms)) = (of("median"), of("least"), of("most")) {
            let repeats = times.get("repeats").and_then(serde_json::Value::as_u64).unwrap_or(1) as usize;
            row.evaluation = Some(SuiteTimes { median_ms, lowest_ms, highest_ms, repeats });
        }
        let row = self.with_published(row);
        self.result.rows.push(row);
    }

    /// The row with its published values.
    pub fn with_published(&self, row: SuiteRow) -> SuiteRow {
        SuiteRow { published: published(&row.kernel, &row.config, &self.chip), ..row }
    }

    /// Sets the check of the row before.
    pub fn check_with(&mut self, check: SuiteCheck) {
        if let Some(row) = self.result.rows.last_mut() {
            row.check = Some(check);
        }
    }

    /// Compares the first output with the emulator's in exact arithmetic, for the row before.
    ///
    /// # Errors
    /// The emulator cannot run the program.
    pub fn check_last(&mut self, kernel: &Kernel, ran: &Ran, tolerance: f64) -> Result<()> {
        let check = self.against_exact(kernel, ran, tolerance)?;
        self.check_with(check);
        Ok(())
    }

    /// The comparison of [`Context::check_last`].
    ///
    /// # Errors
    /// As [`Context::check_last`].
    pub fn against_exact(&self, kernel: &Kernel, ran: &Ran, tolerance: f64) -> Result<SuiteCheck> {
        let mut options = EmulatorOptions::default();
        options.numerics = Numerics::Exact;
        let oracle = Device::new(Emulator::new(options));
        let returned = oracle.call(&kernel.program, Call::new().inputs(kernel.inputs.clone()))?;
        let Some((name, wanted)) = returned.outputs.iter().next() else {
            return Err(Error::WrongResult("a program without outputs".into()));
        };
        let found = ran.bound.read(name)?.to_f32();
        Ok(SuiteCheck::new("the emulator in exact arithmetic", &found, &wanted.to_f32(), tolerance))
    }

    /// The rows so far that ran.
    pub fn timed(&self) -> impl Iterator<Item = (&SuiteRow, f64)> {
        self.result.rows.iter().filter_map(|row| Some((row, row.ms()?)))
    }
}

/// What each metered part drew in an interval of this many evaluations.
fn power(interval: &Interval, evaluations: usize) -> Vec<SuitePower> {
    let metered = Domain::ALL.into_iter().filter_map(|domain| interval.power(domain));
    metered
        .map(|power| SuitePower {
            domain: power.domain.name().into(),
            source: power.source.into(),
            watts: round(power.watts),
            mj: round(1e3 * power.joules / evaluations.max(1) as f64),
        })
        .collect()
}

/// True if an error is about the program: another one may run.
fn about_program(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidProgram | ErrorKind::Unsupported | ErrorKind::Load | ErrorKind::Evaluate | ErrorKind::Binding
    )
}
