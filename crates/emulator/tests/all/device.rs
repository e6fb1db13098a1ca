//! The seam's promises: ports, errors, the queue, events, snapshots.

use std::sync::Arc;
use std::time::Duration;

use ferrane_device::backend::Event;
use ferrane_device::{Bindings, CompileOptions, Device, ErrorKind, Layout, ProgramSource, Surface};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_machine::Profile;
use ferrane_mil::{Arg, Builder, Constant, DataType, Opset, Program, ReducedDims, Type, Weights, print};

use crate::harness::{Tensor, emulator};

use DataType::{Fp16, Fp32, Int32};

fn doubling(shape: &[usize]) -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(Fp16, shape)).unwrap();
    let y = b.add("y", x, x).unwrap();
    b.finish(&[("y", y)]).unwrap()
}

fn surfaces(device: &Device, program: &Program) -> (ferrane_device::Executable, Surface, Surface) {
    let executable = device.load(program, "test").unwrap();
    let x = device.surface(&executable.port("x").unwrap().layout).unwrap();
    let y = device.surface(&executable.port("y").unwrap().layout).unwrap();
    (executable, x, y)
}

#[test]
fn ports_keep_the_programs_order_and_names() {
    let mut b = Builder::new("main", Opset::IOS18);
    let z = b.input("z", Type::tensor(Fp16, &[2, 3])).unwrap();
    let a = b.input("a", Type::tensor(Int32, &[4])).unwrap();
    let (p, q) = (b.relu("p", z).unwrap(), b.add("q", a, a).unwrap());
    let program = b.finish(&[("second", q), ("first", p)]).unwrap();
    let executable = emulator(Numerics::Fast).load(&program, "").unwrap();
    let procedure = &executable.procedures()[0];
    let names = |ports: &[ferrane_device::Port]| ports.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&procedure.inputs), names(&procedure.outputs)),
        (vec!["z".into(), "a".into()], vec!["second".into(), "first".into()])
    );
    assert_eq!(procedure.inputs[0].layout, Layout::packed(Fp16, &[2, 3]).unwrap());
}

#[test]
fn text_and_program_are_the_same_artifact() {
    let program = doubling(&[1, 4, 1, 8]);
    let device = emulator(Numerics::Fast);
    let text = print(&program);
    let options = CompileOptions::labeled("doubling");
    let from_text =
        device.compile(ProgramSource::Text { mil: text.as_bytes(), weights: &Weights::new() }, &options).unwrap();
    let from_program = device.compile(ProgramSource::Program(&program), &options).unwrap();
    assert_eq!(from_text.key(), from_program.key());
    let other = device.compile(ProgramSource::Program(&doubling(&[1, 4, 1, 9])), &options).unwrap();
    assert_ne!(other.key(), from_program.key());
    assert!(from_text.load().is_ok() && from_text.bytes().is_none());
}

#[test]
fn weights_count_in_the_key_and_are_snapshotted() {
    let with = |value: f32| {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(Fp16, &[4])).unwrap();
        let bytes: Vec<u8> = Tensor::new(Fp16, &[4], vec![value.into(); 4]).to_bytes();
        let w = b.weight("w", "@model_path/weights/w.bin", Fp16, &[4], bytes).unwrap();
        let y = b.add("y", x, w).unwrap();
        b.finish(&[("y", y)]).unwrap()
    };
    let device = emulator(Numerics::Fast);
    let key =
        |p: &Program| device.compile(ProgramSource::Program(p), &CompileOptions::default()).unwrap().key().to_string();
    assert_ne!(key(&with(1.0)), key(&with(2.0)));
    let program = with(3.0);
    let (executable, x, y) = surfaces(&device, &program);
    drop(program);
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap();
    // Inputs are read at every evaluation.
    for value in [1.0, 5.0] {
        x.write_f32(&[value; 4]).unwrap();
        request.evaluate().unwrap();
        assert_eq!(y.read_f32().unwrap(), [value + 3.0; 4]);
    }
}

