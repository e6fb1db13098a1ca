//! The device suite over the emulator with each table, over a recorded emulator, and over the
//! engine's backend with the fake framework.

use std::collections::HashSet;

use ferrane_device::{Device, Error, ErrorKind, Layout, Port, Procedure, ProgramSource, Result};
use ferrane_emulator::{Emulator, EmulatorOptions, Limits, Numerics, ProcessCounts};
use ferrane_machine::Profile;
use ferrane_mil::{Function, ValueId};
use ferrane_scripted::Scripted;
use ferrane_suite::cases::{Promise, Rounding, all, run};

pub(crate) fn emulator(numerics: Numerics) -> Device {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    Device::new(Emulator::new(options))
}

fn passes(device: &Device, rounding: Rounding, promises: &[Promise]) {
    let (count, failures) = run(device, rounding, promises);
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 0);
}

const EVERYTHING: [Promise; 3] = [Promise::Contract, Promise::Numerics, Promise::Limits];

#[test]
fn emulator_fast() {
    passes(&emulator(Numerics::Fast), Rounding::Half, &EVERYTHING);
}

#[test]
fn emulator_exact() {
    passes(&emulator(Numerics::Exact), Rounding::Single, &EVERYTHING);
}

/// Each machine that differs from the others in what the cases test, in a process of its own.
#[test]
fn emulators_that_enforce_limits() {
    let mut seen = HashSet::new();
    for name in Profile::names() {
        let p = Profile::named(&name).unwrap();
        let sizes = (p.min_surface.value, p.uniform_inputs.value, p.uniform_outputs.value, p.row_alignment.value);
        let life = (p.compile_budget.value, p.budget_returns.value, p.max_loaded.value, p.queue_depth.value);
        if !seen.insert(format!("{sizes:?} {life:?} {:?} {:?}", p.input_order.value, p.output_order.value)) {
            continue;
        }
        let mut options = EmulatorOptions::default();
        options.profile = p;
        (options.limits, options.process) = (Limits::Enforce, ProcessCounts::default());
        passes(&Device::new(Emulator::new(options)), Rounding::Half, &[Promise::Limits, Promise::Enforced]);
    }
}

#[test]
fn a_recorded_device_is_the_same_device() {
    let (device, record) = emulator(Numerics::Fast).recorded();
    passes(&device, Rounding::Half, &EVERYTHING);
    assert!(record.lines().len() > 100);
}

/// The fake computes with the emulator, so it keeps every promise on each path of a request.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn the_engines_backend_over_the_fake() {
    for way in ["standard", "realtime", "process-request", "direct"] {
        let _fake = ferrane_ane_fake::session();
        let device = ferrane_ane_fake::open(&format!("dispatch={way}")).unwrap();
        passes(&device, Rounding::Half, &EVERYTHING);
    }
}

/// The E5 path keeps them, too, including the casts at ports, and whether or not predictions write
/// to the given output buffers.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn the_e5_path_over_the_fake() {
    for own_arrays in [false, true] {
        let fake = ferrane_ane_fake::session();
        if own_arrays {
            fake.without_backings();
        }
        let device = ferrane_ane_fake::open("path=e5").unwrap();
        passes(&device, Rounding::Half, &EVERYTHING);
    }
}

/// No code treats the padded rows of a port as packed.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn the_engines_backend_with_padded_rows() {
    let fake = ferrane_ane_fake::session();
    fake.row_alignment(64);
    let device = ferrane_ane_fake::open("").unwrap();
    passes(&device, Rounding::Half, &[Promise::Contract, Promise::Numerics]);
}

/// Ports with packed layouts for the inputs and outputs that the text declares.
fn packed(source: &ProgramSource<'_>) -> Result<Vec<Procedure>> {
    let ProgramSource::Text { mil, weights } = source else {
        return Err(Error::new(ErrorKind::Unsupported, "the scripted device reads only text"));
    };
    let invalid = |e: String| Error::new(ErrorKind::InvalidProgram, e);
    let text = std::str::from_utf8(mil).map_err(|e| invalid(e.to_string()))?;
    let program = ferrane_mil::parse(text, weights).map_err(|e| invalid(e.to_string()))?;
    let ports = |f: &Function, values: &[ValueId]| {
        let port = |(symbol, v): (usize, &ValueId)| {
            let value = f.value(*v);
            let (dtype, shape) = value.ty.dtype().zip(value.ty.shape()).ok_or_else(|| invalid(value.name.clone()))?;
            Ok(Port { name: value.name.clone(), symbol: symbol as u32, layout: Layout::packed(dtype, &shape)? })
        };
        values.iter().enumerate().map(port).collect::<Result<Vec<_>>>()
    };
    let procedure = |(id, f): (usize, &Function)| {
        let (inputs, outputs) = (ports(f, &f.inputs)?, ports(f, &f.body().outputs)?);
        Ok(Procedure { name: f.name.clone(), id: id as u32, inputs, outputs, states: Vec::new() })
    };
    program.functions.iter().enumerate().map(procedure).collect()
}

/// The numerics cases fail on a device that only copies.
#[test]
fn the_numerics_fail_on_a_device_that_only_copies() {
    let device = Device::new(Scripted::new(packed).unwrap());
    let numerics: Vec<_> = all().into_iter().filter(|c| c.promise == Promise::Numerics).collect();
    assert!(numerics.len() >= 4);
    for case in numerics {
        assert!(case.run(&device, Rounding::Half).is_err(), "{} passed", case.name);
    }
}
