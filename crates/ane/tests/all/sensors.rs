//! Sensors over the fake's IOReport and IOHID.

use ferrane_ane::runtime::live;
use ferrane_ane_fake::ioreport::{MICROJOULES, MILLIJOULES};
use ferrane_ane_fake::{Call, Session};
use ferrane_device::{Device, Request};
use ferrane_sensors::{Domain, Interval, SensorReading, Sensors};

use crate::path::{bindings, compile, open, text};

const MODEL: &str = "IOReport Energy Model";
const COUNTERS: &str = "IOReport PMP / Energy Counters";

fn sensors() -> Sensors {
    Sensors::with(ferrane_ane::sensors())
}

fn request(device: &Device) -> Request {
    let executable = compile(device, &text()).unwrap().load().unwrap();
    let (bindings, _surfaces) = bindings(device, &executable);
    executable.prepare(bindings).unwrap()
}

/// The readings around as many evaluations.
fn around(sensors: &mut Sensors, request: &Request, evaluations: usize) -> Interval {
    let before = sensors.read();
    for _ in 0..evaluations {
        request.evaluate().unwrap();
    }
    sensors.read().since(&before)
}

fn joules(interval: &Interval, domain: Domain, source: &str) -> Option<f64> {
    interval.power.iter().find(|p| p.domain == domain && p.source == source).map(|p| p.joules)
}

fn near(found: Option<f64>, expected: f64) {
    assert!(found.is_some_and(|f| (f - expected).abs() < 1e-9), "{found:?}, not {expected}");
}

fn shares(interval: &Interval, unit: &str, source: &str) -> Vec<(String, f64)> {
    let found = interval.shares.iter().find(|s| s.unit == unit && s.source == source);
    found.unwrap_or_else(|| panic!("no {unit} of {source}: {:?}", interval.shares)).states.clone()
}

fn why(reading: &SensorReading, what: &str) -> String {
    let found: Vec<_> = reading.unread.iter().filter(|u| u.what == what).collect();
    assert_eq!(found.len(), 1, "{what}: {:?}", reading.unread);
    found[0].why.clone()
}

#[test]
fn evaluations_cost_energy_and_an_idle_engine_none() {
    let (_fake, device) = open();
    let request = request(&device);
    let mut sensors = sensors();
    assert_eq!(sensors.sources().collect::<Vec<_>>(), ["IOReport", "IOHID"]);
    let idle = around(&mut sensors, &request, 0);
    assert_eq!((joules(&idle, Domain::Ane, MODEL), joules(&idle, Domain::Ane, COUNTERS)), (Some(0.0), Some(0.0)));
    let busy = around(&mut sensors, &request, 5);
    near(joules(&busy, Domain::Ane, MODEL), 5.0 * MILLIJOULES as f64 * 1e-3);
    near(joules(&busy, Domain::Ane, COUNTERS), 5.0 * MICROJOULES as f64 * 1e-6);
    assert_eq!(busy.power(Domain::Ane).unwrap().source, MODEL, "the source that counted most");
    // Units of the other counters: one sample costs the processor 1 mJ and the GPU 5 mJ.
    near(joules(&busy, Domain::Cpu, MODEL), 1e-3);
    near(joules(&busy, Domain::Gpu, MODEL), 5e-3);
    near(joules(&busy, Domain::Dram, MODEL), 5.0 * 40.0 * 1e-6);
    // Counters start with the sensor.
    let reading = sensors.read();
    let engine = reading.energy.iter().find(|e| e.channel == "ANE0").unwrap();
    near(Some(engine.joules), 5.0 * MILLIJOULES as f64 * 1e-3);
    let second = reading.energy.iter().find(|e| e.source == COUNTERS).unwrap();
    assert_eq!(second.channel, "PMP0 ANE", "the group says which of several it is");
}

