//! The front end over a scripted backend: what it refuses, what it releases after a failure, and
//! what it forwards.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use ferrane_device::{
    Bindings, CompileOptions, Device, Error, ErrorKind, Executable, Layout, Memory, Port, Procedure, ProgramSource,
    Request, Result, Submission, Surface,
};
use ferrane_host::buffer::SharedBytes;
use ferrane_mil::{DataType, Weights};
use ferrane_scripted::{Control, FailureStage, Scripted, procedure};

const SHAPE: [usize; 4] = [1, 4, 1, 8];

fn main_procedure() -> Procedure {
    procedure("main", 0, &[("x", &SHAPE), ("w", &SHAPE)], &[("y", &SHAPE)]).unwrap()
}

fn machine_with(depth: usize, procedures: Vec<Procedure>) -> (Device, Control, Executable) {
    let scripted = Scripted::with_depth(depth, move |_| Ok(procedures.clone())).unwrap();
    let control = scripted.control();
    let device = Device::new(scripted);
    let executable = load(&device).unwrap();
    (device, control, executable)
}

fn machine() -> (Device, Control, Executable) {
    machine_with(usize::MAX, vec![main_procedure()])
}

fn load(device: &Device) -> Result<Executable> {
    let source = ProgramSource::Text { mil: b"program(1.3)", weights: &Weights::new() };
    device.compile(source, &CompileOptions::labeled("test"))?.load()
}

fn surface(device: &Device) -> Surface {
    device.surface(&Layout::packed(DataType::Fp16, &SHAPE).unwrap()).unwrap()
}

struct Bound {
    x: Surface,
    w: Surface,
    y: Surface,
    request: Request,
}

fn bound(device: &Device, executable: &Executable) -> Bound {
    let (x, w, y) = (surface(device), surface(device), surface(device));
    x.write_f32(&(0..32).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("w", &w).bind("y", &y)).unwrap();
    Bound { x, w, y, request }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

fn scripted_error() -> Error {
    Error::from_raw("com.apple.appleneuralengine", 8, "ANEProgramProcessRequestDirect() Failed with status=0x1d")
}

#[test]
fn every_wrong_binding_is_refused_with_its_port() {
    let (device, _, executable) = machine();
    let (x, w, y) = (surface(&device), surface(&device), surface(&device));
    let odd = |layout: Layout| device.surface(&layout).unwrap();
    let full = || Bindings::new().bind("x", &x).bind("w", &w);
    let int8 = odd(Layout::packed(DataType::Int8, &SHAPE).unwrap());
    let shape = odd(Layout::packed(DataType::Fp16, &[1, 8, 1, 4]).unwrap());
    let padded = odd(Layout::with_row_alignment(DataType::Fp16, &SHAPE, 64).unwrap());
    let cases = [
        ("no surface bound", "y", full()),
        ("bound twice", "x", full().bind("y", &y).bind("x", &surface(&device))),
        ("no port `z`; there are x, w, y", "z", full().bind("y", &y).bind("z", &x)),
        ("surface is int8", "y", full().bind("y", &int8)),
        ("port wants fp16 [1, 4, 1, 8]", "y", full().bind("y", &shape)),
        ("strides [256, 64, 64, 2]", "y", full().bind("y", &padded)),
        ("also bound to `x`", "y", full().bind("y", &x)),
    ];
    for (message, port, bindings) in cases {
        let error = executable.prepare(bindings).map(|_| ()).unwrap_err();
        assert_eq!((error.kind(), error.port()), (ErrorKind::Binding, Some(port)), "{error}");
        assert!(error.message().contains(message), "{error}");
    }
    let error = executable.prepare(full().bind("y", &y).procedure("other")).map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Binding, "no procedure `other`; there are main"));
    // One memory bound to two inputs is only read.
    executable.prepare(Bindings::new().bind("x", &x).bind("w", &x).bind("y", &y)).unwrap().evaluate().unwrap();
}

