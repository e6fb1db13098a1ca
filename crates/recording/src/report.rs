//! Recordings and replays as text and as JSON.
//!
//! Names and messages in a recording come from another computer: their control characters, which
//! would steer a terminal, are replaced in text.

use std::fmt;

use ferrane_device::{Tensor, Tensors};
use ferrane_diag::{Severity, printable};
use ferrane_machine::{Finding, Profile};
use ferrane_mil::Program;
use serde_json::{Value, json};

use crate::compare::Difference;
use crate::{Answer, Failure, Machine, Outcome, Recording, Replay, Summary};

impl fmt::Display for Machine {
    /// The machine in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![self.name.clone()];
        parts.extend(self.chip.clone());
        let build = self.build.as_ref().map(|b| format!(" ({b})")).unwrap_or_default();
        parts.push(format!("{}{build}", self.system));
        parts.push(format!("profile {}", self.profile));
        f.write_str(&printable(&parts.join(", ")))
    }
}

/// The median of some times with the shortest and the longest, in milliseconds.
fn spread(nanoseconds: &[u64]) -> Option<[f64; 3]> {
    let mut sorted = nanoseconds.to_vec();
    sorted.sort_unstable();
    let at = |i: usize| sorted.get(i).map(|ns| *ns as f64 / 1e6);
    Some([at(sorted.len() / 2)?, at(0)?, at(sorted.len().checked_sub(1)?)?])
}

/// The median in milliseconds, with the shortest and the longest time if there are several.
fn times(nanoseconds: &[u64]) -> String {
    match spread(nanoseconds) {
        Some([median, low, high]) if nanoseconds.len() > 1 => format!("median {median:.3} ms ({low:.3} to {high:.3})"),
        Some([median, ..]) => format!("{median:.3} ms"),
        None => "none".to_string(),
    }
}

/// A number, or null for what JSON has no number for.
fn number(value: f64) -> Value {
    if value.is_finite() { value.into() } else { Value::Null }
}

impl Recording {
    /// Everything in the recording but the bytes of program, weights and tensors.
    pub fn json(&self) -> Value {
        let tensors = |list: &Tensors| -> Vec<Value> {
            let one = |(name, tensor): &(String, Tensor)| {
                let summary = Summary::of(tensor);
                json!({
                    "name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape(),
                    "not_finite": summary.not_finite, "zeros": summary.zeros, "largest": summary.largest,
                    "doubt": summary.doubt(),
                })
            };
            list.iter().map(one).collect()
        };
        let weights = self.weights.iter().map(|(path, bytes)| json!({"path": path, "bytes": bytes.len()}));
        json!({
            "header": self.header, "text_bytes": self.text.len(), "weights": weights.collect::<Vec<_>>(),
            "inputs": tensors(&self.inputs), "states": tensors(&self.states), "outputs": tensors(&self.outputs),
            "after": tensors(&self.left), "wall_ns": self.wall, "hardware_ns": self.hardware,
        })
    }

    /// The recording as text: program, machine, weights, inputs, states and the
    /// [outcome](Recording::outcome).
    pub fn describe(&self) -> impl fmt::Display {
        RecordingText(self)
    }

    /// The outputs with their doubts and the times, or the failure, a line each.
    pub fn outcome(&self) -> impl fmt::Display {
        OutcomeText(self)
    }

    /// The specification of an emulator that computes as the recorded machine did: its numerics,
    /// its profile if Ferrane knows it, and its limits if the machine refused the program.
    ///
    /// Only known words are taken from the recording, because options of a device can name files.
    pub fn emulator_spec(&self) -> String {
        let machine = &self.header.machine;
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
        // The recording does not say how many programs the process compiled before this one.
        let limits = if self.failure().is_some() { "enforce&budget=none" } else { "off" };
        format!("emulator?numerics={numerics}{profile}&limits={limits}")
    }

    /// The recorded failure; `None` if the program ran.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.header.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Ran { .. } => None,
        }
    }
}

struct RecordingText<'a>(&'a Recording);

impl fmt::Display for RecordingText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (recording, header) = (self.0, &self.0.header);
        let (name, function) = (printable(&header.program.name), printable(&header.program.function));
        writeln!(f, "{name} `{function}`, {} bytes of MIL", recording.text.len())?;
        writeln!(f, "  machine  {} (opened as {})", header.machine, printable(&header.machine.device))?;
        writeln!(f, "  written  by Ferrane {}, format version {}", printable(&header.ferrane), header.version)?;
        for (path, bytes) in &recording.weights {
            writeln!(f, "  weights  {}  {} bytes", printable(path), bytes.len())?;
        }
        for (what, list) in [("input", &recording.inputs), ("state", &recording.states)] {
            for (name, tensor) in list.iter() {
                writeln!(f, "  {what:7}  {}  {} {:?}", printable(name), tensor.dtype(), tensor.shape())?;
            }
        }
        write!(f, "{}", recording.outcome())
    }
}

struct OutcomeText<'a>(&'a Recording);

