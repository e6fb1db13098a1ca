//! Limits, the life of a program, and faults.

use std::path::Path;

use ferrane_device::{Bindings, CompileOptions, Device, ErrorKind, Executable, ProgramSource, ProgramState, Surface};
use ferrane_emulator::{Emulator, EmulatorOptions, Faults, Limits, ProcessCounts};
use ferrane_machine::Profile;
use ferrane_machine::profile::Limit;
use ferrane_mil::{Builder, DataType, Opset, Program, Type, Weights, parse};

use crate::harness::Tensor;

use DataType::Fp16;

/// An enforcing emulator of an M4 with other values, in a process of its own.
fn enforcing(values: &str) -> EmulatorOptions {
    let mut options = EmulatorOptions::default();
    let text = format!("[[overlay]]\n[overlay.set]\n{values}");
    options.profile = Profile::measured("m4-macos15-inmem", &text).unwrap();
    options.limits = Limits::Enforce;
    options.process = ProcessCounts::default();
    options
}

fn open(options: &EmulatorOptions) -> Device {
    Device::new(Emulator::new(options.clone()))
}

fn with_faults(text: &str) -> Device {
    let mut options = EmulatorOptions::default();
    options.faults = Faults::parse(text).unwrap();
    options.process = ProcessCounts::default();
    open(&options)
}

/// Adds a weight to its input, so that each number is another program.
fn adding(value: f32) -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(Fp16, &[1, 3, 1, 5])).unwrap();
    let bytes = Tensor::new(Fp16, &[1], vec![value.into()]).to_bytes();
    let w = b.weight("w", "@model_path/weights/w.bin", Fp16, &[1], bytes).unwrap();
    let y = b.add("y", x, w).unwrap();
    b.finish(&[("y", y)]).unwrap()
}

struct Run {
    executable: Executable,
    x: Surface,
    y: Surface,
    request: ferrane_device::Request,
}

impl Run {
    fn new(device: &Device, program: &Program) -> Run {
        Run::over(device, device.load(program, "run").unwrap())
    }

    fn over(device: &Device, executable: Executable) -> Run {
        let surfaces = device.surfaces(&executable.procedures()[0]).unwrap();
        let find = |name| surfaces.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        let (x, y) = (find("x"), find("y"));
        let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap();
        Run { executable, x, y, request }
    }

    /// What comes of ones.
    fn ones(&self) -> Result<Vec<f32>, ferrane_device::Error> {
        self.x.write_f32(&[1.0; 15])?;
        self.request.evaluate()?;
        self.y.read_f32()
    }
}

#[track_caller]
fn status(result: Result<Vec<f32>, ferrane_device::Error>) -> Option<u32> {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Evaluate, "{error}");
    assert!(error.message().contains("ANEProgramProcessRequestDirect() Failed"), "{error}");
    error.status()
}

fn ports(ports: &[ferrane_device::Port]) -> Vec<(&str, u32)> {
    ports.iter().map(|p| (p.name.as_str(), p.symbol)).collect()
}

/// Inputs `b` of 8, `a` of 16, `c` of 8 elements; outputs `q` of 16, `p` of 8.
const SEVERAL: &str = r#"
    func main<ios18>(tensor<fp16, [2, 4]> b, tensor<fp16, [4, 4]> a, tensor<fp16, [2, 4]> c) {
        tensor<fp16, [4, 4]> q = add(x = a, y = a)[name = string("q")];
        tensor<fp16, [2, 4]> p = sub(x = b, y = c)[name = string("p")];
    } -> (q, p);"#;

/// The same function with an input whose extent is not known to a plan, so that it is interpreted.
const INTERPRETED: &str = r#"
    func main<ios18>(tensor<fp16, [2, 4]> b, tensor<fp16, [4, 4]> a, tensor<fp16, [2, 4]> c) {
        tensor<fp16, [4, 4]> q = add(x = a, y = a)[name = string("q")];
        tensor<int32, [2]> shape = shape(x = b)[name = string("shape")];
        tensor<fp16, [2, 4]> same = reshape(x = b, shape = shape)[name = string("same")];
        tensor<fp16, [2, 4]> p = sub(x = same, y = c)[name = string("p")];
    } -> (q, p);"#;

