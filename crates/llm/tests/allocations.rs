//! The ten kernels of a training step, evaluated on the emulator, and a decoder's token allocate
//! nothing after a first run, and a decoder does not hold weights in fp32. This is a separate
//! binary, because its allocator counts the allocations of the whole process.

use std::sync::Mutex;

use ferrane_device::{Bindings, Device};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_host::sync::lock;
use ferrane_llm::config::{Config, preset};
use ferrane_llm::decode::quantize::WeightType;
use ferrane_llm::decode::{Decoder, Options as Decode};
use ferrane_llm::kernels;
use ferrane_llm::layout::{Kernel, Residual, Shape, WeightForm};
use ferrane_llm::weights::{self, Init, Weights, native};
use ferrane_testdata::heap::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Only one test at a time may count allocations.
static TURN: Mutex<()> = Mutex::new(());

/// Interleaved pairs and shared heads; halves, and heads with norms.
fn models() -> [Config; 2] {
    let mut normed = preset("qwen3-0.6b").unwrap();
    (normed.dim, normed.hidden, normed.heads, normed.kv_heads, normed.head_dim) = (64, 96, 4, 2, 16);
    [preset("stories260k").unwrap(), normed]
}

#[test]
fn a_decoded_token_allocates_nothing() {
    let _turn = lock(&TURN);
    for config in models() {
        let config = Config { vocab: 512, layers: 2, ..config };
        let weights = Weights::init(&config, Init::Normal { std: 0.02 }, 1);
        let device = Device::new(Emulator::new(EmulatorOptions::default()));
        for kind in [WeightType::Fp16, WeightType::Int4] {
            let options = Decode { slots: 3, weights: kind, ..Decode::default() };
            let mut decoder = Decoder::new(&device, &config, &weights, options).unwrap();
            decoder.feed(&[7; 40]).unwrap();
            for feeds in [&[(0, &[9][..])][..], &[(0, &[9]), (1, &[4]), (2, &[5])]] {
                let mut token = || _ = decoder.feed_all(feeds).unwrap();
                (0..20).for_each(|_| token());
                let count = (0..20).map(|_| heap::of(&mut token)).min().unwrap();
                assert_eq!(count, 0, "{feeds:?} {kind:?} {config:?}");
            }
        }
    }
}

/// A decoder of a file in fp32 holds its weights in fp16 or int8, and at no time a copy in fp32.
#[test]
fn a_decoder_holds_no_weights_in_fp32() {
    let _turn = lock(&TURN);
    let base = preset("stories260k").unwrap();
    let sizes = Config { dim: 512, hidden: 1024, heads: 8, kv_heads: 4, head_dim: 64, ..base };
    let config = Config { vocab: 16_384, layers: 6, ..sizes };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    native::save(&path, &config, &Weights::init(&config, Init::Normal { std: 0.02 }, 1)).unwrap();
    let device = Device::new(Emulator::new(EmulatorOptions::default()));
    for weights in [WeightType::Fp16, WeightType::Int8] {
        let make = || {
            let (config, source) = weights::open(&path, None).unwrap();
            Decoder::new(&device, &config, &source, Decode { weights, ..Decode::default() }).unwrap()
        };
        // Threads of the pool and tables of the emulator are there from the first time on.
        drop(make());
        let (mut decoder, peak) = heap::peak_of(make);
        // The classifier is the embedding, so a token reads all of the weights.
        let bytes = decoder.bytes_per_token();
        // A copy in fp32 alone would take more. Large surfaces are not on the heap everywhere, but
        // the embedding is.
        let (wide, embedding) = (4 * config.parameters(), config.vocab * config.dim);
        assert!(peak > embedding && peak < wide, "{weights:?}: {peak} bytes for {bytes} of weights, {wide} in fp32");
        assert!(decoder.feed(&[1, 2, 3]).unwrap().iter().all(|logit| logit.is_finite()));
    }
}

#[test]
fn a_training_kernel_allocates_nothing() {
    let _turn = lock(&TURN);
    for config in models() {
        let shape = Shape::new(config, 128, Residual::Fp32, WeightForm::Packed);
        let device = Device::new(Emulator::new(EmulatorOptions::default()));
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
            // The minimum of many runs, because rayon's queues grow by blocks now and then.
            let count = (0..20).map(|_| heap::of(|| _ = request.evaluate().unwrap())).min().unwrap();
            assert_eq!(count, 0, "{}", kernel.name());
        }
    }
}
