//! The suite over the emulator with each table, over a recorded emulator, and over the engine's backend with the fake.

use std::collections::HashSet;

use ferrane_device::Device;
use ferrane_emulator::{Emulator, Limits, Numerics, Options, Process};
use ferrane_suite::cases::{Promise, Rounding, all, run};
use ferrane_target::Profile;

pub(crate) fn emulator(numerics: Numerics) -> Device {
    let mut options = Options::default();
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

/// Every machine that differs from the others in what the cases try, each in a process of its own.
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
        let mut options = Options::default();
        options.profile = p;
        (options.limits, options.process) = (Limits::Enforce, Process::default());
        passes(&Device::new(Emulator::new(options)), Rounding::Half, &[Promise::Limits, Promise::Enforced]);
    }
}

#[test]
fn a_recorded_device_is_the_same_device() {
    let (device, record) = emulator(Numerics::Fast).recorded();
    passes(&device, Rounding::Half, &EVERYTHING);
    assert!(record.lines().len() > 100);
}

/// The fake copies inputs to outputs, so contract and limits are what it can keep.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn the_engines_backend_over_the_fake() {
    let _fake = ferrane_ane_fake::session();
    passes(&ferrane_ane::open_fake("").unwrap(), Rounding::Half, &[Promise::Contract, Promise::Limits]);
}

/// A device that copies cannot pass for one that computes.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn the_numerics_fail_on_a_device_that_only_copies() {
    let _fake = ferrane_ane_fake::session();
    let device = ferrane_ane::open_fake("").unwrap();
    let numerics: Vec<_> = all().into_iter().filter(|c| c.promise == Promise::Numerics).collect();
    assert!(numerics.len() >= 4);
    for case in numerics {
        assert!(case.run(&device, Rounding::Half).is_err(), "{} passed", case.name);
    }
}
