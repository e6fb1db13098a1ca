//! The suite on emulated machines: with the clock of the model, each shows the character that was
//! published of it, and a wrong constant of the model is noticed by its name.

use std::sync::atomic::AtomicBool;

use ferrane_device::{Device, Error, ErrorKind};
use ferrane_emulator::{Emulator, EmulatorOptions, Limits, ProcessCounts};
use ferrane_machine::Profile;
use ferrane_machine::cost::CostModel;
use ferrane_perf::suite::{
    SuiteOptions, SuiteReport, SuiteResult, SuiteRow, all_benchmarks, measure_benchmark, select_benchmarks,
};
use ferrane_probe::DeviceUnderTest;
use ferrane_sensors::{Domain, Energy, Sensor, SensorReading, Sensors};

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

/// A paced machine that enforces its limits, in a process of its own.
fn emulator(profile: &Profile, process: &ProcessCounts) -> Device {
    let mut options = EmulatorOptions::default();
    options.profile = profile.clone();
    options.limits = Limits::Enforce;
    options.pace = true;
    options.process = process.clone();
    Device::new(Emulator::new(options))
}

fn measured(machine: &str, names: &[&str], options: &SuiteOptions) -> SuiteReport {
    let (profile, stop) = (Profile::named(machine).unwrap(), AtomicBool::new(false));
    let mut report = SuiteReport::new(&emulator(&profile, &ProcessCounts::default()));
    let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
    for benchmark in select_benchmarks(&names).unwrap() {
        let process = ProcessCounts::default();
        let open = |options: &str| match options {
            "" => Ok(emulator(&profile, &process)),
            other => Err(Error::new(ErrorKind::Option, other)),
        };
        let mut dut = DeviceUnderTest::new(Box::new(open), &stop).unwrap();
        report.results.push(measure_benchmark(&mut dut, benchmark, options, &mut Sensors::with(Vec::new())));
    }
    report
}

/// Options under which the large configurations are left out and each row is timed once.
fn quick(most_gflop: f64) -> SuiteOptions {
    SuiteOptions { repeat: Some(1), most_gflop, ..SuiteOptions::default() }
}

fn row(result: &SuiteResult, channels: u64) -> &SuiteRow {
    result.rows.iter().find(|row| row.config["channels"] == channels).unwrap()
}

/// The median of the published times of a row, if they are of the very chip.
fn own_ms(report: &SuiteReport, row: &SuiteRow) -> Option<f64> {
    let flops = row.rates.get("gflop").and_then(serde_json::Value::as_f64)? * 1e9;
    let mut published: Vec<f64> = row.published_ms(flops).collect();
    published.sort_by(f64::total_cmp);
    row.published.iter().all(|p| p.chip == report.chip).then(|| published.get(published.len() / 2).copied())?
}

