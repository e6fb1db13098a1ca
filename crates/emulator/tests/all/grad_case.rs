//! Gradients of one op, and what they are compared with: central differences of its forward in the
//! `exact` table.

use ferrane_device::{Bindings, Device, Executable, Request, Surface};
use ferrane_emulator::Numerics;
use ferrane_mil::grad::{VjpOptions, vjp};
use ferrane_mil::{Arg, Builder, Constant, DataType, Program, Type, ValueId, check, parse, print};

use crate::harness::{Tensor, close, emulator};

use DataType::{Fp16, Fp32};

pub struct Loaded {
    inputs: Vec<(String, Surface)>,
    outputs: Vec<(String, Surface)>,
    request: Request,
    _executable: Executable,
}

impl Loaded {
    pub fn new(device: &Device, program: &Program) -> Loaded {
        let executable = device.load(program, "grad").unwrap_or_else(|e| panic!("{e}\n{}", print(program)));
        let procedure = &executable.procedures()[0];
        let mut bindings = Bindings::new();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (ports, list) in [(&procedure.inputs, &mut inputs), (&procedure.outputs, &mut outputs)] {
            for port in ports {
                let surface = device.surface(&port.layout).unwrap();
                bindings = bindings.bind(&port.name, &surface);
                list.push((port.name.clone(), surface));
            }
        }
        let request = executable.prepare(bindings).unwrap();
        Loaded { inputs, outputs, request, _executable: executable }
    }

    /// Inputs by name; outputs with their names.
    pub fn run(&self, values: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
        for (name, surface) in &self.inputs {
            let (_, tensor) = values.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no value for {name}"));
            surface.write().unwrap().bytes_mut().copy_from_slice(&tensor.to_bytes());
        }
        self.request.evaluate().unwrap();
        let read = |s: &Surface| Tensor::from_bytes(s.layout().dtype, &s.layout().shape, s.read().unwrap().bytes());
        self.outputs.iter().map(|(n, s)| (n.clone(), read(s))).collect()
    }
}

/// One op with its operands.
#[derive(Clone)]
pub struct Case {
    pub op: &'static str,
    pub opset: &'static str,
    /// Values that come in when the program runs; `values0`, `values1`, … are one list.
    pub inputs: Vec<(String, Tensor)>,
    /// Values that the signature wants constant, differentiated all the same.
    pub weights: Vec<(String, Tensor)>,
    pub constants: Vec<(&'static str, Constant)>,
}

pub fn case(op: &'static str, inputs: &[(&str, Tensor)], constants: &[(&'static str, Constant)]) -> Case {
    let inputs = inputs.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    Case { op, opset: "ios18", inputs, weights: Vec::new(), constants: constants.to_vec() }
}

impl Case {
    pub fn weights(mut self, weights: &[(&str, Tensor)]) -> Case {
        self.weights = weights.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
        self
    }

    pub fn opset(mut self, opset: &'static str) -> Case {
        self.opset = opset;
        self
    }

    pub fn program(&self) -> Program {
        let mut b = Builder::new("main", self.opset.parse().unwrap());
        let mut args: Vec<(String, Arg)> = Vec::new();
        let mut list = Vec::new();
        for (name, tensor) in &self.inputs {
            let id = b.input(name, Type::tensor(tensor.dtype, &tensor.shape)).unwrap();
            match name.starts_with("values") {
                true => list.push(id),
                false => args.push((name.clone(), id.into())),
            }
        }
        if !list.is_empty() {
            args.push(("values".into(), list.into()));
        }
        for (name, t) in &self.weights {
            let id = b.constant(name, Constant::raw(t.dtype, &t.shape, &t.to_bytes())).unwrap();
            args.push((name.clone(), id.into()));
        }
        args.extend(self.constants.iter().map(|(n, c)| (n.to_string(), c.clone().into())));
        let outputs = b.ops(self.op, "y", args.iter().map(|(n, a)| (n.as_str(), a.clone()))).unwrap();
        let names: Vec<String> = (0..outputs.len()).map(|i| format!("result{i}")).collect();
        let pairs: Vec<(&str, ValueId)> = names.iter().map(String::as_str).zip(outputs).collect();
        b.finish(&pairs).unwrap()
    }

    /// Compares every gradient with differences.
    pub fn verify(&self) {
        let label = format!("{} {}", self.op, self.opset);
        let program = self.program();
        let wrt: Vec<String> =
            self.inputs.iter().chain(&self.weights).filter(|(_, t)| t.dtype == Fp32).map(|(n, _)| n.clone()).collect();
        let found = gradients(&program, &self.inputs, &wrt);
        let device = emulator(Numerics::Exact);
        let loaded = Loaded::new(&device, &program);
        for (name, gradient) in &found {
            let mut moved = self.clone();
            let is_weight = self.weights.iter().any(|(n, _)| n == name);
            let slopes = differences(gradient.values.len(), |i, delta| {
                let values = if is_weight { &mut moved.weights } else { &mut moved.inputs };
                let (_, tensor) = values.iter_mut().find(|(n, _)| n == name).unwrap();
                let kept = tensor.values[i];
                tensor.values[i] = f64::from((kept + delta) as f32);
                let loss = match is_weight {
                    true => loss(&Loaded::new(&device, &moved.program()).run(&moved.inputs)),
                    false => loss(&loaded.run(&moved.inputs)),
                };
                let values = if is_weight { &mut moved.weights } else { &mut moved.inputs };
                values.iter_mut().find(|(n, _)| n == name).unwrap().1.values[i] = kept;
                loss
            });
            agree(&format!("{label}: d_{name}"), &gradient.values, &slopes);
        }
    }
}

