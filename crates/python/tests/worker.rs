//! The thread that makes texts, without Python.

#[path = "../src/worker.rs"]
mod worker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc::RecvError};

#[test]
fn a_panic_is_an_error_after_the_last_text() {
    let (from, thread) = worker::spawn("test", |send| {
        assert!(send("first".into()));
        panic!("on purpose");
    })
    .unwrap();
    assert_eq!(from.recv(), Ok(Ok("first".to_string())));
    assert!(matches!(from.recv(), Ok(Err(error)) if error.contains("a bug in Ferrane")));
    assert_eq!(from.recv(), Err(RecvError));
    // The thread itself ends as usual.
    assert!(thread.join().is_ok());
}

#[test]
fn the_work_learns_that_its_reader_is_gone() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let (from, thread) = worker::spawn("test", move |send| {
        while send("text".into()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Err("read by nothing".into())
    })
    .unwrap();
    assert_eq!(from.recv(), Ok(Ok("text".to_string())));
    drop(from);
    thread.join().unwrap();
    // At most the one that was read, and those ahead of the reader.
    assert!((1..=18).contains(&made.load(Ordering::Relaxed)), "{made:?}");
}
