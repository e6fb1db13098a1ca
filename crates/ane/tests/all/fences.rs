//! Shared events, waited for and signaled by the engine, or by the host around an ordinary request.

use std::sync::Arc;
use std::time::Duration;

use ferrane_ane_fake::{Call, session};
use ferrane_device::{Device, ErrorKind, Event, Executable, Foreign};

use crate::path::{bindings, compile, failure, text};

const PATIENCE: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(20);

fn loaded(options: &str) -> (Device, Executable) {
    let device = ferrane_ane_fake::open(options).unwrap();
    let executable = compile(&device, &text()).unwrap().load().unwrap();
    (device, executable)
}

fn event(device: &Device) -> Arc<dyn Event> {
    device.events().unwrap().create().unwrap()
}

#[test]
fn an_event_counts_and_is_waited_for() {
    let _fake = session();
    let device = ferrane_ane_fake::open("").unwrap();
    let (counter, other) = (event(&device), event(&device));
    assert_eq!(counter.value(), 0);
    assert!(counter.wait(0, Duration::ZERO) && !counter.wait(1, MOMENT));
    counter.signal(3);
    counter.signal(2);
    assert_eq!((counter.value(), other.value()), (3, 0), "a counter only grows");
    let raised = counter.clone();
    let thread = std::thread::spawn(move || raised.wait(4, PATIENCE));
    std::thread::sleep(MOMENT);
    counter.signal(4);
    assert!(thread.join().unwrap());
    assert!(matches!(counter.foreign(), Foreign::SharedEvent(address) if address != 0));
    assert_ne!(counter.foreign(), other.foreign());
}

#[test]
fn a_request_waits_and_raises_whoever_does_it() {
    for (options, by_engine) in [("", true), ("fences=engine", true), ("fences=host", false)] {
        let fake = session();
        let (device, executable) = loaded(options);
        let (go, end) = (event(&device), event(&device));
        let (bindings, [x, a, y, _]) = bindings(&device, &executable);
        let request = executable.prepare(bindings.wait(&go, 2).signal(&end, 5)).unwrap();
        x.write_f32(&[1.5; 32]).unwrap();
        a.write_f32(&[1.0; 16]).unwrap();
        let submission = request.submit().unwrap();
        go.signal(1);
        assert!(!end.wait(5, MOMENT), "{options}: not before its event");
        // The engine already has the request; the host has not sent it.
        assert_eq!(fake.count(Call::Evaluate), usize::from(by_engine), "{options}");
        go.signal(2);
        assert!(end.wait(5, PATIENCE));
        submission.wait().unwrap();
        assert_eq!(y.read_f32().unwrap(), [1.5; 32], "{options}");
        // A value that was reached is not waited for again.
        x.write_f32(&[2.5; 32]).unwrap();
        request.evaluate().unwrap();
        assert_eq!(y.read_f32().unwrap(), [2.5; 32]);
    }
}

#[test]
fn an_event_that_nobody_raises_ends_in_an_error_and_keeps_the_surfaces() {
    for (options, by_engine) in [("fences=engine&event-timeout=1", true), ("fences=host&event-timeout=1", false)] {
        let _fake = session();
        let (device, executable) = loaded(options);
        let (go, end) = (event(&device), event(&device));
        let (bindings, [_, _, y, _]) = bindings(&device, &executable);
        let request = executable.prepare(bindings.wait(&go, 1).signal(&end, 1)).unwrap();
        let error = failure(request.evaluate());
        assert_eq!(error.kind(), ErrorKind::Evaluate, "{error}");
        assert_eq!(end.value(), 0);
        // An engine that still waits will write when it is released, so its surfaces stay locked
        // until then.
        assert_eq!(y.read().is_err(), by_engine, "{options}");
        assert_eq!(
            request.evaluate().map(|_| ()).map_err(|e| e.kind()).unwrap_err(),
            match by_engine {
                true => ErrorKind::Busy,
                false => ErrorKind::Evaluate,
            }
        );
        go.signal(1);
        if by_engine {
            let start = std::time::Instant::now();
            while y.read().is_err() && start.elapsed() < PATIENCE {
                std::thread::sleep(MOMENT);
            }
            assert_eq!(end.value(), 1);
        }
        request.evaluate().unwrap();
        assert_eq!(end.value(), 1);
    }
}

#[test]
fn a_failure_raises_nothing() {
    let fake = session();
    let (device, executable) = loaded("");
    let end = event(&device);
    let request = executable.prepare(bindings(&device, &executable).0.signal(&end, 1)).unwrap();
    let words = "ANEProgramProcessRequestDirect() Failed with status=0x1d : statusType=0x9: Program Inference error";
    fake.fail(Call::Evaluate, "com.apple.appleneuralengine", 8, words);
    assert_eq!(failure(request.evaluate()).status(), Some(0x1d), "refused before it was taken");
    fake.without_signals();
    let error = failure(request.evaluate());
    assert!(error.message().contains("did not raise"), "{error}");
    assert_eq!(end.value(), 0);
}

#[test]
fn events_of_another_device_are_waited_for_by_the_host() {
    let fake = session();
    let other = Device::new(ferrane_scripted::Scripted::new(|_| Ok(Vec::new())).unwrap());
    let go = event(&other);
    let (device, executable) = loaded("");
    let request = executable.prepare(bindings(&device, &executable).0.wait(&go, 1)).unwrap();
    let submission = request.submit().unwrap();
    std::thread::sleep(MOMENT);
    assert_eq!(fake.count(Call::Evaluate), 0);
    go.signal(1);
    submission.wait().unwrap();
    assert!(device.notes()[0].contains("not of this device"), "{:?}", device.notes());

    let (device, executable) = loaded("fences=engine");
    let error = failure(executable.prepare(bindings(&device, &executable).0.wait(&go, 1)));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("not of this device"), "{error}");
}
