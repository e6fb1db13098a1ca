//! Cases of the contract: behavior that is the same on every backend.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ferrane_device::{
    Bindings, CompileOptions, Device, ErrorKind, Executable, Layout, ProgramSource, Request, Result, Surface,
};
use ferrane_mil::{DataType, Weights};

use super::{Case, Outcome, Promise, Rounding, expect, function, load, named, program, surfaces, words};

const X: &str = "tensor<fp16, [1, 4, 1, 8]>";
const N: usize = 32;

/// A program of one function, `y = x`.
fn copy() -> String {
    program(&function(
        "main",
        &format!("{X} x"),
        &format!("        {X} y = identity(x = x)[name = string(\"y\")];"),
        "y",
    ))
}

/// A program of two functions, `main` and `second`, both `y = x`; each has port names of its own.
fn two() -> String {
    let one = |name: &str, x: &str, y: &str| {
        let statement = format!("        {X} {y} = identity(x = {x})[name = string(\"{y}\")];");
        function(name, &format!("{X} {x}"), &statement, y)
    };
    program(&(one("main", "x", "h") + &one("second", "u", "v")))
}

/// A loaded copying program with its surfaces and a prepared request.
struct Copy {
    executable: Executable,
    x: Surface,
    y: Surface,
    request: Request,
}

fn copying(device: &Device) -> std::result::Result<Copy, String> {
    let executable = load(device, &copy()).map_err(words)?;
    let bound = executable.bind(None).map_err(words)?;
    let surface = |port| bound.surface(port).cloned().map_err(words);
    Ok(Copy { x: surface("x")?, y: surface("y")?, request: bound.request().clone(), executable })
}

fn ramp() -> Vec<f32> {
    (0..N).map(|i| i as f32 - 7.5).collect()
}

fn fails<T>(what: &str, result: Result<T>, kind: ErrorKind) -> Outcome {
    match result {
        Ok(_) => Err(format!("{what} succeeded, expected {kind:?}")),
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(format!("{what}: {error}, expected {kind:?}")),
    }
}

pub(super) fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, promise: Promise::Contract, run };
    vec![
        case("a copy keeps every finite bit pattern", bits),
        case("new surfaces are zero", zeroed),
        case("ports have the program's names, types and extents", ports),
        case("inputs are read at every evaluation", read_each_time),
        case("a submitted request does what an evaluated one does", submitted),
        case("a submitted request can be awaited", awaited),
        case("wrong bindings are refused", bindings_refused),
        case("surfaces in use are busy", busy),
        case("requests share one output surface in turn", shared_output),
        case("an unloaded program runs nothing", unloaded),
        case("an artifact can be loaded more than once", loaded_twice),
        case("a stored artifact compiles to the same program", stored),
        case("text that is no program is refused", invalid),
        case("a program equals its text", program_and_text),
        case("procedures are chosen by name", procedures),
        case("a chain hands surfaces on", chained),
        case("events start and end a request", events),
    ]
}

fn bits(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    // Signed zeros, subnormals, the largest finite values, infinities, and patterns in between.
    let words: Vec<u16> = (0..N as u16)
        .map(|i| match i {
            0 => 0x0000,
            1 => 0x8000,
            2 => 0x0001,
            3 => 0x83ff,
            4 => 0x7bff,
            5 => 0xfbff,
            6 => 0x7c00,
            7 => 0xfc00,
            _ => (i * 1823) & 0x7bff,
        })
        .collect();
    let layout = c.x.layout().clone();
    {
        let mut access = c.x.write().map_err(self::words)?;
        for (r, row) in words.chunks(8).enumerate() {
            let bytes: Vec<u8> = row.iter().flat_map(|w| w.to_le_bytes()).collect();
            access.row_mut(r).ok_or("a row is missing")?.copy_from_slice(&bytes);
        }
    }
    c.request.evaluate().map_err(self::words)?;
    let access = c.y.read().map_err(self::words)?;
    for (r, row) in words.chunks(8).enumerate() {
        let bytes: Vec<u8> = row.iter().flat_map(|w| w.to_le_bytes()).collect();
        expect(&format!("row {r} of {:?}", layout.shape), access.row(r), Some(&bytes[..]))?;
    }
    Ok(())
}

fn zeroed(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    let all = |s: &Surface| s.read().map(|a| a.bytes().iter().all(|b| *b == 0)).map_err(words);
    expect("x and y are zero", (all(&c.x)?, all(&c.y)?), (true, true))
}

fn ports(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    let procedure = c.executable.procedure("main").map_err(words)?;
    let names: Vec<_> = procedure.ports().map(|p| p.name.as_str()).collect();
    expect("ports", names, vec!["x", "y"])?;
    for port in procedure.ports() {
        expect("type", port.layout.dtype, DataType::Fp16)?;
        expect("extents", &port.layout.shape[..], &[1, 4, 1, 8])?;
        port.layout.check().map_err(words)?;
    }
    fails("an unknown port", c.executable.port("z"), ErrorKind::Binding)?;
    fails("an unknown procedure", c.executable.procedure("z"), ErrorKind::Binding)
}

