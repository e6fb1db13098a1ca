//! `ferrane bench dispatch`: what an evaluation costs besides its arithmetic.
//!
//! A program of one op over 32 values is compiled, loaded and prepared once, then evaluated many
//! times, each time on its own clock: on the caller's thread (`evaluate`), and handed over and
//! waited for (`submit`, the time until the call comes back; `complete`, the time until the result
//! is there). Two readings of the clock are part of every time and are told beside them.

use std::hint::black_box;
use std::time::Instant;

use ferrane::mil::{Builder, DataType, Opset, Program, Type};
use ferrane::{Bindings, Request};
use serde_json::{Map, Value, json};

use super::machine;
use super::measure::{self, Spread, round, short};
use crate::args::BenchDispatch;
use crate::error::{Error, Result};
use crate::out;
use crate::run as runs;

/// Values of the input: one row of 64 bytes, the least that engines take.
const VALUES: usize = 32;
/// Evaluations that warm up.
const WARM_UP: usize = 200;

/// Runs the command.
pub fn run(args: BenchDispatch) -> Result<()> {
    let repeat = measure::repeats("--repeat", args.repeat)?;
    let device = runs::open(&args.device)?;
    let executable = device.load(&minimal()?, "bench dispatch")?;
    let procedure = executable.procedure("main")?;
    let [x, y] = ["x", "y"].map(|port| device.surface(&device.fitted(procedure, port)?));
    let (x, y) = (x?, y?);
    let values: Vec<f32> = (0..VALUES).map(|i| i as f32 - 15.5).collect();
    x.write_f32(&values)?;
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y))?;
    let rows = [
        ("evaluate", micros(repeat, || evaluate(&request))?),
        ("submit", micros(repeat, || submit(&request))?),
        ("complete", micros(repeat, || complete(&request))?),
    ];
    let expected: Vec<f32> = values.iter().map(|v| v.max(0.0)).collect();
    if y.read_f32()? != expected {
        return Err(Error::new("the measured program's output is wrong"));
    }
    let clock = micros(repeat, || Ok(elapsed(Instant::now())))?;
    if args.json {
        let object = |spread: &Spread| {
            let mut object = spread.json("us");
            object.insert("p99_us".into(), json!(round(spread.quantile(0.99))));
            Value::Object(object)
        };
        let mut found = Map::new();
        found.insert("device".into(), json!(device.name()));
        found.insert("machine".into(), machine::describe());
        found.insert("program".into(), json!(format!("relu of fp16 [1, 1, 1, {VALUES}]")));
        found.extend(rows.iter().map(|(name, spread)| (name.to_string(), object(spread))));
        found.insert("clock".into(), object(&clock));
        return out::line(Value::Object(found));
    }
    out::line(format_args!("one op over {VALUES} values on {}, {repeat} times each", device.name()))?;
    out::line(format_args!("  {}", machine::line()))?;
    out::line("                       median       p99    lowest   highest")?;
    for (name, spread) in rows.iter().map(|(n, s)| (*n, s)).chain([("clock alone", &clock)]) {
        let columns = [spread.median(), spread.quantile(0.99), spread.lowest(), spread.highest()];
        let columns: String = columns.iter().map(|us| format!("{:>10}", short(*us))).collect();
        out::line(format_args!("  {name:16} {columns}  µs"))?;
    }
    out::line("  evaluate: on this thread; submit: until the call is back; complete: until the result is there")
}

/// `y = relu(x)`.
fn minimal() -> Result<Program> {
    let mut b = Builder::new("main", Opset::IOS16);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 1, 1, VALUES]))?;
    let y = b.op("relu", "y", [("x", x.into())])?;
    Ok(b.finish(&[("y", y)])?)
}

fn elapsed(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6
}

/// Each call times itself.
fn micros(repeat: usize, mut call: impl FnMut() -> Result<f64>) -> Result<Spread> {
    for _ in 0..WARM_UP.min(repeat) {
        call()?;
    }
    let times = (0..repeat).map(|_| call()).collect::<Result<Vec<f64>>>()?;
    Ok(Spread::of(times))
}

fn evaluate(request: &Request) -> Result<f64> {
    let begun = Instant::now();
    black_box(request.evaluate()?);
    Ok(elapsed(begun))
}

fn submit(request: &Request) -> Result<f64> {
    let begun = Instant::now();
    let submission = request.submit()?;
    let time = elapsed(begun);
    submission.wait()?;
    Ok(time)
}

fn complete(request: &Request) -> Result<f64> {
    let begun = Instant::now();
    black_box(request.submit()?.wait()?);
    Ok(elapsed(begun))
}
