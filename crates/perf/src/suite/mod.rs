//! The suite: benchmarks of an engine that repeat the measurements of the reference work.
//!
//! A [`Benchmark`] answers one question, such as where weights leave on-chip memory, with rows of
//! configurations and with findings that follow from them. Each row has the time on the caller's
//! clock and on the device's own if it reports one, what the cost model predicts for the device's
//! machine, the published values of the nearest machine, and a comparison of its results with a
//! reference in plain loops. Data is random, dense and never zero; outputs are overwritten before
//! the first evaluation, so one that writes nothing is noticed; every evaluation's status counts.
//!
//! [`select_benchmarks`] turns names into benchmarks, [`measure_benchmark`] runs one on a
//! [`DeviceUnderTest`], and a [`SuiteReport`] collects the results. Where a probe of
//! [`ferrane_probe`] already measures something, the benchmark reads the probe's numbers.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use ferrane_device::Device;
//! use ferrane_emulator::{Emulator, EmulatorOptions};
//! use ferrane_perf::suite::{SuiteOptions, measure_benchmark, select_benchmarks};
//! use ferrane_probe::DeviceUnderTest;
//! use ferrane_sensors::Sensors;
//!
//! let open = |_: &str| Ok(Device::new(Emulator::new(EmulatorOptions::default())));
//! let stop = AtomicBool::new(false);
//! let mut dut = DeviceUnderTest::new(Box::new(open), &stop)?;
//! let mut sensors = Sensors::of_this_computer();
//! let options = SuiteOptions { repeat: Some(3), most_gflop: 0.1, ..SuiteOptions::default() };
//! for benchmark in select_benchmarks(&["inmem".to_string()])? {
//!     let result = measure_benchmark(&mut dut, benchmark, &options, &mut sensors);
//!     assert!(result.rows.iter().all(|row| row.check.as_ref().is_none_or(|check| check.passed())));
//!     println!("{result}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | content |
//! |---|---|
//! | `community` | community benchmarks of the reference work, read and written |
//! | `compare` | reports side by side |
//! | `context` | compile, load, bind, warm up, time |
//! | `fits` | what follows from the rows of convolutions |
//! | `kernels` | programs with random data, references in plain loops |
//! | `page` | reports as an HTML page with plots |
//! | `parse` | reports from text |
//! | `published` | published values |
//! | `report` | results as data and text |
//! | `set` | the benchmarks |

mod community;
mod compare;
mod context;
mod fits;
mod kernels;
mod page;
mod parse;
mod published;
mod report;
mod set;

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use ferrane_device::Device;
use ferrane_diag::nearest;
use ferrane_machine::Subject;
use ferrane_probe::{DeviceUnderTest, run_isolated};
use ferrane_sensors::Sensors;

pub use community::CommunityError;
pub use compare::{
    ComparedFinding, ComparedReport, ComparedRow, ComparedTime, SuiteClock, SuiteComparison, WorseRow, compare,
};
pub use context::SuiteOptions;
pub use page::page;
pub use parse::{SUITE_MOST_BYTES, SuiteParseError};
pub use published::{PublishedValue, published};
pub use report::{
    SUITE_FORMAT, SUITE_VERSION, SuiteCheck, SuiteFinding, SuitePower, SuiteReport, SuiteResult, SuiteRow, SuiteTimes,
};
pub use set::all_benchmarks;

use context::Context;

use crate::error::Result;

/// A question about the speed of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// The name by which [`select_benchmarks`] finds it.
    pub name: &'static str,
    /// The question, ending in a question mark.
    pub question: &'static str,
    /// The program of the reference work that it repeats, with its section in benchmarks (the
    /// specification's file).
    pub origin: &'static str,
    run: fn(&mut Context<'_, '_>) -> Result<()>,
}

/// A name that no benchmark has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no benchmark `{name}`{}", .nearest.map_or(String::new(), |n| format!(", did you mean `{n}`?")))]
pub struct UnknownBenchmark {
    /// The name as it was given.
    pub name: String,
    /// The most similar name, if one is similar enough to be a typo.
    pub nearest: Option<&'static str>,
}

/// The benchmarks of these names, in the order of [`all_benchmarks`]; all of them without names.
///
/// # Errors
/// A name that no benchmark has.
pub fn select_benchmarks(names: &[String]) -> std::result::Result<Vec<&'static Benchmark>, UnknownBenchmark> {
    for name in names {
        if !all_benchmarks().iter().any(|b| b.name == name) {
            let nearest = nearest(name, all_benchmarks().iter().map(|b| b.name));
            return Err(UnknownBenchmark { name: name.clone(), nearest });
        }
    }
    Ok(all_benchmarks().iter().filter(|b| names.is_empty() || names.iter().any(|n| n == b.name)).collect())
}

/// Runs one benchmark. What fails is named in the result, which keeps the rows before it. Each row
/// has the power that `sensors` meter while its evaluations are timed.
pub fn measure_benchmark(
    dut: &mut DeviceUnderTest<'_>,
    benchmark: &Benchmark,
    options: &SuiteOptions,
    sensors: &mut Sensors,
) -> SuiteResult {
    let begun = Instant::now();
    let mut result = SuiteResult::skipped(benchmark.name, benchmark.question, "");
    result.skipped = None;
    let mut context = Context::new(dut, options, sensors, result);
    if let Err(error) = (benchmark.run)(&mut context) {
        context.skip(error.to_string());
    }
    let mut result = context.result;
    result.ms = (begun.elapsed().as_secs_f64() * 1e4).round() / 10.0;
    result
}

/// Runs one benchmark in a child process, so that a crash or a hang takes nothing with it.
///
/// `command` must [measure](measure_benchmark) the benchmark and write a [`SuiteReport`] as JSON to
/// its standard output. If it does not, or does not end within `limit`, the result says why.
pub fn measure_isolated(
    command: &mut Command,
    benchmark: &Benchmark,
    limit: Duration,
    stop: &AtomicBool,
) -> SuiteResult {
    let ended = run_isolated(command, limit, stop);
    let report: Option<SuiteReport> = serde_json::from_str(&ended.out).ok();
    let result = report.and_then(|r| r.results.into_iter().find(|r| r.name == benchmark.name));
    result.unwrap_or_else(|| SuiteResult::skipped(benchmark.name, benchmark.question, ended.failure("benchmark")))
}

impl SuiteReport {
    /// A report without results for a device.
    pub fn new(device: &Device) -> SuiteReport {
        SuiteReport::of(&device.name(), &device.profile().subject)
    }

    /// States what of the computer's power `sensors` do not meter now, and why.
    pub fn note_unread(&mut self, sensors: &mut Sensors) {
        self.unread = sensors.read().without_sensor().map(ToString::to_string).collect();
    }

    /// A report without results for the device of this name and machine.
    pub fn of(device: &str, subject: &Subject) -> SuiteReport {
        SuiteReport {
            format: SUITE_FORMAT.into(),
            version: SUITE_VERSION,
            ferrane: env!("CARGO_PKG_VERSION").into(),
            device: device.into(),
            profile: subject.name.clone(),
            chip: subject.chip.clone(),
            computer: community::this_computer(),
            unread: Vec::new(),
            timestamp: Some(community::utc(SystemTime::now())),
            stopped: false,
            results: Vec::new(),
        }
    }
}
