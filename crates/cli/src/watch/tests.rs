//! Pictures of recorded runs, panel by panel, and the keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ferrane::sensors::{Domain, Temperature, Unread};
use ferrane::train::metrics::{PartTimes, PowerRecord, ProcessRecord, Record, SensorRecord};

use super::*;
use crate::terminal::pictures::{braille, has};

/// A run of 3600 planned updates, of which `count` are done.
fn recorded(count: u64) -> RunView {
    let mut view = RunView::new();
    for step in 1..=count {
        let loss = 1.5 + 4.0 * (-(step as f64) / 100.0).exp();
        let mut record = Record {
            step,
            loss: (step != 40).then_some(loss),
            lr: 1e-3 * step as f64 / count as f64,
            grad_norm: (step != 40).then_some(0.75),
            loss_scale: 256.0,
            skipped: step == 40,
            tokens: 512 * step,
            tokens_per_second: 6400.0,
            valid_loss: (step % 100 == 0).then_some(loss + 0.25),
            sample: (step == 200).then(|| "Once upon a time there was a red ball.\nThe end.".to_string()),
            ..Record::default()
        };
        let parts_ms = PartTimes { device_forward: 40.0, optimizer: 20.0, ..PartTimes::default() };
        let notes = if step == 1 { vec!["the run begins, 3600 updates".to_string()] } else { Vec::new() };
        let (cores, resident) = (Some(1.75), Some(64_000_000));
        record.process = Some(ProcessRecord {
            steps: 3600,
            seconds: 0.08,
            gflops: 12.0,
            cores,
            resident,
            parts_ms,
            notes,
            ..ProcessRecord::default()
        });
        view.push(record);
    }
    view
}

fn drawn(screen: &mut Screen, view: &RunView, width: u16, height: u16) -> String {
    picture(screen, view, width, height).unwrap()
}

/// Columns `from..to` of lines whose first one contains `title`, to the end of that panel.
fn panel(picture: &str, title: &str) -> String {
    let lines: Vec<Vec<char>> = picture.lines().map(|l| l.chars().collect()).collect();
    let text = |line: &[char]| line.iter().collect::<String>();
    let top = lines.iter().position(|l| text(l).contains(title)).unwrap_or_else(|| panic!("no {title} in\n{picture}"));
    let at = text(&lines[top]).split(title).next().unwrap().chars().count();
    let left = lines[top][..at].iter().rposition(|c| *c == '┌').unwrap();
    let right = at + lines[top][at..].iter().position(|c| *c == '┐').unwrap();
    let rows = lines[top..].iter().take_while(|l| l.get(left).is_some_and(|c| "┌│".contains(*c)));
    rows.map(|l| l.iter().take(right + 1).skip(left).collect::<String>() + "\n").collect()
}

#[test]
fn every_panel_shows_its_part_of_the_run() {
    let view = recorded(300);
    let mut screen = Screen::attached("runs/a", Some(("m4".into(), 48.0)));
    let picture = drawn(&mut screen, &view, 140, 44);
    has(&picture, &["runs/a", "update 300 of 3600, 8 %", "4:24 min left", "q quit"]);
    let loss = panel(&picture, " loss ");
    has(&loss, &["training", "validation", "300"]);
    assert!(braille(&loss) > 60, "{loss}");
    assert!(braille(&panel(&picture, " gradient norm ")) > 10 && braille(&panel(&picture, " learning rate ")) > 10);
    has(
        &panel(&picture, " numbers "),
        &[
            "loss          1.6991, mean 1.73",
            "validation    1.9491, best 1.9491 after update 300",
            "153.6 k, 6400 a second",
            "12.0, 25.0 % of m4, whose peak is 48.0",
            "learning rate 1.00e-3",
            "loss scale    256",
            "skipped       1 updates",
        ],
    );
    let times = panel(&picture, " time of an update ");
    has(&times, &["whole update", "80.0 ms", "device forward", "40.0 ms  50 % ██", "optimizer", "20.0 ms  25 % █"]);
    assert!(!times.contains("staging") && times.find("device forward") < times.find("optimizer"), "{times}");
    has(&panel(&picture, " memory, MB 64.0 "), &["64.0"]);
    has(&panel(&picture, " busy cores 1.75 "), &["1.75"]);
    has(
        &panel(&picture, " log "),
        &[
            "the run begins, 3600 updates",
            "update 40 skipped: not finite at loss scale 256",
            "sample after update 200",
            "validation loss 1.9491 after update 300",
        ],
    );
    has(&panel(&picture, " sample after update 200 "), &["Once upon a time there was a red ball.", "The end."]);
}

