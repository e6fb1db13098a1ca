//! `ferrane doctor`: what this machine is, and what its engine allows.
//!
//! Each probe runs in a child process, which is this command again with `--here`; the child writes
//! a report of one answer.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrane::probe::{
    DeviceUnderTest, DoctorReport, Probe, UnknownProbe, all_probes, describe_computer, examine, examine_isolated,
    select_probes,
};

use ferrane_perf::submission::check_submission;
use ferrane_perf::suite::SuiteReport;

use crate::args::{BenchSuite, Doctor};
use crate::bench::suite;
use crate::error::{Error, Result};
use crate::{files, out};

/// Runs `ferrane doctor`.
pub fn run(args: Doctor) -> Result<()> {
    if args.list {
        return list();
    }
    if let Some(file) = &args.submit_check {
        return submit_check(file, args.json.as_deref());
    }
    let probes = select_probes(&args.probes).map_err(unknown)?;
    let benchmarks = if args.bench.is_empty() { Vec::new() } else { suite::selected(&args.bench)? };
    let stop = files::stop_on_ctrl_c("probe")?;
    let device = ferrane::open(&args.device)?;
    let subject = device.profile().subject.clone();
    let profile = subject.name.clone();
    let engine = device.name().starts_with("ane");
    let mut report = DoctorReport::new(device.name(), profile, describe_computer(engine));
    // The probes run in children: nothing stays loaded in this process.
    drop(device);
    let quiet = args.json.as_deref().is_some_and(files::is_stdin);
    if !quiet {
        out::line(report.header())?;
    }
    let open = |options: &str| ferrane::open(&with(&args.device, options));
    let mut dut = if args.here { Some(DeviceUnderTest::new(Box::new(open), &stop)?) } else { None };
    for (i, probe) in probes.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if !args.here {
            out::note(format_args!("[{}/{}] {}: {}", i + 1, probes.len(), probe.name, probe.question));
        }
        let answer = match &mut dut {
            Some(dut) => examine(dut, probe),
            None => {
                let limit = Duration::from_secs(args.timeout);
                examine_isolated(&mut child(&args, probe)?, probe, limit, &stop)
            }
        };
        if !quiet {
            out::print(&answer)?;
        }
        report.add(answer);
        report.stopped = stop.load(Ordering::Relaxed);
        // After each answer, so that a later failure loses nothing.
        if let Some(file) = args.json.as_deref().filter(|_| !quiet) {
            files::replace(file, format!("{}\n", report.json()).as_bytes())?;
        }
    }
    let mut suite = None;
    for (i, benchmark) in benchmarks.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let measured = suite::isolated(&suite_args(&args), (i + 1, benchmarks.len()), benchmark, &stop)?;
        if !quiet {
            out::print(format_args!("\n{measured}"))?;
        }
        let all = suite.get_or_insert_with(|| SuiteReport::of(&report.device, &subject));
        all.results.push(measured);
        all.stopped = stop.load(Ordering::Relaxed);
        report.benchmarks = serde_json::to_value(all).ok();
        if let Some(file) = args.json.as_deref().filter(|_| !quiet) {
            files::replace(file, format!("{}\n", report.json()).as_bytes())?;
        }
    }
    report.stopped = stop.load(Ordering::Relaxed);
    match args.json.as_deref() {
        Some(_) if quiet => out::line(report.json()),
        Some(file) => {
            files::replace(file, format!("{}\n", report.json()).as_bytes())?;
            out::line(format_args!("\n{}", report.totals()))?;
            out::line(format_args!("the report is in {}", file.display()))
        }
        None => out::line(format_args!("\n{}", report.totals())),
    }
}

/// The options of the suite for benchmarks of the doctor.
fn suite_args(args: &Doctor) -> BenchSuite {
    let timeout = args.timeout.max(600);
    BenchSuite { device: args.device.clone(), timeout, seed: 1, ..BenchSuite::default() }
}

/// Says whether a report is fit to be sent.
fn submit_check(file: &Path, json: Option<&Path>) -> Result<()> {
    let text = files::read_text(file)?;
    let found = check_submission(&String::from_utf8_lossy(&text))
        .map_err(|e| files::failed(file, format_args!("no report of `ferrane doctor`: {e}")))?;
    match json {
        None => out::print(&found)?,
        Some(path) if files::is_stdin(path) => out::json(&found)?,
        Some(path) => files::replace(path, format!("{}\n", serde_json::to_string_pretty(&found)?).as_bytes())?,
    }
    if found.is_fit() { Ok(()) } else { Err(Error::new("the report is not fit to be sent")) }
}

/// The device with one more option.
pub(crate) fn with(device: &str, options: &str) -> String {
    match options {
        "" => device.to_string(),
        _ if device.contains('?') => format!("{device}&{options}"),
        _ => format!("{device}?{options}"),
    }
}

fn unknown(error: UnknownProbe) -> Error {
    Error::new(format!("{error}\n  `ferrane doctor --list` lists them"))
}

fn list() -> Result<()> {
    all_probes().iter().try_for_each(out::line)?;
    out::line(
        "\nslow probes take many compiles; risky ones may poison their process and run only by name or with `all`",
    )
}

/// This command again, for one probe.
fn child(args: &Doctor, probe: &Probe) -> Result<Command> {
    let mut command = crate::again()?;
    command.args(["doctor", "--here", "--json", "-", "--device", &args.device, "--probes", probe.name]);
    Ok(command)
}
