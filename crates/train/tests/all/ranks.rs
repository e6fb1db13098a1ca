//! Runs in several ranks, over channels between threads: the bits of one rank, checkpoints that any
//! number of ranks resumes, and what happens when ranks differ or are lost.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use ferrane_device::Device;
use ferrane_emulator::Numerics;
use ferrane_llm::weights::{Init, Weights};
use ferrane_train::checkpoint::{Checkpoint, Store};
use ferrane_train::data::Corpus;
use ferrane_train::lora::LoraOptions;
use ferrane_train::metrics::{Record, read};
use ferrane_train::optim::{Gradients, Update};
use ferrane_train::ranks::{Communicator, RankError, Ranks};
use ferrane_train::run::{self, Control, Event, Run};
use ferrane_train::session::{Session, SessionError, SessionOptions, StoredRun};
use ferrane_train::step::{Engine, MicroStep, ReferenceEngine, StepError};

use crate::gradients::emulator;
use crate::run::{ids, options, tiny};
use crate::session::{place, silent};

/// A rank of a world of threads. After `left` messages it sends no more, as if its process had
/// ended.
struct Thread {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
    left: usize,
}

impl Communicator for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError> {
        let lost = |reason: &str| RankError::Lost { rank: to, reason: reason.to_string() };
        self.left = self.left.checked_sub(1).ok_or_else(|| lost("this rank was killed"))?;
        self.to[to].send(bytes.to_vec()).map_err(|_| lost("its thread has ended"))
    }

    fn receive(&mut self, from: usize, bytes: &mut [u8]) -> Result<(), RankError> {
        let lost = |_| RankError::Lost { rank: from, reason: "its thread has ended".into() };
        let message = self.from[from].recv().map_err(lost)?;
        assert_eq!(message.len(), bytes.len());
        bytes.copy_from_slice(&message);
        Ok(())
    }
}

fn world(size: usize) -> Vec<Thread> {
    let mut ranks: Vec<Thread> =
        (0..size).map(|rank| Thread { rank, to: Vec::new(), from: Vec::new(), left: usize::MAX }).collect();
    for to in 0..size {
        for from in 0..size {
            let (sender, receiver) = channel();
            ranks[from].to.push(sender);
            ranks[to].from.push(receiver);
        }
    }
    ranks
}

