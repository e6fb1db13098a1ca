//! `ferrane recording replay`.

use std::collections::BTreeMap;
use std::path::Path;

use ferrane::Device;
use ferrane::diag::Severity;
use ferrane::machine::{Finding, Profile};
use ferrane::recording::compare::Difference;
use ferrane::recording::{self, Answer, Outcome, Recording, Replay};
use serde_json::{Value, json};

use crate::args::RecordingReplay;
use crate::error::{Error, Result};
use crate::run::open;
use crate::{files, out};

/// A recording on a device, for the table.
struct Row {
    file: String,
    device: String,
    verdict: &'static str,
    equal: f64,
    ulp: Option<u64>,
    beyond: f64,
    recorded: Option<f64>,
    here: Option<f64>,
    predicted: Option<f64>,
}

/// What is known of a recorded program beside the replay.
struct Known {
    findings: Option<Vec<Finding>>,
    predicted_ms: Option<f64>,
}

/// Runs the command. Trouble has a status of its own, so that "different" can be relied on.
pub fn run(args: &RecordingReplay) -> Result<()> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    let (mut rows, mut agree, mut trouble) = (Vec::new(), true, None);
    for file in &args.files {
        match one(args, file, &mut devices) {
            Ok(found) => {
                agree &= found.iter().all(|(_, agrees)| *agrees);
                rows.extend(found.into_iter().map(|(row, _)| row));
            }
            Err(error) if error.is_closed() => return Err(error),
            // The other files are looked at all the same.
            Err(error) => {
                if let Some(last) = trouble.replace(error) {
                    out::note(format_args!("error: {last}"));
                }
            }
        }
    }
    if !args.json && rows.len() > 1 {
        table(&rows)?;
    }
    match trouble {
        Some(error) => Err(error.trouble()),
        None if agree => Ok(()),
        None => Err(Error::told()),
    }
}

fn one(args: &RecordingReplay, file: &Path, devices: &mut BTreeMap<String, Device>) -> Result<Vec<(Row, bool)>> {
    let recording = recording::open(file).map_err(|e| files::failed(file, e))?;
    let program = recording.program().map_err(|e| files::failed(file, e))?;
    let known = Known {
        findings: recording.findings(&program),
        predicted_ms: recording.predicted_us(&program).map(|us| us / 1e3),
    };
    let specs = if args.device.is_empty() { vec![default(&recording)] } else { args.device.clone() };
    let mut opened = Vec::new();
    for spec in specs {
        if !devices.contains_key(&spec) {
            devices.insert(spec.clone(), open(&spec)?);
        }
        opened.extend(devices.get(&spec).map(|device| (spec, device.clone())));
    }
    if !args.json {
        let (origin, machine) = (&recording.header.program, super::machine(&recording.header.machine));
        let (name, function) = (super::clean(&origin.name), super::clean(&origin.function));
        let writer = super::clean(&recording.header.ferrane);
        out::line(format_args!("{}: {name} `{function}` on {machine}, Ferrane {writer}", file.display()))?;
    }
    let mut rows = Vec::new();
    for (spec, device) in opened {
        let replay = recording::replay(&recording, &program, &device, args.ulp, args.runs.max(1));
        match args.json {
            true => out::line(object(args, file, &spec, &recording, &known, &replay))?,
            false => show(args, &spec, &recording, &known, &replay)?,
        }
        rows.push((row(file, &spec, &recording, &known, &replay), replay.agrees()));
    }
    Ok(rows)
}

/// The emulator as the recorded machine. Nothing but known words is taken out of the recording:
/// options of a device can name files.
fn default(recording: &Recording) -> String {
    let machine = &recording.header.machine;
    let options = machine.device.split_once('?').map_or("", |(_, options)| options);
    let recorded = options.split('&').find_map(|o| o.strip_prefix("numerics="));
    let numerics = match recorded.filter(|_| machine.emulated()) {
        Some("exact") => "exact",
        Some("hardware") => "hardware",
        _ if machine.emulated() => "fast",
        _ => "hardware",
    };
    let profile = match Profile::named(&machine.profile) {
        Ok(profile) => format!("&machine={}", profile.subject.name),
        Err(_) => String::new(),
    };
    // A refusal is the machine's limits; how many programs others compiled before is not in the
    // recording.
    let limits = if matches!(recording.header.outcome, Outcome::Failed(_)) { "enforce&budget=none" } else { "off" };
    format!("emulator?numerics={numerics}{profile}&limits={limits}")
}