fn read_each_time(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    for value in [1.0, 2.0, -3.0] {
        c.x.write_f32(&[value; N]).map_err(words)?;
        c.request.evaluate().map_err(words)?;
        expect("y", c.y.read_f32().map_err(words)?, vec![value; N])?;
    }
    Ok(())
}

fn submitted(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    for _ in 0..3 {
        c.x.write_f32(&ramp()).map_err(words)?;
        c.request.submit().map_err(words)?.wait().map_err(words)?;
        expect("y", c.y.read_f32().map_err(words)?, ramp())?;
        c.y.write_f32(&[0.0; N]).map_err(words)?;
    }
    Ok(())
}

/// Wakes a task by unparking the thread that polls it.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

fn awaited(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    for round in 1..=3u8 {
        c.x.write_f32(&[f32::from(round); N]).map_err(words)?;
        let mut submission = c.request.submit().map_err(words)?;
        let patience = Instant::now();
        let result = loop {
            match Pin::new(&mut submission).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => break result,
                Poll::Pending if patience.elapsed() > Duration::from_secs(10) => {
                    return Err("the waker was never called".into());
                }
                Poll::Pending => thread::park_timeout(Duration::from_secs(10)),
            }
        };
        result.map_err(words)?;
        expect("y", c.y.read_f32().map_err(words)?, vec![f32::from(round); N])?;
    }
    Ok(())
}

fn bindings_refused(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    let surface = |layout: Result<Layout>| layout.and_then(|l| device.surface(&l)).map_err(words);
    let other = surface(Layout::packed(DataType::Fp16, &[1, 8, 1, 4]))?;
    let wide = surface(Layout::packed(DataType::Fp32, &[1, 4, 1, 8]))?;
    let prepare = |b: Bindings| c.executable.prepare(b);
    let x = || Bindings::new().bind("x", &c.x);
    fails("a missing port", prepare(x()), ErrorKind::Binding)?;
    fails("an unknown port", prepare(x().bind("y", &c.y).bind("z", &other)), ErrorKind::Binding)?;
    fails("a port bound twice", prepare(x().bind("x", &c.x).bind("y", &c.y)), ErrorKind::Binding)?;
    fails("another shape", prepare(x().bind("y", &other)), ErrorKind::Binding)?;
    fails("another type", prepare(x().bind("y", &wide)), ErrorKind::Binding)?;
    fails("an output that is an input", prepare(x().bind("y", &c.x)), ErrorKind::Binding)?;
    fails("an unknown procedure", prepare(x().bind("y", &c.y).procedure("z")), ErrorKind::Binding)
}

fn busy(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    c.x.write_f32(&ramp()).map_err(words)?;
    let reading = c.y.read().map_err(words)?;
    fails("an output that is read", c.request.evaluate(), ErrorKind::Busy)?;
    fails("an output that is read", c.request.submit().map(|_| ()), ErrorKind::Busy)?;
    drop(reading);
    let writing = c.x.write().map_err(words)?;
    fails("an input that is written", c.request.evaluate(), ErrorKind::Busy)?;
    fails("a surface that is written", c.x.read(), ErrorKind::Busy)?;
    drop(writing);
    c.request.evaluate().map_err(words)?;
    expect("y", c.y.read_f32().map_err(words)?, ramp())
}

fn shared_output(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    let mut layers = Vec::new();
    for _ in 0..3 {
        let x = device.surface(c.x.layout()).map_err(words)?;
        let request = c.executable.prepare(Bindings::new().bind("x", &x).bind("y", &c.y)).map_err(words)?;
        layers.push((x, request));
    }
    for (i, (x, _)) in layers.iter().enumerate() {
        x.write_f32(&[i as f32; N]).map_err(words)?;
    }
    for (i, (_, request)) in layers.iter().enumerate() {
        request.evaluate().map_err(words)?;
        expect("the layer's output", c.y.read_f32().map_err(words)?, vec![i as f32; N])?;
    }
    Ok(())
}

fn unloaded(device: &Device, _: Rounding) -> Outcome {
    let c = copying(device)?;
    c.request.evaluate().map_err(words)?;
    c.executable.unload().map_err(words)?;
    fails("an evaluation", c.request.evaluate(), ErrorKind::Unloaded)?;
    fails("a submit", c.request.submit().map(|_| ()), ErrorKind::Unloaded)?;
    fails("a second unload", c.executable.unload(), ErrorKind::Unloaded)?;
    let prepared = c.executable.prepare(Bindings::new().bind("x", &c.x).bind("y", &c.y));
    fails("a prepare", prepared, ErrorKind::Unloaded)?;
    // The failed calls hold no guards on the surfaces.
    c.x.write().map_err(words)?;
    c.y.write().map(|_| ()).map_err(words)
}

fn loaded_twice(device: &Device, _: Rounding) -> Outcome {
    let text = copy();
    let source = ProgramSource::Text { mil: text.as_bytes(), weights: &Weights::new() };
    let artifact = device.compile(source, &CompileOptions::default()).map_err(words)?;
    artifact.load().and_then(|e| e.unload()).map_err(words)?;
    let again = artifact.load().map_err(words)?;
    let bound = again.bind(None).map_err(words)?;
    bound.surface("x").and_then(|x| x.write_f32(&ramp())).map_err(words)?;
    bound.evaluate().map_err(words)?;
    expect("y", bound.read("y").map_err(words)?.to_f32(), ramp())
}