/// The cotangent of a result: fixed numbers, none of them alike.
pub fn cotangent(of: &Tensor, seed: usize) -> Tensor {
    let value = |i: usize| (0.7 + 1.3 * (i + 5 * seed) as f64).sin() + 0.25;
    Tensor::new(of.dtype, &of.shape, (0..of.values.len()).map(|i| f64::from(value(i) as f32)).collect())
}

/// The sum of the float results, each weighted by its cotangent.
pub fn loss(results: &[(String, Tensor)]) -> f64 {
    let floats = results.iter().enumerate().filter(|(_, (_, t))| matches!(t.dtype, Fp32 | Fp16));
    floats.flat_map(|(i, (_, t))| t.values.iter().zip(cotangent(t, i).values).map(|(a, b)| a * b)).sum()
}

/// The adjoints of `wrt`, and what holds of every backward program: it passes the registry, is a
/// fixpoint of printing and parsing, and both tables run it alike.
pub fn gradients(program: &Program, inputs: &[(String, Tensor)], wrt: &[String]) -> Vec<(String, Tensor)> {
    let forward = Loaded::new(&emulator(Numerics::Exact), program).run(inputs);
    let mut values = inputs.to_vec();
    let mut outputs = Vec::new();
    for (i, (name, tensor)) in forward.iter().enumerate() {
        if matches!(tensor.dtype, Fp32 | Fp16) {
            outputs.push(name.as_str());
            values.push((format!("d_{name}"), cotangent(tensor, i)));
        }
    }
    let names: Vec<&str> = wrt.iter().map(String::as_str).collect();
    let backward = vjp(program, "main", &outputs, &names, &VjpOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let errors = check(&backward.functions[0], &backward.weights);
    assert!(errors.is_empty(), "{errors:?}\n{}", print(&backward));
    let text = print(&backward);
    assert_eq!(print(&parse(&text, &backward.weights).unwrap()), text);

    let exact = Loaded::new(&emulator(Numerics::Exact), &backward).run(&values);
    let fast = Loaded::new(&emulator(Numerics::Fast), &backward).run(&values);
    for ((name, a), (_, b)) in exact.iter().zip(&fast) {
        // Sums of some hundred terms in another order; approximations of functions to 1e-5.
        let top = a.values.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        close(&b.values, &a.values, 2e-4 * top, 2e-4).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
    }
    let found: Vec<_> = exact.into_iter().map(|(n, t)| (n.trim_start_matches("d_").to_string(), t)).collect();
    assert_eq!(found.iter().map(|(n, _)| n).collect::<Vec<_>>(), wrt.iter().collect::<Vec<_>>());
    found
}

/// Slopes by four points: the truncation error is of the order h⁴.
pub fn differences(count: usize, mut loss_at: impl FnMut(usize, f64) -> f64) -> Vec<f64> {
    const H: f64 = 1.0 / 64.0;
    (0..count)
        .map(|i| {
            let near = loss_at(i, H) - loss_at(i, -H);
            let far = loss_at(i, 2.0 * H) - loss_at(i, -2.0 * H);
            (8.0 * near - far) / (12.0 * H)
        })
        .collect()
}

/// An output has some units of 6e-8 of error, times 64 for the step: 1e-4 of the largest values,
/// with room for functions whose fifth derivative is large.
pub fn agree(label: &str, found: &[f64], wanted: &[f64]) {
    let top = wanted.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    close(found, wanted, 1e-3 * top, 0.0)
        .unwrap_or_else(|e| panic!("{label}: {e}\nfound {found:?}\nwanted {wanted:?}"));
}

/// Distinct values in (low, high), shuffled, each at least 0.6 / count of the range from its
/// neighbors.
pub fn spaced(shape: &[usize], low: f64, high: f64, seed: u64) -> Tensor {
    let count: usize = shape.iter().product();
    let noise = Tensor::random(Fp32, &[count.max(1)], seed);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| noise.values[*a].total_cmp(&noise.values[*b]));
    let at = |rank: usize| low + (high - low) * (rank as f64 + 0.5 + 0.2 * noise.values[rank]) / count as f64;
    Tensor::new(Fp32, shape, order.iter().map(|&rank| f64::from(at(rank) as f32)).collect())
}

pub fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::random(Fp32, shape, seed)
}
