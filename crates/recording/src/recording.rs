//! A recording in memory.

use ferrane_device::{Device, Tensors};
use ferrane_diag::Severity;
use ferrane_mil::{Bytes, Missing, Options, Program, Strictness, Types, Weights, parse_with, print};

use crate::RecordingError;
use crate::header::{Header, Machine, Origin, Outcome, VERSION};
use crate::run::{Job, run};

/// A program, its inputs, and what a machine computed. A recording that was opened from a file
/// shares the file's mapping.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Versions, names, machine and outcome. Its names are those of the lists below.
    pub header: Header,
    /// The program as MIL text.
    pub text: Bytes,
    /// The blob files, each with the path that the text uses.
    pub weights: Vec<(String, Bytes)>,
    /// A tensor for each input, in the order of the program.
    pub inputs: Tensors,
    /// Initial values of states; states that are not listed began as zeros.
    pub states: Tensors,
    /// Outputs of the first run. Empty if it failed, as are the fields below.
    pub outputs: Tensors,
    /// States after the first run.
    pub left: Tensors,
    /// Time of each run as measured by the host, in nanoseconds.
    pub wall: Vec<u64>,
    /// Time of each run on the machine itself, in nanoseconds; empty if the machine does not report
    /// it.
    pub hardware: Vec<u64>,
}

impl Recording {
    /// Runs a job and records the outcome, which may be a failure. `spec` is the name that the
    /// device was opened by.
    ///
    /// # Errors
    /// The program cannot be recorded: a weight is missing, its text does not read as the same
    /// program, or a weight's path leads out of the program's folder.
    pub fn record(device: &Device, spec: &str, job: &Job<'_>) -> Result<Recording, RecordingError> {
        let text = print(job.program);
        let weights = job.program.weights.files();
        let mut recording = Recording {
            header: Header {
                version: VERSION,
                ferrane: env!("CARGO_PKG_VERSION").to_string(),
                program: Origin { name: job.label.to_string(), function: job.function.to_string() },
                machine: Machine::of(device, spec),
                inputs: names(job.inputs),
                states: names(job.states),
                outcome: Outcome::Ran {
                    outputs: Vec::new(),
                    states: Vec::new(),
                    compile_ns: 0,
                    load_ns: 0,
                    unsteady: Vec::new(),
                },
            },
            text: text.clone().into_bytes().into(),
            weights,
            inputs: job.inputs.clone(),
            states: job.states.clone(),
            outputs: Tensors::new(),
            left: Tensors::new(),
            wall: Vec::new(),
            hardware: Vec::new(),
        };
        // Checked before the run: a recording that cannot be read again is no evidence.
        recording.weights.iter().try_for_each(|(path, _)| crate::file::plain(path).map(drop))?;
        if print(&recording.program()?) != text {
            return Err(RecordingError::Text("its text does not read as the same program".to_string()));
        }
        match run(device, job) {
            Err(failure) => recording.header.outcome = Outcome::Failed(failure),
            Ok(ran) => {
                let nanoseconds = |t: std::time::Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
                recording.header.outcome = Outcome::Ran {
                    outputs: names(&ran.outputs),
                    states: names(&ran.states),
                    compile_ns: nanoseconds(ran.compile),
                    load_ns: nanoseconds(ran.load),
                    unsteady: ran.unsteady,
                };
                (recording.outputs, recording.left, recording.wall, recording.hardware) =
                    (ran.outputs, ran.states, ran.wall, ran.hardware);
            }
        }
        Ok(recording)
    }

    /// The program. Its weights share the recording's bytes.
    ///
    /// # Errors
    /// [`RecordingError::Text`]: the text is invalid.
    pub fn program(&self) -> Result<Program, RecordingError> {
        let mut weights = Weights::new();
        self.weights.iter().for_each(|(path, bytes)| weights.open_file(path, bytes.clone()));
        let options = Options { missing: Missing::Refuse, strictness: Strictness::Lenient, types: Types::Check };
        let parsed = parse_with(&*self.text, &weights, options);
        parsed.program.ok_or_else(|| {
            let first = parsed.diagnostics.iter().find(|d| d.severity == Severity::Error);
            RecordingError::Text(first.map_or_else(|| "the text is invalid".to_string(), |d| d.message.clone()))
        })
    }

    /// The job that repeats the recording, `runs` times.
    pub fn job<'a>(&'a self, program: &'a Program, runs: usize) -> Job<'a> {
        let Origin { name, function } = &self.header.program;
        Job { program, function, label: name, inputs: &self.inputs, states: &self.states, runs }
    }
}

fn names(tensors: &Tensors) -> Vec<String> {
    tensors.names().map(str::to_string).collect()
}