fn kind_of(program: &Program) -> (ErrorKind, String) {
    let error = emulator(Numerics::Fast).load(program, "bad").map(|_| ()).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn wrong_programs_are_errors_with_their_op() {
    // A result type that is not what the op gives.
    let mut program = doubling(&[1, 4, 1, 8]);
    let y = program.functions[0].body().outputs[0];
    program.functions[0].values[y.index()].ty = Type::tensor(Fp16, &[1, 4, 1, 9]);
    let (kind, message) = kind_of(&program);
    assert_eq!(kind, ErrorKind::InvalidProgram);
    assert!(message.contains("bad") && message.contains("add"), "{message}");
    // An unknown op.
    let mut program = doubling(&[4]);
    let body = program.functions[0].body().ops[0];
    program.functions[0].ops[body.index()].name = "frobnicate".into();
    let (kind, message) = kind_of(&program);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(message.contains("frobnicate"), "{message}");
    // A value used before it is defined.
    let mut program = doubling(&[4]);
    let y = program.functions[0].body().outputs[0];
    let op = program.functions[0].body().ops[0];
    program.functions[0].ops[op.index()].args[0].1 = Arg::Value(y);
    assert_eq!(kind_of(&program).0, ErrorKind::InvalidProgram);
    // Text that is none.
    let device = emulator(Numerics::Exact);
    let source = ProgramSource::Text { mil: b"program(1.3) {", weights: &Weights::new() };
    assert_eq!(
        device.compile(source, &CompileOptions::default()).map(|_| ()).unwrap_err().kind(),
        ErrorKind::InvalidProgram
    );
    let source = ProgramSource::Compiled(b"\x00\x01");
    assert_eq!(
        device.compile(source, &CompileOptions::default()).map(|_| ()).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn errors_carry_the_engines_words() {
    use ferrane_device::catalog::{COMPILER, ENGINE};
    let device = emulator(Numerics::Fast);
    let text = |mil: &[u8]| {
        let source = ProgramSource::Text { mil, weights: &Weights::new() };
        device.compile(source, &CompileOptions::labeled("bad")).map(|_| ()).unwrap_err()
    };
    let words = |e: &ferrane_device::Error| (e.domain().map(str::to_string), e.raw_code(), e.status());
    // apple-runtime §4: InvalidMILProgram, ANECCompile() FAILED, status 0x1d.
    let invalid = text(b"program(1.3) {");
    assert_eq!((invalid.kind(), words(&invalid)), (ErrorKind::InvalidProgram, (Some(COMPILER.into()), Some(1), None)));
    let unknown = text(print(&doubling(&[4])).replace("add(", "frobnicate(").as_bytes());
    assert_eq!((unknown.kind(), words(&unknown)), (ErrorKind::Unsupported, (Some(COMPILER.into()), Some(1), None)));
    let (executable, x, _) = surfaces(&device, &doubling(&[1, 4, 1, 8]));
    let small = device.surface(&Layout::packed(Fp16, &[1, 4, 1, 7]).unwrap()).unwrap();
    let mismatch = executable.prepare(Bindings::new().bind("x", &x).bind("y", &small)).map(|_| ()).unwrap_err();
    assert_eq!(words(&mismatch), (Some(ENGINE.into()), Some(8), Some(0x1d)));
    assert_eq!((mismatch.kind(), mismatch.port()), (ErrorKind::Binding, Some("y")));
    assert!(mismatch.to_string().ends_with("[com.apple.appleneuralengine code 8 status=0x1d]"), "{mismatch}");
}

#[test]
fn what_the_emulator_lacks_is_unsupported_with_a_reason() {
    let build = |f: &dyn Fn(&mut Builder)| {
        let mut b = Builder::new("main", Opset::IOS18);
        f(&mut b);
        let x = b.input("last", Type::tensor(Fp16, &[1])).unwrap();
        let y = b.relu("y", x).unwrap();
        kind_of(&b.finish(&[("y", y)]).unwrap())
    };
    let (kind, message) = build(&|b| {
        b.input("open", Type::Tensor { dtype: Fp16, shape: vec![ferrane_mil::Dim::Unknown] }).unwrap();
    });
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(message.contains("open"), "{message}");
    let (kind, _) = build(&|b| {
        b.input("empty", Type::tensor(Fp16, &[3, 0])).unwrap();
    });
    assert_eq!(kind, ErrorKind::Unsupported);
    // Shapes that nothing can hold.
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(Fp16, &[1 << 20])).unwrap();
    let x = b.reshape("column", x, &[1 << 20, 1]).unwrap();
    let row = b.reshape("row", x, &[1, 1 << 20]).unwrap();
    let huge = b.add("huge", x, row).unwrap();
    let wide = b.reshape("again", huge, &[1 << 20, 1 << 20, 1]).unwrap();
    let cube = b.op("tile", "cube", [("x", wide.into()), ("reps", Constant::int32s(&[1, 1, 1 << 30]).into())]).unwrap();
    let y = b.reduce_sum("y", cube, &[0, 1, 2], ReducedDims::Drop).unwrap();
    let (kind, _) = kind_of(&b.finish(&[("y", y)]).unwrap());
    assert!(matches!(kind, ErrorKind::Unsupported | ErrorKind::OutOfMemory), "{kind:?}");
}

#[test]
fn bindings_that_do_not_fit_are_errors() {
    let device = emulator(Numerics::Fast);
    let (executable, x, y) = surfaces(&device, &doubling(&[1, 4, 1, 8]));
    let wrong = |b: Bindings| executable.prepare(b).map(|_| ()).unwrap_err().kind();
    let small = device.surface(&Layout::packed(Fp16, &[1, 4, 1, 7]).unwrap()).unwrap();
    let other = device.surface(&Layout::packed(Fp32, &[1, 4, 1, 8]).unwrap()).unwrap();
    assert_eq!(wrong(Bindings::new().bind("x", &small).bind("y", &y)), ErrorKind::Binding);
    assert_eq!(wrong(Bindings::new().bind("x", &other).bind("y", &y)), ErrorKind::Binding);
    assert_eq!(wrong(Bindings::new().bind("x", &x)), ErrorKind::Binding);
    assert_eq!(wrong(Bindings::new().bind("x", &x).bind("y", &x)), ErrorKind::Binding);
    assert_eq!(wrong(Bindings::new().bind("x", &x).bind("y", &y).procedure("other")), ErrorKind::Binding);
}

#[test]
fn indices_out_of_range_fail_the_evaluation() {
    let device = emulator(Numerics::Fast);
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(Fp16, &[3, 2])).unwrap();
    let i = b.input("i", Type::tensor(Int32, &[2])).unwrap();
    let y = b.gather("y", x, i, 0).unwrap();
    let program = b.finish(&[("y", y)]).unwrap();
    let (executable, x, y) = surfaces(&device, &program);
    let i = device.surface(&executable.port("i").unwrap().layout).unwrap();
    i.write().unwrap().bytes_mut().copy_from_slice(&[3, 0, 0, 0, 1, 0, 0, 0]);
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("i", &i).bind("y", &y)).unwrap();
    let error = request.evaluate().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Evaluate);
    assert!(error.to_string().contains("index 3"), "{error}");
    // The request and its surfaces are free again.
    i.write().unwrap().bytes_mut()[0] = 2;
    request.evaluate().unwrap();
}

