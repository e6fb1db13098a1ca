//! `ferrane bench suite`: the measurements of the reference work, by `ferrane_perf::suite`.
//!
//! Each benchmark runs in a child process, which is this command again with `--here`; the child
//! prints a report of one result.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrane::probe::DeviceUnderTest;
use ferrane_perf::suite::{
    Benchmark, SuiteOptions, SuiteReport, SuiteResult, all_benchmarks, measure_benchmark, measure_isolated,
    select_benchmarks,
};

use crate::args::BenchSuite;
use crate::error::{Error, Result};
use crate::{doctor, files, out};

/// Runs `ferrane bench suite`.
pub fn run(args: &BenchSuite) -> Result<()> {
    if args.list {
        return list(args.json);
    }
    let benchmarks = selected(&args.names)?;
    let options = options(args)?;
    let stop = files::stop_on_ctrl_c("benchmark")?;
    let device = ferrane::open(&args.device)?;
    let mut report = SuiteReport::new(&device);
    report.note_unread(&mut ferrane::sensors::open());
    if !args.json {
        out::line(format_args!("{} ({})", report.device, report.profile))?;
        for unread in &report.unread {
            out::line(format_args!("unknown: {unread}"))?;
        }
        out::line("")?;
    }
    // The benchmarks run in children: nothing stays loaded in this process.
    drop(device);
    for (i, benchmark) in benchmarks.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let result = match args.here {
            true => here(args, benchmark, &options, &stop)?,
            false => isolated(args, (i + 1, benchmarks.len()), benchmark, &stop)?,
        };
        if !args.json {
            out::print(format_args!("{result}\n"))?;
        }
        report.results.push(result);
        report.stopped = stop.load(Ordering::Relaxed);
        // After each benchmark, so that a later failure loses nothing.
        if let Some(file) = &args.out {
            files::replace(file, format!("{}\n", report.json()).as_bytes())?;
        }
    }
    if args.json {
        out::json(&report)?;
    } else if let Some(file) = &args.out {
        out::line(format_args!("the report is in {}", file.display()))?;
    }
    if args.here {
        return Ok(());
    }
    match report.wrong().next() {
        Some((name, _)) => Err(Error::new(format!(
            "{} of the results are wrong, the first in `{name}`: do not use its times",
            report.wrong().count(),
        ))),
        None => Ok(()),
    }
}

/// Runs benchmark `i` of `n` in a child process.
pub fn isolated(
    args: &BenchSuite,
    (i, n): (usize, usize),
    benchmark: &Benchmark,
    stop: &AtomicBool,
) -> Result<SuiteResult> {
    out::note(format_args!("[{i}/{n}] {}: {}", benchmark.name, benchmark.question));
    Ok(measure_isolated(&mut child(args, benchmark)?, benchmark, Duration::from_secs(args.timeout), stop))
}

/// The benchmarks of these names; `all` or none are all of them.
pub fn selected(names: &[String]) -> Result<Vec<&'static Benchmark>> {
    let names = if names.iter().any(|name| name == "all") { &[] } else { names };
    let unknown = |error| Error::new(format!("{error}\n  `ferrane bench suite --list` lists them"));
    select_benchmarks(names).map_err(unknown)
}

fn options(args: &BenchSuite) -> Result<SuiteOptions> {
    let default = SuiteOptions::default();
    let most_gflop = args.most_gflop.unwrap_or(default.most_gflop);
    if most_gflop.is_nan() || most_gflop <= 0.0 {
        return Err(Error::new("--most-gflop must be a positive number"));
    }
    if args.repeat == Some(0) {
        return Err(Error::new("--repeat 0 measures nothing; give 1 or more"));
    }
    Ok(SuiteOptions { repeat: args.repeat, seed: args.seed, most_gflop, ..default })
}

fn here(args: &BenchSuite, benchmark: &Benchmark, options: &SuiteOptions, stop: &AtomicBool) -> Result<SuiteResult> {
    let open = |more: &str| ferrane::open(&doctor::with(&args.device, more));
    let mut dut = DeviceUnderTest::new(Box::new(open), stop)?;
    Ok(measure_benchmark(&mut dut, benchmark, options, &mut ferrane::sensors::open()))
}

fn list(json: bool) -> Result<()> {
    if json {
        let all = all_benchmarks()
            .iter()
            .map(|b| serde_json::json!({ "name": b.name, "question": b.question, "origin": b.origin }));
        return out::line(serde_json::Value::from_iter(all));
    }
    let width = all_benchmarks().iter().map(|b| b.name.len()).max().unwrap_or(0);
    all_benchmarks()
        .iter()
        .try_for_each(|b| out::line(format_args!("{:width$}  {}  ({})", b.name, b.question, b.origin)))
}

/// This command again, for one benchmark.
fn child(args: &BenchSuite, benchmark: &Benchmark) -> Result<Command> {
    let mut command = crate::again()?;
    command.args(["bench", "suite", "--here", "--json", "--device", &args.device, benchmark.name]);
    command.args(["--seed", &args.seed.to_string()]);
    if let Some(repeat) = args.repeat {
        command.args(["--repeat", &repeat.to_string()]);
    }
    if let Some(most) = args.most_gflop {
        command.args(["--most-gflop", &most.to_string()]);
    }
    Ok(command)
}
