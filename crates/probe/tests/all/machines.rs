//! Probes of an emulated machine measure that machine, and an emulator made from their report is
//! that machine again.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use ferrane_device::{Device, Error, ErrorKind};
use ferrane_emulator::{Emulator, EmulatorOptions, Limits, Numerics, ProcessCounts};
use ferrane_machine::Profile;
use ferrane_probe::{DeviceUnderTest, DoctorReport, examine, select_probes};
use serde_json::{Value, json};

/// What a profile says that the emulator does not act out: results that are silently wrong on the
/// machine are right here (`check` warns of them), and what softplus does comes with the tables. On
/// these the emulator is measured as it is.
const NOT_ACTED: [&str; 6] = [
    "concat_slices_wrong",
    "gather_last_wrong",
    "matmul_inner_multiple",
    "runtime_conv_weight_ignored",
    "softplus_zero",
    "width_multiple",
];

/// One machine of each family, system and path that profiles distinguish.
const MACHINES: [&str; 9] = [
    "m1-macos15-inmem",
    "m1-macos26-inmem",
    "m2-pro-macos15-e5rt",
    "m3-pro-macos15-inmem",
    "m3-max-macos26-inmem",
    "m4-macos15-inmem",
    "m4-max-macos15-inmem",
    "m5-macos26-client",
    "m5-pro-macos26-e5rt",
];

fn emulator(profile: &Profile, process: &ProcessCounts) -> Device {
    let mut options = EmulatorOptions::default();
    options.profile = profile.clone();
    options.numerics = Numerics::Hardware;
    options.limits = Limits::Enforce;
    options.process = process.clone();
    Device::new(Emulator::new(options))
}

/// All probes, each in a process of its own, as the command asks them.
fn examined(profile: &Profile, names: &[String]) -> DoctorReport {
    let mut report = DoctorReport::new("emulator".into(), profile.subject.name.clone(), json!({}));
    for probe in select_probes(names).unwrap() {
        // This test does not compare times.
        if probe.values.is_empty() || probe.name == "qos" {
            continue;
        }
        let (process, stop) = (ProcessCounts::default(), AtomicBool::new(false));
        let open = |options: &str| match options {
            "" => Ok(emulator(profile, &process)),
            other => Err(Error::new(ErrorKind::Option, other)),
        };
        let mut dut = DeviceUnderTest::new(Box::new(open), &stop).unwrap();
        report.add(examine(&mut dut, probe));
    }
    report
}

fn values(report: &DoctorReport) -> BTreeMap<String, Value> {
    report.probes.iter().flat_map(|p| &p.values).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// What a profile says of the same values; an op without an entry is native.
fn expected(profile: &Profile, key: &str) -> Value {
    let entry = profile.entries().into_iter().find(|e| e.name == key);
    entry.map_or(json!("native"), |e| e.value)
}

#[test]
fn an_emulated_machine_is_measured_as_what_it_is() {
    // One after the other: emulators of one process stage equal programs in one folder.
    for name in MACHINES {
        let profile = Profile::named(name).unwrap();
        let report = examined(&profile, &["all".into()]);
        let found = values(&report);
        assert!(found.len() >= 40, "{name}: {found:?}");
        for (key, value) in &found {
            if !NOT_ACTED.contains(&key.as_str()) {
                let probe = report.probes.iter().find(|p| p.values.contains_key(key));
                assert_eq!(*value, expected(&profile, key), "{name}: {key}: {probe:#?}");
            }
        }
        // What was measured is a profile, and its machine measures the same.
        let measured = Profile::report(&report.json()).unwrap();
        assert_eq!(measured.subject, profile.subject);
        for (key, value) in &found {
            assert_eq!(expected(&measured, key), *value, "{name}: {key}");
        }
        let again = values(&examined(&measured, &["all".into()]));
        for (key, value) in &found {
            assert_eq!(again.get(key), Some(value), "{name} again: {key}");
        }
        assert_eq!(again.len(), found.len(), "{name}");
    }
}