/// A run whose records, from the first one to `count`, have these readings.
fn metered(count: u64, readings: impl Fn(u64) -> SensorRecord) -> RunView {
    let mut view = recorded(count);
    for step in count + 1..=count + 40 {
        let process = ProcessRecord {
            steps: 3600,
            seconds: 1.0,
            cores: Some(1.5),
            resident: Some(32_000_000),
            sensors: Some(readings(step)),
            ..ProcessRecord::default()
        };
        view.push(Record { step, process: Some(process), ..Record::default() });
    }
    view
}

/// A package whose power rises, an engine that draws nothing, and a temperature.
fn readings(step: u64) -> SensorRecord {
    let power = |domain, watts| PowerRecord { domain, source: "RAPL".into(), watts, joules: watts };
    SensorRecord {
        seconds: 1.0,
        tokens: 1000,
        power: vec![power(Domain::Ane, 0.0), power(Domain::Package, step as f64)],
        temperatures: vec![Temperature { sensor: "Tctl".into(), celsius: 61.25 }],
        unread: None,
    }
}

#[test]
fn power_energy_and_temperature_are_shown_where_they_are_known() {
    let view = metered(60, readings);
    let picture = drawn(&mut Screen::attached("a", None), &view, 140, 40);
    let process = panel(&picture, " process; power of the whole computer ");
    has(&process, &["memory   32.0 MB", "cores    1.50 busy", "hottest  61.2 °C", "Tctl"]);
    let lines: Vec<&str> = process.lines().collect();
    let row = |name: &str| *lines.iter().find(|line| line.contains(name)).unwrap();
    // 61 + … + 100 W for a second each, and 40,000 tokens.
    has(row("package"), &["100.0 W", "3220.0 J", "80.5 mJ a token", "▆", "█"]);
    has(row("ane"), &["0 W", "0.0 J"]);
    assert!(!row("ane").contains('█') && !picture.contains("unknown"), "{picture}");
    for (width, height) in [(80, 24), (100, 24), (60, 20)] {
        let picture = drawn(&mut Screen::attached("a", None), &view, width, height);
        let power = panel(&picture, " power of the whole computer ");
        has(&power, &["package  100.0 W", "3220.0 J", "ane      0 W", "hottest  61.2 °C"]);
        assert_eq!(power.contains("80.5 mJ a token"), width != 100, "{picture}");
        assert!(!power.contains("memory"), "{picture}");
        has(&picture, &[" loss ", " numbers ", "tokens"]);
    }
    assert!(drawn(&mut Screen::attached("a", None), &view, 40, 12).contains(" numbers "));
    // A process that may no longer read the counter.
    let mut view = metered(60, readings);
    let sensors = Some(SensorRecord { power: Vec::new(), ..readings(1) });
    view.push(Record {
        step: 500,
        process: Some(ProcessRecord { sensors, ..ProcessRecord::default() }),
        ..Record::default()
    });
    let picture = drawn(&mut Screen::attached("a", None), &view, 140, 40);
    has(&panel(&picture, " process; power of the whole computer "), &["package  unknown", "3220.0 J"]);
}

#[test]
fn power_that_is_unknown_has_its_reason_and_no_number() {
    let why = "there is no /sys/class/powercap: the processor has no RAPL, or this is a guest that does not see it";
    let unread = Unread { what: "energy of the processor".into(), why: why.into() };
    let view = metered(60, |step| SensorRecord {
        seconds: 1.0,
        tokens: 1000,
        unread: (step == 61).then(|| vec![unread.clone()]),
        ..SensorRecord::default()
    });
    for (width, height) in [(140, 40), (80, 24), (100, 24)] {
        let picture = drawn(&mut Screen::attached("a", None), &view, width, height);
        let power = panel(&picture, "power of the whole computer ");
        let text: String = power.lines().map(|line| line.trim_matches('│').trim().to_string() + " ").collect();
        let bars = text.chars().filter(|c| ('▁'..='█').contains(c)).count();
        assert!(if height == 40 { bars > 40 } else { bars == 0 }, "memory and cores have all of the width: {picture}");
        has(&text, &["power unknown: energy of the processor: there is no".replace("power ", "power    ").as_str()]);
        assert!(height == 24 || text.contains("the processor has no RAPL, or"), "{picture}");
        assert_eq!(text.contains("does not see it"), !text.contains('…'), "what is cut off is marked: {picture}");
        for number in [" W", " J", "°C", "a token"] {
            assert!(!power.contains(number), "`{number}` in\n{picture}");
        }
    }
    // Runs of older versions have no such lines.
    let old = drawn(&mut Screen::attached("a", None), &recorded(60), 140, 40);
    assert!(!old.contains("power") && old.contains(" busy cores 1.75 "), "{old}");
    assert!(!drawn(&mut Screen::attached("a", None), &recorded(60), 80, 24).contains("power"));
}

