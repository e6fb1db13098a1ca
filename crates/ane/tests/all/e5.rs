//! The E5 path over the fake: programs that run, that silently do nothing, and that are refused.

use std::fs;
use std::path::PathBuf;

use ferrane_ane::bind::coreml::{Configuration, CoreModel, Features, PredictionOptions};
use ferrane_ane::bind::e5::{Compilation, Container, Engine, Library, Operation, functions};
use ferrane_ane::bind::foundation::{Text, Url, list, map, text as words};
use ferrane_ane::bind::{Object, Wrap as _};
use ferrane_ane::runtime::live;
use ferrane_ane_fake::{Call, Session, Silence, session};
use ferrane_device::{Bindings, CompileOptions, Device, ErrorKind, Executable, ProgramSource, ProgramState};
use ferrane_mil::package::{WriteOptions, write_package};
use ferrane_mil::{DataType, Weights};

use crate::path::{HEAD, bindings, compile, failure, text};

fn open() -> (Session, Device) {
    let session = session();
    (session, ferrane_ane_fake::open("path=e5").unwrap())
}

/// A program of one fp16 input `x` and one op with the result `y`.
fn one(op: &str) -> String {
    format!(
        "{HEAD}{{\n    func main<ios18>(tensor<fp16, [1, 2, 1, 4]> x) {{\n        \
         tensor<fp16, [1, 2, 1, 4]> y = {op}(x = x)[name = string(\"y\")];\n    }} -> (y);\n}}\n"
    )
}

/// Evaluates the program once.
fn run(device: &Device, executable: &Executable, x: &[f32]) -> ferrane_device::Result<Vec<f32>> {
    let surfaces = ["x", "y"].map(|p| device.surface(&executable.port(p).unwrap().layout).unwrap());
    surfaces[0].write_f32(x).unwrap();
    let bound = Bindings::new().bind("x", &surfaces[0]).bind("y", &surfaces[1]);
    executable.prepare(bound)?.evaluate()?;
    surfaces[1].read_f32()
}

const VALUES: [f32; 8] = [1.0, -2.5, 0.1, 65504.0, 6e-8, -0.0, 7.0, f32::INFINITY];

fn half(values: [f32; 8]) -> Vec<f32> {
    values.iter().map(|v| ferrane_host::f16::from_f32(*v).to_f32()).collect()
}

#[test]
fn a_program_goes_the_recipe_and_keeps_its_ports() {
    let (fake, device) = open();
    assert!(device.name().ends_with("(e5)"), "{}", device.name());
    let artifact = compile(&device, &text()).unwrap();
    let folder = std::env::temp_dir().join(artifact.key());
    assert!(fs::read_to_string(folder.join("model.mil")).unwrap().contains("tensor<fp32, [1, 4, 1, 8]> x"));
    assert!(folder.join("weights/w.bin").exists());
    let executable = artifact.load().unwrap();
    assert_eq!(executable.port("x").unwrap().layout.dtype, DataType::Fp16);
    let (bound, [x, a, y, b]) = bindings(&device, &executable);
    let values: Vec<f32> = (0..32).map(|i| i as f32 - 3.0).collect();
    x.write_f32(&values).unwrap();
    a.write_f32(&values[16..]).unwrap();
    let request = executable.prepare(bound).unwrap();
    request.evaluate().unwrap();
    assert_eq!((y.read_f32().unwrap(), b.read_f32().unwrap()), (values.clone(), values[16..].to_vec()));
    x.write_f32(&[0.5; 32]).unwrap();
    request.submit().unwrap().wait().unwrap();
    assert_eq!(y.read_f32().unwrap(), [0.5; 32]);
    executable.reload().unwrap();
    x.write_f32(&[4.0; 32]).unwrap();
    request.evaluate().unwrap();
    assert_eq!(y.read_f32().unwrap(), [4.0; 32]);
    executable.unload().unwrap();
    assert_eq!(failure(request.evaluate()).kind(), ErrorKind::Unloaded);
    assert_eq!(executable.state(), ProgramState::Created);

    // One borrowed model, one compile, an engine for each load, a prediction for each evaluation,
    // and no other calls.
    let counts = [Call::CompileModel, Call::CreateLibrary, Call::PrepareEngine, Call::Predict].map(|c| fake.count(c));
    assert_eq!(counts, [1, 1, 2, 3]);
    let others = [Call::Descriptor, Call::Compile, Call::Load, Call::Evaluate];
    assert_eq!(others.map(|c| fake.count(c)), [0; 4]);
    drop((artifact, executable, request));
    assert!(!folder.exists(), "the staged files are removed");
}

