//! The table of a machine against what was read from real ones.

mod laws;
mod outputs;
mod vectors;

use ferrane_device::{Bindings, Device, Result};
use ferrane_emulator::{Emulator, Numerics, Options, Rules};
use ferrane_mil::Program;
use ferrane_target::Profile;

use crate::harness::Tensor;

/// An emulator with the arithmetic of a profile's machine.
fn machine(profile: &str) -> Options {
    let mut options = Options::default();
    options.numerics = Numerics::Hardware;
    options.profile = Profile::named(profile).unwrap();
    options
}

/// The same, with rules in place of the profile's.
fn with_rules(rules: Rules) -> Options {
    let mut options = machine(Profile::DEFAULT);
    options.rules = Some(rules);
    options
}

/// Runs a program on inputs in order; outputs in order.
fn run(options: &Options, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let device = Device::new(Emulator::new(options.clone()));
    let executable = device.load(program, "test")?;
    let procedure = &executable.procedures()[0];
    let mut bindings = Bindings::new();
    for (port, tensor) in procedure.inputs.iter().zip(inputs) {
        let surface = device.surface(&port.layout)?;
        surface.write()?.bytes_mut().copy_from_slice(&tensor.to_bytes());
        bindings = bindings.bind(&port.name, &surface);
    }
    let mut outputs = Vec::new();
    for port in &procedure.outputs {
        let surface = device.surface(&port.layout)?;
        surface.write()?.bytes_mut().fill(0xA5);
        bindings = bindings.bind(&port.name, &surface);
        outputs.push(surface);
    }
    executable.prepare(bindings)?.evaluate()?;
    outputs.iter().map(|s| Ok(Tensor::from_bytes(s.layout().dtype, &s.layout().shape, s.read()?.bytes()))).collect()
}