/// Runs `work` on each rank, in a thread of its own; returns the results in the order of ranks.
fn on<T: Send>(ranks: Vec<Thread>, work: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            ranks.into_iter().map(|rank| scope.spawn(move || work(Ranks::new(rank).unwrap()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn device(reference: bool) -> Option<Device> {
    (!reference).then(|| emulator(Numerics::Fast))
}

/// Begins a session in a world and trains until the last update.
fn train(ranks: Vec<Thread>, options: &SessionOptions, reference: bool) -> Vec<Result<u64, SessionError>> {
    on(ranks, |ranks| {
        let device = device(reference);
        let mut session = Session::begin_with(ranks, options.clone(), device.as_ref(), &mut silent())?;
        Ok(session.run(&mut silent(), &AtomicBool::new(false))?.step)
    })
}

fn last(out: &Path) -> Checkpoint {
    Store::open(out).unwrap().load(None).unwrap()
}

/// Everything of a run that does not depend on time.
fn results(out: &Path) -> (Vec<String>, Checkpoint) {
    let numbers = |r: &Record| {
        format!("{:?}", (r.step, r.loss, r.lr, r.grad_norm, r.loss_scale, r.skipped, r.tokens, r.max_dy, r.valid_loss))
    };
    (read(&out.join("metrics.jsonl")).unwrap().iter().map(numbers).collect(), last(out))
}

fn assert_same(one: &Path, other: &Path, context: &str) {
    let ((numbers, one), (other_numbers, other)) = (results(one), results(other));
    assert_eq!(numbers, other_numbers, "{context}");
    assert!(one.weights == other.weights && one.moments == other.moments, "{context}");
    assert_eq!((&one.state.sampler, one.adapters), (&other.state.sampler, other.adapters), "{context}");
}

/// A place with options of six windows an update, and a validation after every second one.
fn prepared(groups: usize) -> (tempfile::TempDir, SessionOptions) {
    let (folder, mut options) = place();
    (options.run.accum, options.run.batch, options.run.groups) = (3, 2, groups);
    (options.run.eval_every, options.run.eval_windows) = (2, 3);
    (folder, options)
}

#[test]
fn any_number_of_ranks_makes_the_bits_of_one() {
    for (groups, reference, lora) in
        [(3, false, false), (3, true, false), (6, false, false), (4, false, true), (1, false, false)]
    {
        let ((one, mut alone), (base, options)) = (prepared(groups), prepared(1));
        if lora {
            train(world(1), &options, reference)[0].as_ref().unwrap();
            alone.init = Some(base.path().join("run"));
            alone.model = None;
            alone.lora = Some(LoraOptions { rank: 2, ..LoraOptions::default() });
        }
        train(world(1), &alone, reference)[0].as_ref().unwrap();
        for size in 2..=groups.min(4) {
            let (many, mut options) = prepared(groups);
            (options.lora, options.init) = (alone.lora.clone(), alone.init.clone());
            options.model = options.model.filter(|_| !lora);
            for done in train(world(size), &options, reference) {
                assert_eq!(done.unwrap(), options.run.steps);
            }
            let context = format!("{size} ranks, {groups} groups, reference {reference}, lora {lora}");
            assert_same(&one.path().join("run"), &many.path().join("run"), &context);
        }
    }
    // Without a number of groups there is one for each rank, and it is kept.
    let (many, options) = prepared(1);
    train(world(2), &options, false).into_iter().for_each(|done| assert!(done.is_ok()));
    for record in read(&options.run.out.join("metrics.jsonl")).unwrap() {
        let process = record.process.unwrap();
        assert!(process.ranks_ms.len() == 2 && process.ranks_ms.iter().all(|ms| *ms > 0.0), "{process:?}");
        assert!(process.parts_ms.exchange > 0.0, "{process:?}");
    }
    let (one, options) = prepared(2);
    train(world(1), &options, false).into_iter().for_each(|done| assert!(done.is_ok()));
    assert_same(&one.path().join("run"), &many.path().join("run"), "one group a rank");
}

#[test]
fn sharded_moments_make_the_same_bits() {
    for (reference, freeze) in [(false, &[][..]), (true, &[]), (false, &["embed", "layers.1.*"])] {
        let (one, mut options) = prepared(4);
        options.freeze = freeze.iter().map(ToString::to_string).collect();
        train(world(1), &options, reference)[0].as_ref().unwrap();
        for size in [2, 3, 4] {
            let (many, mut options) = prepared(4);
            options.freeze = freeze.iter().map(ToString::to_string).collect();
            options.run.shard_optimizer = true;
            let moments = on(world(size), |ranks| {
                let device = device(reference);
                let mut session = Session::begin_with(ranks, options.clone(), device.as_ref(), &mut silent()).unwrap();
                session.run(&mut silent(), &AtomicBool::new(false)).unwrap();
                (session.memory(None).moments, session.config().clone())
            });
            let context = format!("{size} ranks, reference {reference}, frozen {freeze:?}");
            assert_same(&one.path().join("run"), &many.path().join("run"), &context);
            // Two moments of four bytes for every value, and a row more or less.
            let (config, bytes) = (&moments[0].1, moments.iter().map(|(bytes, _)| *bytes));
            let (whole, row) = (8 * config.parameters(), 8 * config.hidden.max(config.dim));
            assert_eq!(bytes.clone().sum::<usize>(), whole);
            assert!(
                bytes.clone().all(|part| part.abs_diff(whole / size) <= row),
                "{:?} of {whole}",
                bytes.collect::<Vec<_>>()
            );
        }
    }
    // Adapters have few moments.
    let (_folder, mut options) = prepared(2);
    train(world(1), &options, true)[0].as_ref().unwrap();
    options.init = Some(options.run.out.clone());
    options.run.out = options.run.out.with_file_name("adapters");
    (options.model, options.lora, options.run.shard_optimizer) = (None, Some(LoraOptions::default()), true);
    for error in train(world(2), &options, true) {
        assert!(error.unwrap_err().to_string().contains("`shard_optimizer` true: adapters have few"));
    }
}

/// Checkpoints that need all ranks: on request, and after one that could not be written.
#[test]
fn ranks_with_sharded_moments_save_together() {
    let (one, options) = prepared(3);
    train(world(1), &options, true)[0].as_ref().unwrap();
    let (many, mut options) = prepared(3);
    (options.run.shard_optimizer, options.run.save_every) = (true, 3);
    let out = options.run.out.clone();
    let seen = on(world(3), |ranks| {
        let (first, control) = (ranks.is_first(), Control::default());
        let mut session =
            Session::begin_with(ranks, options.clone(), None, &mut silent()).unwrap().with_control(&control);
        let mut seen = Vec::new();
        let mut listen = |event: &Event| match event {
            // In the middle of the second update, when the other ranks compute theirs.
            Event::Window { done: 1, .. } if first && seen.is_empty() => control.save(),
            Event::Update { record, .. } if record.step == 2 && first => {
                // What is in the way of the next checkpoint.
                std::fs::write(out.join(".tmp-step-000003"), "a file").unwrap();
            }
            Event::Saved { step, .. } => seen.push(format!("saved {step}")),
            Event::Warning { text } => seen.push(text.clone()),
            _ => {}
        };
        session.run(&mut listen, &AtomicBool::new(false)).unwrap();
        seen
    });
    assert!(seen[1].is_empty() && seen[2].is_empty(), "{seen:?}");
    let [first, second, third] = &seen[0][..] else { panic!("{seen:?}") };
    assert_eq!((first.as_str(), third.as_str()), ("saved 1", "saved 6"));
    assert!(second.contains("could not be written"), "{second}");
    assert_same(&one.path().join("run"), &many.path().join("run"), "saved together");
}

#[test]
fn any_number_of_ranks_resumes_a_checkpoint() {
    resumed_by_other_numbers_of_ranks(false);
}

#[test]
fn any_number_of_ranks_resumes_a_checkpoint_of_sharded_moments() {
    resumed_by_other_numbers_of_ranks(true);
}

fn resumed_by_other_numbers_of_ranks(sharded: bool) {
    let (whole, options) = prepared(3);
    train(world(1), &options, false)[0].as_ref().unwrap();
    let (parts, mut options) = prepared(3);
    let out = options.run.out.clone();
    (options.run.save_every, options.run.shard_optimizer) = (1, sharded);
    let mut sizes = [3, 1, 2, 1].into_iter();
    // Each world stops after an update: one rank gets the request in its first window, and all stop
    // after their last. A single rank discards the update in which it gets the request.
    let stopping = |session: &mut Session, rank: usize, size: usize| {
        let (stop, mut seen) = (AtomicBool::new(false), 0);
        let mut listen = |event: &Event| {
            seen += usize::from(matches!(event, Event::Window { .. }));
            stop.store(rank == 0 && seen > if size > 1 { 0 } else { 6 }, Ordering::Relaxed);
        };
        session.run(&mut listen, &stop).unwrap()
    };
    let begun = on(world(sizes.next().unwrap()), |ranks| {
        let (rank, size, device) = (ranks.rank(), ranks.size(), device(false));
        let mut session = Session::begin_with(ranks, options.clone(), device.as_ref(), &mut silent()).unwrap();
        stopping(&mut session, rank, size)
    });
    assert!(begun.iter().all(|summary| summary.stopped && summary.step == begun[0].step));
    let mut before = begun[0].step;
    for size in sizes {
        let done = on(world(size), |ranks| {
            let (rank, size, device) = (ranks.rank(), ranks.size(), device(false));
            let stored = StoredRun::open_with(&out, ranks).unwrap();
            assert_eq!(stored.step(), before);
            let options = stored.options().clone();
            let mut session = stored.resume(options, device.as_ref(), &mut silent()).unwrap();
            stopping(&mut session, rank, size)
        });
        assert!(done.iter().all(|summary| summary.step == done[0].step && summary.step > before));
        before = done[0].step;
    }
    let mut session = Session::resume(&out, device(false).as_ref(), &mut silent()).unwrap();
    assert!(!session.run(&mut silent(), &AtomicBool::new(false)).unwrap().stopped);
    drop(session);
    assert_same(&whole.path().join("run"), &parts.path().join("run"), "resumed by other numbers of ranks");
}

#[test]
fn ranks_that_differ_are_refused() {
    type Change = (&'static str, fn(&mut SessionOptions));
    let changes: [Change; 4] = [
        ("data", |options| {
            let other = options.run.out.with_file_name("other.txt");
            std::fs::write(&other, "Another text, which is long enough for some windows of it. ".repeat(60)).unwrap();
            options.data = vec![other.into()];
        }),
        ("options", |options| options.run.lr = 0.5),
        ("options", |options| options.run.seed = 9),
        ("options", |options| options.freeze = vec!["embed".into()]),
    ];
    for (what, change) in changes {
        let (_folder, options) = prepared(2);
        let errors = on(world(2), |ranks| {
            let mut options = options.clone();
            if ranks.rank() == 1 {
                change(&mut options);
            }
            let mut session = Session::begin_with(ranks, options, None, &mut silent())?;
            session.run(&mut silent(), &AtomicBool::new(false)).map(drop)
        });
        for error in errors {
            match error.unwrap_err() {
                SessionError::Run(run::Error::Ranks(RankError::Different { rank: 1, what: found, .. })) => {
                    assert_eq!(found, what);
                }
                other => panic!("{what}: {other}"),
            }
        }
    }
    // Other weights are noticed, whatever they come from.
    let folder = tempfile::tempdir().unwrap();
    let drifted = on(world(2), |ranks| {
        let weights = Weights::init(&tiny(), Init::Normal { std: 0.1 }, 1 + ranks.rank() as u64);
        let engine = Box::new(ReferenceEngine::new(tiny()));
        let options = run::RunOptions { groups: 2, ..options(&folder.path().join("run")) };
        let mut run = Run::new_with(ranks, options, tiny(), weights, Corpus::from(ids()), engine).unwrap();
        run.run(&mut silent(), &AtomicBool::new(false)).unwrap_err()
    });
    for error in drifted {
        assert!(matches!(error, run::Error::Ranks(RankError::Drifted { rank: 1, step: 0 })), "{error}");
    }
}

#[test]
fn a_world_that_cannot_work_is_refused() {
    struct World(usize, usize);
    impl Communicator for World {
        fn rank(&self) -> usize {
            self.0
        }
        fn size(&self) -> usize {
            self.1
        }
        fn send(&mut self, _: usize, _: &[u8]) -> Result<(), RankError> {
            unreachable!()
        }
        fn receive(&mut self, _: usize, _: &mut [u8]) -> Result<(), RankError> {
            unreachable!()
        }
    }
    for (rank, size) in [(0, 0), (2, 2), (5, 3)] {
        let Err(error) = Ranks::new(World(rank, size)) else { panic!("{rank} of {size}") };
        assert!(matches!(error, RankError::World { .. }), "{error}");
    }
    assert_eq!(Ranks::new(World(0, 1)).map(|ranks| (ranks.rank(), ranks.size())).unwrap(), (0, 1));
    // A run has at least one group for each rank, which a session sees to.
    let folder = tempfile::tempdir().unwrap();
    let refused = on(world(2), |ranks| {
        let weights = Weights::init(&tiny(), Init::Normal { std: 0.1 }, 1);
        let engine = Box::new(ReferenceEngine::new(tiny()));
        let run = Run::new_with(ranks, options(&folder.path().join("run")), tiny(), weights, ids().into(), engine);
        run.err().map(|error| error.to_string())
    });
    assert!(refused.iter().flatten().all(|error| error.contains("at least the number of ranks")), "{refused:?}");
    assert_eq!(refused.iter().flatten().count(), 2);
    // Six windows cannot occupy seven ranks.
    let (_folder, options) = prepared(1);
    for error in train(world(7), &options, true) {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`groups` 7") && error.contains("fewer ranks"), "{error}");
    }
}

/// A rank that is lost ends the others, and the last checkpoint continues to the bits of a run
/// without the loss.
#[test]
fn a_lost_rank_loses_no_saved_update() {
    let (whole, options) = prepared(2);
    train(world(2), &options, true).into_iter().for_each(|done| assert!(done.is_ok()));
    for lost in [0, 1] {
        for left in [0, 3, 11, 20, 31, 40] {
            let (parts, mut options) = prepared(2);
            let out = options.run.out.clone();
            (options.run.save_every, options.run.shard_optimizer) = (1, left % 2 == 1);
            let mut ranks = world(2);
            ranks[lost].left = left;
            let results = train(ranks, &options, true);
            for (rank, result) in results.into_iter().enumerate() {
                let error = result.expect_err("it ends");
                assert!(error.to_string().contains(&format!("rank {} is lost", 1 - rank)), "{error}");
            }
            let done = on(world(2), |ranks| {
                let mut session = match StoredRun::open_with(&out, ranks) {
                    Ok(stored) => {
                        let options = stored.options().clone();
                        stored.resume(options, None, &mut silent()).unwrap()
                    }
                    Err(error) => return error.to_string(),
                };
                session.run(&mut silent(), &AtomicBool::new(false)).unwrap();
                String::new()
            });
            if done[0].contains("no run to resume") {
                assert!(left < 20, "{left}");
                continue;
            }
            assert_eq!(done, [String::new(), String::new()]);
            assert_same(&whole.path().join("run"), &parts.path().join("run"), &format!("{lost} lost after {left}"));
        }
    }
}

/// Finds windows that begin with some ids not finite.
struct Picky(ReferenceEngine);

impl Engine for Picky {
    fn stage(&mut self, weights: &Weights) -> Result<(), StepError> {
        self.0.stage(weights)
    }

    fn update(&mut self, update: Update<'_>) -> Result<(), StepError> {
        self.0.update(update)
    }

    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Gradients,
        inputs: &[u32],
        targets: &[u32],
        loss_scale: f32,
    ) -> Result<MicroStep, StepError> {
        let mut step = self.0.micro_step(weights, gradients, inputs, targets, loss_scale)?;
        step.finite &= !inputs[0].is_multiple_of(7);
        Ok(step)
    }

    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError> {
        self.0.loss(weights, inputs, targets)
    }
}

#[test]
fn skipped_updates_are_the_same_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let mut skipped = Vec::new();
    for size in [1, 2, 4] {
        let out = folder.path().join(size.to_string());
        let done = on(world(size), |ranks| {
            let weights = Weights::init(&tiny(), Init::Normal { std: 0.1 }, 1);
            let engine = Box::new(Picky(ReferenceEngine::new(tiny())));
            let options = run::RunOptions { groups: 4, ..options(&out) };
            let mut run = Run::new_with(ranks, options, tiny(), weights, Corpus::from(ids()), engine).unwrap();
            run.run(&mut silent(), &AtomicBool::new(false)).unwrap().skipped
        });
        assert!(done.iter().all(|count| *count == done[0]));
        skipped.push(done[0]);
        assert_same(&folder.path().join("1"), &out, &format!("{size} ranks"));
    }
    assert!(skipped[0] > 5 && skipped[0] < 35, "{skipped:?}");
}