#[test]
fn every_element_type_crosses_the_boundary() {
    let (fake, device) = open();
    for own_arrays in [false, true] {
        if own_arrays {
            fake.without_backings();
        }
        let executable = compile(&device, &one("identity")).unwrap().load().unwrap();
        assert_eq!(run(&device, &executable, &VALUES).unwrap(), half(VALUES));
        let mixed = format!(
            "{HEAD}{{\n    func main<ios17>(tensor<fp32, [2, 3]> x, tensor<int32, [2, 3]> i, tensor<int8, [3]> c, tensor<fp16, []> s) {{\n\
             tensor<fp32, [2, 3]> y = relu(x = x)[name = string(\"y\")];\n\
             tensor<int32, [2, 3]> j = add(x = i, y = i)[name = string(\"j\")];\n\
             tensor<int8, [3]> d = identity(x = c)[name = string(\"d\")];\n\
             tensor<fp16, []> t = add(x = s, y = s)[name = string(\"t\")];\n\
             tensor<bool, [2, 3]> b = less(x = i, y = j)[name = string(\"b\")];\n    }} -> (y, j, d, t, b);\n}}\n"
        );
        let executable = compile(&device, &mixed).unwrap().load().unwrap();
        let procedure = executable.procedures()[0].clone();
        let surfaces = device.surfaces(&procedure).unwrap();
        let surface = |name: &str| &surfaces.iter().find(|(n, _)| *n == name).unwrap().1;
        let ints = |values: [i32; 6]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        surface("x").write_f32(&[1.5, -1.0, 3.0, -0.25, 5.0, 1e30]).unwrap();
        // Not exact in fp32, so a cast of int32 would be visible.
        let large = [16_777_217, -5, 0, 1_000_000_007, -16_777_219, 3];
        surface("i").write().unwrap().bytes_mut()[..24].copy_from_slice(&ints(large));
        surface("c").write().unwrap().bytes_mut()[..3].copy_from_slice(&[0x80, 0x7F, 0xFF]);
        surface("s").write_f32(&[0.75]).unwrap();
        let bound = surfaces.iter().fold(Bindings::new(), |b, (name, surface)| b.bind(*name, surface));
        executable.prepare(bound).unwrap().evaluate().unwrap();
        assert_eq!(surface("y").read_f32().unwrap(), [1.5, 0.0, 3.0, 0.0, 5.0, 1e30]);
        assert_eq!(surface("j").read().unwrap().bytes()[..24], ints(large.map(|v| 2 * v)));
        assert_eq!(surface("d").read().unwrap().bytes()[..3], [0x80, 0x7F, 0xFF]);
        assert_eq!(surface("t").read_f32().unwrap(), [1.5]);
        assert_eq!(surface("b").read().unwrap().bytes()[..6], [1, 0, 0, 1, 0, 1]);
    }
}

#[test]
fn functions_have_engines_of_their_own() {
    let (_fake, device) = open();
    let function =
        |name: &str, op: &str| one(op).split_once("{\n").unwrap().1.replace("main", name).replace("\n}\n", "\n");
    let text = format!("{HEAD}{{\n{}{}}}\n", function("main", "relu"), function("second", "abs"));
    let executable = compile(&device, &text).unwrap().load().unwrap();
    for (name, expected) in [("main", 0.0), ("second", 3.0)] {
        let procedure = executable.procedure(name).unwrap().clone();
        let [x, y] = [&procedure.inputs[0], &procedure.outputs[0]].map(|p| device.surface(&p.layout).unwrap());
        x.write_f32(&[-3.0; 8]).unwrap();
        let bound = Bindings::new().procedure(name).bind("x", &x).bind("y", &y);
        executable.prepare(bound).unwrap().evaluate().unwrap();
        assert_eq!(y.read_f32().unwrap(), [expected; 8], "{name}");
    }
}