/// Relative errors of the rows' times against published times of the very chip.
fn errors(report: &SuiteReport) -> Vec<f64> {
    let mut errors = Vec::new();
    for row in report.results.iter().flat_map(|r| &r.rows) {
        if let (Some(ms), Some(published)) = (row.ms(), own_ms(report, row)) {
            errors.push((ms / published - 1.0).abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    errors
}

#[test]
fn each_machine_has_its_published_character() {
    let (mut compared, mut dips) = (0, 0);
    for machine in MACHINES {
        let report = measured(machine, &["inmem", "sram-probe"], &quick(2.3));
        assert_eq!(report.wrong().count(), 0, "{machine}");
        let probe = report.result("sram-probe").unwrap();
        // Limits may refuse some widths; none may fail otherwise.
        for failed in probe.rows.iter().filter_map(|row| row.failed.as_ref()) {
            assert!(failed.contains("E0602"), "{machine}: {failed}");
        }
        let model = CostModel::for_profile(&Profile::named(machine).unwrap()).unwrap();
        let floor = report.result("inmem").unwrap();
        let floor = floor.finding("floor_ms").unwrap_or_else(|| panic!("{machine}: {floor}"));
        assert!((floor * 1e3 / model.dispatch_us() - 1.0).abs() < 0.05, "{machine}: {floor}");
        // The dip at 4096 channels (benchmarks §4), where the chip has published rows of both
        // widths.
        let [before, dip] = [3072, 4096].map(|channels| row(probe, channels));
        if let (Some(published), Some(measured)) = (own_ms(&report, dip), dip.ms())
            && let (Some(published_before), Some(measured_before)) = (own_ms(&report, before), before.ms())
        {
            let (published, measured) = (published / published_before, measured / measured_before);
            assert!(
                published > 2.0 && (measured / published - 1.0).abs() < 0.25,
                "{machine}: {measured}, not {published}"
            );
            dips += 1;
        }
        let errors = errors(&report);
        if errors.len() >= 4 {
            // The model's median error by chip is at most 15 % (docs/cost-model.md).
            assert!(errors[errors.len() / 2] < 0.2, "{machine}: {errors:?}");
            compared += 1;
        }
    }
    // The M4 and the M4 Max; few rows or none are published of the others.
    assert_eq!((compared, dips), (2, 2));
}

#[test]
fn a_wrong_constant_is_noticed_by_name() {
    let machine = "m4-max-macos15-inmem";
    let right = CostModel::for_profile(&Profile::named(machine).unwrap()).unwrap();
    let with = |change: &dyn Fn(&mut CostModel)| {
        let mut model = right.clone();
        change(&mut model);
        model
    };
    let names = ["inmem", "sram-probe", "peak", "int8-positions"];
    let noticed = |names: &[&str], model: CostModel| {
        let report = measured(machine, names, &SuiteOptions { model: Some(model), ..quick(2.8) });
        let mut found: Vec<String> = report.contradicted(0.1).map(|(constant, _)| constant.to_string()).collect();
        found.dedup();
        found
    };
    assert_eq!(noticed(&names, right.clone()), [""; 0]);
    let wrong = with(&|m| m.constants.dispatch_us.value *= 1.5);
    assert!(noticed(&["inmem"], wrong).contains(&"dispatch_us".to_string()));
    let wrong = with(&|m| m.constants.stream_gb_s.value *= 1.5);
    assert!(noticed(&["sram-probe"], wrong).contains(&"stream_gb_s".to_string()));
    let wrong = with(&|m| m.constants.alias_gb_s.value *= 1.5);
    assert_eq!(noticed(&["sram-probe"], wrong), ["alias_gb_s"]);
    let wrong = with(&|m| m.constants.buffer_mb.value *= 4.0);
    assert!(noticed(&["sram-probe"], wrong).contains(&"buffer_mb".to_string()));
    let wrong = with(&|m| m.constants.rate_tflops.value *= 2.0);
    assert!(noticed(&["peak"], wrong).contains(&"rate_tflops".to_string()));
    let wrong = with(&|m| m.constants.int8_gain.value *= 1.5);
    assert_eq!(noticed(&["int8-positions"], wrong), ["int8_gain"]);
}

#[test]
fn every_benchmark_runs_and_its_results_are_right() {
    let report = measured("m4-max-macos15-inmem", &[], &quick(0.3));
    assert_eq!(report.results.len(), all_benchmarks().len());
    assert_eq!(report.wrong().next(), None);
    for result in &report.results {
        let failed = result.rows.iter().find_map(|row| row.failed.as_ref());
        assert_eq!(failed, None, "{}", result.name);
        let measured = result.rows.iter().any(|row| row.ms().is_some());
        let excused = result.skipped.as_deref().is_some_and(|why| {
            ["GFLOP", "no device for the GPU", "quality of service"].iter().any(|known| why.contains(known))
        });
        assert!(measured || excused, "{}: {:?}", result.name, result.skipped);
    }
    // It reads back.
    let again: SuiteReport = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(again, report);
}

#[test]
fn corrupted_results_are_noticed() {
    // One element; benchmarks that compare all of their results see it.
    let stop = AtomicBool::new(false);
    let open = |_: &str| {
        let mut options = EmulatorOptions::default();
        options.faults = "evaluate:from 1=nan".parse()?;
        Ok(Device::new(Emulator::new(options)))
    };
    let mut dut = DeviceUnderTest::new(Box::new(open), &stop).unwrap();
    for name in ["dynamic-matmul", "rmsnorm-backward", "causal-attention"] {
        let benchmark = select_benchmarks(&[name.to_string()]).unwrap()[0];
        let mut report = SuiteReport::new(dut.device());
        report.results.push(measure_benchmark(&mut dut, benchmark, &quick(1.2), &mut Sensors::with(Vec::new())));
        assert!(report.wrong().count() > 0, "{name}: {report:?}");
    }
}

/// A counter of the engine that moves by 2 J from one reading to the next, and a broken one.
struct Steps(f64);

impl Sensor for Steps {
    fn name(&self) -> &str {
        "steps"
    }

    fn read(&mut self, reading: &mut SensorReading) {
        self.0 += 2.0;
        let energy = |domain, joules| Energy { domain, channel: "a".into(), source: "steps", joules };
        reading.energy.push(energy(Domain::Ane, self.0));
        reading.energy.push(energy(Domain::Cpu, 7.0));
    }
}

#[test]
fn a_row_has_the_energy_of_one_evaluation() {
    let (profile, stop) = (Profile::named("m4-macos15-inmem").unwrap(), AtomicBool::new(false));
    let process = ProcessCounts::default();
    let mut dut = DeviceUnderTest::new(Box::new(|_: &str| Ok(emulator(&profile, &process))), &stop).unwrap();
    let options = SuiteOptions { repeat: Some(4), ..quick(0.1) };
    let benchmark = select_benchmarks(&["inmem".to_string()]).unwrap()[0];
    let result = measure_benchmark(&mut dut, benchmark, &options, &mut Sensors::with(vec![Box::new(Steps(0.0))]));
    let row = &result.rows[0];
    let power = |domain: &str| row.power.iter().find(|p| p.domain == domain).unwrap();
    // Four that are timed and the one before them share 2 J.
    assert_eq!((power("ane").mj, power("cpu").mj), (400.0, 0.0));
    assert!(power("ane").watts > 0.0 && power("ane").watts.is_finite());
    let (ms, mj) = (row.predicted_ms.unwrap(), row.predicted_mj.unwrap());
    // Most of this evaluation is the dispatch, during which the engine draws nothing.
    assert!(mj > 0.0 && mj / ms < 2.8, "{mj} mJ in {ms} ms is more than the engine draws under load");
    assert!(result.to_string().contains("ane 400"), "{result}");
}
