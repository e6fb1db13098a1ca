//! What an evaluation costs besides its arithmetic.
//!
//! A program of one op over 32 values is compiled, loaded and prepared once, then evaluated many
//! times, each time on its own clock: on the caller's thread (`evaluate`), and submitted and waited
//! for (`submit`, the time until the call returns; `complete`, the time until the result is there).
//! Every time includes two readings of the clock, whose cost the report has as `clock`.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use ferrane_device::{Bindings, Device, Request};
use ferrane_mil::{Builder, DataType, Opset, Program, Type};
use serde::Serialize;

use crate::computer::Computer;
use crate::error::{Error, Result};
use crate::spread::{Spread, Unit, checked_count, rounded, short};

/// Values of the input: one row of 64 bytes, the least that engines take.
const VALUES: usize = 32;
/// Evaluations that warm up.
const WARM_UP: usize = 200;

/// Times in microseconds, with their 99th percentile.
#[derive(Clone, Debug, Serialize)]
pub struct DispatchTimes {
    /// Median, extremes and count.
    #[serde(flatten)]
    pub times: Spread,
    /// Their 99th percentile.
    #[serde(serialize_with = "rounded")]
    pub p99_us: f64,
}

/// What [`dispatch`] measured. Prints as a table.
#[derive(Clone, Debug, Serialize)]
pub struct DispatchReport {
    /// The device, with its options.
    pub device: String,
    /// The computer that the times come from.
    #[serde(rename = "machine")]
    pub computer: Computer,
    /// The program that was evaluated.
    pub program: String,
    /// Evaluations on the caller's thread.
    pub evaluate: DispatchTimes,
    /// Submissions, until the call returns.
    pub submit: DispatchTimes,
    /// Submissions, until the result is there.
    pub complete: DispatchTimes,
    /// Two readings of the clock.
    pub clock: DispatchTimes,
}

/// Measures `repeat` evaluations of each kind on `device`.
///
/// # Errors
/// [`Error::Option`] for 0 repeats or more than [`MOST`](crate::MOST), [`Error::Device`], and
/// [`Error::WrongResult`] if the output is wrong.
pub fn dispatch(device: &Device, repeat: usize) -> Result<DispatchReport> {
    let repeat = checked_count("repeat", repeat)?;
    let executable = device.load(&minimal()?, "bench dispatch")?;
    let procedure = executable.procedure("main")?;
    let [x, y] = ["x", "y"].map(|port| device.surface(&device.fitted(procedure, port)?));
    let (x, y) = (x?, y?);
    let values: Vec<f32> = (0..VALUES).map(|i| i as f32 - 15.5).collect();
    x.write_f32(&values)?;
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y))?;
    let report = DispatchReport {
        device: device.name(),
        computer: Computer::detect(),
        program: format!("relu of fp16 [1, 1, 1, {VALUES}]"),
        evaluate: micros(repeat, || evaluate(&request))?,
        submit: micros(repeat, || submit(&request))?,
        complete: micros(repeat, || complete(&request))?,
        clock: micros(repeat, || Ok(elapsed(Instant::now())))?,
    };
    let expected: Vec<f32> = values.iter().map(|v| v.max(0.0)).collect();
    if y.read_f32()? != expected {
        return Err(Error::WrongResult("the measured program's output is wrong".into()));
    }
    Ok(report)
}

impl fmt::Display for DispatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeats = self.evaluate.times.count();
        writeln!(f, "one op over {VALUES} values on {}, {repeats} times each", self.device)?;
        writeln!(f, "  {}", self.computer)?;
        writeln!(f, "                       median       p99    lowest   highest")?;
        let rows = [
            ("evaluate", &self.evaluate),
            ("submit", &self.submit),
            ("complete", &self.complete),
            ("clock alone", &self.clock),
        ];
        for (name, DispatchTimes { times, p99_us }) in rows {
            let columns = [times.median(), *p99_us, times.lowest(), times.highest()];
            let columns: String = columns.iter().map(|us| format!("{:>10}", short(*us))).collect();
            writeln!(f, "  {name:16} {columns}  µs")?;
        }
        writeln!(f, "  evaluate: on this thread; submit: until the call returns; complete: until the result is there")
    }
}

/// `y = relu(x)`.
fn minimal() -> Result<Program> {
    let mut b = Builder::new("main", Opset::IOS16);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 1, 1, VALUES]))?;
    let y = b.op("relu", "y", [("x", x.into())])?;
    Ok(b.finish(&[("y", y)])?)
}

fn elapsed(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6
}

/// The spread of `call`, which returns its own time in microseconds.
fn micros(repeat: usize, mut call: impl FnMut() -> Result<f64>) -> Result<DispatchTimes> {
    for _ in 0..WARM_UP.min(repeat) {
        call()?;
    }
    let times = (0..repeat).map(|_| call()).collect::<Result<Vec<f64>>>()?;
    let times = Spread::new(Unit::Microseconds, times);
    Ok(DispatchTimes { p99_us: times.quantile(0.99), times })
}

fn evaluate(request: &Request) -> Result<f64> {
    let begun = Instant::now();
    black_box(request.evaluate()?);
    Ok(elapsed(begun))
}

fn submit(request: &Request) -> Result<f64> {
    let begun = Instant::now();
    let submission = request.submit()?;
    let time = elapsed(begun);
    submission.wait()?;
    Ok(time)
}

fn complete(request: &Request) -> Result<f64> {
    let begun = Instant::now();
    black_box(request.submit()?.wait()?);
    Ok(elapsed(begun))
}

#[cfg(test)]
mod tests {
    use ferrane_emulator::{Emulator, EmulatorOptions};

    use super::*;

    #[test]
    fn each_way_of_evaluating_is_measured() {
        let device = Device::new(Emulator::new(EmulatorOptions::default()));
        let report = dispatch(&device, 20).unwrap();
        assert_eq!((report.evaluate.times.count(), report.clock.times.count()), (20, 20));
        assert!(report.to_string().contains("clock alone"));
        assert!(matches!(dispatch(&device, 0), Err(Error::Option { option: "repeat", .. })));
    }
}