#[test]
fn a_silent_no_op_is_an_error() {
    for how in [Silence::Untouched, Silence::Zeros] {
        for own_arrays in [false, true] {
            let (fake, device) = open();
            fake.silent(Some(how));
            if own_arrays {
                fake.without_backings();
            }
            let executable = compile(&device, &one("identity")).unwrap().load().unwrap();
            let error = failure(run(&device, &executable, &VALUES));
            assert_eq!(error.kind(), ErrorKind::Evaluate, "{how:?}");
            assert!(error.message().contains("silent no-op"), "{error}");
            assert!(error.remedy().contains("path=inmem"), "{}", error.remedy());
            // Each evaluation is examined until one computes.
            fake.silent(None);
            assert_eq!(run(&device, &executable, &VALUES).unwrap(), half(VALUES), "{how:?}");
        }
    }
}

#[test]
fn a_program_that_computes_zeros_is_not_refused() {
    let (fake, device) = open();
    let executable = compile(&device, &one("relu")).unwrap().load().unwrap();
    // Zeros from zeros are inconclusive: nothing is compiled to find out, and the next evaluation
    // is examined.
    assert_eq!(run(&device, &executable, &[0.0; 8]).unwrap(), [0.0; 8]);
    assert_eq!(fake.count(Call::CreateLibrary), 1);
    assert_eq!(run(&device, &executable, &[-1.0; 8]).unwrap(), [0.0; 8]);
    assert_eq!(fake.count(Call::CreateLibrary), 2, "the same program with an echo");
    assert_eq!(run(&device, &executable, &[-1.0; 8]).unwrap(), [0.0; 8]);
    assert_eq!((fake.count(Call::CreateLibrary), fake.count(Call::Predict)), (2, 4), "examined once");
    assert!(device.notes().is_empty());
    // A program whose echo cannot be compiled is trusted, with a note.
    let executable = compile(&device, &one("relu")).unwrap().load().unwrap();
    fake.fail(Call::CreateLibrary, "com.apple.CoreML", 0, "E5RT: no (1)");
    assert_eq!(run(&device, &executable, &[-1.0; 8]).unwrap(), [0.0; 8]);
    assert!(device.notes()[0].contains("E5RT: no (1)"), "{:?}", device.notes());
}

#[test]
fn what_the_path_cannot_do_is_refused() {
    let fake = session();
    let refused = |options: &str| failure(ferrane_ane_fake::open(options));
    for options in ["path=e5&dispatch=direct", "qos=3&path=e5", "path=e5&cache=off", "path=e6"] {
        assert_eq!(refused(options).kind(), ErrorKind::Option, "{options}");
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, b"").unwrap();
    fake.e5_cache(file.join("inside"));
    let error = refused("path=e5");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains(file.to_str().unwrap()) && error.message().contains("path=inmem"), "{error}");
    // The in-memory path does not need the cache.
    ferrane_ane_fake::open("path=inmem").unwrap();
    fake.e5_cache(place.path().to_path_buf());

    let device = ferrane_ane_fake::open("path=e5").unwrap();
    let options = CompileOptions::default();
    assert_eq!(failure(device.compile(ProgramSource::Compiled(b"abc"), &options)).kind(), ErrorKind::Unsupported);
    assert_eq!(failure(compile(&device, "program(1.3) nonsense")).kind(), ErrorKind::InvalidProgram);
    let unknown = one("identity").replace("[1, 2, 1, 4]", "[1, ?, 1, 4]");
    assert_eq!(failure(compile(&device, &unknown)).kind(), ErrorKind::Unsupported);
    let both = one("identity").replace("-> (y)", "-> (y, x)");
    let error = failure(compile(&device, &both));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("`x`"), "{error}");
    assert!(device.events().is_none());
    // A spent budget fails like other failures of Core ML.
    fake.budget(0);
    let error = failure(compile(&device, &one("identity")));
    assert!(error.message().contains("ANECCompile() FAILED"), "{error}");
}