#[test]
fn states_are_those_of_the_interval() {
    let (_fake, device) = open();
    let request = request(&device);
    let mut sensors = sensors();
    let clusters = "IOReport SoC Stats / Cluster Power States";
    let state = |name: &str, share: f64| (name.to_string(), share);
    let idle = around(&mut sensors, &request, 0);
    assert_eq!(shares(&idle, "ANE0", clusters), [state("INACT", 1.0), state("ACT", 0.0)]);
    let busy = around(&mut sensors, &request, 6);
    assert_eq!(shares(&busy, "ANE0", clusters), [state("INACT", 0.25), state("ACT", 0.75)]);
    let floor = around(&mut sensors, &request, 3);
    assert_eq!(shares(&floor, "PMP0 ANE-AF-BW", "IOReport PMP / SOC Floor")[1], state("VNOM", 0.75));
    assert_eq!(shares(&floor, "ANE status", "IOReport ANE / IOP State")[1], state("Running", 0.75));
    let cores = "IOReport CPU Stats / CPU Core Performance States";
    assert_eq!(shares(&idle, "ECPU000", cores), [state("IDLE", 0.75), state("V0P0", 0.25)]);
    // Names of any length, and one name twice.
    assert_eq!(shares(&idle, &"ECPU".repeat(500), cores), [state("IDLE", 1.0)]);
    let gpu = "IOReport GPU Stats / GPU Performance States";
    assert_eq!(shares(&idle, "GPUPH", gpu), [state("OFF", 1.0), state("P1", 0.0)]);
    assert_eq!(shares(&idle, "GPUPH (2)", gpu), [state("OFF", 0.0), state("P1", 1.0)]);
}

#[test]
fn only_what_is_read_is_subscribed_to() {
    let (fake, _device) = open();
    let mut sensors = sensors();
    let mut names = fake.subscribed();
    names.sort();
    let mut expected = vec![
        "ANE",
        "ANE-AF-BW",
        "ANE-DCS-BW",
        "ANE0",
        "ANE0",
        "ANE1",
        "CPU Energy",
        "DRAM0",
        "DRAM1",
        "DRAM2",
        "ECPU000",
        "GPU Energy",
        "GPUPH",
        "GPUPH",
        "PCPU000",
        "status",
    ];
    let long = "ECPU".repeat(500);
    expected.push(&long);
    expected.sort_unstable();
    assert_eq!(names, expected);
    sensors.read();
    assert_eq!((fake.count(Call::CreateSubscription), fake.count(Call::CreateSamples)), (1, 2));
}

#[test]
fn what_is_no_counter_is_listed_with_the_reason() {
    let (_fake, _device) = open();
    let mut sensors = sensors();
    let reading = sensors.read();
    assert!(why(&reading, "energy of DRAM1").contains("`bushels`"));
    assert!(why(&reading, "energy of ANE1").contains(&i64::MIN.to_string()));
    assert!(why(&reading, "energy of DRAM2").contains("format 2"));
    assert!(why(&reading, "states of PCPU000").contains("format 1"));
    assert!(why(&reading, "states of PMP0 ANE-DCS-BW").contains("gave -1 for `F1`"));
    assert_eq!(reading.without_sensor().count(), 5, "{:?}", reading.unread);
    let channels: Vec<_> = reading.energy.iter().map(|e| e.channel.as_str()).collect();
    assert_eq!(channels, ["ANE0", "CPU Energy", "GPU Energy", "DRAM0", "PMP0 ANE"]);
}

#[test]
fn a_frozen_model_leaves_the_other_counter() {
    let (fake, device) = open();
    let request = request(&device);
    let mut sensors = sensors();
    around(&mut sensors, &request, 2);
    fake.freeze_energy();
    let busy = around(&mut sensors, &request, 4);
    assert_eq!(joules(&busy, Domain::Ane, MODEL), Some(0.0));
    let power = busy.power(Domain::Ane).unwrap();
    assert_eq!(power.source, COUNTERS);
    near(Some(power.joules), 4.0 * MICROJOULES as f64 * 1e-6);
}

#[test]
fn temperatures_are_those_of_working_sensors() {
    let (_fake, _device) = open();
    let reading = sensors().read();
    let found: Vec<_> = reading.temperatures.iter().map(|t| (t.sensor.as_str(), t.celsius)).collect();
    assert!(found.contains(&("ANE MTR Temp Sensor1", 41.5)) && found.contains(&("PMU tdie1", 38.25)), "{found:?}");
    for broken in ["PMU tcal", "gas gauge battery", "PMU2 tdev1", "NAND CH0 temp", "pACC MTR Temp Sensor0"] {
        assert!(found.iter().all(|(sensor, _)| *sensor != broken), "{found:?}");
    }
    let names = ["ANE MTR Temp Sensor1", "PMU tdie1"];
    let ours: Vec<_> = found.iter().filter(|(sensor, _)| names.contains(sensor)).collect();
    assert_eq!(ours.len(), 2, "{found:?}");
}

