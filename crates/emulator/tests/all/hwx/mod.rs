//! Compiled programs: run task by task, against MIL programs that are derived from what the files
//! say.

mod built;
mod edited;
mod hostile;
mod lifted;
mod samples;

use ferrane_arith::{Rules, SigmoidTable};
use ferrane_emulator::hwx::Interpreter;
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_hwx::Hwx;
use ferrane_hwx::describe::HwxReport;
use ferrane_hwx::task::Task;
use ferrane_hwx::weights::Lanes;
use ferrane_mil::{Constant, DataType};

use crate::harness::Tensor;

/// An emulator whose sigmoid is the plain table, which is the one in files of H13.
fn options(numerics: Numerics) -> EmulatorOptions {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    if numerics == Numerics::Hardware {
        options.rules = Some(Rules { sigmoid: SigmoidTable::Plain, ..Rules::published() });
    }
    options
}

/// Numbers of a seed.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }

    /// About normal, with this standard deviation: a sum of twelve uniform numbers.
    fn normal(&mut self, sigma: f64) -> f64 {
        let uniform = |n: &mut Numbers| (n.next() >> 11) as f64 / (1u64 << 53) as f64;
        sigma * ((0..12).map(|_| uniform(self)).sum::<f64>() - 6.0)
    }
}

/// The tasks of a file with one section of them.
fn tasks(hwx: &Hwx) -> Vec<Task> {
    let texts = hwx.task_sections();
    let (section, first) = texts.first().expect("a section of tasks");
    hwx.tasks(section, *first).expect("tasks that can be read")
}

/// Puts random weights into the kernel sections of a file, `[Cout, Cin, Kh, Kw]` for each task that
/// has some: compilers' samples hold patterns that overflow.
fn weighted(bytes: &[u8], seed: u64) -> (Vec<u8>, Vec<Option<Tensor>>) {
    let hwx = Hwx::read(bytes).expect("a compiled program");
    let Some(generation) = hwx.generation() else { return (bytes.to_vec(), Vec::new()) };
    let (report, mut changed, mut numbers) = (HwxReport::of(&hwx), bytes.to_vec(), Numbers::new(seed));
    let told = &report.texts[0].tasks;
    let mut all = Vec::new();
    for (task, told) in tasks(&hwx).iter().zip(told) {
        let kernel = told.kernel.as_ref().and_then(|k| k.place.as_ref());
        let section = kernel.and_then(|place| {
            let ferrane_hwx::describe::NamedLocation::Buffer { name, .. } = place else { return None };
            hwx.sections().into_iter().find(|s| s.label() == *name && s.has_content())
        });
        let lanes = Lanes::of_task(generation, task);
        let (Some(section), Ok(lanes)) = (section, lanes) else {
            all.push(None);
            continue;
        };
        let g = lanes.shape();
        let values: Vec<f64> = (0..g.len()).map(|_| numbers.normal(0.05)).collect();
        let shape = [g.cout, g.cin, g.kh, g.kw].map(|n| n as usize);
        let weights = Tensor::new(DataType::Fp16, &shape, values);
        let halves: Vec<_> = weights.values.iter().map(|v| ferrane_host::f16::from_f64(*v)).collect();
        let range = section.offset as usize..(u64::from(section.offset) + section.size) as usize;
        let buffer = &mut changed[range];
        let table = lanes.table(buffer).copied();
        lanes.pack_into(&halves, table.as_ref(), buffer).expect("weights of the task's shape");
        all.push(Some(weights));
    }
    (changed, all)
}

/// Random inputs of a program, in its order.
fn inputs(interpreter: &Interpreter, seed: u64) -> Vec<(String, Tensor)> {
    let input = |(i, port): (usize, &ferrane_emulator::hwx::Port)| {
        (port.name.clone(), Tensor::random(DataType::Fp16, &port.shape, seed + i as u64))
    };
    interpreter.inputs().enumerate().map(input).collect()
}

/// Runs a program on these inputs; its outputs by name.
fn run(interpreter: &Interpreter, inputs: &[(String, Tensor)]) -> ferrane_device::Result<Vec<(String, Tensor)>> {
    let constant = |t: &Tensor| Constant::raw(DataType::Fp16, &t.shape, &t.to_bytes());
    let inputs: Vec<_> = inputs.iter().map(|(name, t)| (name.clone(), constant(t))).collect();
    let weights = ferrane_mil::Weights::new();
    let tensor = |(name, c): (String, Constant)| {
        let shape = c.ty().shape().expect("a tensor");
        (name, Tensor::from_bytes(DataType::Fp16, &shape, c.bytes(&weights).expect("inline elements")))
    };
    Ok(interpreter.run(&inputs)?.into_iter().map(tensor).collect())
}

fn interpreter(numerics: Numerics, bytes: &[u8]) -> ferrane_device::Result<Interpreter> {
    let hwx = Hwx::read(bytes).expect("a compiled program");
    Interpreter::new(&Emulator::new(options(numerics)), &hwx, None)
}

/// True for a refusal that names a register: `task 1: PE.PECfg (0x4500) = 0x1000: …`.
fn names_a_register(error: &ferrane_device::Error) -> bool {
    let message = error.message();
    message.starts_with("task ") && message.contains(" (0x")
}
