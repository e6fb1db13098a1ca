//! Dispatching: paths, qualities of service, requests in flight, chains, functions of one program.

use std::time::Instant;

use ferrane_device::{Bindings, CompileOptions, Device, Executable, ProgramSource, Surface, Tensor, Tensors};
use ferrane_mil::{Arg, Builder, Constant, DataType, Opset, Program, Type, Weights, op};
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::kernels::{Chain, Kernel, dense_values};
use super::super::report::{SuiteCheck, SuiteRow, SuiteTimes};
use crate::error::Result;

/// `64x32` as channels and positions.
fn size(text: &str) -> Option<(usize, usize)> {
    let (channels, positions) = text.split_once('x')?;
    Some((channels.parse().ok()?, positions.parse().ok()?))
}

pub(super) fn paths(cx: &mut Context<'_, '_>) -> Result<()> {
    for (path, sizes) in cx.probe("dispatch-floor")?.raw {
        for (of, times) in sizes.as_object().into_iter().flatten() {
            let Some((channels, positions)) = size(of) else { continue };
            let config = [("channels", json!(channels)), ("positions", json!(positions)), ("path", json!(path))];
            cx.probed(SuiteRow::new("paths", &config), times, &small(channels, positions));
        }
    }
    if cx.result.rows.iter().all(|row| row.config["path"] == "as opened") {
        cx.skip("the device has no paths to choose from");
    }
    Ok(())
}

pub(super) fn qos(cx: &mut Context<'_, '_>) -> Result<()> {
    let answer = cx.probe("qos")?;
    for (name, times) in &answer.raw {
        let Some(qos) = name.strip_prefix("qos ").and_then(|n| n.parse::<u32>().ok()) else { continue };
        let config = [("channels", json!(256)), ("positions", json!(64)), ("qos", json!(qos))];
        cx.probed(SuiteRow::new("qos", &config), times, &small(256, 64));
    }
    if let Some(ignored) = answer.values.get("qos_ignored").and_then(Value::as_bool) {
        cx.find("qos_ignored", f64::from(u8::from(ignored)), "", "1 if the lowest times differ by less than half");
    }
    Ok(())
}

pub(super) fn throughput(cx: &mut Context<'_, '_>) -> Result<()> {
    for (name, times) in cx.probe("throughput")?.raw {
        let Some((of, what)) = name.split_once(": ") else { continue };
        let Some((channels, positions)) = size(of) else { continue };
        let copies = what.contains("copy");
        let config = [("channels", json!(channels)), ("positions", json!(positions)), ("copies", json!(copies))];
        cx.probed(SuiteRow::new("throughput", &config), &times, &small(channels, positions));
    }
    Ok(())
}

pub(super) fn in_flight(cx: &mut Context<'_, '_>) -> Result<()> {
    let mut all = Vec::new();
    for (name, ms) in cx.probe("submission")?.raw {
        let depth = name.strip_prefix("depth ").and_then(|rest| rest.split(':').next()?.parse::<u64>().ok());
        let (Some(depth), Some(ms)) = (depth, ms.as_f64()) else { continue };
        all.push((depth, ms));
    }
    all.sort_by_key(|(depth, _)| *depth);
    for (depth, ms) in &all {
        let mut row = SuiteRow::new("in-flight", &[("depth", json!(depth))]);
        row.evaluation = Some(SuiteTimes { median_ms: *ms, lowest_ms: *ms, highest_ms: *ms, repeats: 1 });
        cx.result.rows.push(row);
    }
    let one = all.first().map_or(f64::NAN, |(_, ms)| *ms);
    let best = all.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((depth, ms)) = best {
        cx.find("gain", one / ms, "", format!("one in flight over {depth} in flight, the fastest"));
    }
    Ok(())
}

fn small(channels: usize, positions: usize) -> Chain {
    Chain { channels, extents: [1, positions], depth: 1, int8: false, port: DataType::Fp16 }
}

/// A surface for a port of the first procedure.
fn surface(device: &Device, executable: &Executable, port: &str) -> Result<Surface> {
    let procedure = executable.procedures().first().map_or("main", |p| p.name.as_str());
    Ok(device.surface(&device.fitted(executable.procedure(procedure)?, port)?)?)
}

