//! Times: the floor of a dispatch, ways to run, quality of service. No profile has them; the cost
//! model does.

use std::time::Instant;

use ferrane_device::{Bindings, CompileOptions, Device, ErrorKind, Layout, ProgramSource, Result};
use serde_json::{Map, Value, json};

use crate::dut::{DeviceUnderTest, ramp};
use crate::measurements::Measurements;
use crate::probe::Expectation::Is;
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::BuildInfo;
use crate::program::ProbeProgram;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "dispatch-floor",
        question: "How long does the smallest and a usual program take, by each way of running it?",
        experiments: &["paths"],
        cost: ProbeCost::Cheap,
        values: &[],
        claims: &[],
        run: floor,
    },
    Probe {
        name: "qos",
        question: "Does the quality of service change the latency?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["qos_ignored"],
        claims: &[claim("C170", "qos_ignored", Is("true"))],
        run: qos,
    },
];

/// Evaluations that warm up, and that are timed. The published numbers are of 10 and 200
/// (benchmarks §11); fewer hold on a busy machine because the least of them is what counts.
const WARM: usize = 5;
const TIMED: usize = 50;

/// Channels and positions of the convolutions (benchmarks §11).
const SHAPES: [(usize, usize); 5] = [(64, 32), (128, 64), (256, 64), (512, 64), (768, 256)];

/// A 1×1 convolution of as many channels in as out, over so many columns.
pub(super) fn convolution(channels: usize, columns: usize) -> ProbeProgram {
    let shape = [1, channels, 1, columns];
    let mut weights = vec![0.0; channels * channels];
    (0..channels).for_each(|i| weights[i * channels + i] = 0.5);
    ProbeProgram::new()
        .input("x", "fp16", &shape)
        .weight("w", &[channels, channels, 1, 1], &weights)
        .ints("strides", &[1, 1])
        .ints("dilations", &[1, 1])
        .ints("pad", &[0, 0, 0, 0])
        .word("kind", "valid")
        .int("groups", 1)
        .op(
            "fp16",
            &shape,
            "r",
            "conv(dilations = dilations, groups = groups, pad = pad, pad_type = kind, strides = strides, weight = w, x = x)",
        )
        .output(&["r"])
}

/// Least, middle and greatest of some times; milliseconds.
pub(super) fn spread(times: &mut [f64]) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |i: usize| times.get(i).map_or(Value::Null, |t| json!((t * 1e4).round() / 1e4));
    let count = times.len();
    json!({ "least": at(0), "median": at(count / 2), "most": at(count.saturating_sub(1)), "repeats": count })
}

/// Times evaluations of a program on a device.
fn timed(dut: &mut DeviceUnderTest<'_>, device: &Device, program: &ProbeProgram) -> Result<Vec<f64>> {
    let spelling = dut.spelling()?;
    let text = program.text(&spelling, BuildInfo::Line)?;
    let source = ProgramSource::Text { mil: text.as_bytes(), weights: &program.weights };
    let executable = device.compile(source, &CompileOptions::labeled("probe"))?.load()?;
    dut.count_compiles(1);
    let surface = |name: &str| {
        let layout = executable.port(name)?.layout.clone();
        let allocation = layout.allocation.next_multiple_of(crate::dut::ROOMY);
        device.surface(&Layout { allocation, ..layout })
    };
    let (x, r) = (surface("x")?, surface("r")?);
    x.write_f32(&ramp(x.layout().elements()))?;
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("r", &r))?;
    let mut times = Vec::new();
    for i in 0..WARM + TIMED {
        let begun = Instant::now();
        request.evaluate()?;
        if i >= WARM {
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(times)
}

fn floor(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    for way in ["", "dispatch=standard", "dispatch=realtime", "dispatch=process-request", "dispatch=direct"] {
        let device = match dut.with(way) {
            Ok(device) => device,
            // A device without ways to choose has its own.
            Err(error) if error.kind() == ErrorKind::Option && !way.is_empty() => continue,
            Err(error) => {
                found.leave_open(format!("{way}: {error}"));
                continue;
            }
        };
        let name = way.strip_prefix("dispatch=").unwrap_or("as opened");
        let mut sizes = Map::new();
        for (channels, columns) in SHAPES {
            let size = format!("{channels}x{columns}");
            match timed(dut, &device, &convolution(channels, columns)) {
                Ok(mut times) => drop(sizes.insert(size, spread(&mut times))),
                Err(error) => {
                    found.leave_open(format!("{name} {size}: {error}"));
                }
            }
        }
        found.raw(name, sizes);
    }
    Ok(found)
}

fn qos(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let mut least = Vec::new();
    for qos in [0, 9, 17, 21, 25, 33, 63] {
        let device = match dut.with(&format!("qos={qos}")) {
            Ok(device) => device,
            Err(error) if error.kind() == ErrorKind::Option => {
                found.leave_open("the device has no quality of service");
                return Ok(found);
            }
            Err(error) => return Err(error),
        };
        let mut times = timed(dut, &device, &convolution(256, 64))?;
        found.raw(&format!("qos {qos}"), spread(&mut times));
        least.extend(times.first().copied());
    }
    let (low, high) = (least.iter().copied().fold(f64::MAX, f64::min), least.iter().copied().fold(0.0, f64::max));
    // The least of fifty times varies by less than this between runs of one program.
    found.value("qos_ignored", high <= 1.5 * low);
    Ok(found)
}
