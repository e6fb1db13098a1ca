//! Builds a program, runs it, gives its outputs as floats.

use ferrane_device::{Bindings, Device, Result};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Arg, Builder, Constant, DataType, Opset, Program, Type, ValueId};

pub const BOTH: [Numerics; 2] = [Numerics::Fast, Numerics::Exact];

pub fn emulator(numerics: Numerics) -> Device {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    Device::new(Emulator::new(options))
}

/// A tensor of any type, as floats.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DataType,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Tensor {
    pub fn new(dtype: DataType, shape: &[usize], values: Vec<f64>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len());
        let mut tensor = Tensor { dtype, shape: shape.to_vec(), values };
        if dtype == DataType::Fp16 {
            tensor.values.iter_mut().for_each(|v| *v = half(*v));
        }
        tensor
    }

    /// Pseudo-random values in (-1, 1) on the grid of the type.
    pub fn random(dtype: DataType, shape: &[usize], seed: u64) -> Tensor {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let count = shape.iter().product();
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let unit = (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
            match dtype {
                DataType::Fp16 => unit,
                DataType::Fp32 => f64::from(unit as f32),
                DataType::Bool => f64::from(u8::from(unit > 0.0)),
                _ => (unit * 50.0).round(),
            }
        };
        let values = (0..count).map(|_| next()).collect();
        Tensor::new(dtype, shape, values)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|&v| element(self.dtype, v)).collect()
    }

    pub fn from_bytes(dtype: DataType, shape: &[usize], bytes: &[u8]) -> Tensor {
        let size = dtype.bytes().unwrap();
        let values = bytes.chunks_exact(size).take(shape.iter().product()).map(|b| number(dtype, b)).collect();
        Tensor { dtype, shape: shape.to_vec(), values }
    }
}

/// Rounded to fp16.
pub fn half(v: f64) -> f64 {
    ferrane_host::f16::from_f64(v).to_f64()
}

fn element(dtype: DataType, v: f64) -> Vec<u8> {
    match dtype {
        DataType::Fp16 => ferrane_host::f16::from_f64(v).to_le_bytes().to_vec(),
        DataType::Fp32 => (v as f32).to_le_bytes().to_vec(),
        DataType::Int32 => (v as i32).to_le_bytes().to_vec(),
        DataType::UInt32 => (v as u32).to_le_bytes().to_vec(),
        DataType::Int16 => (v as i16).to_le_bytes().to_vec(),
        DataType::UInt16 => (v as u16).to_le_bytes().to_vec(),
        DataType::Int8 => vec![v as i8 as u8],
        _ => vec![v as u8],
    }
}

fn number(dtype: DataType, b: &[u8]) -> f64 {
    match dtype {
        DataType::Fp16 => ferrane_host::f16::from_le_bytes([b[0], b[1]]).to_f64(),
        DataType::Fp32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        DataType::Int32 => i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        DataType::UInt32 => u32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        DataType::Int16 => i16::from_le_bytes([b[0], b[1]]).into(),
        DataType::UInt16 => u16::from_le_bytes([b[0], b[1]]).into(),
        DataType::Int8 => (b[0] as i8).into(),
        _ => b[0].into(),
    }
}

/// Runs a program on inputs in order; outputs in order.
pub fn run(numerics: Numerics, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    run_on(&emulator(numerics), program, inputs)
}

