//! Power and temperature of a run: records, the screens, the page, the metrics for Prometheus, and
//! what is said where nothing is metered.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Outcome, Place};
use crate::terminal::Terminal;
use crate::top::{get, samples};

/// Watts of the counters.
const PACKAGE: f64 = 30.0;
const DRAM: f64 = 5.0;
const LINE: &str =
    "train --model tiny --data text.txt --accum 1 --seq 16 --eval-every 0 --eval-windows 2 --save-every 0";

/// A folder like `/sys/class/powercap`, whose counters a thread advances. Other work may stop that
/// thread for a second, so the power of an interval is not checked, but the ratio of the domains.
struct Counters {
    folder: PathBuf,
    begun: Instant,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Counters {
    fn new(place: &Place) -> Counters {
        let folder = place.path("powercap");
        for (zone, name) in [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram")] {
            std::fs::create_dir_all(folder.join(zone)).unwrap();
            std::fs::write(folder.join(zone).join("name"), format!("{name}\n")).unwrap();
            std::fs::write(folder.join(zone).join("max_energy_range_uj"), "262143328850\n").unwrap();
        }
        let (begun, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        advance(&folder, begun);
        let (place, flag) = (folder.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::SeqCst) {
                advance(&place, begun);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Counters { folder, begun, stop, thread: Some(thread) }
    }

    /// Time in which they have advanced, or more.
    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

fn advance(folder: &Path, begun: Instant) {
    for (zone, watts) in [("intel-rapl:0", PACKAGE), ("intel-rapl:0:0", DRAM)] {
        let next = folder.join(zone).join("next");
        let joules = 1000.0 + watts * begun.elapsed().as_secs_f64();
        std::fs::write(&next, format!("{}\n", (1e6 * joules) as u64)).unwrap();
        std::fs::rename(&next, folder.join(zone).join("energy_uj")).unwrap();
    }
}

/// The command, which reads its counters from this folder.
fn command(place: &Place, counters: &Path, line: &str) -> Command {
    let mut command = place.command(line);
    command.env("FERRANE_POWERCAP", counters);
    command
}

/// The readings in the records of a run, with `null` for records without any.
fn readings(place: &Place, run: &str) -> Vec<Value> {
    let text = String::from_utf8(place.read(&format!("{run}/metrics.jsonl"))).unwrap();
    let record = |line: &str| serde_json::from_str::<Value>(line).unwrap()["process"]["sensors"].take();
    text.lines().map(record).collect()
}

/// Joules of a domain in some readings.
fn joules(readings: &[Value], domain: &str) -> f64 {
    let power = readings.iter().flat_map(|reading| reading["power"].as_array().into_iter().flatten());
    power.filter(|power| power["domain"] == domain).map(|power| power["joules"].as_f64().unwrap()).sum()
}

fn interrupt(child: &std::process::Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_run_records_what_the_computer_draws() {
    let place = Place::new();
    let counters = Counters::new(&place);
    let line = format!("{LINE} --steps 1000000 --out run --json --tensorboard");
    let mut child = command(&place, &counters.folder, &line).stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let with_power = events.by_ref().filter(|event| event.contains("\"power\":[")).take(2).count();
    assert_eq!(with_power, 2);
    interrupt(&child);
    let finished: Value = serde_json::from_str(&events.last().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    let found = readings(&place, "run");
    let metered: Vec<&Value> = found.iter().filter(|reading| !reading["power"].is_null()).collect();
    assert!(metered.len() >= 2 && found.len() > 2 * metered.len(), "a reading a second: {metered:?}");
    for reading in &metered {
        let power = reading["power"].as_array().unwrap();
        assert_eq!(power.len(), 2, "what is not metered is absent: {reading}");
        for (at, (domain, watts)) in [("dram", DRAM), ("package", PACKAGE)].into_iter().enumerate() {
            assert_eq!((&power[at]["domain"], &power[at]["source"]), (&domain.into(), &"RAPL".into()), "{reading}");
            let number = |name: &str| power[at][name].as_f64().unwrap();
            let seconds = reading["seconds"].as_f64().unwrap();
            assert!((number("watts") * seconds - number("joules")).abs() < 1e-3, "{reading}");
            assert!((0.0..=watts * counters.seconds()).contains(&number("joules")), "{reading}");
        }
        assert!(reading["seconds"].as_f64().unwrap() >= 1.0 && reading["tokens"].as_u64().unwrap() >= 16, "{reading}");
    }
    let (package, dram) = (joules(&found, "package"), joules(&found, "dram"));
    assert!((0.2 * PACKAGE..=PACKAGE * counters.seconds()).contains(&package), "{metered:?}");
    assert!((0.5..2.0).contains(&(package / dram / (PACKAGE / DRAM))), "{metered:?}");
    let energy = finished["summary"]["energy"].as_array().unwrap();
    assert_eq!((energy.len(), &energy[1]["domain"]), (2, &"package".into()), "{finished}");
    assert!((energy[1]["joules"].as_f64().unwrap() - joules(&found, "package")).abs() < 1e-3, "{finished}");
    assert!(energy[1]["joules_per_token"].as_f64().unwrap() > 0.0, "{finished}");

    for size in ["--width 80 --height 24", "--width 140 --height 40"] {
        let picture = place.run(&format!("watch run --once {size}")).ok().out;
        let row = picture.lines().find(|line| line.contains("package ")).unwrap_or_else(|| panic!("{picture}"));
        assert!(row.contains(" W ") && row.contains(" J ") && row.contains("J a token"), "{picture}");
        assert!(picture.contains("│ dram ") && !picture.contains("│ ane "), "{picture}");
    }
    let page = String::from_utf8(place.read("run/report.html")).unwrap();
    for words in ["\"panel\":\"Power\"", "\"unit\":\"W\"", "\"Energy\"", "W on average", "from RAPL"] {
        assert!(page.contains(words), "no `{words}`");
    }
    let folder = std::fs::read_dir(place.path("run/tensorboard")).unwrap().next().unwrap().unwrap().path();
    let events = std::fs::read(folder).unwrap();
    assert!(events.windows(20).any(|part| part == b"power_watts/package\x15"), "the tag and its value");

    // It continues where the counters cannot be read; what was drawn before stays.
    std::fs::remove_dir_all(place.path("run/tensorboard")).unwrap();
    let resumed = format!("{LINE} --steps {} --out run --resume", found.len() + 200);
    Outcome::of(&mut command(&place, &place.path("none"), &resumed)).ok();
    let all = readings(&place, "run");
    let later = &all[finished["summary"]["step"].as_u64().unwrap() as usize..];
    assert!(later[0]["unread"].to_string().contains("there is no") && joules(later, "package") == 0.0, "{later:?}");
    let picture = place.run("watch run --once --width 80 --height 24").ok().out;
    assert!(picture.contains(" J "), "{picture}");
}

#[test]
fn the_energy_is_in_the_text_at_the_end() {
    let place = Place::new();
    let counters = Counters::new(&place);
    let outcome = Outcome::of(&mut command(&place, &counters.folder, &format!("{LINE} --steps 5000 --out run"))).ok();
    let row = outcome
        .out
        .lines()
        .find(|line| line.starts_with("package energy "))
        .unwrap_or_else(|| panic!("{}", outcome.out));
    assert!(row.contains(" W on average, ") && row.contains("J a token, from RAPL"), "{row}");
    let number = |end: &str| row.split(end).next().unwrap().rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    assert!((0.0..=PACKAGE * counters.seconds()).contains(&number(" J in")) && number(" W on") > 0.0, "{row}");
}

#[test]
fn what_no_source_meters_is_unknown_with_its_reason_and_never_zero() {
    let place = Place::new();
    let why = format!("there is no {}", place.path("none").display());
    let outcome =
        Outcome::of(&mut command(&place, &place.path("none"), &format!("{LINE} --steps 5000 --out run"))).ok();
    assert!(!outcome.out.contains("energy"), "{}", outcome.out);
    let text = String::from_utf8(place.read("run/metrics.jsonl")).unwrap();
    assert_eq!((text.matches(&why).count(), text.matches("\"unread\"").count()), (1, 1), "the reason is written once");
    assert!(text.lines().next().unwrap().contains(&why) && !text.contains("\"power\""), "in the first record");
    for size in ["--width 80 --height 24", "--width 140 --height 40"] {
        let picture = place.run(&format!("watch run --once {size}")).ok().out;
        assert!(picture.contains("unknown: energy of the processor") && !picture.contains(" 0 W"), "{picture}");
    }
    let page = String::from_utf8(place.read("run/report.html")).unwrap();
    assert_eq!(page.matches(&why).count(), 1);
    assert!(!page.contains("\"panel\":\"Power\"") && !page.contains("W on average"));
    let found =
        Outcome::of(&mut command(&place, &place.path("none"), &format!("{LINE} --steps 3 --out other --json"))).ok();
    assert_eq!(found.objects().last().unwrap()["summary"]["energy"], serde_json::json!([]));
}

#[test]
fn prometheus_reads_the_names_of_top() {
    let place = Place::new();
    let counters = Counters::new(&place);
    let line = format!("{LINE} --steps 1000000 --out run --prometheus 0");
    let mut child =
        command(&place, &counters.folder, &line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let note = notes.find(|line| line.starts_with("metrics http://")).unwrap();
    let address = note.strip_prefix("metrics http://").unwrap().strip_suffix("/metrics").unwrap().to_string();
    let begun = Instant::now();
    let found = loop {
        let reply = get(&address, "/metrics");
        let found = samples(reply.split_once("\r\n\r\n").unwrap().1);
        // The interval that ends when the run begins is short.
        if found.iter().any(|(name, value)| name == "ferrane_interval_seconds" && *value >= 1.0) {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{reply}");
        std::thread::sleep(Duration::from_millis(50));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let value = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let watts = value("ferrane_power_watts{domain=\"package\",source=\"RAPL\"}").unwrap();
    let dram = value("ferrane_power_watts{domain=\"dram\",source=\"RAPL\"}").unwrap();
    assert!(watts > 0.0 && (0.5..2.0).contains(&(watts / dram / (PACKAGE / DRAM))), "{found:?}");
    let counted = value("ferrane_energy_joules_total{domain=\"dram\",source=\"RAPL\"}").unwrap();
    assert!(counted > 0.0 && counted <= DRAM * counters.seconds(), "{found:?}");
    assert!(value("ferrane_train_updates_total").unwrap() >= 1.0 && value("ferrane_memory_used_bytes").is_some());
    assert!(!found.iter().any(|(name, _)| name.contains("\"ane\"")), "{found:?}");
}

#[test]
fn the_dashboard_shows_the_power_of_its_own_run() {
    let place = Place::new();
    let counters = Counters::new(&place);
    let line = format!(
        "FERRANE_POWERCAP='{}' \"$FERRANE\" {LINE} --steps 1000000 --out run --dashboard",
        counters.folder.display()
    );
    let Some(terminal) = Terminal::run(&place, &line) else { return };
    let screen = terminal.wait_until("J a token", |screen| screen.contains("package ") && screen.contains("J a token"));
    assert!(screen.contains("dram ") && screen.contains(" W "), "{screen}");
    terminal.press("q");
    terminal.wait("status 0");
}
