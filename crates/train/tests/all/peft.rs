//! Training adapters as PyTorch with PEFT does, on the same windows and from the same values.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_emulator::Numerics;
use ferrane_testdata::Suite;
use ferrane_train::lora::LoraOptions;
use ferrane_train::run::{Event, RunOptions};
use ferrane_train::session::{Session, SessionOptions};

use crate::gradients::emulator;

/// What `scripts/train/lora_peft.py` has recorded.
#[derive(serde::Deserialize)]
struct Recorded {
    seq: usize,
    accum: usize,
    steps: u64,
    seed: u64,
    rank: usize,
    alpha: f64,
    targets: Vec<String>,
    lr: f64,
    warmup: u64,
    clip: f64,
    weight_decay: f64,
    eval_windows: usize,
    /// Validation losses, at the start and at the end.
    before: f64,
    after: f64,
    losses: Vec<f64>,
}

/// The losses of PyTorch with PEFT on the same windows and with the same initial adapters.
#[test]
fn losses_are_those_of_peft() {
    let Some(mut suite) = Suite::open("train adapters like PEFT", "checkpoints") else { return };
    let data = suite.folder().join("..");
    let recorded: Recorded = serde_json::from_str(include_str!("../data/lora_peft.json")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = |out: &str| SessionOptions {
        init: Some(data.join("checkpoints/stories260K/stories260K.bin")),
        tokenizer: Some(data.join("tokenizers/tok512.bin")),
        data: vec![data.join("text/tinyshakespeare.txt").into()],
        data_cache: Some(folder.path().join("cache")),
        lora: Some(LoraOptions { rank: recorded.rank, alpha: recorded.alpha, targets: recorded.targets.clone() }),
        run: RunOptions {
            steps: recorded.steps,
            accum: recorded.accum,
            seq: recorded.seq,
            lr: recorded.lr,
            warmup: recorded.warmup,
            clip: recorded.clip,
            weight_decay: recorded.weight_decay,
            seed: recorded.seed,
            eval_every: recorded.steps,
            eval_windows: recorded.eval_windows,
            out: folder.path().join(out),
            ..RunOptions::default()
        },
        ..SessionOptions::default()
    };
    // The reference makes only the first updates, because it is slow.
    for (name, device, updates, bound) in
        [("reference", None, 8, 1e-4), ("emulator", Some(emulator(Numerics::Fast)), recorded.steps, 5e-3)]
    {
        suite.case(name, losses(&options(name), device.as_ref(), &recorded, updates, bound));
    }
    suite.finish();
}

/// `bound` is the relative difference of the losses of the first `updates` updates: fp32 sums in
/// another order, or the rounding of activations to fp16.
fn losses(
    options: &SessionOptions,
    device: Option<&ferrane_device::Device>,
    recorded: &Recorded,
    updates: u64,
    bound: f64,
) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let mut session = Session::begin(options.clone(), device, &mut |_| {}).map_err(|e| text(&e))?;
    let (stop, mut found, mut valid) = (AtomicBool::new(false), Vec::new(), Vec::new());
    let mut listen = |event: &Event| match event {
        Event::Update { record, .. } => {
            found.extend(record.loss);
            stop.store(record.step >= updates && updates < recorded.steps, Ordering::Relaxed);
        }
        Event::Validated { loss, .. } => valid.push(*loss),
        _ => {}
    };
    session.run(&mut listen, &stop).map_err(|e| text(&e))?;
    let differs = |a: f64, b: f64| (a / b - 1.0).abs();
    let worst = found.iter().zip(&recorded.losses).map(|(a, b)| differs(*a, *b)).fold(0.0, f64::max);
    eprintln!("{updates} updates: the losses differ by {worst:.1e} at most, the validation losses are {valid:.4?}");
    if found.len() as u64 != updates || worst > bound {
        return Err(format!("{} losses, which differ by {worst}", found.len()));
    }
    for (found, want) in valid.iter().zip([recorded.before, recorded.after]) {
        if differs(*found, want) > bound {
            return Err(format!("validation loss {found} against {want}"));
        }
    }
    Ok(())
}
