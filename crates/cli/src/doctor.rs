//! `ferrane doctor`: what this machine is, and what its engine does.
//!
//! Each probe is asked in a child, which is this command again with `--here`; what it writes is a
//! report of one answer.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferrane::probe::{
    Answer, DeviceUnderTest, DoctorReport, Probe, ProbeCost, UnknownProbe, Verdict, all_probes, describe_computer,
    examine, select_probes,
};
use serde_json::Value;

use crate::args::Doctor;
use crate::error::{Error, Result};
use crate::{files, out};

/// Runs the command.
pub fn run(args: Doctor) -> Result<()> {
    if args.list {
        return list();
    }
    let probes = select_probes(&args.probes).map_err(unknown)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&stop)?;
    let device = ferrane::open(&args.device)?;
    let profile = device.profile().subject.name.clone();
    let engine = device.name().starts_with("ane");
    let mut report = DoctorReport::new(device.name(), profile, describe_computer(engine));
    // Nothing of it stays loaded in this process.
    drop(device);
    let quiet = args.json.as_deref().is_some_and(files::is_stdin);
    if !quiet {
        head(&report)?;
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
            None => apart(&args, probe, &stop),
        };
        if !quiet {
            show(&answer)?;
        }
        report.add(answer);
        report.stopped = stop.load(Ordering::Relaxed);
        // After each answer, so that nothing that comes takes it away.
        if let Some(file) = args.json.as_deref().filter(|_| !quiet) {
            files::replace(file, format!("{}\n", report.json()).as_bytes())?;
        }
    }
    report.stopped = stop.load(Ordering::Relaxed);
    match args.json.as_deref() {
        Some(_) if quiet => out::line(report.json()),
        Some(file) => {
            files::replace(file, format!("{}\n", report.json()).as_bytes())?;
            tail(&report)?;
            out::line(format_args!("the report is in {}", file.display()))
        }
        None => tail(&report),
    }
}

/// The device with one more option.
fn with(device: &str, options: &str) -> String {
    match options {
        "" => device.to_string(),
        _ if device.contains('?') => format!("{device}&{options}"),
        _ => format!("{device}?{options}"),
    }
}

fn unknown(error: UnknownProbe) -> Error {
    Error::new(format!("{error}\n  `ferrane doctor --list` lists them"))
}

fn stop_on_ctrl_c(stop: &Arc<AtomicBool>) -> Result<()> {
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        out::note("\nstopping after this probe; press Ctrl-C again to stop at once");
    })
    .map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))
}

fn list() -> Result<()> {
    for probe in all_probes() {
        let cost = match probe.cost {
            ProbeCost::Cheap => "",
            ProbeCost::Slow => "slow  ",
            ProbeCost::Risky => "risky ",
        };
        let experiments = match probe.experiments {
            [] => String::new(),
            letters => format!("  (experiment {})", letters.join(", ")),
        };
        out::line(format_args!("{:17} {cost:6}{}{experiments}", probe.name, probe.question))?;
    }
    out::line(
        "\nslow ones take many compiles; risky ones may spoil their process and are asked only by name or with `all`",
    )
}

/// What a child wrote, and how it ended.
struct Ended {
    out: String,
    err: String,
    how: std::result::Result<std::process::ExitStatus, String>,
}

/// Asks one question in a child.
fn apart(args: &Doctor, probe: &Probe, stop: &AtomicBool) -> Answer {
    let begun = Instant::now();
    let ended = child(args, probe).map_or_else(
        |e| Ended { out: String::new(), err: String::new(), how: Err(format!("no process for the probe: {e}")) },
        |child| wait(child, Duration::from_secs(args.timeout), stop),
    );
    let report: Option<DoctorReport> = serde_json::from_str(&ended.out).ok();
    let answer = report.and_then(|r| r.probes.into_iter().find(|a| a.name == probe.name));
    answer.unwrap_or_else(|| {
        let last = ended.err.lines().rfind(|l| !l.trim().is_empty()).map_or_else(String::new, |l| format!(": {l}"));
        let how = ended.how.map_or_else(|why| why, |status| format!("the probe's process ended with {status}"));
        Answer::unanswered(probe, format!("{how}{last}"), begun.elapsed().as_secs_f64() * 1e3)
    })
}

fn child(args: &Doctor, probe: &Probe) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["doctor", "--here", "--json", "-", "--device", &args.device, "--probes", probe.name]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Reads all that a child writes until it ends, or ends it when its time is up.
fn wait(mut child: Child, limit: Duration, stop: &AtomicBool) -> Ended {
    fn reader(from: Option<impl std::io::Read + Send + 'static>) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before a failure to read is all there is.
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let mut end = Instant::now() + limit;
    let mut stopped = false;
    let how = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() >= end => {
                let _ = child.kill();
                let _ = child.wait();
                break Err(match stopped {
                    true => "it was stopped".to_string(),
                    false => format!("it did not come back within {} s", limit.as_secs()),
                });
            }
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Err(error) => break Err(error.to_string()),
        }
        // The child heard of it as well and ends at its next compile, or in a moment.
        if stop.load(Ordering::Relaxed) && !stopped {
            stopped = true;
            end = end.min(Instant::now() + Duration::from_secs(5));
        }
    };
    Ended { out: out.join().unwrap_or_default(), err: err.join().unwrap_or_default(), how }
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn head(report: &DoctorReport) -> Result<()> {
    out::line(format_args!("device     {}", report.device))?;
    out::line(format_args!("profile    {}", report.profile))?;
    let Some(machine) = report.machine.as_object() else { return Ok(()) };
    for (name, value) in machine {
        match value {
            Value::Array(all) if all.is_empty() => {}
            Value::Array(all) => {
                out::line(format_args!("{name}"))?;
                all.iter().try_for_each(|v| out::line(format_args!("    {}", plain(v))))?;
            }
            other => out::line(format_args!("{name:10} {}", plain(other)))?,
        }
    }
    out::line("")
}

fn show(answer: &Answer) -> Result<()> {
    let name = &answer.name;
    if answer.values.is_empty() && answer.raw.is_empty() && answer.open.is_none() {
        out::line(format_args!("{name:17} measured"))?;
    }
    for (key, value) in &answer.values {
        let about = |verdict: Verdict, word: &str| {
            let ids = answer.judged(key, verdict);
            if ids.is_empty() { String::new() } else { format!("  {word} {}", ids.join(", ")) }
        };
        let (agrees, contradicts) = (about(Verdict::Agrees, "as"), about(Verdict::Contradicts, "against"));
        out::line(format_args!("{name:17} {key} = {}{agrees}{contradicts}", plain(value)))?;
    }
    if answer.values.is_empty() {
        for (key, value) in &answer.raw {
            out::line(format_args!("{name:17} {key}: {}", spread(value)))?;
        }
    }
    match &answer.open {
        Some(why) => out::line(format_args!("{name:17} open: {why}")),
        None => Ok(()),
    }
}

/// A time's spread in a line; anything else as JSON has it.
fn spread(value: &Value) -> String {
    match (value.get("least"), value.get("median")) {
        (Some(least), Some(median)) => format!("{median} ms ({least} at best)"),
        _ => plain(value),
    }
}

fn tail(report: &DoctorReport) -> Result<()> {
    let counts = report.counts();
    out::line(format_args!(
        "\n{} probes, {} values; {} claims hold, {} about such machines do not; {} probes left something open",
        counts.probes, counts.values, counts.agree, counts.contradict, counts.open
    ))
}
