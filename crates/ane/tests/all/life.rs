//! Leftovers: objects, directories, and the cache.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ferrane_ane::runtime::live;
use ferrane_ane_fake::{Call, Chaining, session};
use ferrane_device::{Bindings, ErrorKind};

use crate::path::{bindings, compile, failure, text};

fn round(options: &str) -> PathBuf {
    let device = ferrane_ane_fake::open(options).unwrap();
    let artifact = compile(&device, &text()).unwrap();
    let executable = artifact.load().unwrap();
    let (bindings, _surfaces) = bindings(&device, &executable);
    let request = executable.prepare(bindings).unwrap();
    request.evaluate().unwrap();
    request.submit().unwrap().wait().unwrap();
    executable.reload().unwrap();
    request.evaluate().unwrap();
    std::env::temp_dir().join(artifact.key())
}

#[test]
fn no_object_and_no_directory_is_left() {
    let _fake = session();
    let ways = ["", "dispatch=realtime", "dispatch=process-request", "dispatch=direct"];
    ways.iter().for_each(|way| drop(round(way)));
    let before = live();
    for way in ways {
        for _ in 0..3 {
            let folder = round(way);
            assert!(!folder.exists(), "{way}: {}", folder.display());
        }
        assert_eq!(live(), before, "{way}");
    }
    // Failures leave nothing either.
    let device = ferrane_ane_fake::open("").unwrap();
    let before = live();
    let odd = text().replace("identity(x = a)", "identity(x = nowhere)");
    assert_eq!(failure(compile(&device, &odd)).kind(), ErrorKind::InvalidProgram);
    let artifact = compile(&device, &text()).unwrap();
    for _ in 0..2 {
        _fake.fail(Call::Load, "com.apple.appleneuralengine", 6, "program load failure status 0x20004");
    }
    assert_eq!(failure(artifact.load()).kind(), ErrorKind::Load);
    let folder = std::env::temp_dir().join(artifact.key());
    drop(artifact);
    assert!(!folder.exists());
    assert_eq!(live(), before);
}

#[test]
fn what_a_crash_left_behind_goes_when_a_device_is_opened() {
    let _fake = session();
    let folder = std::env::temp_dir().join(format!("ABCDEF{}", std::process::id()));
    fs::create_dir_all(folder.join("weights")).unwrap();
    fs::write(folder.join("ferrane-owner-1"), b"").unwrap();
    ferrane_ane_fake::open("").unwrap();
    assert!(!folder.exists());
}

#[test]
fn a_kept_program_is_not_compiled_again() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    let options = format!("cache={}", cache.display());
    let compiles = |prepare: &dyn Fn(&ferrane_ane_fake::Session)| {
        let fake = session();
        prepare(&fake);
        round(&options);
        fake.count(Call::Compile)
    };
    assert_eq!(compiles(&|_| ()), 1);
    assert_eq!(compiles(&|_| ()), 0);
    // A spent budget does not matter then.
    assert_eq!(compiles(&|fake| fake.budget(0)), 0);
    let entry = fs::read_dir(cache).unwrap().next().unwrap().unwrap().path();
    fs::write(entry.join("net.plist"), b"damaged").unwrap();
    assert_eq!(compiles(&|_| ()), 1, "a damaged entry is none");
    assert_eq!(compiles(&|_| ()), 0);
    // A cached program that the system does not load is compiled.
    let refuse = |fake: &ferrane_ane_fake::Session| {
        for _ in 0..2 {
            fake.fail(Call::Load, "com.apple.appleneuralengine", 6, "program load failure status 0x20004");
        }
    };
    assert_eq!(compiles(&refuse), 1);
}

#[test]
fn a_spent_budget_fails_as_the_engine_fails() {
    let fake = session();
    fake.budget(1);
    let device = ferrane_ane_fake::open("").unwrap();
    let first = compile(&device, &text()).unwrap();
    let error = failure(compile(&device, &text().replace("identity", "relu")));
    assert_eq!((error.raw_code(), error.domain()), (Some(1), Some("com.apple.appleneuralengine.compiler")));
    first.load().unwrap();
}

#[test]
fn eight_threads_keep_the_queue_full() {
    let _fake = session();
    let device = ferrane_ane_fake::open("").unwrap();
    let executable = Arc::new(compile(&device, &text()).unwrap().load().unwrap());
    let x = device.surface(&executable.port("x").unwrap().layout).unwrap();
    let a = device.surface(&executable.port("a").unwrap().layout).unwrap();
    x.write_f32(&[3.0; 32]).unwrap();
    let work = || {
        let requests: Vec<_> = (0..20)
            .map(|_| {
                let y = device.surface(x.layout()).unwrap();
                let b = device.surface(a.layout()).unwrap();
                let bound = Bindings::new().bind("x", &x).bind("a", &a).bind("y", &y).bind("b", &b);
                (executable.prepare(bound).unwrap(), y)
            })
            .collect();
        let (mut done, mut full) = (0, 0);
        for (request, y) in &requests {
            let submission = loop {
                match request.submit() {
                    Ok(submission) => break submission,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::QueueFull, "{error}");
                        full += 1;
                        std::thread::yield_now();
                    }
                }
            };
            submission.wait().unwrap();
            assert_eq!(y.read_f32().unwrap(), [3.0; 32]);
            done += 1;
        }
        (done, full)
    };
    let done: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap().0).sum()
    });
    assert_eq!(done, 160);

    // The queue accepts exactly as many as its depth.
    let depth = device.profile().queue_depth.value;
    let requests: Vec<_> = (0..depth + 40)
        .map(|_| {
            let (y, b) = (device.surface(x.layout()).unwrap(), device.surface(a.layout()).unwrap());
            executable.prepare(Bindings::new().bind("x", &x).bind("a", &a).bind("y", &y).bind("b", &b)).unwrap()
        })
        .collect();
    let taken: Vec<_> = requests.iter().map_while(|r| r.submit().ok()).collect();
    assert!(taken.len() >= depth, "{}", taken.len());
    for submission in taken {
        submission.wait().unwrap();
    }
}

#[test]
fn fences_and_chains_leave_no_object() {
    let fake = session();
    let round = |chaining| {
        fake.chaining(chaining);
        let device = ferrane_ane_fake::open("").unwrap();
        let executable = compile(&device, &text()).unwrap().load().unwrap();
        let events = device.events().unwrap();
        let (go, end) = (events.create().unwrap(), events.create().unwrap());
        let (bound, _surfaces) = bindings(&device, &executable);
        go.signal(1);
        executable.prepare(bound.clone().wait(&go, 1).signal(&end, 1)).unwrap().evaluate().unwrap();
        let chained = executable.prepare_chain(vec![bound]).unwrap().evaluate().unwrap().chained;
        assert_eq!(chained, chaining == Chaining::Works);
    };
    [Chaining::Works, Chaining::Refused].into_iter().for_each(round);
    let before = live();
    [Chaining::Works, Chaining::Refused].into_iter().for_each(round);
    assert_eq!(live(), before);
}