#[test]
fn an_unloaded_program_runs_no_more() {
    let device = emulator(Numerics::Fast);
    let (executable, x, y) = surfaces(&device, &doubling(&[4]));
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap();
    executable.unload().unwrap();
    assert_eq!(request.evaluate().unwrap_err().kind(), ErrorKind::Unloaded);
    assert_eq!(request.submit().map(|_| ()).unwrap_err().kind(), ErrorKind::Unloaded);
    assert_eq!(executable.unload().unwrap_err().kind(), ErrorKind::Unloaded);
    let again = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).map(|_| ());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Unloaded);
}

#[test]
fn a_chain_of_requests_runs_in_order_and_the_queue_has_an_end() {
    let depth = Profile::named(Profile::DEFAULT).unwrap().queue_depth.value;
    let device = emulator(Numerics::Fast);
    let program = doubling(&[4]);
    let executable = device.load(&program, "").unwrap();
    let layout = executable.port("x").unwrap().layout.clone();
    let gate = device.events().unwrap().create().unwrap();
    let mut chain = Vec::new();
    // The first waits for the gate; all others queue after it.
    for i in 0..=depth {
        let (x, y) = (device.surface(&layout).unwrap(), device.surface(&layout).unwrap());
        x.write_f32(&[i as f32; 4]).unwrap();
        let mut bindings = Bindings::new().bind("x", &x).bind("y", &y);
        if i == 0 {
            bindings = bindings.wait(&gate, 1);
        }
        chain.push((executable.prepare(bindings).unwrap(), x, y));
    }
    let mut submitted = Vec::new();
    for (request, ..) in &chain[..depth] {
        submitted.push(request.submit().unwrap());
    }
    let full = chain[depth].0.submit().map(|_| ()).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QueueFull);
    // In flight, surfaces are taken.
    assert_eq!(chain[0].2.read().map(|_| ()).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(chain[0].1.write().map(|_| ()).unwrap_err().kind(), ErrorKind::Busy);
    assert!(!submitted[0].is_done());
    gate.signal(1);
    for (i, s) in submitted.into_iter().enumerate() {
        s.wait().unwrap();
        assert_eq!(chain[i].2.read_f32().unwrap(), [2.0 * i as f32; 4]);
    }
    chain[depth].0.submit().unwrap().wait().unwrap();
}