fn read(function: &str) -> Program {
    parse(format!("program(1.3)\n{{\n{function}\n}}\n"), &Weights::new()).unwrap()
}

#[test]
fn ports_come_as_the_profile_orders_and_pads_them_and_compute_the_same() {
    let orders: [(&str, [&str; 3], [&str; 2]); 4] = [
        ("declaration", ["b", "a", "c"], ["q", "p"]),
        ("alphabetical", ["a", "b", "c"], ["p", "q"]),
        ("ascending-size", ["b", "c", "a"], ["p", "q"]),
        ("descending-size", ["a", "b", "c"], ["q", "p"]),
    ];
    for (order, inputs, outputs) in orders {
        for (function, alignment) in [(SEVERAL, 1), (SEVERAL, 64), (INTERPRETED, 1), (INTERPRETED, 64)] {
            let values = format!(
                "input_order = {{ value = '{order}' }}\noutput_order = {{ value = '{order}' }}\nrow_alignment = {{ value = {alignment} }}\n\
                 [overlay.ops]\nshape = {{ value = 'native' }}"
            );
            let device = open(&enforcing(&values));
            let executable = device.load(&read(function), order).unwrap();
            let procedure = &executable.procedures()[0];
            let numbered = |names: &[&'static str]| names.iter().copied().zip(0..).collect::<Vec<_>>();
            assert_eq!(ports(&procedure.inputs), numbered(&inputs), "{order}");
            assert_eq!(ports(&procedure.outputs), numbered(&outputs), "{order}");
            let stride = if alignment == 64 { 64 } else { 8 };
            assert!(procedure.ports().all(|p| p.layout.strides == [stride, 2]), "{order} {alignment}");
            let mut bindings = Bindings::new();
            let surfaces = device.surfaces(procedure).unwrap();
            for (name, surface) in &surfaces {
                bindings = bindings.bind(*name, surface);
            }
            let find = |name| &surfaces.iter().find(|(n, _)| *n == name).unwrap().1;
            let ramp = |from: usize, n: usize| (from..from + n).map(|i| i as f32).collect::<Vec<_>>();
            find("a").write_f32(&ramp(0, 16)).unwrap();
            find("b").write_f32(&ramp(100, 8)).unwrap();
            find("c").write_f32(&ramp(0, 8)).unwrap();
            executable.prepare(bindings).unwrap().evaluate().unwrap();
            assert_eq!(find("q").read_f32().unwrap(), ramp(0, 16).iter().map(|v| 2.0 * v).collect::<Vec<_>>());
            assert_eq!(find("p").read_f32().unwrap(), [100.0; 8]);
        }
    }
}

#[test]
fn without_limits_ports_stay_as_they_are_declared() {
    let mut options = enforcing("input_order = { value = 'alphabetical' }\nrow_alignment = { value = 64 }");
    options.limits = Limits::Off;
    let executable = open(&options).load(&read(SEVERAL), "").unwrap();
    assert_eq!(ports(&executable.procedures()[0].inputs), [("b", 0), ("a", 1), ("c", 2)]);
    assert!(executable.procedures()[0].ports().all(|p| p.layout.is_packed()));
}

#[test]
fn surfaces_that_the_machine_does_not_take_fail_the_evaluation() {
    let small = "min_surface = { value = 16384 }";
    for limits in [Limits::Off, Limits::Warn, Limits::Enforce] {
        let mut options = enforcing(small);
        options.limits = limits;
        let device = open(&options);
        let run = Run::new(&device, &adding(2.0));
        assert_eq!(run.x.layout().allocation, 16384);
        assert_eq!(run.ones().unwrap(), [3.0; 15]);
        // As the port alone says it is too small.
        let tight = device.surface(&run.executable.port("x").unwrap().layout).unwrap();
        let request = run.executable.prepare(Bindings::new().bind("x", &tight).bind("y", &run.y)).unwrap();
        let result = request.evaluate().map(|_| Vec::new());
        match limits {
            Limits::Enforce => assert_eq!(status(result), Some(0x1d)),
            _ => assert!(result.is_ok()),
        }
        let notes = device.notes();
        let told = notes.iter().any(|n| n.contains("the surface of `x` has 30 bytes") && n.contains("16384"));
        assert_eq!((told, notes.is_empty()), (limits == Limits::Warn, limits != Limits::Warn), "{notes:?}");
    }
}

#[test]
fn inputs_and_outputs_of_several_sizes_fail_where_one_size_is_wanted() {
    let uniform = "uniform_inputs = { value = true }\nuniform_outputs = { value = true }";
    let device = open(&enforcing(uniform));
    let executable = device.load(&read(SEVERAL), "").unwrap();
    let procedure = &executable.procedures()[0];
    let run = |odd: &str| {
        let mut bindings = Bindings::new();
        for port in procedure.ports() {
            let layout =
                if port.name == odd { port.layout.clone() } else { device.fitted(procedure, &port.name).unwrap() };
            bindings = bindings.bind(&port.name, &device.surface(&layout).unwrap());
        }
        executable.prepare(bindings).unwrap().evaluate().map(|_| Vec::new())
    };
    run("").unwrap();
    // The largest of each side has the size of all anyway.
    run("a").unwrap();
    assert_eq!(status(run("b")), Some(0x1d));
    assert_eq!(status(run("p")), Some(0x1d));
}

#[test]
fn a_spent_budget_fails_compiles_and_then_loads_and_a_new_process_has_another() {
    let mut options = enforcing("compile_budget = { value = 3 }\nbudget_returns = { value = false }");
    let device = open(&options);
    let compile =
        |device: &Device, value| device.compile(ProgramSource::Program(&adding(value)), &CompileOptions::labeled("k"));
    let first = compile(&device, 1.0).unwrap();
    let third = [2.0, 3.0].map(|v| compile(&device, v).unwrap());
    third[0].load().unwrap();
    // Known by its key: free.
    compile(&device, 2.0).unwrap();
    let error = compile(&device, 4.0).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.raw_code()), (ErrorKind::CompileBudget, Some(1)));
    assert!(
        error.message().contains("ANECCompile() FAILED") && error.remedy().contains("restart the process"),
        "{error}"
    );
    let error = first.load().map(drop).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::CompileBudget, Some(0x20004)));
    // Another device is the same process; unloading helps nothing here.
    drop((first, third));
    assert!(compile(&open(&options), 5.0).is_err());
    options.process = ProcessCounts::default();
    compile(&open(&options), 5.0).unwrap();
}