#[test]
fn nothing_is_left_whatever_fails() {
    let (fake, device) = open();
    let folders = || {
        let names = fs::read_dir(std::env::temp_dir()).unwrap().flatten().map(|e| e.file_name());
        let ours = |n: &std::ffi::OsString| n.to_string_lossy().starts_with(&format!("fake-{}-", std::process::id()));
        names.filter(ours).count()
    };
    let key = compile(&device, &one("identity")).unwrap().key().to_string();
    let rounds =
        [None, Some(Call::CompileModel), Some(Call::CreateLibrary), Some(Call::PrepareEngine), Some(Call::Predict)];
    let mut before = None;
    for round in rounds.into_iter().chain([None]) {
        if let Some(call) = round {
            fake.fail(call, "com.apple.CoreML", 0, "E5RT: out of luck (7)");
        }
        let work = || {
            let executable = compile(&device, &one("identity"))?.load()?;
            run(&device, &executable, &VALUES)
        };
        let result = work();
        assert_eq!(result.is_err(), round.is_some(), "{round:?}");
        if let Err(error) = result {
            assert!(error.message().contains("out of luck") && error.domain() == Some("com.apple.CoreML"), "{error}");
        }
        assert!(!std::env::temp_dir().join(&key).exists(), "{round:?}");
        assert_eq!(folders(), 0, "{round:?}");
        assert_eq!(*before.get_or_insert_with(live), live(), "{round:?}");
    }
}

/// The recipe by hand, up to a library.
fn by_hand(folder: &PathBuf) -> (Library, Container, CoreModel, Configuration, Compilation) {
    let program = ferrane_mil::parse(one("identity").replace("fp16", "fp32"), &Weights::new()).unwrap();
    fs::create_dir_all(folder).unwrap();
    let path = |name: &str| words(folder.join(name).to_str().unwrap()).unwrap();
    let url = |path: &Text| Url::file(path).unwrap().unwrap();
    write_package(&program, folder.join("m.mlpackage"), &WriteOptions::default()).unwrap();
    fs::write(folder.join("model.mil"), ferrane_mil::print(&program)).unwrap();
    let compiled = CoreModel::compile(&url(&path("m.mlpackage"))).unwrap();
    let compiled_path = compiled.path().unwrap().unwrap();
    let configuration = Configuration::new().unwrap().unwrap();
    let text = url(&path("model.mil"));
    assert!(Container::at(&path("nowhere"), &configuration).unwrap().is_none());
    let container = Container::at(&compiled_path, &configuration).unwrap().unwrap();
    assert!(Compilation::of(&text, &container, &configuration).unwrap().is_none(), "not yet for the E5 runtime");
    configuration.set_compute_units(3).unwrap();
    configuration.set_e5_usage(1).unwrap();
    let compilation = Compilation::of(&text, &container, &configuration).unwrap().unwrap();
    let model = CoreModel::load(&compiled, &configuration).unwrap();
    let library = Library::with(&compilation, &container, &configuration).unwrap().unwrap();
    fs::remove_dir_all(compiled_path.read().unwrap()).unwrap();
    (library, container, model, configuration, compilation)
}