#[test]
fn requests_raise_events_and_waiting_ends() {
    let mut options = EmulatorOptions::default();
    options.event_timeout = Duration::from_millis(30);
    let device = Device::new(Emulator::new(options));
    let (executable, x, y) = surfaces(&device, &doubling(&[4]));
    let done = device.events().unwrap().create().unwrap();
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y).signal(&done, 7)).unwrap();
    let submission = request.submit().unwrap();
    assert!(done.wait(7, Duration::from_secs(20)));
    submission.wait().unwrap();
    assert_eq!(done.value(), 7);
    assert!(!done.wait(8, Duration::from_millis(5)));
    let never: Arc<dyn Event> = device.events().unwrap().create().unwrap();
    let stuck = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y).wait(&never, 1)).unwrap();
    assert_eq!(stuck.submit().unwrap().wait().unwrap_err().kind(), ErrorKind::Evaluate);
    assert_eq!(stuck.evaluate().unwrap_err().kind(), ErrorKind::Evaluate);
}

#[test]
fn requests_of_one_program_run_side_by_side() {
    let device = emulator(Numerics::Fast);
    let executable = device.load(&doubling(&[64, 100]), "").unwrap();
    let layout = executable.port("x").unwrap().layout.clone();
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (executable, device, layout) = (&executable, &device, &layout);
            scope.spawn(move || {
                let (x, y) = (device.surface(layout).unwrap(), device.surface(layout).unwrap());
                let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap();
                for i in 0..20 {
                    x.write_f32(&vec![(t * 20 + i) as f32; 6400]).unwrap();
                    request.evaluate().unwrap();
                    assert!(y.read_f32().unwrap().iter().all(|&v| v == 2.0 * (t * 20 + i) as f32));
                }
            });
        }
    });
}

#[test]
fn several_functions_are_several_procedures() {
    let mut program = doubling(&[4]);
    let mut second = doubling(&[6]).functions.remove(0);
    second.name = "second".into();
    program.functions.push(second);
    let device = emulator(Numerics::Fast);
    let executable = device.load(&program, "").unwrap();
    assert_eq!(
        executable.procedures().iter().map(|p| (p.name.as_str(), p.id)).collect::<Vec<_>>(),
        [("main", 0), ("second", 1)]
    );
    let layout = &executable.procedures()[1].inputs[0].layout;
    let (x, y) = (device.surface(layout).unwrap(), device.surface(layout).unwrap());
    x.write_f32(&[1.5; 6]).unwrap();
    let bindings = Bindings::new().procedure("second").bind("x", &x).bind("y", &y);
    executable.prepare(bindings).unwrap().evaluate().unwrap();
    assert_eq!(y.read_f32().unwrap(), [3.0; 6]);
}

#[test]
fn an_output_may_be_an_input_or_a_constant_or_twice_the_same() {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(Fp16, &[2, 2])).unwrap();
    let c = b
        .constant("c", Constant::raw(Fp16, &[2, 2], &Tensor::new(Fp16, &[2, 2], vec![1.0, 2.0, 3.0, 4.0]).to_bytes()))
        .unwrap();
    let t = b.transpose("t", c, &[1, 0]).unwrap();
    let s = b.add("s", t, t).unwrap();
    let program = b.finish(&[("same", x), ("turned", t), ("sum", s), ("again", s)]).unwrap();
    for numerics in crate::harness::BOTH {
        let input = Tensor::new(Fp16, &[2, 2], vec![5.0, 6.0, 7.0, 8.0]);
        let found = crate::harness::run(numerics, &program, &[input]).unwrap();
        let values: Vec<&[f64]> = found.iter().map(|t| &*t.values).collect();
        assert_eq!(
            values,
            [&[5.0, 6.0, 7.0, 8.0], &[1.0, 3.0, 2.0, 4.0], &[2.0, 6.0, 4.0, 8.0], &[2.0, 6.0, 4.0, 8.0]]
        );
    }
}
