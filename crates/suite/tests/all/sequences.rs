//! Five published call sequences, written against the seam only.
//!
//! Each is a function of a [`Device`] and does not depend on which backend it gets. The recorder
//! shows that the calls are those of the published program and the same on every backend.

use std::time::Duration;

use ferrane_device::{
    Bindings, CallRecord, CompileOptions, Device, Error, ErrorKind, Layout, Port, Procedure, ProgramSource, Result,
    Surface,
};
use ferrane_emulator::Numerics;
use ferrane_mil::{DataType, Weights};
use ferrane_scripted::{Scripted, procedure};
use ferrane_suite::cases::{function, program};

use crate::devices::emulator;

const X: &str = "tensor<fp16, [1, 8, 1, 16]>";
const SHAPE: [usize; 4] = [1, 8, 1, 16];
const N: usize = 128;

fn copy(name: &str, x: &str, y: &str) -> String {
    let statement = format!("        {X} {y} = identity(x = {x})[name = string(\"{y}\")];");
    function(name, &format!("{X} {x}"), &statement, y)
}

fn compile(device: &Device, label: &str, text: &str) -> Result<ferrane_device::Executable> {
    let source = ProgramSource::Text { mil: text.as_bytes(), weights: &Weights::new() };
    device.compile(source, &CompileOptions::labeled(label))?.load()
}

fn packed(device: &Device) -> Result<Surface> {
    device.surface(&Layout::packed(DataType::Fp16, &SHAPE)?)
}

