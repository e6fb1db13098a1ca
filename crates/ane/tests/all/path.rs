//! A program through every stage, its calls, and every failure.

use ferrane_ane_fake::{Call, Session, session, surface::locks_out};
use ferrane_device::{
    Bindings, CompileOptions, Device, Error, ErrorKind, Executable, Foreign, Layout, ProgramSource, Result, Surface,
};
use ferrane_mil::{DataType, Weights};

pub const HEAD: &str = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n";

/// Two inputs and two outputs whose order by name differs from the program's.
pub fn text() -> String {
    format!(
        "{HEAD}{{\n    func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x, tensor<fp16, [1, 2, 1, 8]> a) {{\n        \
         tensor<fp16, [1, 4, 1, 8]> y = identity(x = x)[name = string(\"y\")];\n        \
         tensor<fp16, [1, 2, 1, 8]> b = identity(x = a)[name = string(\"b\")];\n    }} -> (y, b);\n}}\n"
    )
}

pub fn open() -> (Session, Device) {
    let session = session();
    (session, ferrane_ane_fake::open("").unwrap())
}

pub fn weights() -> Weights {
    let mut weights = Weights::new();
    weights.add("@model_path/weights/w.bin", DataType::Fp16, vec![0u8, 60, 0, 64]);
    weights
}

pub fn compile(device: &Device, text: &str) -> Result<ferrane_device::Artifact> {
    device.compile(ProgramSource::Text { mil: text.as_bytes(), weights: &weights() }, &CompileOptions::labeled("test"))
}

fn surface(device: &Device, executable: &Executable, port: &str) -> Surface {
    device.surface(&executable.port(port).unwrap().layout).unwrap()
}

pub fn bindings(device: &Device, executable: &Executable) -> (Bindings, [Surface; 4]) {
    let surfaces = ["x", "a", "y", "b"].map(|port| surface(device, executable, port));
    let [x, a, y, b] = &surfaces;
    (Bindings::new().bind("x", x).bind("a", a).bind("y", y).bind("b", b), surfaces)
}

pub fn failure<T>(result: Result<T>) -> Error {
    result.map(|_| ()).unwrap_err()
}

#[test]
fn a_program_goes_through_every_stage() {
    let (fake, device) = open();
    let artifact = compile(&device, &text()).unwrap();
    let folder = std::env::temp_dir().join(artifact.key());
    assert_eq!(std::fs::read(folder.join("model.mil")).unwrap(), text().as_bytes());
    let blob = std::fs::read(folder.join("weights/w.bin")).unwrap();
    assert_eq!(blob, weights().files()[0].1[..]);
    let executable = artifact.load().unwrap();

    // The fake reports ports sorted by name, and so does the executable.
    let procedure = executable.procedure("main").unwrap();
    let names = |ports: &[ferrane_device::Port]| ports.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&procedure.inputs), ["a", "x"]);
    assert_eq!(names(&procedure.outputs), ["b", "y"]);
    assert_eq!(procedure.port("x").unwrap().symbol, 1);

    let (bindings, [x, a, y, b]) = bindings(&device, &executable);
    let values: Vec<f32> = (0..32).map(|i| i as f32).collect();
    x.write_f32(&values).unwrap();
    a.write_f32(&values[16..]).unwrap();
    let request = executable.prepare(bindings).unwrap();
    request.evaluate().unwrap();
    assert_eq!((y.read_f32().unwrap(), b.read_f32().unwrap()), (values.clone(), values[16..].to_vec()));
    x.write_f32(&[0.5; 32]).unwrap();
    request.submit().unwrap().wait().unwrap();
    assert_eq!(y.read_f32().unwrap(), [0.5; 32]);

    let Foreign::IoSurface(address) = x.memory().foreign() else { panic!("not an IOSurface") };
    let reading = x.read().unwrap();
    assert_eq!(locks_out(address), 1);
    drop(reading);
    assert_eq!(locks_out(address), 0);

    executable.unload().unwrap();
    assert_eq!(failure(request.evaluate()).kind(), ErrorKind::Unloaded);
    let counts = [Call::Descriptor, Call::Compile, Call::Load, Call::Evaluate, Call::Unload].map(|c| fake.count(c));
    assert_eq!(counts, [1, 1, 1, 2, 1]);
    drop((artifact, executable, request));
    assert!(!folder.exists(), "the staged files are removed");
    assert_eq!(fake.count(Call::Unload), 1, "unloaded once");
}

#[test]
fn a_built_program_is_printed_staged_and_run() {
    let (_fake, device) = open();
    let program = ferrane_mil::parse(text(), &Weights::new()).unwrap();
    let executable = device.load(&program, "test").unwrap();
    let (bindings, [x, _, y, _]) = bindings(&device, &executable);
    x.write_f32(&[2.0; 32]).unwrap();
    executable.prepare(bindings).unwrap().evaluate().unwrap();
    assert_eq!(y.read_f32().unwrap(), [2.0; 32]);
}

#[test]
fn an_artifact_loads_again_without_a_compile() {
    let (fake, device) = open();
    let artifact = compile(&device, &text()).unwrap();
    artifact.load().unwrap().unload().unwrap();
    let again = artifact.load().unwrap();
    let (bindings, _) = bindings(&device, &again);
    again.prepare(bindings).unwrap().evaluate().unwrap();
    assert_eq!((fake.count(Call::Compile), fake.count(Call::Load)), (1, 2));
}