#[test]
fn what_is_unloaded_is_given_back_where_the_profile_says_so() {
    let options = enforcing("compile_budget = { value = 2 }\nbudget_returns = { value = true }");
    let device = open(&options);
    for value in 0..20 {
        let executable = device.load(&adding(value as f32), "").unwrap();
        if value % 2 == 0 {
            executable.unload().unwrap();
        }
    }
    assert_eq!(options.process.compiles(), 0);
    let held = [1.0, 2.0].map(|v| device.load(&adding(v), "").unwrap());
    assert_eq!(device.load(&adding(3.0), "").map(drop).unwrap_err().kind(), ErrorKind::CompileBudget);
    held[0].unload().unwrap();
    device.load(&adding(3.0), "").unwrap();
}

#[test]
fn a_budget_that_is_asked_for_needs_no_limits_and_a_warning_fails_nothing() {
    let mut options = EmulatorOptions::default();
    (options.budget, options.process) = (Some(Limit(Some(1))), ProcessCounts::default());
    let device = open(&options);
    device.load(&adding(1.0), "").unwrap();
    assert_eq!(device.load(&adding(2.0), "").map(drop).unwrap_err().kind(), ErrorKind::CompileBudget);
    (options.limits, options.process) = (Limits::Warn, ProcessCounts::default());
    let device = open(&options);
    let held = [1.0, 2.0, 3.0].map(|v| device.load(&adding(v), "").unwrap());
    assert!(device.notes().iter().any(|n| n.contains("the budget is 1")), "{:?}", device.notes());
    drop(held);
}