pub(super) fn chaining(cx: &mut Context<'_, '_>) -> Result<()> {
    for (channels, positions) in [(64, 32), (256, 64), (768, 256)] {
        let (kernel, _) = small(channels, positions).build(&mut cx.rng)?;
        let config =
            |form: &str| [("channels", json!(channels)), ("positions", json!(positions)), ("form", json!(form))];
        let row = SuiteRow::new("chaining", &config("one"));
        let Some(ran) = cx.kernel(row, &kernel)? else { continue };
        let device = cx.device();
        let [x, between, y] = ["x", "y", "y"].map(|port| surface(device, &ran.executable, port));
        let (x, between, y) = (x?, between?, y?);
        x.write_tensor(kernel.inputs.get("x")?)?;
        let steps =
            [Bindings::new().bind("x", &x).bind("y", &between), Bindings::new().bind("x", &between).bind("y", &y)];
        let separate = steps.clone().map(|step| ran.executable.prepare(step));
        let mut row = SuiteRow::new("chaining", &config("two requests"));
        let [first, second] = separate;
        let (first, second) = (first?, second?);
        cx.time(&mut row, || Ok(first.evaluate()?.then(second.evaluate()?)))?;
        cx.result.rows.push(row);
        let wanted = y.read_f32()?;
        let chain = ran.executable.prepare_chain(steps.to_vec())?;
        y.write_f32(&vec![f32::NAN; wanted.len()])?;
        let mut row = SuiteRow::new("chaining", &config("one chain"));
        let mut chained = false;
        cx.time(&mut row, || {
            let stats = chain.evaluate()?;
            chained = stats.chained;
            Ok(stats)
        })?;
        row.config.insert("one request".into(), chained.into());
        row.check = Some(SuiteCheck::new("two requests", &y.read_f32()?, &wanted, 0.0));
        cx.result.rows.push(row);
    }
    let times = |form: &str| -> Vec<f64> {
        cx.timed().filter(|(row, _)| row.config.get("form").is_some_and(|f| f == form)).map(|(_, ms)| ms).collect()
    };
    let pairs = times("two requests").into_iter().zip(times("one chain"));
    let gain = pairs.map(|(two, chain)| two / chain).fold(f64::NAN, f64::max);
    cx.find("gain", gain, "", "the largest ratio of two requests to one chain");
    Ok(())
}

/// The functions of the program of [`procedures`].
const FUNCTIONS: usize = 16;

/// A program whose function `f<i>` multiplies by i + 1.
fn factors() -> Result<Program> {
    let mut program: Option<Program> = None;
    for i in 0..FUNCTIONS {
        let weights = program.as_ref().map_or_else(Weights::new, |p| p.weights.clone());
        let mut b = Builder::over(&format!("f{i}"), Opset::IOS18, weights);
        let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 1, 64]))?;
        let args: [(&str, Arg); 2] = [("x", x.into()), ("y", Constant::fp16(i as f32 + 1.0).into())];
        let y = b.op(op::MUL, "y", args)?;
        let one = b.finish(&[("y", y)])?;
        match &mut program {
            Some(all) => {
                all.functions.extend(one.functions);
                all.weights = one.weights;
            }
            None => program = Some(one),
        }
    }
    program.ok_or_else(|| crate::Error::WrongResult("a program without functions".into()))
}