#[test]
fn every_size_of_a_terminal_is_drawn() {
    let (view, empty, metered) = (recorded(120), RunView::new(), metered(60, readings));
    for width in (1..200).step_by(7) {
        for height in (1..70).step_by(5) {
            for view in [&view, &empty, &metered] {
                let mut screen = Screen::controlling("a run with a long name ".repeat(10).as_str(), None);
                screen.help = width % 2 == 0;
                drawn(&mut screen, view, width, height);
            }
        }
    }
    has(&drawn(&mut Screen::attached("a", None), &view, 30, 5), &["update 120 of 3600"]);
    has(&drawn(&mut Screen::attached("a", None), &view, 60, 20), &[" loss ", " numbers "]);
    has(&drawn(&mut Screen::attached("a", None), &empty, 120, 40), &["no update yet", "no values yet"]);
}

#[test]
fn extreme_records_are_drawn() {
    let mut view = RunView::new();
    for (at, value) in [f64::MAX, f64::MIN, 0.0, f64::MIN_POSITIVE, -0.0, 1e300].into_iter().enumerate() {
        let process = ProcessRecord {
            steps: u64::MAX,
            seconds: value,
            gflops: value,
            cores: Some(value),
            parts_ms: PartTimes { staging: value, ..PartTimes::default() },
            ..ProcessRecord::default()
        };
        view.push(Record {
            step: if at == 5 { u64::MAX } else { at as u64 },
            loss: Some(value),
            lr: value,
            grad_norm: Some(value),
            valid_loss: Some(value),
            tokens_per_second: value,
            process: Some(process),
            sample: Some("\u{1b}]0;title\u{7}\u{1b}[31m 字 e\u{301}".repeat(50)),
            ..Record::default()
        });
        let mut screen = Screen::attached("a", Some(("m".into(), 0.0)));
        screen.zoom = 3;
        let picture = drawn(&mut screen, &view, 120, 40);
        assert!(!picture.contains('\u{1b}') && !picture.contains('\u{7}'));
    }
}

fn press(screen: &mut Screen, view: &RunView, code: KeyCode) -> Option<KeyRequest> {
    screen.key(KeyEvent::new(code, KeyModifiers::NONE), view)
}

#[test]
fn keys_of_a_run_of_this_process() {
    let view = recorded(300);
    let mut screen = Screen::controlling("a", None);
    for (key, request) in [
        ('p', KeyRequest::Pause),
        (' ', KeyRequest::Pause),
        ('c', KeyRequest::Save),
        ('s', KeyRequest::Sample),
        ('g', KeyRequest::Sample),
        ('q', KeyRequest::Quit),
    ] {
        assert_eq!(press(&mut screen, &view, KeyCode::Char(key)), Some(request), "{key}");
    }
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(control_c, &view), Some(KeyRequest::Quit));
    screen.state = RunState::Stopping;
    assert_eq!(screen.key(control_c, &view), Some(KeyRequest::QuitNow));
    press(&mut screen, &view, KeyCode::Char('c'));
    has(&drawn(&mut screen, &view, 120, 40), &["checkpoint requested"]);
    assert_eq!(press(&mut screen, &view, KeyCode::Char('?')), None);
    has(&drawn(&mut screen, &view, 120, 40), &["write a checkpoint of the last update", "any key closes this"]);
    // The key that closes the list does nothing else.
    assert_eq!(press(&mut screen, &view, KeyCode::Char('q')), None);
    assert!(!drawn(&mut screen, &view, 120, 40).contains("any key closes this"));
}

