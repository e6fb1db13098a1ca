//! `ferrane recording`: what a machine computed, recorded and replayed.

mod filetest;
mod record;
mod replay;
mod show;
mod suite;

use ferrane::recording::{Machine, Outcome, Recording, Summary};
use ferrane::{Tensor, Tensors};
use serde_json::{Value, json};

use crate::args;
use crate::error::Result;

/// Runs the command.
pub fn run(args: args::Recording) -> Result<()> {
    match args {
        args::Recording::Make(args) => record::run(&args),
        args::Recording::Replay(args) => replay::run(&args),
        args::Recording::Show(args) => show::run(&args),
        args::Recording::Extract(args) => show::extract(&args),
    }
}

/// Words out of a file, for a terminal: what would steer it is left out.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{FFFD}' } else { c }).collect()
}

/// The machine in one line.
fn machine(machine: &Machine) -> String {
    let mut parts = vec![machine.name.clone()];
    parts.extend(machine.chip.clone());
    let build = machine.build.as_ref().map(|b| format!(" ({b})")).unwrap_or_default();
    parts.push(format!("{}{build}", machine.system));
    parts.push(format!("profile {}", machine.profile));
    clean(&parts.join(", "))
}

/// The middle one of some times, and their ends, in milliseconds.
fn times(nanoseconds: &[u64]) -> Option<[f64; 3]> {
    let mut sorted = nanoseconds.to_vec();
    sorted.sort_unstable();
    let at = |i: usize| sorted.get(i).map(|ns| *ns as f64 / 1e6);
    Some([at(sorted.len() / 2)?, at(0)?, at(sorted.len().checked_sub(1)?)?])
}

/// Times in words.
fn time_words(nanoseconds: &[u64]) -> String {
    match times(nanoseconds) {
        Some([median, low, high]) if nanoseconds.len() > 1 => format!("median {median:.3} ms ({low:.3} to {high:.3})"),
        Some([median, ..]) => format!("{median:.3} ms"),
        None => "none".to_string(),
    }
}

/// Type and extents.
fn shape(tensor: &Tensor) -> String {
    format!("{} {:?}", tensor.dtype(), tensor.shape())
}

/// All of a recording but its bytes.
fn object(recording: &Recording) -> Value {
    let tensors = |list: &Tensors| -> Vec<Value> {
        let one = |(name, tensor): &(String, Tensor)| {
            let summary = Summary::of(tensor);
            json!({
                "name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape(), "not_finite": summary.not_finite,
                "zeros": summary.zeros, "largest": summary.largest, "doubt": summary.doubt(),
            })
        };
        list.iter().map(one).collect()
    };
    let weights: Vec<Value> =
        recording.weights.iter().map(|(path, bytes)| json!({"path": path, "bytes": bytes.len()})).collect();
    json!({
        "header": recording.header, "text_bytes": recording.text.len(), "weights": weights, "inputs": tensors(&recording.inputs),
        "states": tensors(&recording.states), "outputs": tensors(&recording.outputs), "after": tensors(&recording.left),
        "wall_ns": recording.wall, "hardware_ns": recording.hardware,
    })
}

/// Outputs, times and what is to doubt, or the failure, a line each.
fn told(recording: &Recording) -> Vec<String> {
    let mut lines = Vec::new();
    match &recording.header.outcome {
        Outcome::Failed(failure) => lines.push(format!("  refused at {}", clean(&failure.to_string()))),
        Outcome::Ran { compile_ns, load_ns, unsteady, .. } => {
            for (name, tensor) in recording.outputs.iter().chain(&recording.left) {
                let summary = Summary::of(tensor);
                let doubt = summary.doubt().map(|d| format!("  WARNING: {d}")).unwrap_or_default();
                let largest = format!("largest magnitude {}", summary.largest);
                lines.push(format!("  {}  {}  {largest}{doubt}", clean(name), shape(tensor)));
            }
            for (name, runs) in unsteady {
                let name = clean(name);
                lines.push(format!("  WARNING: {runs} later runs gave `{name}` other bytes than the first"));
            }
            let ms = |ns: &u64| *ns as f64 / 1e6;
            lines.push(format!("  compile {:.3} ms, load {:.3} ms", ms(compile_ns), ms(load_ns)));
            let hardware = match recording.hardware.is_empty() {
                true => String::new(),
                false => format!("; on the machine itself {}", time_words(&recording.hardware)),
            };
            let runs = recording.wall.len();
            lines.push(format!("  {runs} runs: {}{hardware}", time_words(&recording.wall)));
        }
    }
    lines
}