pub(super) fn procedures(cx: &mut Context<'_, '_>) -> Result<()> {
    let program = factors()?;
    let values = dense_values(&mut cx.rng, 64 * 64, 1.0);
    let x = Tensor::from_f32(DataType::Fp16, &[1, 64, 1, 64], &values)?;
    let mut inputs = Tensors::new();
    inputs.insert("x", x.clone());
    let row = SuiteRow::new("procedures", &[("function", json!("f0"))]);
    let Some(ran) = cx.kernel(row, &Kernel { program, inputs: inputs.clone(), flops: 0.0, weights: 0.0 })? else {
        return Ok(());
    };
    for i in 0..FUNCTIONS {
        let bound = ran.executable.bind(Some(&format!("f{i}")))?;
        bound.write_inputs(&inputs)?;
        let mut row = SuiteRow::new("procedures", &[("function", json!(format!("f{i}")))]);
        cx.time(&mut row, || bound.evaluate())?;
        let wanted: Vec<f32> = x.to_f32().iter().map(|v| v * (i as f32 + 1.0)).collect();
        // A product by up to 16 is rounded once.
        row.check = Some(SuiteCheck::new("products on the CPU", &bound.read("y")?.to_f32(), &wanted, 1e-3));
        cx.result.rows.push(row);
    }
    // The first row timed the same function.
    cx.result.rows.remove(0);
    let right = cx.result.rows.iter().filter(|row| row.check.as_ref().is_some_and(SuiteCheck::passed)).count();
    cx.find("functions", right as f64, "", "functions with correct results");
    Ok(())
}

/// Programs that [`repeat`] compiles.
const COMPILES: usize = 20;
/// Evaluations of [`repeat`].
const EVALUATIONS: usize = 1000;

pub(super) fn repeat(cx: &mut Context<'_, '_>) -> Result<()> {
    let config = |what: &str| [("channels", json!(128)), ("positions", json!(64)), ("what", json!(what))];
    let mut loaded = Vec::new();
    let mut compiles = Vec::new();
    for i in 0..COMPILES {
        let (kernel, _) = small(128, 64).build(&mut cx.rng)?;
        let begun = Instant::now();
        let options = CompileOptions::labeled(format!("bench suite repeat {i}"));
        let artifact = cx.device().compile(ProgramSource::Program(&kernel.program), &options)?;
        compiles.push(begun.elapsed());
        if loaded.len() < 2 {
            let bound = artifact.load()?.bind(None)?;
            bound.write_inputs(&kernel.inputs)?;
            loaded.push(bound);
        }
    }
    let mut row = SuiteRow::new("repeat", &config("compile"));
    row.evaluation = Some(SuiteTimes::new(compiles));
    cx.result.rows.push(cx.with_published(row));
    let evaluate = |calls: &mut dyn FnMut() -> ferrane_device::Result<()>| -> Result<SuiteTimes> {
        let mut times = Vec::with_capacity(EVALUATIONS);
        for _ in 0..EVALUATIONS {
            let begun = Instant::now();
            calls()?;
            times.push(begun.elapsed());
        }
        Ok(SuiteTimes::new(times))
    };
    let mut row = SuiteRow::new("conv", &[("channels", json!(128)), ("positions", json!(64)), ("depth", json!(1))]);
    row.evaluation = Some(evaluate(&mut || loaded[0].evaluate().map(drop))?);
    cx.result.rows.push(cx.with_published(row));
    let mut row = SuiteRow::new("repeat", &config("alternating pair"));
    row.evaluation = Some(evaluate(&mut || loaded.iter().try_for_each(|bound| bound.evaluate().map(drop)))?);
    cx.result.rows.push(cx.with_published(row));
    Ok(())
}

pub(super) fn perf_stats(cx: &mut Context<'_, '_>) -> Result<()> {
    for (channels, positions) in [(64, 32), (256, 64), (768, 256)] {
        let chain = small(channels, positions);
        let (kernel, _) = chain.build(&mut cx.rng)?;
        let config = [("channels", json!(channels)), ("positions", json!(positions)), ("depth", json!(1))];
        cx.kernel(SuiteRow::new("conv", &config), &kernel)?;
    }
    let outside = |row: &SuiteRow| Some(row.evaluation.as_ref()?.median_ms - row.device.as_ref()?.median_ms);
    let rest = cx.result.rows.iter().filter_map(outside).fold(f64::NAN, f64::min);
    if rest.is_nan() {
        cx.skip("the device reports no time of its own");
    }
    cx.find("outside_device_ms", rest, "ms", "the least difference between the caller's clock and the device's");
    Ok(())
}

pub(super) fn gpu_handoff(cx: &mut Context<'_, '_>) -> Result<()> {
    cx.skip("Ferrane has no device for the GPU, and the program of the published numbers is not public");
    Ok(())
}