/// Runs a sequence on every backend that supports it; the recorded calls must be the same on all.
fn on_every_backend(
    sequence: impl Fn(&Device),
    script: fn(&ProgramSource<'_>) -> Result<Vec<Procedure>>,
) -> Vec<String> {
    let recorded = |device: Device| -> Vec<String> {
        let (device, record): (Device, CallRecord) = device.recorded();
        sequence(&device);
        record.lines()
    };
    let lines = recorded(Device::new(Scripted::new(script).unwrap()));
    assert_eq!(recorded(emulator(Numerics::Fast)), lines);
    assert_eq!(recorded(emulator(Numerics::Exact)), lines);
    #[cfg(not(target_vendor = "apple"))]
    {
        let _fake = ferrane_ane_fake::session();
        assert_eq!(recorded(ferrane_ane_fake::open("").unwrap()), lines);
    }
    lines
}

/// (a) One kernel for all layers: an input surface and a request for each layer, one shared output
/// surface that is read before the next layer runs (training-dynamic §5).
#[test]
fn requests_per_layer_share_an_output() {
    let lines = on_every_backend(
        |device| {
            let wo = compile(device, "woFwd", &program(&copy("main", "x", "out"))).unwrap();
            let out = packed(device).unwrap();
            let layers: Vec<_> = (0..3)
                .map(|_| {
                    let x = packed(device).unwrap();
                    let request = wo.prepare(Bindings::new().bind("x", &x).bind("out", &out)).unwrap();
                    (x, request)
                })
                .collect();
            // Staged once, used in every step.
            for (i, (x, _)) in layers.iter().enumerate() {
                x.write_f32(&[i as f32 + 1.0; N]).unwrap();
            }
            for _step in 0..2 {
                for (i, (_, request)) in layers.iter().enumerate() {
                    request.evaluate().unwrap();
                    assert_eq!(out.read_f32().unwrap(), [i as f32 + 1.0; N]);
                }
            }
            wo.unload().unwrap();
        },
        |_| Ok(vec![procedure("main", 0, &[("x", &SHAPE)], &[("out", &SHAPE)])?]),
    );
    let evaluations: Vec<_> = lines.iter().filter(|l| l.starts_with("evaluate")).collect();
    assert_eq!(evaluations, ["evaluate r0", "evaluate r1", "evaluate r2", "evaluate r0", "evaluate r1", "evaluate r2"]);
    let prepared: Vec<_> = lines.iter().filter(|l| l.starts_with("prepare")).collect();
    assert_eq!(
        prepared,
        [
            "prepare r0: woFwd.main x=s1 out=s0",
            "prepare r1: woFwd.main x=s2 out=s0",
            "prepare r2: woFwd.main x=s3 out=s0"
        ]
    );
    assert_eq!(lines.last().map(String::as_str), Some("unload woFwd"));
}

/// (b) A plan over several surfaces, prepared once: two procedures that pass a surface on; one
/// event starts it and another signals its end (apple-runtime §6, §8).
fn plan(device: &Device) {
    let events = device.events().unwrap();
    let (start, end) = (events.create().unwrap(), events.create().unwrap());
    let executable = compile(device, "plan", &program(&(copy("main", "x", "h") + &copy("second", "u", "y")))).unwrap();
    let (x, h, y) = (packed(device).unwrap(), packed(device).unwrap(), packed(device).unwrap());
    x.write_f32(&[4.0; N]).unwrap();
    let chain = executable
        .prepare_chain(vec![
            Bindings::new().bind("x", &x).bind("h", &h).wait(&start, 1),
            Bindings::new().procedure("second").bind("u", &h).bind("y", &y).signal(&end, 2),
        ])
        .unwrap();
    let submission = chain.submit().unwrap();
    assert!(!end.wait(2, Duration::from_millis(5)));
    start.signal(1);
    assert!(end.wait(2, Duration::from_secs(10)));
    submission.wait().unwrap();
    assert_eq!(y.read_f32().unwrap(), [4.0; N]);
}

fn plan_script(_: &ProgramSource<'_>) -> Result<Vec<Procedure>> {
    Ok(vec![
        procedure("main", 0, &[("x", &SHAPE)], &[("h", &SHAPE)])?,
        procedure("second", 1, &[("u", &SHAPE)], &[("y", &SHAPE)])?,
    ])
}

#[test]
fn a_plan_of_several_surfaces_with_events() {
    let chains = Scripted::new(plan_script).unwrap().chaining();
    let (device, record) = Device::new(chains).recorded();
    plan(&device);
    let expected = [
        "event e0",
        "event e1",
        "compile plan: text of 498 bytes, 0 weights",
        "load plan",
        "allocate s0 fp16 [1, 8, 1, 16] 256 bytes",
        "allocate s1 fp16 [1, 8, 1, 16] 256 bytes",
        "allocate s2 fp16 [1, 8, 1, 16] 256 bytes",
        "chain r0: plan.[main x=s0 h=s1 wait e0>=1; second u=s1 y=s2 signal e1=2]",
        "submit r0",
        "signal e0=1",
        "done r0",
    ];
    let lines: Vec<String> = record.lines().into_iter().map(|l| without_size(&l)).collect();
    assert_eq!(lines, expected.map(without_size));

    // The same calls on a machine that cannot chain: the front submits one step after the other.
    for device in [Device::new(Scripted::new(plan_script).unwrap()), emulator(Numerics::Fast)] {
        let (device, record) = device.recorded();
        plan(&device);
        let ends: Vec<_> =
            record.lines().into_iter().filter(|l| l.starts_with("submit") || l.starts_with("done")).collect();
        assert_eq!(ends, ["submit r0", "done r0", "submit r1", "done r1"]);
    }
}

/// A compile line without the length of its text.
fn without_size(line: impl AsRef<str>) -> String {
    let line = line.as_ref();
    match line.split_once("text of ").zip(line.split_once(" bytes, ")) {
        Some(((head, _), (_, tail))) => format!("{head}text, {tail}"),
        None => line.to_string(),
    }
}

/// (c) The E5 recipe: MIL text with named inputs and outputs; a function is chosen by name,
/// prepared, and called with features by name (apple-runtime §9). Names and extents must be those
/// of the model's description.
#[test]
fn text_with_named_features() {
    let lines = on_every_backend(
        |device| {
            let engine = compile(device, "e5", &program(&copy("main", "x", "cast_out"))).unwrap();
            let main = engine.procedure("main").unwrap();
            let description = [("x", DataType::Fp16, SHAPE), ("cast_out", DataType::Fp16, SHAPE)];
            for (name, dtype, shape) in description {
                let layout = &main.port(name).unwrap().layout;
                assert_eq!((layout.dtype, &layout.shape[..]), (dtype, &shape[..]));
            }
            let mut bindings = Bindings::new().procedure("main");
            let mut features = Vec::new();
            for port in main.ports() {
                let surface = device.surface(&port.layout).unwrap();
                bindings = bindings.bind(&port.name, &surface);
                features.push((port.name.clone(), surface));
            }
            let prediction = engine.prepare(bindings).unwrap();
            for value in [1.0, 2.0] {
                features[0].1.write_f32(&[value; N]).unwrap();
                prediction.evaluate().unwrap();
                assert_eq!(features[1].1.read_f32().unwrap(), [value; N]);
            }
            // A name that the description lacks is rejected before anything runs.
            let wrong = Bindings::new().bind("x", &features[0].1).bind("y", &features[1].1);
            assert_eq!(engine.prepare(wrong).map(|_| ()).unwrap_err().kind(), ErrorKind::Binding);
        },
        |_| Ok(vec![procedure("main", 0, &[("x", &SHAPE)], &[("cast_out", &SHAPE)])?]),
    );
    assert_eq!(lines.last().map(String::as_str), Some("evaluate r0"));
    assert!(lines.contains(&"prepare r0: e5.main x=s0 cast_out=s1".to_string()), "{lines:?}");
}

/// (d) Two functions in one program: each procedure has an index and ports of its own (mil-text
/// §1).
#[test]
fn two_procedures_in_one_program() {
    let lines = on_every_backend(
        |device| {
            let text = program(&(copy("main", "x0", "y0") + &copy("second", "x1", "y1")));
            let executable = compile(device, "both", &text).unwrap();
            assert_eq!(executable.procedures().iter().map(|p| p.id).collect::<Vec<_>>(), [0, 1]);
            let mut requests = Vec::new();
            for (i, name) in ["main", "second"].into_iter().enumerate() {
                let ports = executable.procedure(name).unwrap();
                assert_eq!(
                    (ports.inputs[0].name.as_str(), ports.outputs[0].name.as_str()),
                    ([("x0", "y0"), ("x1", "y1")][i])
                );
                let x = device.surface(&ports.inputs[0].layout).unwrap();
                let y = device.surface(&ports.outputs[0].layout).unwrap();
                let bindings = Bindings::new().procedure(name).bind(format!("x{i}"), &x).bind(format!("y{i}"), &y);
                requests.push((x, y, executable.prepare(bindings).unwrap()));
            }
            for (i, (x, y, request)) in requests.iter().enumerate().rev() {
                x.write_f32(&[i as f32 - 5.0; N]).unwrap();
                request.evaluate().unwrap();
                assert_eq!(y.read_f32().unwrap(), [i as f32 - 5.0; N]);
            }
        },
        |_| {
            Ok(vec![
                procedure("main", 0, &[("x0", &SHAPE)], &[("y0", &SHAPE)])?,
                procedure("second", 1, &[("x1", &SHAPE)], &[("y1", &SHAPE)])?,
            ])
        },
    );
    assert!(lines.contains(&"prepare r1: both.second x1=s2 y1=s3".to_string()), "{lines:?}");
}

/// An `.anec` file with one input and one output (linux-driver §4.1). Its payload is not a program.
fn anec(nchw: [u64; 4]) -> Vec<u8> {
    let [n, c, h, w] = nchw;
    let row = (w * 2).next_multiple_of(64);
    let plane = row * h;
    let tiles = (n * c * plane).div_ceil(0x4000) as u32;
    let mut file = vec![0; 0x1000];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x08, &0x274u32.to_le_bytes());
    put(0x0c, &1u32.to_le_bytes());
    put(0x10, &0x274u64.to_le_bytes());
    put(0x20, &1u32.to_le_bytes());
    put(0x24, &1u32.to_le_bytes());
    // Outputs start at index 4, inputs follow.
    for bar in [4, 5] {
        put(0x28 + bar * 4, &tiles.to_le_bytes());
        for (i, value) in [n, c, h, w, plane, row].into_iter().enumerate() {
            put(0xa8 + (bar * 6 + i) * 8, &value.to_le_bytes());
        }
    }
    file
}

