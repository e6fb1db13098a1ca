//! Experiments of pull request 40 of the reference work that are programs, by their letters
//! (headline-results; docs/doctor.md says where the others went).

use std::sync::mpsc;
use std::time::{Duration, Instant};

use ferrane_device::{Bindings, Result};
use serde_json::json;

use super::speed::{convolution, spread};
use crate::dut::{DeviceUnderTest, Judgment, ramp};
use crate::measurements::Measurements;
use crate::probe::{Probe, ProbeCost};
use crate::program::ProbeProgram;

const fn experiment(
    name: &'static str,
    experiments: &'static [&'static str],
    question: &'static str,
    run: fn(&mut DeviceUnderTest<'_>) -> Result<Measurements>,
) -> Probe {
    Probe { name, question, experiments, cost: ProbeCost::Cheap, values: &[], claims: &[], run }
}

pub(super) const PROBES: &[Probe] = &[
    experiment("fences", &["G"], "Are there shared events, and do they count?", fences),
    Probe {
        cost: ProbeCost::Slow,
        ..experiment(
            "throughput",
            &["I"],
            "What does each of twelve equal programs cost, with and without copies?",
            throughput,
        )
    },
    experiment("canary", &["W1"], "Does an evaluation write its outputs, and is a product exact?", canary),
    experiment("submission", &["W4"], "Do submitted requests complete, and what does depth gain?", submission),
    experiment(
        "shared-surface",
        &["W5"],
        "May one program's output surface be another's input, without a copy?",
        shared,
    ),
    experiment("kernels", &["X1"], "Are relu, gelu, softmax and layer_norm right with fp32 at the boundary?", kernels),
    experiment("attention", &["Y1"], "Is scaled_dot_product_attention of four heads right?", attention),
    experiment("linear", &["Y2"], "Is `linear` with constant weights right?", linear),
    experiment("block", &["Y3"], "Does a transformer block run as one program, and is it right?", block),
    experiment("backward", &["Z1"], "Are the products of a backward pass right?", backward),
];

/// Numbers around zero, of magnitude up to `most`.
fn around(elements: usize, most: f32) -> Vec<f32> {
    (0..elements).map(|i| (((i * 37 + i / 5) % 101) as f32 / 50.0 - 1.0) * most).collect()
}

/// Runs a program, compares it with exact arithmetic, and records difference and time.
fn compared(
    dut: &mut DeviceUnderTest<'_>,
    found: &mut Measurements,
    name: &str,
    program: &ProbeProgram,
    inputs: &[Vec<f32>],
) -> Result<()> {
    match dut.judge(program, inputs)? {
        Judgment::Right(most) => {
            found.raw(&format!("{name}: largest difference"), json!(most));
            let executable = dut.compile(program)?.load()?;
            let bound = dut.bind(executable, program)?;
            bound.run(inputs)?;
            let mut times = Vec::new();
            for _ in 0..20 {
                let begun = Instant::now();
                bound.request.evaluate()?;
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            found.raw(&format!("{name}: ms"), spread(&mut times));
        }
        Judgment::Wrong(most) => drop(
            found
                .raw(&format!("{name}: largest difference"), json!(most.to_string()))
                .leave_open(format!("{name} is wrong")),
        ),
        other => {
            found.leave_open(format!("{name}: {other:?}"));
        }
    }
    Ok(())
}

fn fences(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let Some(events) = dut.device().events() else {
        found.leave_open("the device has no shared events");
        return Ok(found);
    };
    let event = events.create()?;
    event.signal(3);
    let (reached, timed_out) = (event.wait(3, Duration::from_secs(1)), event.wait(4, Duration::from_millis(1)));
    found.raw("value after signal(3)", event.value()).raw("wait(3)", reached).raw("wait(4)", timed_out);
    if !reached || timed_out || event.value() != 3 {
        found.leave_open("an event does not count as it should");
    }
    Ok(found)
}

fn throughput(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    for (channels, columns) in [(64, 32), (256, 64), (768, 256)] {
        let program = convolution(channels, columns);
        let artifact = dut.compile(&program)?;
        let programs = (0..12).map(|_| dut.bind(artifact.load()?, &program)).collect::<Result<Vec<_>>>()?;
        programs[0].run(&[ramp(channels * columns)])?;
        let (mut plain, mut copied) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let begun = Instant::now();
            programs.iter().try_for_each(|p| p.request.evaluate().map(drop))?;
            plain.push(begun.elapsed().as_secs_f64() * 1e3 / 12.0);
            let begun = Instant::now();
            for pair in programs.windows(2) {
                pair[0].request.evaluate()?;
                let output = pair[0].outputs[0].read()?;
                let mut input = pair[1].inputs[0].write()?;
                let bytes = output.bytes().len().min(input.bytes_mut().len());
                input.bytes_mut()[..bytes].copy_from_slice(&output.bytes()[..bytes]);
            }
            copied.push(begun.elapsed().as_secs_f64() * 1e3 / 11.0);
        }
        found.raw(&format!("{channels}x{columns}: ms each"), spread(&mut plain));
        found.raw(&format!("{channels}x{columns}: ms each with a copy"), spread(&mut copied));
    }
    Ok(found)
}

