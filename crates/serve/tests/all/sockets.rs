//! Real connections: clients that leave, do not read, or are there when the server ends.
//!
//! The clients block the thread of the test; the server has threads of its own.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ferrane_serve::{Server, ServerOptions, Stop};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::common::named;
use crate::scripted::Script;

/// A server that listens.
struct Listening {
    address: std::net::SocketAddr,
    stop: Stop,
    task: JoinHandle<()>,
}

async fn listen(server: Server) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = Stop::new();
    let stopped = stop.wait();
    let task = tokio::spawn(async move { server.serve(listener, stopped).await.unwrap() });
    Listening { address, stop, task }
}

impl Listening {
    /// A connection on which a completion was requested.
    fn ask(&self, body: Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let body = named(body).to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    }

    async fn end(self) {
        self.stop.stop();
        self.task.await.unwrap();
    }
}

/// Everything that a connection still sends.
fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Waits until a condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until no call is made for a while; a call takes 5 ms.
async fn until_quiet(script: &Script) {
    loop {
        let before = script.calls.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
        if script.calls.load(Ordering::SeqCst) == before {
            return;
        }
    }
}

fn slow(text: &str) -> Script {
    Script { delay: Duration::from_millis(5), ..Script::new(text) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_ends_when_the_client_leaves() {
    for stream in [true, false] {
        let script = slow(&"a".repeat(90));
        let listening = listen(script.server(ServerOptions::default())).await;
        let client = listening.ask(json!({"prompt": [5], "max_tokens": 90, "stream": stream}));
        until("the first tokens", || script.calls.load(Ordering::SeqCst) >= 3).await;
        drop(client);
        until_quiet(&script).await;
        let calls = script.calls.load(Ordering::SeqCst);
        assert!(calls < 60, "{calls} calls of 90, stream: {stream}");
        // A client that waits in the queue and leaves costs nothing.
        let first = listening.ask(json!({"prompt": [5], "max_tokens": 40}));
        until("the first token", || script.calls.load(Ordering::SeqCst) > calls).await;
        let second = listening.ask(json!({"prompt": [5], "max_tokens": 90}));
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(second);
        assert!(rest(first).starts_with("HTTP/1.1 200"));
        until_quiet(&script).await;
        assert_eq!(script.calls.load(Ordering::SeqCst), calls + 40);
        listening.end().await;
    }
}

/// A request whose stream is larger than the buffers of a connection.
fn large() -> Value {
    json!({"prompt": [5], "max_tokens": 20_000, "stream": true, "logprobs": 20})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_does_not_hold_up_others() {
    let script = Script { context: 30_000, ..Script::new(&"a".repeat(21_000)) };
    let listening = listen(script.server(ServerOptions::default())).await;
    let sleeping = [listening.ask(large()), listening.ask(large())];
    // Both are parked: nothing is computed any more, long before all tokens are.
    until("the first tokens", || script.calls.load(Ordering::SeqCst) >= 10).await;
    until_quiet(&script).await;
    let calls = script.calls.load(Ordering::SeqCst);
    assert!(calls < 35_000, "{calls} of 40000");
    for _ in 0..3 {
        let text = rest(listening.ask(json!({"prompt": [6], "max_tokens": 5})));
        assert!(text.contains("\"completion_tokens\":5"), "{text}");
    }
    // Readers that continue get everything, in order.
    for stream in sleeping {
        let text = rest(stream);
        assert!(text.contains("data: [DONE]"));
        assert_eq!(text.matches("\"text\":\"a\"").count(), 20_000);
    }
    listening.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_stays_unread_is_dropped() {
    let script = Script { context: 30_000, ..Script::new(&"a".repeat(21_000)) };
    let mut options = ServerOptions::default();
    options.stall_time = Duration::from_millis(200);
    let listening = listen(script.server(options)).await;
    let sleeping = listening.ask(large());
    until("the first tokens", || script.calls.load(Ordering::SeqCst) >= 10).await;
    until_quiet(&script).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let text = rest(sleeping);
    assert!(text.contains("the server stopped computing this request") && !text.contains("[DONE]"));
    assert!(script.calls.load(Ordering::SeqCst) < 20_000);
    listening.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_requests_finish_when_the_server_ends() {
    let script = slow(&"a".repeat(40));
    let listening = listen(script.server(ServerOptions::default())).await;
    let whole = listening.ask(json!({"prompt": [5], "max_tokens": 30}));
    let stream = listening.ask(json!({"prompt": [5], "max_tokens": 30, "stream": true}));
    until("the first token", || script.calls.load(Ordering::SeqCst) >= 1).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(listening.stop.stop() && !listening.stop.stop());
    assert!(rest(whole).contains("\"completion_tokens\":30"));
    assert!(rest(stream).contains("data: [DONE]"));
    let address = listening.address;
    listening.task.await.unwrap();
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_take_too_long_are_informed_of_the_end() {
    let script = Script { delay: Duration::from_millis(50), ..Script::new(&"a".repeat(90)) };
    let mut options = ServerOptions::default();
    options.grace_time = Duration::from_millis(200);
    let listening = listen(script.server(options)).await;
    let running = listening.ask(json!({"prompt": [5], "max_tokens": 90, "stream": true}));
    let waiting = listening.ask(json!({"prompt": [5], "max_tokens": 90}));
    until("the first token", || script.calls.load(Ordering::SeqCst) >= 2).await;
    let begun = Instant::now();
    listening.stop.stop();
    let (running, waiting) = (rest(running), rest(waiting));
    assert!(running.contains("\"code\":\"shutting_down\"") && !running.contains("[DONE]"), "{running}");
    assert!(waiting.starts_with("HTTP/1.1 503") && waiting.contains("\"code\":\"shutting_down\""), "{waiting}");
    listening.task.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_served_side_by_side_in_several_slots() {
    let script = Script { slots: 4, ..slow(&"hello world".replace(' ', "a")) };
    let listening = listen(script.server(ServerOptions::default())).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(listening.ask(json!({"prompt": [5, 6], "temperature": 0})));
    }
    for client in clients {
        assert!(rest(client).contains("\"text\":\"helloaworld\""));
    }
    // Twelve steps for one alone, 48 one after another.
    assert!(script.calls.load(Ordering::SeqCst) < 40, "{:?}", script.calls);
    listening.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_on_a_connection_ends_only_that_connection() {
    let listening = listen(Script::new("hello").server(ServerOptions::default())).await;
    for rubbish in
        ["\x16\x03\x01\x02\x00\x01", "GET\r\n\r\n", "POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(listening.address).unwrap();
        stream.write_all(rubbish.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let text = rest(stream);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    }
    assert!(rest(listening.ask(json!({"prompt": [5]}))).contains("\"text\":\"hello\""));
    listening.end().await;
}

#[test]
fn a_server_runs_without_a_runtime_of_the_caller() {
    let server = Script::new("hello").server(ServerOptions::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stop = Stop::new();
    stop.stop();
    server.run(listener, &stop).unwrap();
}