#[test]
fn a_port_may_want_more_memory_than_its_elements() {
    let mut wide = main_procedure();
    wide.outputs[0].layout.allocation = 0x4000;
    let (device, _, executable) = machine_with(1, vec![wide]);
    let (x, w, y) = (surface(&device), surface(&device), surface(&device));
    let prepare = |y: &Surface| executable.prepare(Bindings::new().bind("x", &x).bind("w", &w).bind("y", y));
    let error = prepare(&y).map(|_| ()).unwrap_err();
    assert_eq!((error.port(), error.message()), (Some("y"), "surface has 64 bytes, port wants 16384"));
    prepare(&device.surface(&executable.port("y").unwrap().layout).unwrap()).unwrap();
}

#[test]
fn surfaces_refuse_layouts_and_values_that_do_not_fit() {
    let (device, _, _) = machine();
    let y = surface(&device);
    assert_eq!(kind(y.write_f32(&[0.0; 31])), ErrorKind::Layout);
    let int8 = device.surface(&Layout::packed(DataType::Int8, &SHAPE).unwrap()).unwrap();
    assert_eq!(kind(int8.write_f32(&[0.0; 32])), ErrorKind::Layout);
    assert_eq!(kind(int8.read_f32()), ErrorKind::Layout);
    let mut layout = Layout::packed(DataType::Fp16, &SHAPE).unwrap();
    layout.allocation = 63;
    assert_eq!(kind(device.surface(&layout)), ErrorKind::Layout);
    struct Short(SharedBytes);
    impl Memory for Short {
        fn bytes(&self) -> &SharedBytes {
            &self.0
        }
    }
    let short = Arc::new(Short(SharedBytes::new(63).unwrap()));
    assert_eq!(kind(Surface::new(short, Layout::packed(DataType::Fp16, &SHAPE).unwrap())), ErrorKind::Layout);
}

#[test]
fn padded_surfaces_keep_their_padding() {
    let (device, _, _) = machine();
    let padded = device.surface(&Layout::with_row_alignment(DataType::Fp16, &[2, 3], 64).unwrap()).unwrap();
    padded.write().unwrap().bytes_mut().fill(0xff);
    padded.write_f32(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    assert_eq!(padded.read_f32().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let access = padded.read().unwrap();
    assert_eq!(access.bytes()[6..64], [0xff; 58]);
    assert_eq!(access.row(1), Some(&[0x00, 0x44, 0x00, 0x45, 0x00, 0x46][..]));
    assert_eq!(access.row(2), None);
    drop(access);
    padded.write().unwrap().row_mut(0).unwrap().fill(0);
    assert_eq!(padded.read_f32().unwrap(), [0.0, 0.0, 0.0, 4.0, 5.0, 6.0]);
}

#[test]
fn evaluate_copies_and_counts() {
    let (device, _, executable) = machine();
    let b = bound(&device, &executable);
    assert!(b.request.evaluate().unwrap().hardware.is_some());
    assert_eq!(b.y.read_f32().unwrap(), b.x.read_f32().unwrap());
}

#[test]
fn a_surface_in_use_is_busy_and_the_others_are_given_back() {
    let (device, _, executable) = machine();
    let b = bound(&device, &executable);
    let reading = b.y.read().unwrap();
    for result in [b.request.evaluate().map(|_| ()), b.request.submit().map(|_| ())] {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.port()), (ErrorKind::Busy, Some("y")));
    }
    // The inputs were acquired before the output was found busy.
    b.x.write().unwrap();
    drop(reading);
    let writing = b.x.write().unwrap();
    assert_eq!(b.request.evaluate().unwrap_err().port(), Some("x"));
    assert_eq!(kind(b.x.read()), ErrorKind::Busy);
    assert_eq!(kind(b.x.write()), ErrorKind::Busy);
    drop(writing);
    // Another reader of an input is no conflict.
    let _reading = b.x.read().unwrap();
    b.request.evaluate().unwrap();
}