#[test]
fn so_many_programs_are_loaded_at_a_time() {
    let device = open(&enforcing("max_loaded = { value = 2 }"));
    let mut held = [1.0, 2.0].map(|v| device.load(&adding(v), "").unwrap()).to_vec();
    let artifact = device.compile(ProgramSource::Program(&adding(3.0)), &CompileOptions::default()).unwrap();
    let error = artifact.load().map(drop).unwrap_err();
    assert_eq!((error.kind(), error.raw_code(), error.status()), (ErrorKind::Load, Some(6), Some(0x20004)));
    assert_eq!(artifact.state(), ProgramState::Error);
    held[0].unload().unwrap();
    held.push(artifact.load().unwrap());
    // A reload gives its own place back first.
    held[2].reload().unwrap();
    drop(held);
    device.load(&adding(4.0), "").unwrap();
}

#[test]
fn states_of_a_life() {
    let device = open(&enforcing(""));
    let artifact = device.compile(ProgramSource::Program(&adding(1.0)), &CompileOptions::default()).unwrap();
    assert_eq!(artifact.state(), ProgramState::Compiled);
    let executable = artifact.load().unwrap();
    assert_eq!((artifact.state(), executable.state() as u8), (ProgramState::Loaded, 3));
    executable.unload().unwrap();
    assert_eq!((artifact.state(), executable.state() as u8), (ProgramState::Created, 1));
    let faulty = with_faults("load:2=fail");
    let executable = faulty.load(&adding(1.0), "").unwrap();
    assert_eq!(executable.reload().unwrap_err().kind(), ErrorKind::Load);
    assert_eq!(executable.state() as u8, 5);
}

/// Overwrites the weight in a staged folder.
fn overwrite(folder: &Path, program: &Program) {
    let files = program.weights.files();
    std::fs::write(folder.join("weights/w.bin"), &files[0].1[..]).unwrap();
}

#[test]
fn overwritten_weights_count_after_a_reload_where_the_profile_says_so() {
    for (effective, expected) in [(false, 3.0), (true, 8.0)] {
        let folder = tempfile::tempdir().unwrap();
        let mut options = enforcing(&format!("weights_reload = {{ value = {effective} }}"));
        options.staging = Some(folder.path().into());
        let device = open(&options);
        let artifact = device.compile(ProgramSource::Program(&adding(2.0)), &CompileOptions::default()).unwrap();
        let run = Run::over(&device, artifact.load().unwrap());
        assert_eq!(run.ones().unwrap(), [3.0; 15]);
        let staged = folder.path().join(artifact.key());
        overwrite(&staged, &adding(7.0));
        assert_eq!(run.ones().unwrap(), [3.0; 15], "nothing is read before a load");
        run.executable.reload().unwrap();
        assert_eq!(run.ones().unwrap(), [expected; 15]);
        run.executable.unload().unwrap();
        assert_eq!(Run::over(&device, artifact.load().unwrap()).ones().unwrap(), [expected; 15]);
        assert_eq!(options.process.compiles(), 1);
        // Files that hold no weights.
        std::fs::write(staged.join("weights/w.bin"), b"short").unwrap();
        let loaded = artifact.load().map(drop);
        match effective {
            true => assert_eq!(loaded.unwrap_err().status(), Some(0x20004)),
            false => loaded.unwrap(),
        }
    }
}