/// The ports that the Linux driver's header describes: row and plane strides of their own, memory
/// in tiles of 16 KiB.
fn anec_ports(source: &ProgramSource<'_>) -> Result<Vec<Procedure>> {
    let bad = || Error::new(ErrorKind::InvalidProgram, "not an .anec file");
    let ProgramSource::Compiled(file) = source else { return Err(bad()) };
    let u32_at =
        |at: usize| file.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).ok_or_else(bad);
    let u64_at =
        |at: usize| file.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes).ok_or_else(bad);
    let (inputs, outputs) = (u32_at(0x20)? as usize, u32_at(0x24)? as usize);
    let port = |name: String, bar: usize| {
        let field = |i: usize| u64_at(0xa8 + (bar * 6 + i) * 8).map(|v| v as usize);
        let [n, c, h, w, plane, row] = [field(0)?, field(1)?, field(2)?, field(3)?, field(4)?, field(5)?];
        let layout = Layout {
            dtype: DataType::Fp16,
            shape: vec![n, c, h, w],
            strides: vec![c * plane, plane, row, 2],
            allocation: u32_at(0x28 + bar * 4)? as usize * 0x4000,
        };
        Ok(Port { name, symbol: bar as u32, layout })
    };
    let outputs_at = 4;
    Ok(vec![Procedure {
        name: "main".into(),
        id: 0,
        inputs: (0..inputs).map(|i| port(format!("src{i}"), outputs_at + outputs + i)).collect::<Result<_>>()?,
        outputs: (0..outputs).map(|i| port(format!("dst{i}"), outputs_at + i)).collect::<Result<_>>()?,
        states: Vec::new(),
    }])
}