#[test]
fn surfaces_are_taken_at_submit_and_free_when_the_wait_ends() {
    let (device, control, executable) = machine();
    let b = bound(&device, &executable);
    control.hold();
    let submission = b.request.submit().unwrap();
    assert!(!submission.is_done());
    assert_eq!(kind(b.y.read()), ErrorKind::Busy);
    assert_eq!(kind(b.x.write()), ErrorKind::Busy);
    b.x.read().unwrap();
    assert_eq!(kind(b.request.submit()), ErrorKind::Busy);
    assert_eq!(kind(b.request.evaluate()), ErrorKind::Busy);
    control.release();
    submission.wait().unwrap();
    assert_eq!(b.y.read_f32().unwrap(), b.x.read_f32().unwrap());
    b.x.write().unwrap();
    b.w.write().unwrap();
    b.request.submit().unwrap().wait().unwrap();
}

#[test]
fn two_requests_share_an_input_but_not_an_output() {
    let (device, control, executable) = machine();
    let a = bound(&device, &executable);
    let y = surface(&device);
    let other = executable.prepare(Bindings::new().bind("x", &a.x).bind("w", &a.w).bind("y", &y)).unwrap();
    let same = executable.prepare(Bindings::new().bind("x", &a.x).bind("w", &a.w).bind("y", &a.y)).unwrap();
    control.hold();
    let first = a.request.submit().unwrap();
    let second = other.submit().unwrap();
    assert_eq!(kind(same.submit()), ErrorKind::Busy);
    control.release();
    first.wait().unwrap();
    second.wait().unwrap();
    same.submit().unwrap().wait().unwrap();
}

#[test]
fn failures_of_each_stage_come_through_and_free_the_surfaces() {
    let (device, control, executable) = machine();
    let b = bound(&device, &executable);
    let free = || {
        b.x.write().unwrap();
        b.y.write().unwrap();
    };
    control.fail(FailureStage::Run, scripted_error());
    let error = b.request.evaluate().map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Evaluate, Some(0x1d)));
    free();
    control.fail(FailureStage::Run, scripted_error());
    assert_eq!(kind(b.request.submit().unwrap().wait()), ErrorKind::Evaluate);
    free();
    control.fail(FailureStage::Submit, scripted_error());
    assert_eq!(kind(b.request.submit()), ErrorKind::Evaluate);
    free();
    b.request.evaluate().unwrap();

    control.fail(FailureStage::Compile, Error::new(ErrorKind::CompileBudget, "spent"));
    assert_eq!(kind(load(&device)), ErrorKind::CompileBudget);
    control.fail(FailureStage::Load, Error::new(ErrorKind::Load, "no"));
    assert_eq!(kind(load(&device)), ErrorKind::Load);
    control.fail(FailureStage::Allocate, Error::new(ErrorKind::OutOfMemory, "no"));
    assert_eq!(kind(device.surface(b.x.layout())), ErrorKind::OutOfMemory);
    control.fail(FailureStage::Prepare, Error::new(ErrorKind::System, "no"));
    assert_eq!(
        kind(executable.prepare(Bindings::new().bind("x", &b.x).bind("w", &b.w).bind("y", &b.y))),
        ErrorKind::System
    );
}

#[test]
fn a_full_queue_gives_the_guards_back() {
    let (device, control, executable) = machine_with(1, vec![main_procedure()]);
    let (a, b) = (bound(&device, &executable), bound(&device, &executable));
    control.hold();
    let first = a.request.submit().unwrap();
    assert_eq!(kind(b.request.submit()), ErrorKind::QueueFull);
    b.x.write().unwrap();
    b.y.write().unwrap();
    control.release();
    first.wait().unwrap();
    b.request.submit().unwrap().wait().unwrap();
}

#[test]
fn a_request_that_the_machine_drops_ends_with_an_error() {
    let (device, control, executable) = machine();
    let b = bound(&device, &executable);
    control.forget();
    assert_eq!(kind(b.request.submit().unwrap().wait()), ErrorKind::System);
    b.y.write().unwrap();
    executable.unload().unwrap();
}

