//! The table of a machine against what was read from real ones.

mod laws;
mod outputs;
mod vectors;

use ferrane_device::{Device, Result};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics, Rules};
use ferrane_machine::Profile;
use ferrane_mil::Program;

use crate::harness::{Tensor, run_on};

/// An emulator with the arithmetic of a profile's machine.
pub fn machine(profile: &str) -> EmulatorOptions {
    let mut options = EmulatorOptions::default();
    options.numerics = Numerics::Hardware;
    options.profile = Profile::named(profile).unwrap();
    options
}

/// The same, with rules in place of the profile's.
fn with_rules(rules: Rules) -> EmulatorOptions {
    let mut options = machine(Profile::DEFAULT);
    options.rules = Some(rules);
    options
}

/// Runs a program on inputs in order; outputs in order.
fn run(options: &EmulatorOptions, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    run_on(&Device::new(Emulator::new(options.clone())), program, inputs)
}
