//! Replays a recording on a device and compares the outcomes.

use ferrane_device::Device;
use ferrane_machine::cost::{CostModel, predict_function};
use ferrane_machine::{CheckOptions, Finding, Profile, check};
use ferrane_mil::Program;

use crate::compare::{self, Difference};
use crate::run::{Failure, run};
use crate::{Outcome, Recording};

/// How the outcome of a replay compares with the recorded one.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The program ran there and here: the differences of each output, then of each state.
    Both(Vec<Difference>),
    /// The program failed there and here; true if with the same error.
    Neither(Failure, bool),
    /// The program ran there and fails here.
    There(Failure),
    /// The program failed there and runs here.
    Here,
}

/// The result of replaying a recording.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The name that the device reports.
    pub device: String,
    /// How the outcome compares with the recorded one.
    pub answer: Answer,
    /// Time of each run here as measured by the host, in nanoseconds.
    pub wall: Vec<u64>,
}

impl Replay {
    /// True if nothing contradicts the recording: no element is beyond the tolerance, or both
    /// failed with the same error.
    pub fn agrees(&self) -> bool {
        match &self.answer {
            Answer::Both(list) => list.iter().all(Difference::within),
            Answer::Neither(_, same) => *same,
            Answer::There(_) | Answer::Here => false,
        }
    }
}

/// Runs a recording's program on its inputs. `program` is [`Recording::program`]; elements whose
/// distance is at most `tolerance` units in the last place agree.
pub fn replay(recording: &Recording, program: &Program, device: &Device, tolerance: u64, runs: usize) -> Replay {
    let found = run(device, &recording.job(program, runs));
    let mut wall = Vec::new();
    let answer = match (&recording.header.outcome, found) {
        (Outcome::Ran { .. }, Ok(ran)) => {
            wall = ran.wall;
            let mut list = compare::all(&recording.outputs, &ran.outputs, tolerance);
            list.extend(compare::all(&recording.left, &ran.states, tolerance));
            Answer::Both(list)
        }
        (Outcome::Ran { .. }, Err(failure)) => Answer::There(failure),
        (Outcome::Failed(_), Ok(ran)) => {
            wall = ran.wall;
            Answer::Here
        }
        (Outcome::Failed(there), Err(here)) => {
            let same = there.agrees(&here);
            Answer::Neither(here, same)
        }
    };
    Replay { device: device.name(), answer, wall }
}

impl Recording {
    /// The findings of the checker for the program on the recorded machine. `None` if its profile
    /// is not known here.
    pub fn findings(&self, program: &Program) -> Option<Vec<Finding>> {
        let profile = Profile::named(&self.header.machine.profile).ok()?;
        let text = std::str::from_utf8(&self.text).ok();
        Some(check(program, &profile, &CheckOptions { text, ..Default::default() }))
    }

    /// The predicted time of a run on the recorded machine, in microseconds. `None` if the cost
    /// model has no constants for the chip, or the program has unknown extents.
    pub fn predicted_us(&self, program: &Program) -> Option<f64> {
        let profile = Profile::named(&self.header.machine.profile).ok()?;
        let model = CostModel::for_profile(&profile).ok()?;
        let function = program.function(&self.header.program.function)?;
        Some(predict_function(function, &model).ok()?.total_us)
    }
}