#[test]
fn a_reload_keeps_requests_and_a_failed_one_ends_them() {
    let (device, control, executable) = machine();
    let b = bound(&device, &executable);
    control.hold();
    let submission = b.request.submit().unwrap();
    assert_eq!(kind(executable.reload()), ErrorKind::Busy);
    control.release();
    submission.wait().unwrap();
    executable.reload().unwrap();
    b.request.evaluate().unwrap();
    control.fail(FailureStage::Load, Error::new(ErrorKind::Load, "no"));
    assert_eq!(kind(executable.reload()), ErrorKind::Load);
    assert_eq!(kind(b.request.evaluate()), ErrorKind::Unloaded);
    assert_eq!(kind(executable.reload()), ErrorKind::Unloaded);
}

#[test]
fn who_is_told_is_told_once_and_finds_all_free() {
    let (device, control, executable) = machine_with(1, vec![main_procedure()]);
    let (a, b) = (bound(&device, &executable), bound(&device, &executable));
    let (sender, told) = std::sync::mpsc::channel();
    let submit = |bound: &Bound| {
        let (sender, y) = (sender.clone(), bound.y.clone());
        bound.request.submit_then(move |result| {
            let free = y.write().is_ok();
            sender.send((result.map(|_| ()).map_err(|e| e.kind()), free)).unwrap();
        })
    };
    control.hold();
    submit(&a).unwrap();
    assert_eq!(kind(submit(&a)), ErrorKind::Busy);
    assert_eq!(kind(submit(&b)), ErrorKind::QueueFull);
    assert!(told.try_recv().is_err());
    control.release();
    assert_eq!(told.recv().unwrap(), (Ok(()), true));
    control.fail(FailureStage::Run, scripted_error());
    submit(&a).unwrap();
    assert_eq!(told.recv().unwrap(), (Err(ErrorKind::Evaluate), true));
    control.fail(FailureStage::Submit, scripted_error());
    assert_eq!(kind(submit(&a)), ErrorKind::Evaluate);
    control.forget();
    submit(&a).unwrap();
    assert_eq!(told.recv().unwrap(), (Err(ErrorKind::System), true));
    executable.unload().unwrap();
    assert_eq!(kind(submit(&a)), ErrorKind::Unloaded);
    // A failed submit has not called `done`.
    assert!(told.try_recv().is_err());
}

#[test]
fn unload_waits_for_nobody_and_ends_all() {
    let (device, control, executable) = machine();
    let b = bound(&device, &executable);
    control.hold();
    let submission = b.request.submit().unwrap();
    assert_eq!(kind(executable.unload()), ErrorKind::Busy);
    control.release();
    submission.wait().unwrap();
    control.fail(FailureStage::Unload, Error::new(ErrorKind::System, "no"));
    assert_eq!(kind(executable.unload()), ErrorKind::System);
    b.request.evaluate().unwrap();
    executable.unload().unwrap();
    assert_eq!(kind(executable.unload()), ErrorKind::Unloaded);
    assert_eq!(kind(b.request.evaluate()), ErrorKind::Unloaded);
    assert_eq!(kind(b.request.submit()), ErrorKind::Unloaded);
    assert_eq!(
        kind(executable.prepare(Bindings::new().bind("x", &b.x).bind("w", &b.w).bind("y", &b.y))),
        ErrorKind::Unloaded
    );
    b.y.write().unwrap();
}

