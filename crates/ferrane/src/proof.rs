//! What evidence there is that a Neural Engine ran a program.
//!
//! Apple's frameworks may run a program on the CPU or the GPU instead and say nothing. No single
//! observation from outside settles where it ran, so [`prove`] makes several, and states with each
//! what it can and what it cannot show.
//!
//! ```
//! use ferrane::{Call, Tensor, mil, proof};
//!
//! let mut b = mil::Builder::new("main", mil::Opset::IOS18);
//! let x = b.input("x", mil::Type::tensor(mil::DataType::Fp16, &[1, 64, 1, 64]))?;
//! let y = b.relu("y", x)?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let device = ferrane::open("emulator")?;
//! let values: Vec<f32> = (0..64 * 64).map(|i| i as f32 / 64.0 - 32.0).collect();
//! let call = Call::new().input("x", Tensor::fp16(&[1, 64, 1, 64], &values)?);
//! let found = proof::prove(&device, &program, &call)?;
//! assert!(!found.on_engine, "an emulator is no engine");
//! assert_eq!(found.evidence("written").map(|e| e.holds), Some(Some(true)));
//! println!("{found}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::time::{Duration, Instant};

use ferrane_device::{BoundProcedure, Call, Device, Error, ErrorKind, Result, Stats, Tensor, Tensors, fits_surfaces};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_machine::cost::{CostModel, predict_function};
use ferrane_mil::{DataType, Function, Program};
use ferrane_sensors::{Domain, Interval, Power};
use serde::Serialize;

use crate::sensors;

/// The byte that fills outputs before the first evaluation: NaN as fp16 and as fp32.
const POISON: u8 = 0xFF;
/// Evaluations that are compared and timed.
const EVALUATIONS: usize = 20;
/// How long the engine is left alone, and then kept busy, to compare its power.
const METERED: Duration = Duration::from_millis(500);
/// The least rise of the engine's power, in watts, that is no noise. An idle engine draws nothing
/// that its counter shows, and a busy one watts (headline-results, power).
const RISE: f64 = 0.01;
/// How far a time may be from the model's and still agree with it, as a factor.
const FACTOR: f64 = 2.0;

/// An observation, with what follows from it and what does not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// `device`, `written`, `repeatable`, `follows-inputs`, `arithmetic`, `time`, `clock` or
    /// `energy`.
    pub name: &'static str,
    /// True if the observation is what an engine would give, false if it is not, `None` if it could
    /// not be made.
    pub holds: Option<bool>,
    /// What was observed, with numbers.
    pub observed: String,
    /// What it shows if it holds.
    pub shows: &'static str,
    /// What it does not show.
    pub cannot_show: &'static str,
}

/// What [`prove`] observed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proof {
    /// The device, with its options.
    pub device: String,
    /// True if the device reaches an engine through Apple's framework.
    pub on_engine: bool,
    /// The observations, in the order in which they were made.
    pub evidence: Vec<Evidence>,
}

impl Proof {
    /// The observation of this name.
    pub fn evidence(&self, name: &str) -> Option<&Evidence> {
        self.evidence.iter().find(|e| e.name == name)
    }

    /// True if no observation speaks against an engine.
    pub fn is_consistent(&self) -> bool {
        self.evidence.iter().all(|e| e.holds != Some(false))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "evidence that {} ran the program:", self.device)?;
        for Evidence { name, holds, observed, shows, cannot_show } in &self.evidence {
            let mark = match holds {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "-",
            };
            writeln!(f, "  {mark:<4} {name:<15} {observed}")?;
            writeln!(f, "       {:<15} shows: {shows}", "")?;
            writeln!(f, "       {:<15} cannot show: {cannot_show}", "")?;
        }
        f.write_str(match (self.on_engine, self.is_consistent()) {
            (false, _) => "  this device is no Neural Engine\n",
            (true, true) => "  nothing speaks against the engine\n",
            (true, false) => "  something speaks against the engine: see NO above\n",
        })
    }
}

