//! What a recording says in words: the JSON text among the metadata of its file.

use ferrane_device::Device;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The version of the format that is written here, and the newest that is read.
pub const VERSION: u64 = 1;

/// Everything of a recording but tensors and program. What a newer writer of the same version adds
/// is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Of the format.
    pub version: u64,
    /// The version of Ferrane that wrote it.
    pub ferrane: String,
    /// The program.
    pub program: Origin,
    /// The machine.
    pub machine: Machine,
    /// Names of the inputs, in the program's order.
    pub inputs: Vec<String>,
    /// Names of the states that were given values.
    pub states: Vec<String>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What the program was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The file's name, without its folder.
    pub name: String,
    /// The function that was run.
    pub function: String,
}

/// Where it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The name that the device was opened by.
    pub device: String,
    /// What the device calls itself.
    pub name: String,
    /// The profile that it was taken for, `m4-macos15-inmem` for example.
    pub profile: String,
    /// The computer's chip, in its own words, where the device says so.
    pub chip: Option<String>,
    /// The system, `macOS 15.5` for example; of a device that does not say, the kind of system and
    /// processor that Ferrane was built for.
    pub system: String,
    /// The system's build, `24F74` for example, where the device says so.
    pub build: Option<String>,
}

impl Machine {
    /// What a device says of itself; `spec` is the name it was opened by.
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

    /// True for an emulator's recording, whose times are those of a processor.
    pub fn emulated(&self) -> bool {
        self.device.split('?').next() == Some("emulator") || self.name.starts_with("emulator")
    }
}

/// What came of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It ran.
    Ran {
        /// Names of the outputs, in the machine's order.
        outputs: Vec<String>,
        /// Names of the states.
        states: Vec<String>,
        /// Compiling, in nanoseconds.
        compile_ns: u64,
        /// Loading, in nanoseconds.
        load_ns: u64,
        /// Outputs and states that a later run gave other bytes, and how many runs did.
        unsteady: Vec<(String, usize)>,
    },
    /// It did not.
    Failed(Failure),
}