#[test]
fn states_are_changed_in_place_and_by_one_request_at_a_time() {
    let layout = Layout::packed(DataType::Fp16, &SHAPE).unwrap();
    let mut with_state = main_procedure();
    with_state.states.push(Port { name: "cache".into(), symbol: 3, layout });
    let (device, control, executable) = machine_with(usize::MAX, vec![with_state]);
    let (x, cache) = (surface(&device), surface(&device));
    let prepare = |y: &Surface, cache: &Surface| {
        executable.prepare(Bindings::new().bind("x", &x).bind("w", &x).bind("y", y).bind("cache", cache))
    };
    let (y1, y2) = (surface(&device), surface(&device));
    let (one, two) = (prepare(&y1, &cache).unwrap(), prepare(&y2, &cache).unwrap());
    one.evaluate().unwrap();
    two.evaluate().unwrap();
    assert_eq!(cache.read().unwrap().bytes(), [2; 64]);
    control.hold();
    let submission = one.submit().unwrap();
    let error = two.submit().map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.port()), (ErrorKind::Busy, Some("cache")));
    control.release();
    submission.wait().unwrap();
    assert_eq!(kind(prepare(&y1, &y1)), ErrorKind::Binding);
    assert_eq!(kind(prepare(&y1, &x)), ErrorKind::Binding);
}

#[test]
fn events_hold_a_request_and_tell_its_end() {
    let (device, _, executable) = machine();
    let b = bound(&device, &executable);
    let (go, end) = (device.events().unwrap().create().unwrap(), device.events().unwrap().create().unwrap());
    let bindings = Bindings::new().bind("x", &b.x).bind("w", &b.w).bind("y", &b.y).wait(&go, 1).signal(&end, 7);
    let request = executable.prepare(bindings).unwrap();
    let submission = request.submit().unwrap();
    assert!(!end.wait(7, Duration::from_millis(20)));
    go.signal(1);
    assert!(end.wait(7, Duration::from_secs(10)));
    submission.wait().unwrap();
    go.signal(0);
    assert_eq!((go.value(), end.value()), (1, 7));
}

/// `a` copies x to h, `b` copies h to y.
fn two_steps() -> Vec<Procedure> {
    vec![
        procedure("a", 0, &[("x", &SHAPE)], &[("h", &SHAPE)]).unwrap(),
        procedure("b", 1, &[("h", &SHAPE)], &[("y", &SHAPE)]).unwrap(),
    ]
}

#[test]
fn chains_run_in_order_with_and_without_a_machine_that_chains() {
    for chaining in [false, true] {
        let mut scripted = Scripted::new(|_| Ok(two_steps())).unwrap();
        if chaining {
            scripted = scripted.chaining();
        }
        let control = scripted.control();
        let device = Device::new(scripted);
        let executable = load(&device).unwrap();
        let (x, h, y) = (surface(&device), surface(&device), surface(&device));
        let steps = || {
            vec![
                Bindings::new().procedure("a").bind("x", &x).bind("h", &h),
                Bindings::new().procedure("b").bind("h", &h).bind("y", &y),
            ]
        };
        let chain = executable.prepare_chain(steps()).unwrap();
        for (i, submitted) in [false, true].into_iter().enumerate() {
            x.write_f32(&[1.0 + i as f32; 32]).unwrap();
            let stats = if submitted { chain.submit().unwrap().wait() } else { chain.evaluate() }.unwrap();
            assert!(stats.hardware.is_some());
            assert_eq!(y.read_f32().unwrap(), [1.0 + i as f32; 32], "chaining: {chaining}");
        }
        // A failure ends the chain and releases everything.
        control.fail(FailureStage::Run, scripted_error());
        assert_eq!(kind(chain.submit().unwrap().wait()), ErrorKind::Evaluate);
        control.fail(FailureStage::Run, scripted_error());
        assert_eq!(kind(chain.evaluate()), ErrorKind::Evaluate);
        control.fail(FailureStage::Submit, scripted_error());
        assert_eq!(kind(chain.submit()), ErrorKind::Evaluate);
        for s in [&x, &h, &y] {
            s.write().unwrap();
        }
        let _reading = h.read().unwrap();
        assert_eq!(kind(chain.evaluate()), ErrorKind::Busy);
        assert_eq!(kind(executable.prepare_chain(Vec::new())), ErrorKind::Binding);
        assert_eq!(
            kind(executable.prepare_chain(vec![steps().remove(0), Bindings::new().bind("x", &x)])),
            ErrorKind::Binding
        );
        executable.unload().unwrap();
        assert_eq!(kind(executable.prepare_chain(steps())), ErrorKind::Unloaded);
        assert_eq!(kind(chain.submit()), ErrorKind::Unloaded);
    }
}