#[test]
fn a_dropped_executable_is_unloaded() {
    let (fake, device) = open();
    drop(compile(&device, &text()).unwrap().load().unwrap());
    assert_eq!(fake.count(Call::Unload), 1);
}

#[test]
fn two_procedures_have_indices_of_their_own() {
    let (_fake, device) = open();
    let function = |name: &str, x: &str, y: &str| {
        format!(
            "    func {name}<ios18>(tensor<fp16, [1, 4, 1, 8]> {x}) {{\n        \
             tensor<fp16, [1, 4, 1, 8]> {y} = identity(x = {x})[name = string(\"{y}\")];\n    }} -> ({y});\n"
        )
    };
    let text = format!("{HEAD}{{\n{}{}}}\n", function("main", "x0", "y0"), function("second", "x1", "y1"));
    let executable = compile(&device, &text).unwrap().load().unwrap();
    let second = executable.procedure("second").unwrap().clone();
    assert_eq!((second.id, second.inputs[0].symbol, second.outputs[0].symbol), (1, 1, 1));
    let (x, y) =
        (device.surface(&second.inputs[0].layout).unwrap(), device.surface(&second.outputs[0].layout).unwrap());
    x.write_f32(&[3.0; 32]).unwrap();
    let bindings = Bindings::new().procedure("second").bind("x1", &x).bind("y1", &y);
    executable.prepare(bindings).unwrap().evaluate().unwrap();
    assert_eq!(y.read_f32().unwrap(), [3.0; 32]);
}

#[test]
fn failures_of_the_framework_are_those_of_the_catalog() {
    const ENGINE: &str = "com.apple.appleneuralengine";
    let (fake, device) = open();
    fake.fail(Call::Compile, "com.apple.appleneuralengine.compiler", 1, "_ANECompiler : ANECCompile() FAILED err=()");
    let error = failure(compile(&device, &text()));
    assert_eq!((error.kind(), error.raw_code()), (ErrorKind::Unsupported, Some(1)));
    assert_eq!(error.domain(), Some("com.apple.appleneuralengine.compiler"));

    let artifact = compile(&device, &text()).unwrap();
    // The retry covers one failure; two are an error.
    fake.fail(Call::Load, ENGINE, 6, "program load failure status 0x20004");
    artifact.load().unwrap();
    for _ in 0..2 {
        fake.fail(Call::Load, ENGINE, 6, "program load failure status 0x20004");
    }
    let error = failure(artifact.load());
    assert_eq!((error.kind(), error.status()), (ErrorKind::Load, Some(0x20004)));

    let executable = artifact.load().unwrap();
    let (bindings, [x, _, y, _]) = bindings(&device, &executable);
    let request = executable.prepare(bindings).unwrap();
    let text = "ANEProgramProcessRequestDirect() Failed with status=0x1d : statusType=0x9: Program Inference error";
    fake.fail(Call::Evaluate, ENGINE, 8, text);
    let error = failure(request.evaluate());
    assert_eq!((error.kind(), error.status()), (ErrorKind::Evaluate, Some(0x1d)));
    assert!(error.remedy().contains("ports"), "{}", error.remedy());
    fake.fail(Call::Evaluate, ENGINE, 8, text);
    assert_eq!(failure(request.submit().unwrap().wait()).status(), Some(0x1d));
    x.write().unwrap();
    y.write().unwrap();

    fake.fail(Call::Unload, ENGINE, 99, "no");
    assert_eq!(failure(executable.unload()).kind(), ErrorKind::System);
    request.evaluate().unwrap();
    executable.unload().unwrap();

    fake.fail(Call::CreateSurface, ENGINE, 0, "");
    assert_eq!(failure(device.surface(x.layout())).kind(), ErrorKind::OutOfMemory);
    fake.fail(Call::Descriptor, ENGINE, 0, "");
    assert_eq!(failure(compile(&device, &self::text())).kind(), ErrorKind::InvalidProgram);
}

#[test]
fn what_the_standard_path_cannot_do_is_refused() {
    let (_fake, device) = open();
    let options = CompileOptions::default();
    assert_eq!(failure(device.compile(ProgramSource::Compiled(b"abc"), &options)).kind(), ErrorKind::Unsupported);
    assert_eq!(failure(compile(&device, "program(1.3) nonsense")).kind(), ErrorKind::InvalidProgram);
    let not_utf8 = ProgramSource::Text { mil: &[0xff, 0xfe], weights: &Weights::new() };
    assert_eq!(failure(device.compile(not_utf8, &options)).kind(), ErrorKind::InvalidProgram);
    let mut outside = Weights::new();
    outside.add("@model_path/../w.bin", DataType::Fp16, vec![0u8, 0]);
    let mil = text();
    let source = ProgramSource::Text { mil: mil.as_bytes(), weights: &outside };
    let error = failure(device.compile(source, &options));
    assert_eq!(error.kind(), ErrorKind::InvalidProgram);

    let executable = compile(&device, &text()).unwrap().load().unwrap();
    let (bindings, [_, a, y, b]) = bindings(&device, &executable);
    let scripted = Device::new(ferrane_scripted::Scripted::new(|_| Ok(Vec::new())).unwrap());
    drop(bindings);
    let foreign = scripted.surface(&Layout::packed(DataType::Fp16, &[1, 4, 1, 8]).unwrap()).unwrap();
    let error =
        failure(executable.prepare(Bindings::new().bind("x", &foreign).bind("a", &a).bind("y", &y).bind("b", &b)));
    assert_eq!((error.kind(), error.port()), (ErrorKind::Binding, Some("x")));
}