impl fmt::Display for OutcomeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recording = self.0;
        let (compile_ns, load_ns, unsteady) = match &recording.header.outcome {
            Outcome::Failed(failure) => return writeln!(f, "  refused at {}", printable(&failure.to_string())),
            Outcome::Ran { compile_ns, load_ns, unsteady, .. } => (*compile_ns, *load_ns, unsteady),
        };
        for (name, tensor) in recording.outputs.iter().chain(&recording.left) {
            let summary = Summary::of(tensor);
            let doubt = summary.doubt().map(|d| format!("  WARNING: {d}")).unwrap_or_default();
            let (dtype, shape, largest) = (tensor.dtype(), tensor.shape(), summary.largest);
            writeln!(f, "  {}  {dtype} {shape:?}  largest magnitude {largest}{doubt}", printable(name))?;
        }
        for (name, runs) in unsteady {
            let name = printable(name);
            writeln!(f, "  WARNING: {runs} later runs gave `{name}` other bytes than the first")?;
        }
        writeln!(f, "  compile {:.3} ms, load {:.3} ms", compile_ns as f64 / 1e6, load_ns as f64 / 1e6)?;
        let hardware = match recording.hardware.is_empty() {
            true => String::new(),
            false => format!("; on the machine itself {}", times(&recording.hardware)),
        };
        writeln!(f, "  {} runs: {}{hardware}", recording.wall.len(), times(&recording.wall))
    }
}

impl Replay {
    /// How the replay compares with the recording: `agrees`, `differs`, `refused alike`, `refused
    /// otherwise`, `fails here` or `runs here`.
    pub fn verdict(&self) -> &'static str {
        match &self.answer {
            Answer::Both(_) if self.agrees() => "agrees",
            Answer::Both(_) => "differs",
            Answer::Neither(_, true) => "refused alike",
            Answer::Neither(_, false) => "refused otherwise",
            Answer::There(_) => "fails here",
            Answer::Here => "runs here",
        }
    }
}

/// What the checks and the cost model say about a recorded program on the recorded machine.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The findings; `None` if Ferrane has no profile of the machine.
    pub findings: Option<Vec<Finding>>,
    /// The predicted time of an evaluation in milliseconds; `None` if the cost model has none.
    pub predicted_ms: Option<f64>,
}

impl Expectation {
    /// Checks the program of a recording and predicts its time.
    pub fn of(recording: &Recording, program: &Program) -> Expectation {
        let predicted_ms = recording.predicted_us(program).map(|us| us / 1e3);
        Expectation { findings: recording.findings(program), predicted_ms }
    }
}

/// A replay next to its recording. Prints as a few lines.
pub struct ReplayReport<'a> {
    /// The file of the recording.
    pub file: &'a str,
    /// The device that the replay ran on, as it was opened.
    pub device: &'a str,
    /// The recording that was replayed.
    pub recording: &'a Recording,
    /// What the checks and the cost model say.
    pub expectation: &'a Expectation,
    /// What was computed here.
    pub replay: &'a Replay,
    /// Units in the last place by which an element may differ.
    pub tolerance: u64,
}

impl ReplayReport<'_> {
    /// The report as JSON.
    pub fn json(&self) -> Value {
        let ReplayReport { recording, expectation, replay, .. } = self;
        let (outputs, failure) = match &replay.answer {
            Answer::Both(list) => (list.iter().map(difference_json).collect::<Vec<_>>(), None),
            Answer::Neither(failure, _) | Answer::There(failure) => (Vec::new(), Some(failure)),
            Answer::Here => (Vec::new(), None),
        };
        let finding =
            |f: &Finding| json!({"code": f.code.to_string(), "severity": f.severity.to_string(), "message": f.message});
        let findings = expectation.findings.as_ref().map(|list| list.iter().map(finding).collect::<Vec<_>>());
        json!({
            "file": self.file, "program": recording.header.program, "machine": recording.header.machine,
            "device": self.device, "device_name": replay.device, "ulp": self.tolerance, "agrees": replay.agrees(),
            "verdict": replay.verdict(), "outputs": outputs, "failure_recorded": recording.failure(),
            "failure_here": failure, "check": findings, "wall_ns_recorded": recording.wall,
            "hardware_ns_recorded": recording.hardware, "wall_ns_here": replay.wall,
            "predicted_ms": expectation.predicted_ms,
        })
    }

    /// The report as one row of a [`ReplayTable`].
    pub fn row(&self) -> ReplayRow {
        let median = |ns: &[u64]| spread(ns).map(|[median, ..]| median);
        let list: &[Difference] = if let Answer::Both(list) = &self.replay.answer { list } else { &[] };
        let elements = list.iter().map(|d| d.elements).sum::<usize>().max(1) as f64;
        let sum = |of: fn(&Difference) -> usize| list.iter().map(of).sum::<usize>() as f64 / elements;
        ReplayRow {
            file: self.file.to_string(),
            device: self.device.to_string(),
            verdict: self.replay.verdict(),
            equal: sum(|d| d.equal),
            ulp: list.iter().map(|d| d.max_ulp).max(),
            beyond: sum(|d| d.beyond),
            recorded_ms: median(&self.recording.wall),
            here_ms: median(&self.replay.wall),
            predicted_ms: self.expectation.predicted_ms,
        }
    }

    /// The findings of the checker that are about whether the program runs.
    fn write_findings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(findings) = &self.expectation.findings else {
            let profile = printable(&self.recording.header.machine.profile);
            return writeln!(f, "    check: no profile `{profile}` here");
        };
        let failed = self.recording.failure().is_some();
        let mut errors = findings.iter().filter(|f| f.severity == Severity::Error).peekable();
        if failed && errors.peek().is_none() {
            return writeln!(f, "    check: finds nothing that this machine would refuse");
        }
        let contradicted = if failed { "" } else { " (but it ran there)" };
        errors.try_for_each(|e| writeln!(f, "    check: {} {}{contradicted}", e.code, e.message))
    }
}