/// How it ended, in a word or two.
fn verdict(replay: &Replay) -> &'static str {
    match &replay.answer {
        Answer::Both(_) if replay.agrees() => "agrees",
        Answer::Both(_) => "differs",
        Answer::Neither(_, true) => "refused alike",
        Answer::Neither(_, false) => "refused otherwise",
        Answer::There(_) => "fails here",
        Answer::Here => "runs here",
    }
}

fn row(file: &Path, device: &str, recording: &Recording, known: &Known, replay: &Replay) -> Row {
    let median = |ns: &[u64]| super::times(ns).map(|[median, ..]| median);
    let list: &[Difference] = if let Answer::Both(list) = &replay.answer { list } else { &[] };
    let elements = list.iter().map(|d| d.elements).sum::<usize>().max(1) as f64;
    let sum = |of: fn(&Difference) -> usize| list.iter().map(of).sum::<usize>() as f64 / elements;
    Row {
        file: file.display().to_string(),
        device: device.to_string(),
        verdict: verdict(replay),
        equal: sum(|d| d.equal),
        ulp: list.iter().map(|d| d.max_ulp).max(),
        beyond: sum(|d| d.beyond),
        recorded: median(&recording.wall),
        here: median(&replay.wall),
        predicted: known.predicted_ms,
    }
}

fn show(args: &RecordingReplay, spec: &str, recording: &Recording, known: &Known, replay: &Replay) -> Result<()> {
    out::line(format_args!("  on {spec}: {}", verdict(replay)))?;
    match &replay.answer {
        Answer::Both(list) => {
            list.iter().try_for_each(|d| out::line(format_args!("    {}", difference(d, args.ulp))))?
        }
        Answer::Neither(here, same) => {
            told(recording)?;
            if !same {
                out::line(format_args!("    here  {}", super::clean(&here.to_string())))?;
            }
        }
        Answer::There(here) => out::line(format_args!("    here  {}", super::clean(&here.to_string())))?,
        Answer::Here => told(recording)?,
    }
    findings(recording, known)?;
    let predicted = match known.predicted_ms {
        Some(ms) => format!("; the cost model has {ms:.3} ms for {}", super::clean(&recording.header.machine.profile)),
        None => String::new(),
    };
    if recording.wall.is_empty() && replay.wall.is_empty() {
        return Ok(());
    }
    let (there, here) = (super::time_words(&recording.wall), super::time_words(&replay.wall));
    out::line(format_args!("    time: recorded {there}; here {here}{predicted}"))
}

/// The recorded failure.
fn told(recording: &Recording) -> Result<()> {
    match &recording.header.outcome {
        Outcome::Failed(there) => out::line(format_args!("    there {}", super::clean(&there.to_string()))),
        Outcome::Ran { .. } => Ok(()),
    }
}

/// What the checker says of the program on the recorded machine, as far as it bears on whether it
/// runs.
fn findings(recording: &Recording, known: &Known) -> Result<()> {
    let Some(findings) = &known.findings else {
        let profile = super::clean(&recording.header.machine.profile);
        return out::line(format_args!("    check: no profile `{profile}` here"));
    };
    let failed = matches!(recording.header.outcome, Outcome::Failed(_));
    let mut errors = findings.iter().filter(|f| f.severity == Severity::Error).peekable();
    if failed && errors.peek().is_none() {
        return out::line("    check: finds nothing that this machine would refuse");
    }
    for finding in errors {
        let contradicted = if failed { "" } else { " (but it ran there)" };
        out::line(format_args!("    check: {} {}{contradicted}", finding.code, finding.message))?;
    }
    Ok(())
}

