//! The static pipeline: new programs after each update, a compile budget that several processes
//! share, and runs that change their pipeline.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use ferrane_device::{Device, ErrorKind};
use ferrane_emulator::{Emulator, EmulatorOptions, Faults, ProcessCounts};
use ferrane_llm::compaction::Compaction;
use ferrane_llm::layout::{PipelineKind, Residual, Shape, WeightForm};
use ferrane_llm::weights::{Init, Weights};
use ferrane_train::checkpoint::{Checkpoint, Store};
use ferrane_train::metrics::{Record, read};
use ferrane_train::optim::{AdamW, Gradients, Moments, Update};
use ferrane_train::run::{self, Run};
use ferrane_train::step::{Engine, Pipeline, StepError};

use crate::run::{ids, options, random_weights, tiny, train, window};

/// Programs of the tiny model: five for each of its two layers, and one that both share.
pub const PROGRAMS: usize = 11;
/// Those that an update compiles again.
const AGAIN: usize = 10;

/// A device as a new process opens it, with a budget if there is one, and the counts of the
/// process.
pub fn process(budget: Option<usize>) -> (Device, ProcessCounts) {
    let mut options = EmulatorOptions::default();
    options.process = ProcessCounts::default();
    if let Some(budget) = budget {
        options.faults = Faults::parse(&format!("budget={budget}")).unwrap();
    }
    let process = options.process.clone();
    (Device::new(Emulator::new(options)), process)
}

fn engine(device: &Device, kind: PipelineKind, weights: &Weights) -> Result<Pipeline, StepError> {
    let shape = Shape::new(tiny(), 12, Residual::Fp32, WeightForm::Packed).with_pipeline(kind);
    Pipeline::new(device, shape, Compaction::disabled(48), weights)
}

fn begin(out: &Path, device: &Device, kind: PipelineKind) -> Run {
    let weights = Weights::init(&tiny(), Init::Normal { std: 0.1 }, 1);
    let engine = engine(device, kind, &weights).unwrap();
    Run::new(options(out), tiny(), weights, ids(), Box::new(engine)).unwrap()
}

fn resume(out: &Path, device: &Device, kind: PipelineKind) -> Run {
    let store = Store::open(out).unwrap();
    let checkpoint = store.load(Some(&tiny())).unwrap();
    let engine = engine(device, kind, &checkpoint.weights).unwrap();
    Run::resume(options(out), store, checkpoint, ids(), Box::new(engine)).unwrap()
}

fn last(out: &Path) -> Checkpoint {
    Store::open(out).unwrap().load(Some(&tiny())).unwrap()
}

/// The numbers of every update that do not depend on time.
fn numbers(out: &Path) -> Vec<String> {
    let number =
        |r: &Record| format!("{:?}", (r.step, r.loss, r.lr, r.grad_norm, r.loss_scale, r.skipped, r.valid_loss));
    read(&out.join("metrics.jsonl")).unwrap().iter().map(number).collect()
}

fn kind(error: &StepError) -> Option<ErrorKind> {
    match error {
        StepError::Device { source, .. } => Some(source.kind()),
        _ => None,
    }
}