#[test]
fn a_kept_folder_is_a_compile_that_was_done_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = enforcing("compile_budget = { value = 2 }");
    options.staging = Some(folder.path().into());
    // Each restarted process gets two programs further.
    for process in 1..=3 {
        options.process = ProcessCounts::default();
        let device = open(&options);
        let values: Vec<f32> = (0..6).map(|v| v as f32).collect();
        let done = values.iter().take_while(|v| device.load(&adding(**v), "").is_ok()).count();
        assert_eq!(done, 2 * process);
    }
    let kept: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let whole = kept.iter().filter(|f| f.join("net.plist").exists()).collect::<Vec<_>>();
    assert_eq!(whole.len(), 6);
    for folder in &whole {
        let list = std::fs::read_to_string(folder.join("net.plist")).unwrap();
        assert!(list.contains("<string>x</string>") && list.ends_with("</plist>\n"), "{list}");
        assert!(std::fs::read_to_string(folder.join("model.mil")).unwrap().contains("func main"));
        // One payload of one fp16 number.
        assert_eq!(std::fs::read(folder.join("data")).unwrap().len(), 2);
    }
    // A folder that is not whole does not count.
    for folder in whole {
        std::fs::write(folder.join("data"), b"??").unwrap();
    }
    options.process = ProcessCounts::default();
    let device = open(&options);
    assert_eq!((0..6).take_while(|v| device.load(&adding(*v as f32), "").is_ok()).count(), 2);
}

#[test]
fn a_spoilt_process_fails_until_the_device_is_opened_again() {
    let ops = "\n[overlay.ops]\ntile = { value = 'poisons' }\nexp = { value = 'fails-at-evaluation' }";
    let options = enforcing(ops);
    let device = open(&options);
    let clean = Run::new(&device, &adding(1.0));
    let one = |op: &str| {
        read(&format!(
            "func main<ios18>(tensor<fp16, [1, 15]> x) {{\n tensor<fp16, [1, 15]> y = {op}[name = string(\"y\")];\n}} -> (y);"
        ))
    };
    let failing = Run::new(&device, &one("exp(x = x)"));
    assert_eq!(status(failing.ones()), Some(0x1d));
    clean.ones().unwrap();
    let tile = Run::new(&device, &one("tile(x = x, reps = tensor<int32, [2]>([1, 1]))"));
    assert_eq!(tile.ones().unwrap(), [1.0; 15]);
    for run in [&clean, &tile] {
        assert_eq!(status(run.ones()), Some(0x1d));
    }
    Run::new(&open(&options), &adding(1.0)).ones().unwrap();
    let mut off = options;
    off.limits = Limits::Off;
    let device = open(&off);
    let tile = Run::new(&device, &one("tile(x = x, reps = tensor<int32, [2]>([1, 1]))"));
    for _ in 0..2 {
        tile.ones().unwrap();
    }
}

#[test]
fn faults_fail_what_they_name_with_the_engines_words() {
    let device =
        with_faults("compile:2=fail; compile:3=invalid; compile:4=budget; load:2=0x20004; load:3=budget; load:4=0x77");
    let kind = |value| device.load(&adding(value), "k").map(drop).map_err(|e| (e.kind(), e.raw_code(), e.status()));
    kind(1.0).unwrap();
    for expected in [ErrorKind::Unsupported, ErrorKind::InvalidProgram, ErrorKind::CompileBudget] {
        assert_eq!(kind(1.0).unwrap_err(), (expected, Some(1), None));
    }
    assert_eq!(kind(1.0).unwrap_err(), (ErrorKind::Load, Some(6), Some(0x20004)));
    assert_eq!(kind(1.0).unwrap_err(), (ErrorKind::CompileBudget, Some(6), Some(0x20004)));
    assert_eq!(kind(1.0).unwrap_err(), (ErrorKind::Load, Some(6), Some(0x77)));
    kind(1.0).unwrap();

    let device = with_faults("evaluate:2=0x1d; evaluate:every 5=fail; evaluate:3=delay 30ms");
    let run = Run::new(&device, &adding(1.0));
    let mut found = Vec::new();
    for n in 1..=10 {
        let begun = std::time::Instant::now();
        match run.ones() {
            Ok(values) => assert_eq!(values, [2.0; 15]),
            Err(error) => found.push((n, error.status())),
        }
        assert!(n != 3 || begun.elapsed().as_millis() >= 30);
    }
    assert_eq!(found, [(2, Some(0x1d)), (5, Some(0x16)), (10, Some(0x16))]);
    let error = Run::new(&with_faults("evaluate:1=0x1d"), &adding(1.0)).ones().unwrap_err();
    assert!(error.message().contains("fault `evaluate:1=0x1d`"), "{error}");
}