#[test]
fn steps_out_of_order_fail_and_hand_made_operations_are_silent() {
    let (_fake, _device) = open();
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().to_path_buf();
    let (library, _container, model, configuration, compilation) = by_hand(&folder);
    let description = model.description().unwrap().unwrap();
    let main = words("main").unwrap();
    let engine = |function: &Text| {
        Engine::with(&library, &description, &configuration, function, None, None, None).unwrap().unwrap()
    };
    let first = engine(&main);
    let nothing = Features::with(&map([]).unwrap()).unwrap();
    let options = PredictionOptions::new().unwrap().unwrap();
    assert_eq!(options.backings().unwrap().unwrap().keys().unwrap().unwrap().count().unwrap(), 0);
    assert!(failure(first.prepare(1)).message().contains("no handle"));
    compilation.compile(false).unwrap();
    assert!(failure(first.predict(&nothing, &options)).message().contains("not prepared"));
    assert!(failure(engine(&words("other").unwrap()).prepare(1)).message().contains("no function other"));
    first.prepare(1).unwrap();
    assert!(failure(first.predict(&nothing, &options)).message().contains("features"));
    assert!(first.library().unwrap().is_some() && first.operations().unwrap().is_none());

    let operation = Operation::with(&library, &main, &description, &configuration, None, 0).unwrap().unwrap();
    assert!(operation.outputs().unwrap().is_none());
    operation.bind(&nothing, &options).unwrap();
    let pool = first.streams().unwrap().unwrap();
    let stream = pool.take().unwrap().unwrap();
    let operations = list([&operation]).unwrap();
    stream.set_operations(&operations).unwrap();
    stream.execute(&nothing, &options).unwrap();
    assert_eq!(stream.operations().unwrap().unwrap().count().unwrap(), 1);
    let outputs = Features::wrap(operation.outputs().unwrap().unwrap());
    let y = outputs.value(&words("y").unwrap()).unwrap().unwrap().array().unwrap().unwrap();
    // SAFETY: an fp32 array with at least one element.
    assert_eq!(unsafe { y.data().unwrap().cast::<f32>().read() }, 0.0);

    let error = failure(operation.bind(&nothing, &options));
    assert!(error.message().contains("Port bindings cannot be changed while operation is in use"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Busy);
    stream.set_operations(&operations).unwrap();
    let error = failure(stream.execute(&nothing, &options));
    assert!(error.message().contains("Reset stream to add more operations to stream. (2)"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Busy);
    pool.put_back(&stream).unwrap();
    operation.bind(&nothing, &options).unwrap();
    pool.take().unwrap().unwrap().execute(&nothing, &options).unwrap();
}

#[test]
fn configurations_have_their_private_keys() {
    let (_fake, _device) = open();
    let configuration = Configuration::new().unwrap().unwrap();
    assert_eq!((configuration.e5_usage().unwrap(), configuration.device_mask().unwrap()), (0, 0));
    configuration.set_device_mask(4).unwrap();
    configuration.set_e5_usage(1).unwrap();
    assert_eq!((configuration.e5_usage().unwrap(), configuration.device_mask().unwrap()), (1, 4));
    let read = |text: Option<Text>| text.map(|t| t.read().unwrap());
    assert_eq!(read(configuration.compiler_options().unwrap()), None);
    assert_eq!(read(configuration.engine_options().unwrap()).unwrap(), "EnableLowEffortCPAllocation=true");
    configuration.set_compiler_options(Some(&words("TargetArchitecture=h16").unwrap())).unwrap();
    for options in [configuration.compiler_options().unwrap(), configuration.engine_options().unwrap()] {
        assert_eq!(read(options).unwrap(), "TargetArchitecture=h16");
    }
    configuration.set_compiler_options(None).unwrap();
    assert_eq!(read(configuration.compiler_options().unwrap()), None);
    assert!(configuration.dynamic_functions().unwrap().is_none());
    let not_features: Vec<(&str, Object)> = vec![("x", configuration.object().clone())];
    assert!(failure(Features::with(&map(not_features).unwrap())).message().contains("no dictionary of features"));
}

#[test]
fn functions_of_the_runtime_are_looked_for_and_never_called() {
    let (_fake, _device) = open();
    let found = functions().map(|(name, is_there)| (name.to_str().unwrap(), is_there));
    let expected = [
        ("e5rt_program_library_create", true),
        ("e5rt_execution_stream_create", true),
        ("e5rt_async_event_create", false),
        ("e5rt_async_event_signal", false),
    ];
    assert_eq!(found, expected);
}
