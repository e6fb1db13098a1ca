//! The ten kernels of a preset on the emulator, next to the matrix products that they contain.
//!
//! `cargo bench -p ferrane-suite --bench kernels -- [PRESET] [SEQ] [KERNEL]`; naming a kernel also
//! prints the times of its steps.
#![allow(clippy::print_stdout, reason = "a bench shows its times")]

use std::time::{Duration, Instant};

use ferrane_device::{Bindings, Device};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_llm::kernels;
use ferrane_llm::layout::{Kernel, Residual, Shape, WeightForm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect(); // cargo adds `--bench`
    let preset = args.first().map_or("stories110m", String::as_str);
    let seq = args.get(1).map_or(Ok(256), |s| s.parse())?;
    let config = ferrane_llm::config::preset(preset)?;
    let shape = Shape::new(config, seq, Residual::Fp32, WeightForm::Packed);
    let device = Device::new(Emulator::new(EmulatorOptions::default()));
    println!("{preset}, {seq} tokens, {}", device.name());
    for kernel in Kernel::ALL {
        let (program, _) = kernels::build(&shape, kernel)?;
        let executable = device.load(&program, kernel.name())?;
        let mut bindings = Bindings::new();
        let procedure = &executable.procedures()[0];
        for port in procedure.inputs.iter().chain(&procedure.outputs) {
            let surface = device.surface(&port.layout)?;
            let values: Vec<f32> =
                (0..port.layout.elements()).map(|i| ((i * 7919 % 2003) as f32 - 1001.0) * 2e-4).collect();
            surface.write_f32(&values)?;
            bindings = bindings.bind(&port.name, &surface);
        }
        let request = executable.prepare(bindings)?;
        let mut best = Duration::MAX;
        for _ in 0..15 {
            let start = Instant::now();
            request.evaluate()?;
            best = best.min(start.elapsed());
        }
        let steps = Emulator::new(EmulatorOptions::default()).time_steps(&program, 10)?;
        let product: Duration = steps.iter().filter(|s| s.op == "matmul").map(|s| s.wall).sum();
        println!("{:12} {best:8.2?}   products {product:8.2?}   {} steps", kernel.name(), steps.len());
        if args.get(2).is_some_and(|k| k == kernel.name()) {
            for s in &steps {
                println!("    {:12} {:24} {:8.2?}  {} B read, {} B written", s.op, s.value, s.wall, s.read, s.written);
            }
        }
    }
    Ok(())
}