#[test]
fn corrupted_outputs_differ_in_one_element_and_always_the_same() {
    let different = |faults: &str| {
        let run = Run::new(&with_faults(faults), &adding(1.0));
        let outputs: Vec<Vec<f32>> = (0..4).map(|_| run.ones().unwrap()).collect();
        outputs
            .iter()
            .map(|o| o.iter().copied().enumerate().filter(|(_, v)| *v != 2.0).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let once = different("evaluate:2=corrupt 0x8000");
    assert_eq!(once.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 0, 0]);
    assert_eq!(once[1][0].1, -2.0);
    assert_eq!(different("evaluate:2=corrupt 0x8000"), once);
    let each = different("evaluate:from 1=nan");
    assert!(each.iter().all(|o| o.len() == 1 && o[0].1.is_nan()));
    assert!(each.windows(2).any(|w| w[0][0].0 != w[1][0].0), "not always the same element");
}

#[test]
fn reversed_ports_are_other_symbols_and_the_same_results() {
    let device = with_faults("ports=reverse");
    let executable = device.load(&read(SEVERAL), "").unwrap();
    let procedure = &executable.procedures()[0];
    assert_eq!(ports(&procedure.inputs), [("c", 0), ("a", 1), ("b", 2)]);
    assert_eq!(ports(&procedure.outputs), [("p", 0), ("q", 1)]);
}

#[test]
fn a_submitted_evaluation_meets_its_fault_and_the_queue_goes_on() {
    let device = with_faults("evaluate:2=0x16");
    let run = Run::new(&device, &adding(1.0));
    let other = Run::over(&device, run.executable.clone());
    let third = Run::over(&device, run.executable.clone());
    let submitted = [&run, &other, &third].map(|r| r.request.submit().unwrap());
    let ends = submitted.map(|s| s.wait().map(drop).map_err(|e| e.status()));
    assert_eq!(ends, [Ok(()), Err(Some(0x16)), Ok(())]);
}

#[test]
fn under_a_pace_an_evaluation_takes_what_the_machine_would() {
    let mut options = EmulatorOptions::default();
    options.pace = true;
    let wall = |options: &EmulatorOptions| Run::new(&open(options), &adding(1.0)).request.evaluate().unwrap().wall;
    // Fifteen sums take the floor of a dispatch, 0.07 to 0.1 ms on an M4 (benchmarks §15).
    assert!(wall(&options) >= std::time::Duration::from_micros(60));
    options.pace = false;
    let best = (0..20).map(|_| wall(&options)).min().unwrap();
    assert!(best < std::time::Duration::from_micros(60), "{best:?}");
}

#[test]
fn under_a_pace_compiles_loads_and_requests_in_flight_take_what_the_machine_would() {
    let mut options = EmulatorOptions::default();
    options.pace = true;
    let device = open(&options);
    let begun = std::time::Instant::now();
    let run = Run::new(&device, &adding(1.0));
    // A compile is 20 to 40 ms (apple-runtime §10), the first load of a process 15.6 ms (benchmarks
    // §9).
    assert!(begun.elapsed() >= std::time::Duration::from_millis(30), "{:?}", begun.elapsed());
    run.request.evaluate().unwrap();
    let alone = run.request.evaluate().unwrap().hardware.unwrap();
    let other = Run::over(&device, run.executable.clone());
    // The engine runs them one after the other; the second overlaps with the first (benchmarks
    // §15.3) if it is submitted before that ends, which this thread may be too late for.
    let overlap = (0..500).any(|_| {
        let begun = std::time::Instant::now();
        let submitted = [&run, &other].map(|r| r.request.submit().unwrap());
        let [first, second] = submitted.map(|s| s.wait().unwrap().hardware.unwrap());
        assert!(begun.elapsed() >= first + second);
        assert_eq!(first, alone);
        (0.6..0.75).contains(&(second.as_secs_f64() / alone.as_secs_f64()))
    });
    assert!(overlap, "no request overlapped with the one before");
}