#[test]
fn keys_of_an_attached_screen() {
    let mut view = recorded(800);
    (1..=100).for_each(|step| view.sample(step, &format!("text {step}")));
    let mut screen = Screen::attached("a", None);
    for key in ['p', 'c', 's'] {
        assert_eq!(press(&mut screen, &view, KeyCode::Char(key)), None);
        has(&drawn(&mut screen, &view, 120, 40), &["belongs to another process"]);
    }
    assert_eq!(press(&mut screen, &view, KeyCode::Char('q')), Some(KeyRequest::QuitNow));
    // Zoom: the last half, the last quarter, at least eight updates, all.
    assert_eq!(screen.shown(&view), (1, 800));
    press(&mut screen, &view, KeyCode::Char('+'));
    assert_eq!(screen.shown(&view), (401, 800));
    has(&drawn(&mut screen, &view, 120, 40), &["loss, updates 401 to 800"]);
    press(&mut screen, &view, KeyCode::Right);
    assert_eq!(screen.shown(&view), (601, 800));
    (0..40).for_each(|_| assert_eq!(press(&mut screen, &view, KeyCode::Char('+')), None));
    assert_eq!(screen.shown(&view), (792, 800));
    press(&mut screen, &view, KeyCode::Left);
    press(&mut screen, &view, KeyCode::Char('0'));
    assert_eq!(screen.shown(&view), (1, 800));
    assert_eq!(screen.shown(&RunView::new()), (0, 0));
    // The log follows its end unless it is scrolled.
    has(&panel(&drawn(&mut screen, &view, 120, 40), " log "), &["sample after update 100"]);
    press(&mut screen, &view, KeyCode::PageUp);
    let log = panel(&drawn(&mut screen, &view, 120, 40), " log, 10 lines follow ");
    has(&log, &["sample after update 90"]);
    assert!(!log.contains("sample after update 91"), "{log}");
    press(&mut screen, &view, KeyCode::Home);
    has(&drawn(&mut screen, &view, 120, 40), &["the run begins"]);
    press(&mut screen, &view, KeyCode::End);
    has(&drawn(&mut screen, &view, 120, 40), &[" sample after update 100 ", "text 100"]);
    press(&mut screen, &view, KeyCode::Char('['));
    has(&drawn(&mut screen, &view, 120, 40), &[" sample after update 99 ", "text 99"]);
    press(&mut screen, &view, KeyCode::Char(']'));
    has(&drawn(&mut screen, &view, 120, 40), &["text 100"]);
}

#[test]
fn what_follows_moves_neither_the_log_nor_a_text_that_was_looked_up() {
    let mut view = recorded(300);
    (1..=100).for_each(|step| view.sample(step, &format!("text {step}")));
    let mut screen = Screen::attached("a", None);
    drawn(&mut screen, &view, 120, 40);
    press(&mut screen, &view, KeyCode::PageUp);
    press(&mut screen, &view, KeyCode::Char('['));
    for (first, follow) in [(101, 30), (121, 50), (141, 70)] {
        (first..first + 20).for_each(|step| view.sample(step, &format!("text {step}")));
        let picture = drawn(&mut screen, &view, 120, 40);
        let log = panel(&picture, &format!(" log, {follow} lines follow "));
        assert!(log.contains("sample after update 90") && !log.contains("sample after update 91"), "{log}");
        // A text that the view does not keep gives way to the oldest one that it does.
        has(&picture, &[&format!(" sample after update {} ", 99.max(first + 20 - 50))]);
    }
    // At the end, both follow again.
    press(&mut screen, &view, KeyCode::End);
    (0..50).for_each(|_| assert_eq!(press(&mut screen, &view, KeyCode::Char(']')), None));
    view.sample(161, "text 161");
    let picture = drawn(&mut screen, &view, 120, 40);
    has(&panel(&picture, " log "), &["sample after update 161"]);
    has(&picture, &[" sample after update 161 "]);
}

#[test]
fn a_small_screen_has_the_numbers_and_the_keys_of_what_it_shows() {
    let view = recorded(300);
    let peak = || Some(("m4".to_string(), 48.0));
    let small = drawn(&mut Screen::controlling("a", peak()), &view, 80, 24);
    has(&small, &[" loss training validation ", "gradient norm 0.750, learning rate 1.00e-3"]);
    assert!(!small.contains("up/down log") && small.contains("s sample  + - zoom  ? keys"), "{small}");
    // Numbers are shortened, not cut, and an unknown power leaves the times their room.
    let unread = Unread { what: "energy of the processor".into(), why: "a reason of many words ".repeat(20) };
    let mut unknown = metered(100, |_| SensorRecord { unread: Some(vec![unread.clone()]), ..SensorRecord::default() });
    let last = unknown.last().unwrap().clone();
    let parts_ms = PartTimes { device_forward: 40.0, ..PartTimes::default() };
    let process = Some(ProcessRecord { steps: 3600, seconds: 1.0, gflops: 12.0, parts_ms, ..ProcessRecord::default() });
    unknown.push(Record { step: 600, loss: Some(2.0), valid_loss: Some(2.5), process, ..last });
    let picture = drawn(&mut Screen::attached("a", peak()), &unknown, 100, 30);
    has(&panel(&picture, " numbers "), &["12.0, 25.0 % of m4"]);
    has(&panel(&picture, " numbers "), &["2.5000, best "]);
    has(&panel(&picture, " time of an update "), &["whole update", "device forward", " ms", " % "]);
    assert!(panel(&picture, "power of the whole computer ").contains('…'), "{picture}");
}
