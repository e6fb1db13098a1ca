//! Pictures of scripted computers, panel by panel, and the keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ferrane::sensors::Domain;
use ferrane::sensors::{Core, Energy, Load, Residency, Sensor, SensorReading, Temperature, Unread, rapl::Rapl};

use super::*;
use crate::terminal::pictures::{braille, has};

/// A reading at `seconds`, with an engine and cores that draw so many watts from the beginning.
fn reading(first: &SensorReading, seconds: f64, watts: &[(Domain, f64)], cores: usize) -> SensorReading {
    let energy = |(domain, watts): &(Domain, f64)| Energy {
        domain: *domain,
        channel: domain.name().into(),
        source: "a source",
        joules: watts * seconds,
    };
    let core = |number: usize| Core { busy: if number == 0 { 0.5 } else { 0.25 }, mhz: Some(3200) };
    SensorReading {
        at: first.at + Duration::from_secs_f64(seconds),
        energy: watts.iter().map(energy).collect(),
        residency: vec![Residency {
            unit: "ANE0".into(),
            source: "a source",
            states: vec![("OFF".into(), 3.0 * seconds), ("F1".into(), seconds), ("F2".into(), 0.0)],
        }],
        temperatures: vec![Temperature { sensor: "die".into(), celsius: 51.25 }],
        load: Some(Load {
            cores: (0..cores).map(core).collect(),
            memory_used: 6_000_000_000,
            memory_total: 24_000_000_000,
            swap_used: 1_500_000_000,
        }),
        unread: Vec::new(),
    }
}

/// `count` intervals of a second.
fn recorded(count: u64, watts: &[(Domain, f64)], cores: usize) -> History {
    let first = reading(&SensorReading::now(), 0.0, watts, cores);
    let mut history = History::new(first.clone());
    for second in 1..=count {
        history.push(reading(&first, second as f64, watts, cores));
    }
    history
}

fn screen() -> TopScreen {
    TopScreen::new("Apple M4, macOS 15.5".into(), "IOReport".into(), Duration::from_secs(1))
}

fn drawn(screen: &TopScreen, history: &History, width: u16, height: u16) -> String {
    terminal::picture(width, height, |frame| screen.draw(history, frame)).unwrap()
}

#[test]
fn every_panel_shows_its_part_of_the_computer() {
    let history = recorded(60, &[(Domain::Ane, 2.5), (Domain::Cpu, 12.0)], 4);
    let mut screen = screen();
    screen.metrics = Some("http://127.0.0.1:9100/metrics".into());
    let picture = drawn(&screen, &history, 140, 50);
    has(
        &picture,
        &[
            "live  1:00 min in intervals of 1 s  http://127.0.0.1:9100/metrics",
            "Apple M4, macOS 15.5; sources: IOReport",
            "ane         2.500    2.500    2.500    150.0 J  a source",
            "cpu          12.0     12.0     12.0    720.0 J  a source",
            "gpu       unknown  no source meters it",
            " ane, W ",
            " cpu, W ",
            " busy cores ",
            "-5:00 min",
            "now",
            " cores, 1.25 of 4 busy ",
            "  0  50 % ███",
            " 3200 MHz",
            "   6.00 of 24.00 GB   25 % ███",
            "   1.50 GB of swap space in use",
            "ANE0     OFF         75 % ███",
            "         F1          25 % ███",
            "  51.2 °C  die",
            " not read ",
            "nothing",
            "q quit  p pause",
        ],
    );
    assert!(braille(&picture) > 40 && !picture.contains("F2"), "{picture}");
    assert!(picture.find(" ane ").unwrap() < picture.find(" cpu ").unwrap());
}

#[test]
fn what_is_unknown_is_not_zero() {
    let first = SensorReading { load: None, ..reading(&SensorReading::now(), 0.0, &[], 2) };
    let mut history = History::new(first.clone());
    has(&drawn(&screen(), &history, 120, 40), &["the first interval takes 1 s"]);
    let mut second = SensorReading { load: None, ..reading(&first, 1.0, &[], 2) };
    second.temperatures.clear();
    second.residency.clear();
    second.unread = vec![Unread { what: "energy of package-0".into(), why: "permission denied".into() }];
    history.push(second);
    let picture = drawn(&screen(), &history, 120, 40);
    assert_eq!(picture.matches("unknown  no source meters it").count(), Domain::ALL.len(), "{picture}");
    has(
        &picture,
        &[
            "energy of package-0: permission denied",
            "unknown: no source reports any",
            "unknown: the system reports none",
        ],
    );
    assert!(!picture.contains("0.0 J") && !picture.contains(" 0 %") && braille(&picture) == 0, "{picture}");
    has(&drawn(&screen(), &history, 60, 20), &["load unknown", "energy of package-0: permission denied"]);
    has(&drawn(&screen(), &history, 30, 5), &["ane unknown, load unknown"]);
}