fn difference(d: &Difference, tolerance: u64) -> String {
    let head = format!("{}  {} {:?}", super::clean(&d.name), d.dtype, d.shape);
    if let Some(why) = &d.mismatch {
        return format!("{head}: {why}");
    }
    let (equal, elements) = (d.equal, d.elements);
    if equal == elements {
        return format!("{head}: all {elements} elements bit-equal");
    }
    let mut text = format!(
        "{head}: {equal} of {elements} bit-equal, max {} ulp, mean {:.4} ulp, {} beyond {tolerance} ulp ({:.2} %), \
         max difference {:.2e} of the largest magnitude",
        d.max_ulp,
        d.mean_ulp,
        d.beyond,
        100.0 * d.share(),
        d.relative()
    );
    if d.unordered > 0 {
        text += &format!(", {} NaN on one side", d.unordered);
    }
    if let Some(worst) = &d.worst {
        text += &format!("; worst at {:?}: {} there, {} here", worst.index, worst.recorded, worst.here);
    }
    text
}

fn object(
    args: &RecordingReplay,
    file: &Path,
    spec: &str,
    recording: &Recording,
    known: &Known,
    replay: &Replay,
) -> Value {
    let number = |v: f64| if v.is_finite() { Value::from(v) } else { Value::Null };
    let one = |d: &Difference| {
        json!({
            "name": d.name, "dtype": d.dtype, "shape": d.shape, "mismatch": d.mismatch, "elements": d.elements,
            "equal": d.equal, "max_ulp": d.max_ulp, "mean_ulp": number(d.mean_ulp), "unordered": d.unordered,
            "beyond": d.beyond, "share_beyond": d.share(), "max_difference": number(d.max), "largest": number(d.scale),
            "relative": number(d.relative()),
            "worst": d.worst.as_ref().map(|w| {
                json!({"index": w.index, "recorded": number(w.recorded), "here": number(w.here)})
            }),
        })
    };
    let (outputs, failure) = match &replay.answer {
        Answer::Both(list) => (list.iter().map(one).collect::<Vec<_>>(), None),
        Answer::Neither(failure, _) | Answer::There(failure) => (Vec::new(), Some(failure)),
        Answer::Here => (Vec::new(), None),
    };
    let recorded = match &recording.header.outcome {
        Outcome::Failed(failure) => Some(failure),
        Outcome::Ran { .. } => None,
    };
    let findings = known.findings.as_ref().map(|list| {
        let one =
            |f: &Finding| json!({"code": f.code.to_string(), "severity": f.severity.to_string(), "message": f.message});
        list.iter().map(one).collect::<Vec<_>>()
    });
    json!({
        "file": file.display().to_string(), "program": recording.header.program, "machine": recording.header.machine,
        "device": spec, "device_name": replay.device, "ulp": args.ulp, "agrees": replay.agrees(),
        "verdict": verdict(replay), "outputs": outputs, "failure_recorded": recorded, "failure_here": failure,
        "check": findings, "wall_ns_recorded": recording.wall, "hardware_ns_recorded": recording.hardware,
        "wall_ns_here": replay.wall, "predicted_ms": known.predicted_ms,
    })
}

fn table(rows: &[Row]) -> Result<()> {
    let width = |of: fn(&Row) -> &str, head: &str| {
        rows.iter().map(|r| of(r).chars().count()).chain([head.len()]).max().unwrap_or(0)
    };
    let (file, device) = (width(|r| &r.file, "recording"), width(|r| &r.device, "device"));
    let ms = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.3}"));
    out::line(format_args!(
        "\n{:file$}  {:device$}  {:17}  {:>9}  {:>8}  {:>9}  {:>11}  {:>9}  {:>9}",
        "recording", "device", "result", "bit-equal", "max ulp", "beyond", "recorded ms", "here ms", "model ms"
    ))?;
    for r in rows {
        let share = |v: f64| if r.ulp.is_some() { format!("{:.3} %", 100.0 * v) } else { "-".to_string() };
        let ulp = r.ulp.map_or("-".to_string(), |u| u.to_string());
        out::line(format_args!(
            "{:file$}  {:device$}  {:17}  {:>9}  {ulp:>8}  {:>9}  {:>11}  {:>9}  {:>9}",
            r.file,
            r.device,
            r.verdict,
            share(r.equal),
            share(r.beyond),
            ms(r.recorded),
            ms(r.here),
            ms(r.predicted)
        ))?;
    }
    Ok(())
}