/// A reading after the fake was prepared, and after the sensors were opened.
fn prepared(prepare: impl FnOnce(&Session), then: impl FnOnce(&Session)) -> SensorReading {
    let (fake, _device) = open();
    prepare(&fake);
    let mut sensors = sensors();
    then(&fake);
    sensors.read()
}

#[test]
fn what_a_system_lacks_is_unread_and_no_failure() {
    const COUNTED: &str = "energy and states of the Neural Engine, processor, GPU and memory";
    let reading = prepared(Session::without_reports, |_| ());
    assert_eq!(why(&reading, COUNTED), "cannot open /usr/lib/libIOReport.dylib");
    assert!(reading.energy.is_empty() && reading.residency.is_empty());
    assert!(reading.temperatures.iter().any(|t| t.sensor == "PMU tdie1"));
    let reading = prepared(Session::without_thermal, |_| ());
    assert!(why(&reading, "temperatures").contains("IOKit"));
    assert!(reading.energy.iter().any(|e| e.channel == "ANE0"));
    let fails = |call| move |fake: &Session| fake.fail(call, "d", 1, "null");
    for (call, what, function) in [
        (Call::CopyAllChannels, COUNTED, "IOReportCopyAllChannels"),
        (Call::CreateSubscription, COUNTED, "IOReportCreateSubscription"),
        (Call::CreateSamples, COUNTED, "IOReportCreateSamples"),
        (Call::CreateEventClient, "temperatures", "IOHIDEventSystemClientCreate"),
    ] {
        let reading = prepared(fails(call), |_| ());
        assert_eq!(why(&reading, what), format!("{function} gave nothing"));
    }
    for (call, what, function) in [
        (Call::CreateSamples, COUNTED, "IOReportCreateSamples"),
        (Call::CreateSamplesDelta, COUNTED, "IOReportCreateSamplesDelta"),
        (Call::CopyServices, "temperatures", "IOHIDEventSystemClientCopyServices"),
    ] {
        let reading = prepared(|_| (), fails(call));
        assert_eq!(why(&reading, what), format!("{function} gave nothing"));
    }
}

#[test]
fn channels_that_a_machine_lacks_are_no_failure() {
    let lacks = |groups: &'static [&'static str]| prepared(move |fake| fake.without_groups(groups), |_| ());
    // A virtual machine.
    let reading = lacks(&["Energy Model", "PMP0"]);
    assert!(why(&reading, "energy of the Neural Engine").contains("virtual machine"));
    assert!(reading.energy.is_empty() && !reading.residency.is_empty());
    let reading = lacks(&["Energy Model"]);
    assert_eq!(reading.energy.iter().map(|e| e.source).collect::<Vec<_>>(), [COUNTERS]);
    assert!(reading.unread.iter().all(|u| u.what != "energy of the Neural Engine"), "{:?}", reading.unread);
    // What is left is two channels of other kinds.
    let reading = lacks(&["Energy Model", "PMP0", "SoC Stats", "ANE", "CPU Stats", "GPU Stats"]);
    let lost: Vec<_> = reading.without_sensor().collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].why, "IOReport has 2 channels here, and none of them is known");
}

#[test]
fn a_failed_reading_is_followed_by_good_ones() {
    let (fake, device) = open();
    let request = request(&device);
    let mut sensors = sensors();
    let before = sensors.read();
    fake.fail(Call::CreateSamples, "d", 1, "null");
    assert!(sensors.read().energy.is_empty());
    request.evaluate().unwrap();
    near(joules(&sensors.read().since(&before), Domain::Ane, MODEL), MILLIJOULES as f64 * 1e-3);
}

#[test]
fn references_balance() {
    let (fake, device) = open();
    let request = request(&device);
    let round = |evaluations| {
        let mut sensors = sensors();
        around(&mut sensors, &request, evaluations);
        // A subscription that fails leaves nothing either.
        fake.fail(Call::CreateSubscription, "d", 1, "null");
        drop(ferrane_ane::sensors());
    };
    round(1);
    let before = live();
    (0..4).for_each(round);
    assert_eq!(live(), before);
}

#[test]
fn sensors_move_between_threads() {
    let (_fake, device) = open();
    let request = request(&device);
    let mut sensors = sensors();
    let before = sensors.read();
    request.evaluate().unwrap();
    let after = std::thread::spawn(move || sensors.read()).join().unwrap();
    near(joules(&after.since(&before), Domain::Ane, MODEL), MILLIJOULES as f64 * 1e-3);
}