/// (e) The Linux driver: a compiled file, buffer objects of the sizes that its tiles give, inputs
/// written row by row with the file's strides, one submit, outputs read row by row (linux-driver
/// §4.2, §4.5).
#[test]
fn buffers_and_a_submit_from_an_anec_file() {
    let (device, record) = Device::new(Scripted::new(anec_ports).unwrap()).recorded();
    let file = anec([1, 64, 8, 77]);
    let program =
        device.compile(ProgramSource::Compiled(&file), &CompileOptions::labeled("anec")).unwrap().load().unwrap();
    let procedure = &program.procedures()[0];
    let (src, dst) = (&procedure.inputs[0], &procedure.outputs[0]);
    assert_eq!((src.symbol, dst.symbol), (5, 4));
    // The published case: W = 77 has rows of 192 bytes.
    assert_eq!((&src.layout.strides[1..], src.layout.allocation), (&[192 * 8, 192, 2][..], 6 * 0x4000));
    let (from, to) = (device.surface(&src.layout).unwrap(), device.surface(&dst.layout).unwrap());

    let values: Vec<f32> = (0..64 * 8 * 77).map(|i| (i % 2048) as f32).collect();
    {
        let mut access = from.write().unwrap();
        access.bytes_mut().fill(0);
        for (i, row) in values.chunks(77).enumerate() {
            for (to, value) in access.row_mut(i).unwrap().chunks_exact_mut(2).zip(row) {
                to.copy_from_slice(&ferrane_host::f16::from_f32(*value).to_le_bytes());
            }
        }
        // Row 9 is channel 1, row 1.
        assert_eq!(access.bytes_mut()[192 * 9..192 * 9 + 2], ferrane_host::f16::from_f32(values[9 * 77]).to_le_bytes());
    }
    let request = program.prepare(Bindings::new().bind("src0", &from).bind("dst0", &to)).unwrap();
    request.submit().unwrap().wait().unwrap();
    assert_eq!(to.read_f32().unwrap(), values);

    let lines = record.lines();
    assert_eq!(lines[0], "compile anec: 4096 compiled bytes");
    assert_eq!(lines[2], "allocate s0 fp16 [1, 64, 8, 77] 98304 bytes");
    assert_eq!(lines[4..], ["prepare r0: anec.main src0=s0 dst0=s1", "submit r0", "done r0"]);

    // A buffer smaller than the file's tiles is rejected, and so is a truncated file.
    let mut short = src.layout.clone();
    short.allocation = short.span();
    let small = device.surface(&short).unwrap();
    let error = program.prepare(Bindings::new().bind("src0", &small).bind("dst0", &to)).map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.port()), (ErrorKind::Binding, Some("src0")));
    let cut = device.compile(ProgramSource::Compiled(&file[..0x100]), &CompileOptions::default());
    assert_eq!(cut.map(|_| ()).unwrap_err().kind(), ErrorKind::InvalidProgram);
}