impl fmt::Display for ReplayReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReplayReport { recording, replay, .. } = self;
        writeln!(f, "  on {}: {}", self.device, replay.verdict())?;
        let failure = |f: &mut fmt::Formatter<'_>, place: &str, failure: Option<&Failure>| match failure {
            Some(failure) => writeln!(f, "    {place} {}", printable(&failure.to_string())),
            None => Ok(()),
        };
        match &replay.answer {
            Answer::Both(list) => list.iter().try_for_each(|d| writeln!(f, "    {}", difference(d, self.tolerance)))?,
            Answer::Neither(here, same) => {
                failure(f, "there", recording.failure())?;
                failure(f, "here ", Some(here).filter(|_| !same))?;
            }
            Answer::There(here) => failure(f, "here ", Some(here))?,
            Answer::Here => failure(f, "there", recording.failure())?,
        }
        self.write_findings(f)?;
        if recording.wall.is_empty() && replay.wall.is_empty() {
            return Ok(());
        }
        let predicted = match self.expectation.predicted_ms {
            Some(ms) => {
                let profile = printable(&recording.header.machine.profile);
                format!("; the cost model predicts {ms:.3} ms for {profile}")
            }
            None => String::new(),
        };
        writeln!(f, "    time: recorded {}; here {}{predicted}", times(&recording.wall), times(&replay.wall))
    }
}

/// A replay in one row.
#[derive(Clone, Debug)]
pub struct ReplayRow {
    /// The file of the recording.
    pub file: String,
    /// The device of the replay.
    pub device: String,
    /// [`Replay::verdict`].
    pub verdict: &'static str,
    /// The share of elements that are bit-equal.
    pub equal: f64,
    /// The largest difference in units in the last place; `None` if no outputs were compared.
    pub ulp: Option<u64>,
    /// The share of elements beyond the tolerance.
    pub beyond: f64,
    /// The median recorded time.
    pub recorded_ms: Option<f64>,
    /// The median time here.
    pub here_ms: Option<f64>,
    /// The time that the cost model predicts, if it knows the machine.
    pub predicted_ms: Option<f64>,
}

/// Replays one below the other. Prints as a table.
#[derive(Clone, Debug, Default)]
pub struct ReplayTable(pub Vec<ReplayRow>);

impl fmt::Display for ReplayTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&ReplayRow) -> &str, head: &str| {
            self.0.iter().map(|r| of(r).chars().count()).chain([head.len()]).max().unwrap_or(0)
        };
        let (file, device) = (width(|r| &r.file, "recording"), width(|r| &r.device, "device"));
        let ms = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.3}"));
        writeln!(
            f,
            "{:file$}  {:device$}  {:17}  {:>9}  {:>8}  {:>9}  {:>11}  {:>9}  {:>9}",
            "recording", "device", "result", "bit-equal", "max ulp", "beyond", "recorded ms", "here ms", "model ms"
        )?;
        for r in &self.0 {
            let share = |v: f64| if r.ulp.is_some() { format!("{:.3} %", 100.0 * v) } else { "-".to_string() };
            let ulp = r.ulp.map_or("-".to_string(), |u| u.to_string());
            writeln!(
                f,
                "{:file$}  {:device$}  {:17}  {:>9}  {ulp:>8}  {:>9}  {:>11}  {:>9}  {:>9}",
                r.file,
                r.device,
                r.verdict,
                share(r.equal),
                share(r.beyond),
                ms(r.recorded_ms),
                ms(r.here_ms),
                ms(r.predicted_ms)
            )?;
        }
        Ok(())
    }
}

fn difference(d: &Difference, tolerance: u64) -> String {
    let head = format!("{}  {} {:?}", printable(&d.name), d.dtype, d.shape);
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

fn difference_json(d: &Difference) -> Value {
    json!({
        "name": d.name, "dtype": d.dtype, "shape": d.shape, "mismatch": d.mismatch, "elements": d.elements,
        "equal": d.equal, "max_ulp": d.max_ulp, "mean_ulp": number(d.mean_ulp), "unordered": d.unordered,
        "beyond": d.beyond, "share_beyond": d.share(), "max_difference": number(d.max), "largest": number(d.scale),
        "relative": number(d.relative()),
        "worst": d.worst.as_ref().map(|w| {
            json!({"index": w.index, "recorded": number(w.recorded), "here": number(w.here)})
        }),
    })
}