fn canary(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    compared(dut, &mut found, "conv 256", &convolution(256, 64), &[around(256 * 64, 1.0)])?;
    Ok(found)
}

/// Requests in flight, up to the published depth of the engine's queue, 127. The emulator's queue
/// takes as many.
const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 127];

/// Requests of each depth.
const TURNS: usize = 256;

fn submission(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = convolution(256, 64);
    let executable = dut.compile(&program)?.load()?;
    let input = ramp(256 * 64);
    let bound =
        (0..DEPTHS[DEPTHS.len() - 1]).map(|_| dut.bind(executable.clone(), &program)).collect::<Result<Vec<_>>>()?;
    for one in &bound {
        one.run(std::slice::from_ref(&input))?;
    }
    for depth in DEPTHS {
        let (done, finished) = mpsc::channel();
        let begun = Instant::now();
        let mut waiting = 0;
        for i in 0..TURNS {
            // As many requests as the depth take turns.
            if waiting == depth {
                let result: Result<ferrane_device::Stats> = finished.recv().unwrap_or_else(|_| {
                    Err(ferrane_device::Error::new(ferrane_device::ErrorKind::System, "a request was lost"))
                });
                result?;
                waiting -= 1;
            }
            // The completion may be reported a moment before the request can be submitted again.
            let request = &bound[i % depth].request;
            loop {
                let done = done.clone();
                match request.submit_then(move |result| drop(done.send(result))) {
                    Err(error) if error.kind() == ferrane_device::ErrorKind::Busy => std::thread::yield_now(),
                    other => break other?,
                }
            }
            waiting += 1;
        }
        drop(done);
        for result in finished {
            result?;
        }
        found.ms(&format!("depth {depth}: ms each"), begun.elapsed().as_secs_f64() * 1e3 / TURNS as f64);
    }
    Ok(found)
}

fn shared(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = convolution(64, 64);
    let executable = dut.compile(&program)?.load()?;
    let first = dut.bind(executable.clone(), &program)?;
    let second = dut.bind(executable, &program)?;
    let request =
        second.executable.prepare(Bindings::new().bind("x", &first.outputs[0]).bind("r", &second.outputs[0]))?;
    let input = ramp(64 * 64);
    first.run(std::slice::from_ref(&input))?;
    request.evaluate()?;
    let seen = second.outputs[0].read_f32()?;
    // Twice through a half: exact in fp16.
    let wrong = seen.iter().zip(&input).filter(|(seen, x)| **seen != **x / 4.0).count();
    found.raw("elements that differ", wrong);
    if wrong > 0 {
        found.leave_open("the second program did not read what the first one wrote");
    }
    Ok(found)
}

/// A program from fp32 to fp32 that computes in fp16.
fn boundary(inputs: &[(&str, &[usize])]) -> ProbeProgram {
    let mut program = ProbeProgram::new().word("fp16", "fp16").word("fp32", "fp32");
    for (name, shape) in inputs {
        let (outer, call) = (format!("{name}_in"), format!("cast(dtype = fp16, x = {name}_in)"));
        program = program.input(&outer, "fp32", shape).op("fp16", shape, name, &call);
    }
    program
}

/// The same with one result.
fn back(program: ProbeProgram, shape: &[usize], last: &str) -> ProbeProgram {
    program.op("fp32", shape, "r", &format!("cast(dtype = fp32, x = {last})")).output(&["r"])
}