#[test]
fn a_chain_is_not_unloaded_between_its_steps() {
    for round in 0..60 {
        let device = Device::new(Scripted::new(|_| Ok(two_steps())).unwrap());
        let executable = load(&device).unwrap();
        let (x, h, y) = (surface(&device), surface(&device), surface(&device));
        let steps = (0..40).flat_map(|_| {
            [
                Bindings::new().procedure("a").bind("x", &x).bind("h", &h),
                Bindings::new().procedure("b").bind("h", &h).bind("y", &y),
            ]
        });
        let chain = executable.prepare_chain(steps.collect()).unwrap();
        x.write_f32(&[1.0; 32]).unwrap();
        let other = executable.clone();
        let unloading = std::thread::spawn(move || while other.unload().is_err() {});
        let result = if round % 2 == 0 { chain.evaluate() } else { chain.submit().and_then(|s| s.wait()) };
        unloading.join().unwrap();
        // Unloaded before the first step, or after the last.
        match result {
            Ok(_) => assert_eq!(y.read_f32().unwrap(), [1.0; 32]),
            Err(e) => assert_eq!((e.kind(), h.read_f32().unwrap()), (ErrorKind::Unloaded, vec![0.0; 32])),
        }
    }
}

#[test]
fn a_later_step_that_cannot_be_submitted_ends_the_chain() {
    // The queue holds one request, and a completed step leaves it before the next is submitted.
    let (device, control, executable) = machine_with(1, two_steps());
    let (x, h, y) = (surface(&device), surface(&device), surface(&device));
    let chain = executable
        .prepare_chain(vec![
            Bindings::new().procedure("a").bind("x", &x).bind("h", &h),
            Bindings::new().procedure("b").bind("h", &h).bind("y", &y),
        ])
        .unwrap();
    chain.submit().unwrap().wait().unwrap();
    control.hold();
    let submission = chain.submit().unwrap();
    let reading = y.read().unwrap();
    control.release();
    let error = submission.wait().unwrap_err();
    assert_eq!((error.kind(), error.port()), (ErrorKind::Busy, Some("y")));
    drop(reading);
    chain.submit().unwrap().wait().unwrap();
}

#[test]
fn procedures_have_ports_of_their_own() {
    let (_, _, executable) = machine_with(1, two_steps());
    assert_eq!(executable.procedure("b").unwrap().id, 1);
    assert_eq!(executable.procedure("b").unwrap().port("y").unwrap().symbol, 0);
    assert_eq!(executable.procedure("a").unwrap().port("y").unwrap_err().port(), Some("y"));
    assert_eq!(executable.port("y").unwrap_err().message(), "no port `y`; there are x, h");
    assert_eq!(kind(executable.procedure("c")), ErrorKind::Binding);
    let (_, _, empty) = machine_with(1, Vec::new());
    assert_eq!(kind(empty.port("x")), ErrorKind::Binding);
    assert_eq!(kind(empty.prepare(Bindings::new())), ErrorKind::Binding);
}