fn stored(device: &Device, _: Rounding) -> Outcome {
    let text = copy();
    let options = CompileOptions::default();
    let compile = |source: ProgramSource<'_>| device.compile(source, &options);
    let one = compile(ProgramSource::Text { mil: text.as_bytes(), weights: &Weights::new() }).map_err(words)?;
    let two = compile(ProgramSource::Text { mil: text.as_bytes(), weights: &Weights::new() }).map_err(words)?;
    expect("keys of equal programs", one.key(), two.key())?;
    let other = copy().replace("identity", "relu");
    let other = compile(ProgramSource::Text { mil: other.as_bytes(), weights: &Weights::new() }).map_err(words)?;
    expect("other programs have the same key", one.key() == other.key(), false)?;
    match one.bytes() {
        // A device need not be able to store what it compiled.
        None => Ok(()),
        Some(bytes) => {
            let read = compile(ProgramSource::Compiled(&bytes)).map_err(words)?;
            expect("key", read.key(), one.key())?;
            read.load().map(|_| ()).map_err(words)
        }
    }
}

fn invalid(device: &Device, _: Rounding) -> Outcome {
    let undefined = copy().replace("x = x", "x = nowhere");
    for text in ["", "program(1.3)", "\u{1f980}", &undefined] {
        fails(&format!("{text:?}"), load(device, text), ErrorKind::InvalidProgram)?;
    }
    let bytes = ProgramSource::Text { mil: &[0xff, 0x00], weights: &Weights::new() };
    fails("bytes", device.compile(bytes, &CompileOptions::default()), ErrorKind::InvalidProgram)
}

fn program_and_text(device: &Device, _: Rounding) -> Outcome {
    let program = ferrane_mil::parse(copy(), &Weights::new()).map_err(|e| e.to_string())?;
    let executable = device.load(&program, "case").map_err(words)?;
    let from_text = load(device, &copy()).map_err(words)?;
    expect("procedures", executable.procedures(), from_text.procedures())
}

fn procedures(device: &Device, _: Rounding) -> Outcome {
    let executable = load(device, &two()).map_err(words)?;
    let second = executable.procedure("second").map_err(words)?;
    let surface = |port| device.fitted(second, port).and_then(|layout| device.surface(&layout)).map_err(words);
    let (u, v) = (surface("u")?, surface("v")?);
    u.write_f32(&ramp()).map_err(words)?;
    let request = executable.prepare(Bindings::new().procedure("second").bind("u", &u).bind("v", &v));
    request.and_then(|r| r.evaluate()).map_err(words)?;
    expect("v", v.read_f32().map_err(words)?, ramp())?;
    // The ports of one are not those of the other.
    fails(
        "ports of `second` at `main`",
        executable.prepare(Bindings::new().bind("u", &u).bind("v", &v)),
        ErrorKind::Binding,
    )
}

fn chained(device: &Device, _: Rounding) -> Outcome {
    let executable = load(device, &two()).map_err(words)?;
    let first = executable.procedures().first().ok_or("no procedure")?;
    let layout = device.fitted(first, "x").map_err(words)?;
    let surface = || device.surface(&layout).map_err(words);
    let (x, h, y) = (surface()?, surface()?, surface()?);
    let steps = vec![
        Bindings::new().bind("x", &x).bind("h", &h),
        Bindings::new().procedure("second").bind("u", &h).bind("v", &y),
    ];
    let chain = executable.prepare_chain(steps).map_err(words)?;
    x.write_f32(&ramp()).map_err(words)?;
    chain.evaluate().map_err(words)?;
    expect("evaluated", y.read_f32().map_err(words)?, ramp())?;
    x.write_f32(&[1.0; N]).map_err(words)?;
    chain.submit().map_err(words)?.wait().map_err(words)?;
    expect("submitted", y.read_f32().map_err(words)?, vec![1.0; N])
}

fn events(device: &Device, _: Rounding) -> Outcome {
    // Events are optional: a device without them passes.
    let Some(events) = device.events() else { return Ok(()) };
    let (go, end) = (events.create().map_err(words)?, events.create().map_err(words)?);
    let executable = load(device, &copy()).map_err(words)?;
    let (bindings, surfaces) = surfaces(device, &executable).map_err(words)?;
    named(&surfaces, "x")?.write_f32(&ramp()).map_err(words)?;
    let request = executable.prepare(bindings.wait(&go, 2).signal(&end, 5)).map_err(words)?;
    let submission = request.submit().map_err(words)?;
    go.signal(1);
    expect("done before its event", end.wait(5, Duration::from_millis(10)), false)?;
    go.signal(2);
    expect("its end is signaled", end.wait(5, Duration::from_secs(10)), true)?;
    submission.wait().map_err(words)?;
    expect("y", named(&surfaces, "y")?.read_f32().map_err(words)?, ramp())
}