fn kernels(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let shape = [1, 256, 1, 64];
    let begin = || {
        boundary(&[("x", &shape)]).word("mode", "TANH_APPROXIMATION").int("axis", -1).ints("axes", &[3]).half("e", 1e-5)
    };
    for (name, call) in [
        ("relu", "relu(x = x)"),
        ("gelu", "gelu(mode = mode, x = x)"),
        ("softmax", "softmax(axis = axis, x = x)"),
        ("layer_norm", "layer_norm(axes = axes, epsilon = e, x = x)"),
    ] {
        let program = back(begin().op("fp16", &shape, "h", call), &shape, "h");
        compared(dut, &mut found, name, &program, &[around(256 * 64, 2.0)])?;
    }
    Ok(found)
}

fn attention(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let shape = [1, 4, 64, 32];
    let program = boundary(&[("q", &shape), ("k", &shape), ("v", &shape)]).since(18);
    let call = "scaled_dot_product_attention(key = k, query = q, value = v)";
    let program = back(program.op("fp16", &shape, "h", call), &shape, "h");
    let n = 4 * 64 * 32;
    compared(dut, &mut found, "attention", &program, &[around(n, 1.0), ramp(n), around(n, 2.0)])?;
    Ok(found)
}

fn linear(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = boundary(&[("x", &[64, 32])])
        .weight("w", &[16, 32], &around(512, 0.25))
        .weight("b", &[16], &around(16, 1.0))
        .op("fp16", &[64, 16], "h", "linear(bias = b, weight = w, x = x)");
    compared(dut, &mut found, "linear", &back(program, &[64, 16], "h"), &[around(2048, 1.0)])?;
    Ok(found)
}

fn block(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let (row, heads, turned) = ([1, 64, 64], [1, 64, 4, 16], [1, 4, 64, 16]);
    let mut program = boundary(&[("x", &row)])
        .since(18)
        .ints("axes", &[-1])
        .half("e", 1e-5)
        .ints("heads", &[1, 64, 4, 16])
        .ints("joined", &[1, 64, 64])
        .ints("perm", &[0, 2, 1, 3])
        .word("mode", "EXACT")
        .op("fp16", &row, "n", "layer_norm(axes = axes, epsilon = e, x = x)");
    for name in ["q", "k", "v"] {
        let (w, l, s, t) = (format!("w{name}"), format!("l{name}"), format!("s{name}"), format!("t{name}"));
        program = program
            .weight(&w, &[64, 64], &around(4096, 0.2))
            .op("fp16", &row, &l, &format!("linear(weight = {w}, x = n)"))
            .op("fp16", &heads, &s, &format!("reshape(shape = heads, x = {l})"))
            .op("fp16", &turned, &t, &format!("transpose(perm = perm, x = {s})"));
    }
    let program = program
        .op("fp16", &turned, "a", "scaled_dot_product_attention(key = tk, query = tq, value = tv)")
        .op("fp16", &heads, "at", "transpose(perm = perm, x = a)")
        .op("fp16", &row, "aj", "reshape(shape = joined, x = at)")
        .op("fp16", &row, "m", "add(x = x, y = aj)")
        .op("fp16", &row, "o", "layer_norm(axes = axes, epsilon = e, x = m)")
        .weight("w1", &[128, 64], &around(8192, 0.1))
        .weight("w2", &[64, 128], &around(8192, 0.1))
        .op("fp16", &[1, 64, 128], "u", "linear(weight = w1, x = o)")
        .op("fp16", &[1, 64, 128], "g", "gelu(mode = mode, x = u)")
        .op("fp16", &row, "d", "linear(weight = w2, x = g)")
        .op("fp16", &row, "h", "add(x = m, y = d)");
    compared(dut, &mut found, "block", &back(program, &row, "h"), &[around(4096, 1.0)])?;
    Ok(found)
}

fn backward(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = boundary(&[("x", &[64, 32]), ("dy", &[64, 16]), ("w", &[16, 32])])
        .flag("no", false)
        .flag("yes", true)
        .op("fp16", &[64, 32], "dxh", "matmul(transpose_x = no, transpose_y = no, x = dy, y = w)")
        .op("fp16", &[32, 16], "dwh", "matmul(transpose_x = yes, transpose_y = no, x = x, y = dy)")
        .op("fp32", &[64, 32], "dx", "cast(dtype = fp32, x = dxh)")
        .op("fp32", &[32, 16], "dw", "cast(dtype = fp32, x = dwh)")
        .output(&["dx", "dw"]);
    let inputs = [around(2048, 1.0), around(1024, 1.0), around(512, 0.25)];
    compared(dut, &mut found, "backward", &program, &inputs)?;
    Ok(found)
}
