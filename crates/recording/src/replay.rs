//! A recording on another device.

use ferrane_device::Device;
use ferrane_machine::cost::{CostModel, predict_function};
use ferrane_machine::{CheckOptions, Finding, Profile, check};
use ferrane_mil::Program;

use crate::compare::{self, Difference};
use crate::run::{Failure, run};
use crate::{Outcome, Recording};

/// What a device here says to a recorded program.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It ran there and here: each output, and then each state.
    Both(Vec<Difference>),
    /// It failed there and here; true if with the same words.
    Neither(Failure, bool),
    /// It ran there and fails here.
    There(Failure),
    /// It failed there and runs here.
    Here,
}

/// A recording on a device.
#[derive(Clone, Debug)]
pub struct Replay {
    /// What the device calls itself.
    pub device: String,
    /// How it compares.
    pub answer: Answer,
    /// Each run here as the host saw it, in nanoseconds.
    pub wall: Vec<u64>,
}

impl Replay {
    /// True if nothing contradicts the record: no element is beyond the tolerance, or both failed
    /// with the same words.
    pub fn agrees(&self) -> bool {
        match &self.answer {
            Answer::Both(list) => list.iter().all(Difference::within),
            Answer::Neither(_, same) => *same,
            Answer::There(_) | Answer::Here => false,
        }
    }
}

/// Runs a recording's program on its inputs. `program` is [`Recording::program`]; elements up to
/// `tolerance` units in the last place apart are taken for equal.
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
    /// What the checker says of the program on the recorded machine. `None` if its profile is not
    /// known here.
    pub fn findings(&self, program: &Program) -> Option<Vec<Finding>> {
        let profile = Profile::named(&self.header.machine.profile).ok()?;
        let text = std::str::from_utf8(&self.text).ok();
        Some(check(program, &profile, &CheckOptions { text, ..Default::default() }))
    }

    /// What the cost model says a run takes on the recorded machine, in microseconds. `None` where
    /// it has no constants for the chip, or cannot tell the extents.
    pub fn predicted_us(&self, program: &Program) -> Option<f64> {
        let profile = Profile::named(&self.header.machine.profile).ok()?;
        let model = CostModel::for_profile(&profile).ok()?;
        let function = program.function(&self.header.program.function)?;
        Some(predict_function(function, &model).ok()?.total_us)
    }
}