/// Runs the function of a call several times and collects evidence.
///
/// # Errors
/// As [`Device::call`]: the program does not compile, load or run.
pub fn prove(device: &Device, program: &Program, call: &Call) -> Result<Proof> {
    let name = call.function_name();
    let function = program.functions.iter().find(|f| name.is_none_or(|n| n == f.name));
    if function.is_some_and(|f| !fits_surfaces(f)) {
        let why = "the ports of the function have no surfaces, so no engine runs it";
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    let bound = device.load(program, "proof")?.bind(call.function_name())?;
    for port in &bound.procedure().outputs {
        bound.surface(&port.name)?.write()?.bytes_mut().fill(POISON);
    }
    let first = bound.call(call.given_inputs(), call.given_states())?.outputs;
    let name = device.name();
    let on_engine = name.starts_with("ane");
    let mut evidence = vec![
        Evidence {
            name: "device",
            holds: Some(on_engine),
            observed: name.clone(),
            shows: "requests go to the engine's framework",
            cannot_show: "what the framework does with them",
        },
        written(&first),
    ];
    let (mut times, mut same) = (Vec::new(), true);
    for _ in 0..EVALUATIONS {
        bound.write_states(call.given_states())?;
        let begun = Instant::now();
        let stats = bound.evaluate()?;
        times.push((begun.elapsed(), stats));
        same &= bound.outputs()? == first;
    }
    evidence.push(Evidence {
        name: "repeatable",
        holds: Some(same),
        observed: format!("{EVALUATIONS} evaluations give {} bits", if same { "the same" } else { "different" }),
        shows: "results do not depend on what ran before",
        cannot_show: "which unit computes; CPUs are deterministic, too",
    });
    let other = bound.call(&changed(call.given_inputs())?, call.given_states())?.outputs;
    evidence.push(follows(&first, &other));
    evidence.push(arithmetic(device, program, call, &first));
    evidence.push(time(device, function, &times));
    evidence.push(clock(&times));
    evidence.push(energy(drawn(&bound)?));
    Ok(Proof { device: name, on_engine, evidence })
}

fn written(outputs: &Tensors) -> Evidence {
    let floats = |t: &Tensor| matches!(t.dtype(), DataType::Fp16 | DataType::Fp32);
    let untouched = |t: &Tensor| t.bytes().iter().all(|b| *b == POISON) && floats(t) && !t.is_empty();
    let blank: Vec<&str> = outputs.iter().filter(|(_, t)| untouched(t)).map(|(n, _)| n.as_str()).collect();
    Evidence {
        name: "written",
        holds: Some(blank.is_empty()),
        observed: match blank.as_slice() {
            [] => "every output differs from what it was filled with".into(),
            some => format!("unchanged after the evaluation: {}", some.join(", ")),
        },
        shows: "the evaluation happened",
        cannot_show: "which unit wrote",
    }
}

/// The inputs, negated; integers and bools as they are.
fn changed(inputs: &Tensors) -> Result<Tensors> {
    let negated = |(name, tensor): &(String, Tensor)| {
        let tensor = match tensor.dtype() {
            DataType::Fp16 | DataType::Fp32 => {
                let values: Vec<f32> = tensor.to_f32().iter().map(|v| -v).collect();
                Tensor::from_f32(tensor.dtype(), tensor.shape(), &values)?
            }
            _ => tensor.clone(),
        };
        Ok((name.clone(), tensor))
    };
    inputs.iter().map(negated).collect()
}

fn follows(first: &Tensors, other: &Tensors) -> Evidence {
    let differ = first != other;
    Evidence {
        name: "follows-inputs",
        // A program may be even in its inputs.
        holds: differ.then_some(true),
        observed: match differ {
            true => "negated inputs change the outputs".into(),
            false => "negated inputs leave the outputs as they are".into(),
        },
        shows: "results are computed from these inputs, and are not left over",
        cannot_show: "which unit computes",
    }
}

/// The share of elements that are equal to the bit.
fn equal(found: &Tensors, wanted: &Tensors) -> Option<f64> {
    let (mut same, mut all) = (0usize, 0usize);
    for (name, tensor) in found {
        let wanted = wanted.find(name).filter(|w| w.ty() == tensor.ty())?;
        same += tensor.elements().zip(wanted.elements()).filter(|(a, b)| a == b).count();
        all += tensor.len();
    }
    (all > 0).then(|| same as f64 / all as f64)
}

fn arithmetic(device: &Device, program: &Program, call: &Call, found: &Tensors) -> Evidence {
    let of = |numerics| -> Option<f64> {
        let mut options = EmulatorOptions::default();
        options.profile = device.profile().clone();
        options.numerics = numerics;
        let returned = Device::new(Emulator::new(options)).call(program, call.clone()).ok()?;
        equal(found, &returned.outputs)
    };
    let shares = of(Numerics::Hardware).zip(of(Numerics::Fast));
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    Evidence {
        name: "arithmetic",
        // Where both agree with all elements, the program has nothing to round differently.
        holds: shares.filter(|(engine, cpu)| engine != cpu).map(|(engine, cpu)| engine > cpu),
        observed: match shares {
            Some((engine, cpu)) => format!(
                "{} of the elements are those of the engine's published arithmetic, {} those of fp32 rounded to fp16",
                percent(engine),
                percent(cpu)
            ),
            None => "the emulator does not run the program".into(),
        },
        shows: "sums and functions are the engine's: its grid, its ceiling, its tables",
        cannot_show: "anything where both arithmetics round alike",
    }
}

fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut all: Vec<f64> = times.map(|t| t.as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

fn time(device: &Device, function: Option<&Function>, times: &[(Duration, Stats)]) -> Evidence {
    let measured = median(times.iter().map(|(wall, _)| *wall));
    let predicted = CostModel::for_profile(device.profile()).ok().zip(function);
    let predicted = predicted.and_then(|(model, f)| Some(predict_function(f, &model).ok()?.total_us / 1e3));
    let near = |predicted: f64| measured < FACTOR * predicted && predicted < FACTOR * measured;
    Evidence {
        name: "time",
        holds: predicted.map(near),
        observed: match predicted {
            Some(predicted) => format!("{measured:.3} ms; the cost model has {predicted:.3} ms"),
            None => format!("{measured:.3} ms; the cost model has none for the program"),
        },
        shows: "an evaluation takes as long as on the engine",
        cannot_show: "that no other unit is as fast",
    }
}

fn clock(times: &[(Duration, Stats)]) -> Evidence {
    let reported: Vec<Duration> = times.iter().filter_map(|(_, stats)| stats.hardware).collect();
    let all = !reported.is_empty() && reported.len() == times.len();
    Evidence {
        name: "clock",
        holds: all.then_some(true),
        observed: match all {
            true => format!("the device reports {:.3} ms of its own", median(reported.into_iter())),
            false => "the device reports no time of its own".into(),
        },
        shows: "the driver counted time on the engine",
        cannot_show: "how much of the program that was",
    }
}

/// What the engine draws when this process leaves it alone, what it draws while the procedure is
/// evaluated, and the number of evaluations; the reason if nothing meters the engine.
fn drawn(bound: &BoundProcedure) -> Result<std::result::Result<(Power, Power, usize), String>> {
    let mut sensors = sensors::open();
    let first = sensors.read();
    if !first.energy.iter().any(|e| e.domain == Domain::Ane) {
        let why: Vec<String> = first.without_sensor().map(ToString::to_string).collect();
        return Ok(Err(if why.is_empty() { "no counter of this computer".into() } else { why.join("; ") }));
    }
    std::thread::sleep(METERED);
    let (second, mut evaluations) = (sensors.read(), 0);
    while second.at.elapsed() < METERED {
        bound.evaluate()?;
        evaluations += 1;
    }
    let third = sensors.read();
    let of = |interval: Interval| interval.power(Domain::Ane).cloned();
    let pair = of(second.since(&first)).zip(of(third.since(&second)));
    Ok(pair.map(|(idle, busy)| (idle, busy, evaluations)).ok_or_else(|| "its counter vanished".into()))
}

fn energy(drawn: std::result::Result<(Power, Power, usize), String>) -> Evidence {
    Evidence {
        name: "energy",
        holds: drawn.as_ref().ok().and_then(|(idle, busy, _)| match idle.joules + busy.joules {
            0.0 => None,
            _ => Some(busy.watts > idle.watts + RISE),
        }),
        observed: match drawn {
            Err(why) => format!("the engine's energy is unknown ({why})"),
            Ok((idle, busy, _)) if idle.joules + busy.joules == 0.0 => {
                format!("the counter ({}) does not count on this system", busy.source)
            }
            Ok((idle, busy, evaluations)) => format!(
                "the engine draws {:.3} W while the program runs and {:.3} W before, {:.3} mJ an evaluation ({})",
                busy.watts,
                idle.watts,
                1e3 * busy.joules / evaluations.max(1) as f64,
                busy.source
            ),
        },
        shows: "the engine works while the program runs",
        cannot_show: "for whom: other processes use the engine, too; the counter is the system's estimate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_mil::{Builder, Constant, Opset, Type};

    /// `y = x / 3`, in fp16.
    fn program() -> (Program, Call) {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 1, 64])).unwrap();
        let y = b.mul("y", x, Constant::fp16(1.0 / 3.0)).unwrap();
        let values: Vec<f32> = (0..64 * 64).map(|i| i as f32 / 64.0 - 31.9).collect();
        let call = Call::new().input("x", Tensor::fp16(&[1, 64, 1, 64], &values).unwrap());
        (b.finish(&[("y", y)]).unwrap(), call)
    }

    fn proved(change: impl FnOnce(&mut EmulatorOptions)) -> Proof {
        let mut options = EmulatorOptions::default();
        change(&mut options);
        let (program, call) = program();
        prove(&Device::new(Emulator::new(options)), &program, &call).unwrap()
    }

    fn holds(proof: &Proof, name: &str) -> Option<bool> {
        proof.evidence(name).unwrap().holds
    }

    #[test]
    fn an_emulator_is_no_engine_and_its_clock_is_not_reported() {
        let found = proved(|_| {});
        assert!(!found.on_engine && !found.is_consistent());
        assert_eq!(holds(&found, "device"), Some(false));
        for name in ["written", "repeatable", "follows-inputs"] {
            assert_eq!(holds(&found, name), Some(true), "{name}");
        }
        assert_eq!(holds(&found, "clock"), None);
        let paced = proved(|o| o.pace = true);
        assert_eq!(holds(&paced, "clock"), Some(true));
        // Whether the time agrees depends on what else this computer does.
        assert!(holds(&paced, "time").is_some());
    }

    #[test]
    fn what_is_not_written_or_not_stable_is_seen() {
        let blank = Tensors::from_iter([("y".to_string(), Tensor::new(DataType::Fp16, [4], vec![POISON; 8]).unwrap())]);
        assert_eq!(written(&blank).holds, Some(false));
        let unstable = proved(|o| o.faults = "evaluate:7=corrupt".parse().unwrap());
        assert_eq!(holds(&unstable, "repeatable"), Some(false));
    }

    #[test]
    fn energy_speaks_only_where_a_counter_counts() {
        let power = |joules: f64| Power { domain: Domain::Ane, source: "s", watts: joules / 0.5, joules };
        let of = |idle: f64, busy: f64| energy(Ok((power(idle), power(busy), 100)));
        assert_eq!(of(0.0, 1.0).holds, Some(true));
        assert!(of(0.0, 1.0).observed.contains("2.000 W") && of(0.0, 1.0).observed.contains("10.000 mJ an evaluation"));
        assert_eq!(of(1.0, 1.001).holds, Some(false), "another process keeps the engine busy");
        assert_eq!(of(0.0, 0.0).holds, None, "the counter is frozen");
        let unknown = energy(Err("no RAPL".into()));
        assert!(unknown.holds.is_none() && unknown.observed.contains("no RAPL"));
    }

    #[test]
    fn arithmetic_tells_an_engine_from_a_cpu() {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 1, 64])).unwrap();
        let y = b.op(ferrane_mil::op::SIGMOID, "y", [("x", x.into())]).unwrap();
        let program = b.finish(&[("y", y)]).unwrap();
        let (_, call) = self::program();
        for (numerics, expected) in [(Numerics::Hardware, true), (Numerics::Fast, false)] {
            let mut options = EmulatorOptions::default();
            options.numerics = numerics;
            let found = prove(&Device::new(Emulator::new(options)), &program, &call).unwrap();
            assert_eq!(holds(&found, "arithmetic"), Some(expected), "{found}");
        }
    }
}