/// The same on a device that is open.
pub fn run_on(device: &Device, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let executable = device.load(program, "test")?;
    let procedure = &executable.procedures()[0];
    assert_eq!(procedure.inputs.len(), inputs.len());
    let mut bindings = Bindings::new();
    for (port, tensor) in procedure.inputs.iter().zip(inputs) {
        assert_eq!((port.layout.dtype, &port.layout.shape), (tensor.dtype, &tensor.shape));
        let surface = device.surface(&port.layout)?;
        surface.write()?.bytes_mut().copy_from_slice(&tensor.to_bytes());
        bindings = bindings.bind(&port.name, &surface);
    }
    let mut outputs = Vec::new();
    for port in &procedure.outputs {
        let surface = device.surface(&port.layout)?;
        // Stale bytes that no result has; what is not written shows.
        surface.write()?.bytes_mut().fill(0xA5);
        bindings = bindings.bind(&port.name, &surface);
        outputs.push(surface);
    }
    executable.prepare(bindings)?.evaluate()?;
    outputs.iter().map(|s| Ok(Tensor::from_bytes(s.layout().dtype, &s.layout().shape, s.read()?.bytes()))).collect()
}

/// A program over inputs `a`, `b`, … of these tensors' types.
pub fn program(
    inputs: &[Tensor],
    body: impl FnOnce(&mut Builder, &[ValueId]) -> std::result::Result<Vec<ValueId>, ferrane_mil::MilError>,
) -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let ids: Vec<ValueId> = inputs
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let name = ((b'a' + i as u8) as char).to_string();
            b.input(&name, Type::tensor(t.dtype, &t.shape)).unwrap()
        })
        .collect();
    let outputs = body(&mut b, &ids).unwrap();
    let names: Vec<String> = (0..outputs.len()).map(|i| format!("out{i}")).collect();
    let pairs: Vec<(&str, ValueId)> = names.iter().map(String::as_str).zip(outputs).collect();
    b.finish(&pairs).unwrap()
}

/// Fails unless every value is within `absolute + relative · |wanted|`; NaN equals NaN.
pub fn close(found: &[f64], wanted: &[f64], absolute: f64, relative: f64) -> std::result::Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{} values instead of {}", found.len(), wanted.len()));
    }
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        let same = f == w || (f.is_nan() && w.is_nan());
        if !same && (f - w).abs().partial_cmp(&(absolute + relative * w.abs())) != Some(std::cmp::Ordering::Less) {
            return Err(format!("value {i} is {f}, not {w}"));
        }
    }
    Ok(())
}

/// Tolerance of one op on fp16 values: `exact` computes in fp32 and rounds into the fp16 surface
/// (half a unit, 2⁻¹¹), `fast` the same plus its functions' errors, which may tip a tie: one unit.
pub fn grid(numerics: Numerics) -> f64 {
    match numerics {
        Numerics::Exact => 5e-4,
        _ => 1e-3,
    }
}

/// Runs one op under both tables and compares with `wanted`.
pub fn check(
    op: &str,
    inputs: &[(&str, Tensor)],
    constants: &[(&str, Constant)],
    wanted: &[f64],
    absolute: f64,
    relative: impl Fn(Numerics) -> f64,
) {
    let tensors: Vec<Tensor> = inputs.iter().map(|(_, t)| t.clone()).collect();
    let program = program(&tensors, |b, ids| {
        let mut args: Vec<(&str, Arg)> = inputs.iter().zip(ids).map(|((n, _), v)| (*n, Arg::Value(*v))).collect();
        args.extend(constants.iter().map(|(n, c)| (*n, Arg::Const(c.clone()))));
        b.ops(op, "result", args)
    });
    for numerics in BOTH {
        let found = run(numerics, &program, &tensors).unwrap();
        close(&found[0].values, wanted, absolute, relative(numerics))
            .unwrap_or_else(|e| panic!("{op} {numerics:?}: {e}"));
    }
}

/// The ops of the steps that the fast plan of a program has, in order.
pub fn steps(program: &Program) -> Vec<String> {
    let steps = Emulator::new(EmulatorOptions::default()).time_steps(program, 1).unwrap();
    steps.into_iter().map(|s| s.op).collect()
}

/// Bits, with one NaN for all.
pub fn bits(t: &Tensor) -> Vec<u64> {
    t.values.iter().map(|v| if v.is_nan() { u64::MAX } else { v.to_bits() }).collect()
}