#[test]
fn every_size_of_a_terminal_and_every_computer_is_drawn() {
    let all = Domain::ALL.map(|domain| (domain, 1e9));
    let empty = History::new(SensorReading::now());
    let computers = [recorded(20, &all, 200), recorded(5, &[], 2), recorded(2000, &all[..1], 1), empty];
    for width in (1..200).step_by(9) {
        for height in (1..70).step_by(7) {
            for history in &computers {
                let mut screen = screen();
                screen.help = width % 2 == 0;
                drawn(&screen, history, width, height);
            }
        }
    }
    let many = drawn(&screen(), &computers[0], 160, 50);
    has(&many, &["20.00 GJ", " cores, 50.25 of 200 busy ", " more"]);
    // Six domains and the load find room in two columns.
    has(&drawn(&screen(), &computers[0], 160, 40), &[" ane, W ", " system, W ", " busy cores "]);
}

fn press(screen: &mut TopScreen, history: &History, code: KeyCode) -> Option<TopKey> {
    screen.key(KeyEvent::new(code, KeyModifiers::NONE), history)
}

#[test]
fn every_key() {
    let (early, late) = (recorded(10, &[(Domain::Ane, 1.0)], 2), recorded(20, &[(Domain::Ane, 1.0)], 2));
    let mut screen = screen();
    assert_eq!(press(&mut screen, &early, KeyCode::Char('q')), Some(TopKey::Quit));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(control_c, &early), Some(TopKey::Quit));
    // A picture that stands still, while readings continue.
    assert_eq!(press(&mut screen, &early, KeyCode::Char('p')), None);
    has(&drawn(&screen, &late, 120, 40), &["paused  10 s in", "10.0 J"]);
    press(&mut screen, &late, KeyCode::Char(' '));
    has(&drawn(&screen, &late, 120, 40), &["live  20 s in", "20.0 J"]);
    press(&mut screen, &early, KeyCode::Char('p'));
    assert_eq!(press(&mut screen, &late, KeyCode::Char('r')), Some(TopKey::Reset));
    assert!(!screen.is_paused(), "what is reset is shown");
    // Zoom, within what a curve holds.
    press(&mut screen, &late, KeyCode::Char('+'));
    press(&mut screen, &late, KeyCode::Right);
    has(&drawn(&screen, &late, 120, 40), &["-1:15 min"]);
    (0..20).for_each(|_| assert_eq!(press(&mut screen, &late, KeyCode::Char('+')), None));
    assert_eq!(screen.span(), 10.0);
    (0..20).for_each(|_| assert_eq!(press(&mut screen, &late, KeyCode::Char('-')), None));
    has(&drawn(&screen, &late, 120, 40), &["-1:08:16 h"]);
    press(&mut screen, &late, KeyCode::Char('0'));
    assert_eq!(screen.span(), 300.0);
    press(&mut screen, &late, KeyCode::Char('?'));
    has(&drawn(&screen, &late, 120, 40), &["begin mean, peak and energy again", "any key closes this"]);
    // The key that closes the list does nothing else.
    assert_eq!(press(&mut screen, &late, KeyCode::Char('q')), None);
    assert!(!drawn(&screen, &late, 120, 40).contains("any key closes this"));
}

#[test]
fn counters_in_a_folder_reach_the_screen() {
    let folder = tempfile::tempdir().unwrap();
    let zone = folder.path().join("intel-rapl:0");
    std::fs::create_dir(&zone).unwrap();
    let write = |name: &str, text: &str| std::fs::write(zone.join(name), text).unwrap();
    write("name", "package-0\n");
    write("energy_uj", "1000000\n");
    let sources: Vec<Box<dyn Sensor>> = vec![Box::new(Rapl::at(folder.path()))];
    let mut meter = Meter::new(Sensors::with(sources), Duration::from_millis(100), Some(2));
    write("energy_uj", "31000000\n");
    thread::sleep(meter.wait());
    meter.read();
    assert!(!meter.is_done() && !meter.wait().is_zero());
    meter.read();
    assert!(meter.is_done());
    let picture = drawn(&screen(), &meter.history(), 120, 40);
    let row = picture.lines().find(|line| line.contains(" package ")).unwrap();
    assert!(row.contains("30.0 J  RAPL"), "{picture}");
    assert_eq!(row.split_whitespace().nth(2), Some("0"), "nothing was drawn in the second interval: {row}");
    assert!(meter.history().openmetrics().contains("domain=\"package\",source=\"RAPL\"} 30.0"));
}

#[test]
fn a_computer_is_named_by_what_is_known() {
    let mac =
        serde_json::json!({"chip": "Apple M4", "os": "macOS 15.5", "build": "24F74", "arch": "aarch64", "threads": 10});
    assert_eq!(computer(&mac), "Apple M4, macOS 15.5 (24F74), aarch64, 10 threads");
    let linux = serde_json::json!({"os": "linux", "processor": "AMD EPYC", "arch": "x86_64"});
    assert_eq!(computer(&linux), "AMD EPYC, linux, x86_64");
    assert_eq!(computer(&serde_json::json!({})), "unknown processor");
}
