//! The server of metrics over real connections.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ferrane_serve::{METRICS_TYPE, MetricsServer};

fn reply(server: &MetricsServer, line: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn started() -> MetricsServer {
    let scrapes = AtomicUsize::new(0);
    let text = move || format!("scrapes {}\n# EOF\n", scrapes.fetch_add(1, Ordering::SeqCst));
    MetricsServer::start(TcpListener::bind("127.0.0.1:0").unwrap(), text).unwrap()
}

#[test]
fn metrics_are_answered_and_nothing_else() {
    let server = started();
    let first = reply(&server, "GET /metrics", "localhost:1");
    assert!(first.starts_with("HTTP/1.1 200") && first.contains(METRICS_TYPE), "{first}");
    assert!(first.ends_with("\r\n\r\nscrapes 0\n# EOF\n"), "{first}");
    assert!(reply(&server, "GET /metrics", "127.0.0.1").ends_with("scrapes 1\n# EOF\n"), "each scrape is new");
    assert!(reply(&server, "GET /", "localhost").starts_with("HTTP/1.1 404"));
    assert!(reply(&server, "GET /metrics/x", "localhost").starts_with("HTTP/1.1 404"));
    assert!(reply(&server, "POST /metrics", "localhost").starts_with("HTTP/1.1 405"));
    let other = reply(&server, "GET /metrics", "evil.example");
    assert!(other.starts_with("HTTP/1.1 403") && !other.contains("scrapes"), "{other}");
}

#[test]
fn connections_are_bounded_and_do_not_hold_up_the_end() {
    let server = started();
    // More connections than are served, on which no request is sent.
    let mut idle: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut waiting = TcpStream::connect(server.address()).unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    write!(waiting, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut byte = [0; 1];
    assert!(waiting.read(&mut byte).is_err(), "it waits for a connection to end");
    idle.truncate(0);
    waiting.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = String::new();
    waiting.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let held = TcpStream::connect(server.address()).unwrap();
    let address = server.address();
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(TcpStream::connect(address).is_err(), "the port is free again");
    drop(held);
}