#[test]
fn new_weights_are_new_programs_and_equal_ones_are_not() {
    let (device, process) = process(Some(PROGRAMS + AGAIN));
    // The emulated machine returns nothing for programs that are released.
    let config = tiny();
    let mut weights = random_weights(&config);
    let mut engine = engine(&device, PipelineKind::Static, &weights).unwrap();
    assert_eq!((process.compiles(), engine.programs()), (PROGRAMS, PROGRAMS));
    let (inputs, targets) = window(12, 48);
    let before = engine.loss(&weights, &inputs, &targets).unwrap();
    engine.stage(&weights).unwrap();
    assert_eq!(engine.loss(&weights, &inputs, &targets).unwrap().to_bits(), before.to_bits());
    assert_eq!(process.compiles(), PROGRAMS, "staging the same weights compiles nothing");

    let (mut gradients, mut moments) = (Gradients::new(&config), Moments::zeros(&config));
    let mut update = |engine: &mut Pipeline, weights: &mut Weights, count| {
        engine.micro_step(weights, &mut gradients, &inputs, &targets, 64.0)?;
        let (optimizer, lr, factor) = (AdamW::default(), 1e-2, 1.0 / 64.0);
        let (gradients, moments, config) = (&mut gradients, &mut moments, &config);
        engine.update(Update { optimizer, config, weights, gradients, moments, lr, factor, count })
    };
    update(&mut engine, &mut weights, 1).unwrap();
    assert_eq!(process.compiles(), PROGRAMS, "an update compiles nothing");
    let after = engine.loss(&weights, &inputs, &targets).unwrap();
    assert_ne!(after.to_bits(), before.to_bits(), "the update changed something");
    assert_eq!(process.compiles(), PROGRAMS + AGAIN);

    // The budget is spent. The update is complete, and the next use of the weights is refused
    // without a compile.
    update(&mut engine, &mut weights, 2).unwrap();
    for _ in 0..2 {
        let refused = engine.loss(&weights, &inputs, &targets).unwrap_err();
        assert_eq!(kind(&refused), Some(ErrorKind::CompileBudget));
        assert!(refused.to_string().contains("10 compiles, and this process has 0 left"), "{refused}");
    }
    assert_eq!(process.compiles(), PROGRAMS + AGAIN);
}

/// Every process makes two updates, and the last validation takes one more.
#[test]
fn many_processes_with_a_budget_make_the_bits_of_one_without() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (device, counts) = process(None);
    train(&mut begin(whole.path(), &device, PipelineKind::Static), None);
    assert_eq!(counts.compiles(), 0, "compiles are counted only against a budget");

    let (mut restarts, mut step) = (0, None);
    loop {
        let (device, counts) = process(Some(PROGRAMS + AGAIN + 4));
        let mut run = match step {
            None => begin(parts.path(), &device, PipelineKind::Static),
            Some(_) => resume(parts.path(), &device, PipelineKind::Static),
        };
        match run.run(&mut |_| {}, &AtomicBool::new(false)) {
            Ok(_) => break,
            Err(run::Error::Step(error)) => assert_eq!(kind(&error), Some(ErrorKind::CompileBudget), "{error}"),
            Err(error) => panic!("{error}"),
        }
        assert!(counts.compiles() <= PROGRAMS + AGAIN + 4);
        drop(run);
        let saved = last(parts.path()).state.step;
        assert!(step.is_none_or(|before| saved > before), "no update since step {step:?}");
        (restarts, step) = (restarts + 1, Some(saved));
    }
    assert_eq!(restarts, 20);
    let (one, many) = (last(whole.path()), last(parts.path()));
    assert!(one.weights == many.weights && one.moments == many.moments);
    assert_eq!(numbers(whole.path()), numbers(parts.path()));
}

/// A checkpoint does not depend on the pipeline, and the loss only by rounding.
#[test]
fn a_run_goes_on_with_another_pipeline() {
    let (device, _) = process(None);
    let loss = |kinds: [PipelineKind; 2]| {
        let folder = tempfile::tempdir().unwrap();
        let mut run = begin(folder.path(), &device, kinds[0]);
        assert!(train(&mut run, Some(61)).stopped);
        drop(run);
        train(&mut resume(folder.path(), &device, kinds[1]), None).validation.unwrap().1
    };
    use PipelineKind::{Dynamic, Fused, Static, StaticExtras};
    let want = loss([Dynamic, Dynamic]);
    let alone = [Static, StaticExtras, Fused].map(|kind| [kind; 2]);
    let mixed = [[Dynamic, StaticExtras], [StaticExtras, Static], [Static, Fused], [Fused, Dynamic]];
    for kinds in alone.into_iter().chain(mixed) {
        let found = loss(kinds);
        eprintln!("{kinds:?}: validation loss {found:.4} against {want:.4}");
        // Forty updates at a high rate amplify the rounding of the kernels to about a hundredth.
        assert!((found / want - 1.0).abs() < 0.02, "{kinds:?}: {found} against {want}");
    }
}
