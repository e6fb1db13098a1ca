//! The ten kernels of a training step, evaluated on the emulator, allocate nothing once they have run before. A binary of its own,
//! for its allocator counts everybody's allocations.

use ferrane_device::{Bindings, Device};
use ferrane_emulator::{Emulator, Options};
use ferrane_llm::config::preset;
use ferrane_llm::kernels;
use ferrane_llm::layout::{Kernel, Residual, Shape, WeightForm};
use ferrane_testdata::heap::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_training_kernel_allocates_nothing() {
    // Interleaved pairs and shared heads; halves, and heads with norms.
    let mut normed = preset("qwen3-0.6b").unwrap();
    (normed.dim, normed.hidden, normed.heads, normed.kv_heads, normed.head_dim) = (64, 96, 4, 2, 16);
    for config in [preset("stories260k").unwrap(), normed] {
        let shape = Shape::new(config, 128, Residual::Fp32, WeightForm::Packed);
        let device = Device::new(Emulator::new(Options::default()));
        for kernel in Kernel::ALL {
            let (program, _) = kernels::build(&shape, kernel).unwrap();
            let executable = device.load(&program, kernel.name()).unwrap();
            let procedure = &executable.procedures()[0];
            let mut bindings = Bindings::new();
            for port in procedure.inputs.iter().chain(&procedure.outputs) {
                let surface = device.surface(&port.layout).unwrap();
                let values = (0..port.layout.elements()).map(|i| ((i * 7919 % 2003) as f32 - 1000.5) * 1e-4);
                surface.write_f32(&values.collect::<Vec<_>>()).unwrap();
                bindings = bindings.bind(&port.name, &surface);
            }
            let request = executable.prepare(bindings).unwrap();
            // Every thread of the pool grows its scratch.
            for _ in 0..20 {
                request.evaluate().unwrap();
            }
            // The cheapest of many: rayon's queues grow by blocks now and then.
            let count = (0..20).map(|_| heap::of(|| _ = request.evaluate().unwrap())).min().unwrap();
            assert_eq!(count, 0, "{}", kernel.name());
        }
    }
}