#[test]
fn the_recorder_writes_every_call_and_its_failure() {
    let scripted = Scripted::new(|source| match source {
        ProgramSource::Compiled(_) => Err(Error::new(ErrorKind::InvalidProgram, "not this machine's")),
        _ => Ok(vec![main_procedure()]),
    });
    let scripted = scripted.unwrap();
    let control = scripted.control();
    let (device, record) = Device::new(scripted).recorded();
    let options = CompileOptions::labeled("bad");
    assert_eq!(kind(device.compile(ProgramSource::Compiled(b"abc"), &options)), ErrorKind::InvalidProgram);
    let executable = load(&device).unwrap();
    let b = bound(&device, &executable);
    b.request.evaluate().unwrap();
    control.fail(FailureStage::Run, scripted_error());
    assert_eq!(kind(b.request.evaluate()), ErrorKind::Evaluate);
    b.request.submit().unwrap().wait().unwrap();
    control.fail(FailureStage::Submit, Error::new(ErrorKind::QueueFull, "full"));
    assert_eq!(kind(b.request.submit()), ErrorKind::QueueFull);
    let event = device.events().unwrap().create().unwrap();
    event.signal(2);
    executable.unload().unwrap();
    let expected = [
        "compile bad: 3 compiled bytes -> E0601",
        "compile test: text of 12 bytes, 0 weights",
        "load test",
        "allocate s0 fp16 [1, 4, 1, 8] 64 bytes",
        "allocate s1 fp16 [1, 4, 1, 8] 64 bytes",
        "allocate s2 fp16 [1, 4, 1, 8] 64 bytes",
        "prepare r0: test.main x=s0 w=s1 y=s2",
        "evaluate r0",
        "evaluate r0 -> E0605",
        "submit r0",
        "done r0",
        "submit r0 -> E0609",
        "event e0",
        "signal e0=2",
        "unload test",
    ];
    assert_eq!(record.lines(), expected);
    record.clear();
    assert!(record.lines().is_empty());
}

#[test]
fn artifacts_can_be_loaded_more_than_once() {
    let device = Device::new(Scripted::new(|_| Ok(vec![main_procedure()])).unwrap());
    let source = ProgramSource::Text { mil: b"program(1.3)", weights: &Weights::new() };
    let artifact = device.compile(source, &CompileOptions::default()).unwrap();
    assert_eq!((artifact.key(), artifact.bytes()), ("text of 12 bytes", None));
    let (one, two) = (artifact.load().unwrap(), artifact.load().unwrap());
    one.unload().unwrap();
    bound(&device, &two).request.evaluate().unwrap();
}

/// A waker that counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_submission_is_a_future_that_wakes_the_task_that_asked_last() {
    let (device, control, executable) = machine();
    let b = bound(&device, &executable);
    let (first, last) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let ask = |submission: &mut Submission, bell: &Arc<Bell>| {
        Pin::new(submission).poll(&mut Context::from_waker(&Waker::from(bell.clone()))).map(|r: Result<_>| r.map(drop))
    };
    control.hold();
    let mut submission = b.request.submit().unwrap();
    assert!(ask(&mut submission, &first).is_pending());
    assert!(ask(&mut submission, &last).is_pending() && ask(&mut submission, &last).is_pending());
    // The slot has one clone of the last waker and none of the first.
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&last)), (1, 2));
    assert!(!submission.is_done());
    control.release();
    let begun = Instant::now();
    while last.rung() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the task was not woken");
        std::thread::yield_now();
    }
    assert!(submission.is_done());
    // A woken task finds every surface free.
    b.x.write_f32(&[1.0; 32]).unwrap();
    assert!(matches!(ask(&mut submission, &last), Poll::Ready(Ok(()))));
    assert_eq!((first.rung(), last.rung(), Arc::strong_count(&last)), (0, 1, 1));
    // The result is returned once, and polling again is an error instead of an endless wait.
    let Poll::Ready(again) = ask(&mut submission, &last) else { panic!("it waits for ever") };
    assert_eq!(kind(again), ErrorKind::System);
    assert_eq!(kind(submission.wait()), ErrorKind::System);

    // A failure is returned the same way, and a result that is available at the first poll leaves
    // no waker in the slot.
    control.fail(FailureStage::Run, scripted_error());
    let mut submission = b.request.submit().unwrap();
    while !submission.is_done() {
        std::thread::yield_now();
    }
    let Poll::Ready(result) = ask(&mut submission, &first) else { panic!("it is done") };
    assert_eq!(kind(result), ErrorKind::Evaluate);
    assert_eq!((first.rung(), Arc::strong_count(&first)), (0, 1));
}
