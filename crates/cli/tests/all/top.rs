//! `ferrane top`: lines of JSON, the text of metrics over HTTP, a measured command, a picture, and
//! the keys on a terminal of tmux where that is installed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Outcome, Place};
use crate::terminal::Terminal;

const DOMAINS: [&str; 6] = ["ane", "cpu", "gpu", "dram", "package", "system"];

#[test]
fn a_line_of_json_for_each_interval() {
    let place = Place::new();
    let begun = Instant::now();
    let outcome = place.run("top --json --interval 0.3 --count 3").ok();
    assert!(begun.elapsed() >= Duration::from_millis(900));
    let lines = outcome.objects();
    assert_eq!((lines.len(), outcome.err.as_str()), (3, ""));
    for line in &lines {
        assert!(line["seconds"].as_f64().is_some_and(|s| (0.2..60.0).contains(&s)), "{line}");
        assert!(line["unix_seconds"].as_f64().is_some_and(|s| s > 1.6e9), "{line}");
        let cores = line["load"]["cores"].as_array().unwrap();
        assert!(!cores.is_empty() && line["load"]["memory_used"].as_u64().is_some_and(|m| m > 0), "{line}");
        // What is not metered is listed with a reason and is no zero.
        let power = line["power"].as_array().unwrap();
        assert!(power.iter().all(|p| DOMAINS.contains(&p["domain"].as_str().unwrap())), "{line}");
        assert!(!power.is_empty() || !line["unread"][0]["why"].as_str().unwrap().is_empty(), "{line}");
    }
    // The reader may leave at any time.
    let head = place.shell("\"$FERRANE\" top --json --interval 0.1 | head -1").ok();
    assert_eq!((head.objects().len(), head.err.as_str()), (1, ""));
}

#[test]
fn a_signal_ends_the_lines() {
    let place = Place::new();
    let (mut child, mut out) = place.start("top --json --interval 0.1");
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(rest.lines().all(|l| l.starts_with('{') && l.ends_with('}')), "{rest}");
}

#[test]
fn a_picture_as_text() {
    let place = Place::new();
    let picture = place.run("top --once --interval 0.3 --width 130 --height 44").ok().out;
    for words in
        [" ferrane top  live", " power ", " ane ", " package ", " cores, ", " memory ", " states ", " not read "]
    {
        assert!(picture.contains(words), "no `{words}` in\n{picture}");
    }
    assert!(picture.lines().count() == 44 && picture.lines().all(|l| l.chars().count() <= 130), "{picture}");
}

/// The value of each sample of a text of OpenMetrics, which is checked line by line: a sample
/// belongs to the family whose type was the last one, and the text ends with `# EOF`.
#[track_caller]
pub fn samples(text: &str) -> Vec<(String, f64)> {
    let (mut family, mut kind, mut found) = (String::new(), String::new(), Vec::new());
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
    for line in body.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "TYPE", name, of] => (family, kind) = (name.to_string(), of.to_string()),
            ["#", "UNIT", name, unit] => assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}"),
            ["#", "HELP", ..] => {}
            _ => {
                let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
                let bare = name.split('{').next().unwrap();
                let expected = if kind == "counter" { format!("{family}_total") } else { family.clone() };
                assert_eq!(bare, expected, "{line}");
                assert!(name == bare || name.ends_with("\"}"), "{line}");
                found.push((name.to_string(), value.parse().unwrap_or_else(|_| panic!("{line}"))));
            }
        }
    }
    found
}

/// A command that serves metrics, and its address.
fn served(place: &Place, line: &str) -> (Child, String) {
    let mut child = place.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut note = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut note).unwrap();
    let address = note.trim().strip_prefix("metrics at http://").unwrap_or_else(|| panic!("{note}"));
    let address = address.strip_suffix("/metrics").unwrap().to_string();
    (child, address)
}

pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_are_served_until_a_signal() {
    let place = Place::new();
    let (mut child, address) = served(&place, "top --prometheus 0 --interval 0.3");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let begun = Instant::now();
    let found = loop {
        let reply = get(&address, "/metrics");
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"), "{head}");
        let found = samples(body);
        if !found.is_empty() || begun.elapsed() > Duration::from_secs(30) {
            break found;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let value = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    assert!(value("ferrane_interval_seconds").is_some_and(|s| s >= 0.2), "{found:?}");
    assert!(value("ferrane_memory_used_bytes").is_some_and(|b| b > 0.0), "{found:?}");
    let busy = value("ferrane_core_busy_ratios{core=\"0\"}");
    assert!(busy.is_some_and(|share| (0.0..=1.0).contains(&share)), "{found:?}");
    assert!(get(&address, "/").starts_with("HTTP/1.1 404"));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(out, "", "standard output is for results");
}

#[test]
fn lines_and_metrics_together_end_at_the_count() {
    let place = Place::new();
    let (child, _) = served(&place, "top --json --prometheus 127.0.0.1:0 --interval 0.2 --count 2");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
}

#[test]
fn a_command_is_measured_and_its_status_is_passed_on() {
    let place = Place::new();
    let shell = |words: &[&str]| {
        let mut command = place.command("top --interval 0.1");
        Outcome::of(command.args(words))
    };
    let outcome = shell(&["--", "sh", "-c", "echo result; sleep 0.5; exit 7"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(7), "result\n"), "{}", outcome.err);
    for words in ["sh -c 'echo result; sleep 0.5; exit 7': exit status 7", "\nane ", "\ntime ", "\nload ", "\nmemory "]
    {
        assert!(outcome.err.contains(words), "no `{words}` in {}", outcome.err);
    }
    let ended = shell(&["--json", "--", "sh", "-c", "echo result; kill -TERM $$"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(128 + 15), "result\n"));
    let object = ended.objects().remove(0);
    assert_eq!((&object["signal"], &object["status"]), (&15.into(), &serde_json::Value::Null));
    assert_eq!(object["command"][0], "sh");
    let slept = shell(&["--json", "--", "sleep", "0.5"]).ok().objects().remove(0);
    assert!(slept["seconds"].as_f64().is_some_and(|s| (0.5..30.0).contains(&s)), "{slept}");
    assert!(slept["intervals"].as_u64().is_some_and(|n| (3..=6).contains(&n)), "{slept}");
    assert!(slept["load"]["cores"][0]["busy"].is_number() && slept["memory_peak"].is_number(), "{slept}");
    // A command that ends at once has no known load, and it is not reported as 0.
    let short = shell(&["--json", "--", "true"]).ok().objects().remove(0);
    assert!(short["load"].is_null() || short["seconds"].as_f64().unwrap() > 0.2, "{short}");
    shell(&["--", "./no-such-program"]).refused(127, &["cannot run `./no-such-program`"]);
    shell(&["--", "./text.txt"]).refused(126, &["cannot run `./text.txt`"]);
    let closed = place.shell("\"$FERRANE\" top --json -- sh -c 'sleep 0.2; exit 3' | true; echo done");
    assert_eq!(closed.out, "done\n", "{}", closed.err);
}

#[test]
fn a_second_signal_ends_the_command() {
    let place = Place::new();
    let mut command = place.command("top --json --interval 0.1 -- sleep 600");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let signal = || assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    // It begins within this time.
    std::thread::sleep(Duration::from_millis(700));
    signal();
    std::thread::sleep(Duration::from_millis(300));
    signal();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"signal\":15"), "{text}");
}

#[test]
fn wrong_options_are_refused() {
    let place = Place::new();
    place.run("top").refused(1, &["not a terminal", "ferrane top --once", "--json", "--prometheus", "-- COMMAND"]);
    for interval in ["0", "0.05", "4000", "-1", "soon"] {
        place.run(&format!("top --once --interval {interval}")).refused(2, &["--interval", "from 0.1 to 3600"]);
    }
    place.run("top --json --count 0").refused(2, &["--count"]);
    place.run("top --once --count 2").refused(2, &["--once", "--count"]);
    place.run("top --once --prometheus 0").refused(2, &["--prometheus"]);
    place.run("top --once --json").refused(2, &["--json"]);
    place.run("top --width 80").refused(2, &["--once"]);
    place.run("top --count 2 -- true").refused(2, &["--count"]);
    place.run("top --prometheus nowhere").refused(2, &["--prometheus", "a port, or HOST:PORT"]);
    place.run("top --prometheus 300.0.0.1:1").refused(1, &["cannot listen on --prometheus 300.0.0.1:1"]);
}

#[test]
fn every_key_on_a_terminal() {
    let place = Place::new();
    let line = "\"$FERRANE\" top --interval 0.2 --prometheus 0";
    let Some(terminal) = Terminal::run(&place, line) else { return };
    terminal.wait("ferrane top  live");
    terminal.wait(" cores, ");
    terminal.wait("http://127.0.0.1:");
    terminal.key("p", "paused");
    let still = terminal.screen();
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(terminal.screen(), still, "the picture stands still");
    terminal.key("p", "live");
    terminal.key("+", "-2:30 min");
    terminal.key("-", "-5:00 min");
    terminal.press("-");
    terminal.wait("-10:00 min");
    terminal.key("0", "-5:00 min");
    terminal.wait("live  3 s in");
    terminal.key("r", "live  0 s in");
    terminal.key("?", "any key closes this");
    terminal.press("q");
    terminal.wait_until("the help is closed", |screen| !screen.contains("any key closes this"));
    terminal.press("q");
    terminal.wait("status 0");
    assert!(terminal.wait("icanon").lines().any(|l| l == "icanon"), "the terminal is not restored");
    // It also ends by itself, and by Ctrl-C.
    let counted = Terminal::run(&place, "\"$FERRANE\" top --interval 0.2 --count 3").unwrap();
    counted.wait("status 0");
    let stopped = Terminal::run(&place, "\"$FERRANE\" top").unwrap();
    stopped.wait("ferrane top  live");
    stopped.press("C-c");
    stopped.wait("status 0");
}
