//! The header of a recording: the JSON text in the metadata of its file.

use ferrane_device::Device;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The version of the format that is written, and the newest that is read.
pub const VERSION: u64 = 1;

/// Everything in a recording except tensors and program. Fields that a newer Ferrane adds to the
/// same version are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format, [`VERSION`].
    pub version: u64,
    /// The version of Ferrane that wrote it.
    pub ferrane: String,
    /// File and function that were run.
    pub program: Origin,
    /// The device, its profile and its computer.
    pub machine: Machine,
    /// Names of the inputs, in the program's order.
    pub inputs: Vec<String>,
    /// Names of the states that were given values.
    pub states: Vec<String>,
    /// Whether the program ran, and how it failed if not.
    pub outcome: Outcome,
}

/// Where the program came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The file's name, without its folder.
    pub name: String,
    /// The function that was run.
    pub function: String,
}

/// The machine that a recording was made on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The name that the device was opened by.
    pub device: String,
    /// The name that the device reports.
    pub name: String,
    /// The profile that the device was opened with, for example `m4-macos15-inmem`.
    pub profile: String,
    /// The computer's chip as the system names it; `None` if the device does not report it.
    pub chip: Option<String>,
    /// The system, for example `macOS 15.5`. If the device does not report it: the kind of system
    /// and processor that Ferrane was built for.
    pub system: String,
    /// The system's build, for example `24F74`; `None` if the device does not report it.
    pub build: Option<String>,
}

impl Machine {
    /// What a device reports about itself; `spec` is the name that it was opened by.
    pub fn of(device: &Device, spec: &str) -> Machine {
        let computer = device.computer();
        let built = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        Machine {
            device: spec.to_string(),
            name: device.name(),
            profile: device.profile().subject.name.clone(),
            chip: computer.as_ref().map(|c| c.chip.clone()),
            system: computer.as_ref().map_or(built, |c| c.system.clone()),
            build: computer.map(|c| c.build),
        }
    }

    /// True if an emulator made the recording, so its times are those of a CPU.
    pub fn emulated(&self) -> bool {
        self.device.split('?').next() == Some("emulator") || self.name.starts_with("emulator")
    }
}

/// The outcome of running a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The program ran on the machine.
    Ran {
        /// Names of the outputs, in the machine's order.
        outputs: Vec<String>,
        /// Names of the states, in the order of [`Recording::left`](crate::Recording::left).
        states: Vec<String>,
        /// Time that the compile took, in nanoseconds.
        compile_ns: u64,
        /// Time that the load took, in nanoseconds.
        load_ns: u64,
        /// Outputs and states whose bytes differed in a later run, and in how many runs they did.
        unsteady: Vec<(String, usize)>,
    },
    /// A stage of the machine failed.
    Failed(Failure),
}
