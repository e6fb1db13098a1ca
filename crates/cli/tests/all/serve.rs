//! `ferrane serve`: the address, a reply, the end by a signal, and wrong options.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::place::Place;

fn story() -> Place {
    let place = Place::new();
    place.run("train --model tiny --data text.txt --steps 20 --accum 1 --seq 16 --eval-windows 2 --out run").ok();
    place
}

/// What the server at `address` replies.
fn reply(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_model_is_served_until_a_signal() {
    let place = story();
    for device in ["reference", "emulator"] {
        let mut command = place.command(&format!("serve run --port 0 --name story --device {device}"));
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches('/');
        assert!(reply(address, "GET /v1/models", "").contains("\"id\":\"story\""));
        let asked = r#"{"model": "story", "prompt": "Once", "max_tokens": 3, "ignore_eos": true}"#;
        let text = reply(address, "POST /v1/completions", asked);
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"completion_tokens\":3"), "{text}");
        assert!(reply(address, "GET /", "").contains("<title>story</title>"));
        let signaled = Command::new("kill").arg(server.id().to_string()).status().unwrap();
        assert!(signaled.success() && server.wait().unwrap().success());
    }
}

#[test]
fn wrong_options_are_named_as_flags() {
    let place = story();
    place.run("serve missing --port 0").refused(1, &["missing: no such checkpoint"]);
    place.run("serve run --host 300.0.0.1 --port 0").refused(1, &["cannot listen on --host 300.0.0.1 --port 0"]);
    place.run("serve run --port 0 --queue 0").refused(1, &["--queue 0: give 1 or more"]);
    place.run("serve run --port 0 --timeout 0").refused(1, &["--timeout 0: give 1 or more"]);
    place.run("serve run --port 0 --api-key-file none").refused(1, &["none: "]);
    std::fs::write(place.path("keys"), "# no key\n").unwrap();
    place.run("serve run --port 0 --api-key-file keys").refused(1, &["keys: no key"]);
}
