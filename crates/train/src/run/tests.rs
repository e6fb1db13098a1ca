//! Whole runs of a tiny model through the plain fp32 engine.

use super::*;
use crate::data::Ids;
use crate::metrics;
use crate::step::{MicroStep, ReferenceEngine};
use ferrane_llm::config::preset;
use ferrane_llm::random::Rng;
use ferrane_llm::weights::Init;
use ferrane_sensors::{Domain, Energy, Sensor, SensorReading, Sensors};
use std::path::Path;
use std::sync::atomic::Ordering;

fn tiny() -> Config {
    let base = preset("stories260k").unwrap();
    Config { dim: 16, hidden: 24, layers: 2, heads: 4, kv_heads: 2, head_dim: 4, vocab: 48, max_seq: 64, ..base }
}

/// Learnable ids: each is its predecessor plus 1, with occasional jumps.
fn ids() -> Ids {
    let mut rng = Rng::new(11);
    let mut id = 0;
    let draw = |_| {
        id = if rng.below(8) == 0 { rng.below(48) as u32 } else { (id + 1) % 48 };
        id
    };
    Ids::from_slice(&(0..2000).map(draw).collect::<Vec<_>>())
}

fn options(out: &Path, steps: u64) -> RunOptions {
    RunOptions {
        steps,
        accum: 2,
        batch: 2,
        seq: 12,
        lr: 1e-2,
        warmup: 5,
        out: out.to_path_buf(),
        eval_every: 5,
        eval_windows: 4,
        save_every: 0,
        save_minutes: 0.0,
        ..RunOptions::default()
    }
}

fn engine() -> Box<dyn Engine> {
    Box::new(ReferenceEngine::new(tiny()))
}

fn begin(options: RunOptions, engine: Box<dyn Engine>) -> Run {
    let weights = Weights::init(&tiny(), Init::Normal { std: 0.1 }, options.seed);
    Run::new(options, tiny(), weights, ids(), engine).unwrap()
}

fn go_on(options: RunOptions) -> Run {
    let store = Store::open(&options.out).unwrap();
    let checkpoint = store.load(Some(&tiny())).unwrap();
    Run::resume(options, store, checkpoint, ids(), engine()).unwrap()
}

/// Trains, and sets `stop` after the given number of windows, if any.
fn train(run: &mut Run, stop_after: Option<usize>) -> (Summary, Vec<Event>) {
    let (stop, mut events) = (AtomicBool::new(false), Vec::new());
    let mut windows = 0;
    let mut listen = |event: &Event| {
        windows += usize::from(matches!(event, Event::Window { .. }));
        if stop_after == Some(windows) {
            stop.store(true, Ordering::Relaxed);
        }
        events.push(event.clone());
    };
    let summary = run.run(&mut listen, &stop).unwrap();
    (summary, events)
}

/// Everything that must be equal bit for bit: not the time and the folder in the options.
fn result(run: &Run) -> (Weights, Moments, State) {
    (run.weights.clone(), run.moments.clone(), State { seconds: 0.0, options: Default::default(), ..run.state.clone() })
}

fn records(out: &Path) -> Vec<Record> {
    let records = metrics::read(&out.join("metrics.jsonl")).unwrap();
    records.into_iter().map(|r| Record { tokens_per_second: 0.0, process: None, ..r }).collect()
}

#[test]
fn the_loss_falls() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = begin(options(folder.path(), 60), engine());
    let (summary, events) = train(&mut run, None);
    let records = records(folder.path());
    assert_eq!(records.len(), 60);
    assert!(records.iter().enumerate().all(|(i, r)| r.step == i as u64 + 1 && !r.skipped));
    // ln 48 is 3.87 at the start; a perfect model of these ids has about 0.86.
    assert!(records[0].loss.unwrap() > 3.7);
    let (step, loss) = summary.validation.unwrap();
    assert!(step == 60 && loss < 2.2, "{loss}");
    assert_eq!(records[59].valid_loss, Some(loss));
    assert_eq!(records[59].tokens, 60 * 4 * 12);
    assert_eq!(records.iter().filter(|r| r.valid_loss.is_some()).count(), 12);
    assert!(matches!(events[0], Event::Started { step: 0, steps: 60, .. }));
    assert!(matches!(events.last(), Some(Event::Finished { .. })));
    assert_eq!((summary.efficiency.updates, summary.efficiency.micro_steps), (60, 240));
    assert!(
        summary.checkpoint.ends_with("step-000060")
            && summary.checkpoint.join(ferrane_llm::run_folder::MODEL).is_file()
    );
    assert!(std::fs::read_to_string(folder.path().join("loss.svg")).unwrap().contains("<polyline"));
}

#[test]
fn stop_and_resume_are_the_same_bits() {
    let whole = tempfile::tempdir().unwrap();
    let mut run = begin(options(whole.path(), 12), engine());
    train(&mut run, None);
    let want = result(&run);
    // With 4 windows per update: between updates, with and without a validation, inside an update,
    // in the first and last window, and in the final validation.
    for after in [20, 24, 22, 1, 47, 48] {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), 12);
        let mut first = begin(options.clone(), engine());
        let (summary, events) = train(&mut first, Some(after));
        assert!(summary.stopped && summary.step == after as u64 / 4, "{after}: {}", summary.step);
        let told =
            events.iter().any(|e| matches!(e, Event::Stopped { folder: stopped, .. } if stopped == folder.path()));
        assert!(told, "the event names the folder to resume from");
        drop(first);
        let mut second = go_on(options);
        let (summary, events) = train(&mut second, None);
        assert!(!summary.stopped);
        assert!(matches!(&events[0], Event::Started { changes, .. } if changes.is_empty()));
        let found = result(&second);
        assert_eq!(found.2, want.2, "stopped after {after} windows");
        assert!(found == want, "stopped after {after} windows");
        assert_eq!(records(folder.path()), records(whole.path()));
    }
}

#[test]
fn the_same_object_goes_on_too() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut whole = begin(options(one.path(), 6), engine());
    train(&mut whole, None);
    let mut run = begin(options(two.path(), 6), engine());
    train(&mut run, Some(10));
    train(&mut run, None);
    assert!(result(&run) == result(&whole));
}

#[test]
fn more_updates_than_planned() {
    let folder = tempfile::tempdir().unwrap();
    train(&mut begin(options(folder.path(), 3), engine()), None);
    let mut run = go_on(options(folder.path(), 5));
    let (summary, events) = train(&mut run, None);
    assert_eq!(summary.step, 5);
    let Event::Started { changes, .. } = &events[0] else { panic!("{:?}", events[0]) };
    assert_eq!(changes.iter().map(|c| c.to_string()).collect::<Vec<_>>(), ["steps: 3 before, 5 now"]);
}

#[test]
fn what_cannot_begin() {
    let folder = tempfile::tempdir().unwrap();
    train(&mut begin(options(folder.path(), 1), engine()), None);
    let weights = Weights::init(&tiny(), Init::Normal { std: 0.1 }, 1);
    let again = Run::new(options(folder.path(), 1), tiny(), weights.clone(), ids(), engine());
    assert!(matches!(again, Err(Error::Exists { step: 1, .. })));
    let store = Store::open(folder.path()).unwrap();
    let checkpoint = store.load(None).unwrap();
    let other = Ids::from_slice(&[1; 2000]);
    let found = Run::resume(options(folder.path(), 2), store, checkpoint, other, engine());
    assert!(matches!(found, Err(Error::OtherData { .. })));
    let empty = tempfile::tempdir().unwrap();
    let short = Run::new(options(empty.path(), 1), tiny(), weights.clone(), Ids::from_slice(&[1; 20]), engine());
    assert!(matches!(short, Err(Error::Data(data::Error::TooShort { .. }))));
    let config = Config { hidden: 32, ..tiny() };
    let wrong = Run::new(options(empty.path(), 1), config, weights, ids(), engine());
    assert!(matches!(wrong, Err(Error::Weights(_))));
}

/// An engine that injects faults into chosen calls of `micro_step`.
struct Faulty {
    inner: ReferenceEngine,
    calls: usize,
    fault: fn(usize) -> Fault,
}

#[derive(PartialEq)]
enum Fault {
    None,
    Gradient(f32),
    Loss,
    Flag,
    Device,
}

impl Engine for Faulty {
    fn stage(&mut self, weights: &Weights) -> Result<(), StepError> {
        self.inner.stage(weights)
    }

    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Gradients,
        inputs: &[u32],
        targets: &[u32],
        scale: f32,
    ) -> Result<MicroStep, StepError> {
        self.calls += 1;
        let mut found = self.inner.micro_step(weights, gradients, inputs, targets, scale)?;
        found.max_dy = 0.25 * scale;
        match (self.fault)(self.calls) {
            Fault::None => {}
            Fault::Gradient(value) => gradients.sums(&tiny()).layers[1].w2[3] = value,
            Fault::Loss => found.loss = f32::NAN,
            Fault::Flag => found.finite = false,
            Fault::Device => return Err(StepError::Shape("the device is gone".into())),
        }
        Ok(found)
    }

    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError> {
        self.inner.loss(weights, inputs, targets)
    }
}

fn faulty(fault: fn(usize) -> Fault) -> Box<dyn Engine> {
    Box::new(Faulty { inner: ReferenceEngine::new(tiny()), calls: 0, fault })
}

#[test]
fn what_is_not_finite_is_skipped_and_the_scale_recovers() {
    let folder = tempfile::tempdir().unwrap();
    // Updates of four windows: update 3 gets NaN in its last window, update 4 an infinity in its
    // first, update 5 a loss in its second (and computes no more), update 6 a flag in its first.
    let fault = |call| match call {
        12 => Fault::Gradient(f32::NAN),
        13 => Fault::Gradient(f32::INFINITY),
        18 => Fault::Loss,
        19 => Fault::Flag,
        _ => Fault::None,
    };
    let options = RunOptions { eval_windows: 0, lr: 1e-3, ..options(folder.path(), 300) };
    let mut run = begin(options, faulty(fault));
    let mut weights = Vec::new();
    for steps in [2, 6, 300] {
        run.options.steps = steps;
        train(&mut run, None);
        weights.push((run.weights.clone(), run.moments.clone()));
    }
    assert!(weights[0] == weights[1], "skipped updates leave weights and moments alone");
    assert!(
        weights[1] != weights[2] && run.weights.tensors(&tiny()).iter().all(|t| t.data.iter().all(|w| w.is_finite()))
    );
    let records = records(folder.path());
    let skipped: Vec<u64> = records.iter().filter(|r| r.skipped).map(|r| r.step).collect();
    assert_eq!(skipped, [3, 4, 5, 6]);
    assert_eq!((run.state.skipped, run.state.updates, run.state.skipped_in_a_row), (4, 296, 0));
    let scales: Vec<f64> = records[1..7].iter().map(|r| r.loss_scale).collect();
    assert_eq!(scales, [256.0, 256.0, 128.0, 64.0, 32.0, 16.0]);
    assert!(records[299].loss_scale >= 128.0, "recovered to {}", records[299].loss_scale);
    assert!(records[2].grad_norm.is_none() && records[5].loss.is_none());
    assert!(records[299].loss.unwrap() < records[1].loss.unwrap());
}

#[test]
fn a_hopeless_run_gives_up() {
    let folder = tempfile::tempdir().unwrap();
    let fault = |call| if call > 8 { Fault::Flag } else { Fault::None };
    let mut run = begin(options(folder.path(), 500), faulty(fault));
    let found = run.run(&mut |_| {}, &AtomicBool::new(false));
    assert!(matches!(found, Err(Error::Diverged { skipped: GIVE_UP, .. })), "{found:?}");
    drop(run);
    assert_eq!(Store::open(folder.path()).unwrap().load(None).unwrap().state.updates, 2);
}

#[test]
fn a_failed_device_ends_the_run_and_what_was_done_is_kept() {
    let whole = tempfile::tempdir().unwrap();
    let mut run = begin(options(whole.path(), 6), engine());
    train(&mut run, None);
    let folder = tempfile::tempdir().unwrap();
    let fault = |call| if call == 15 { Fault::Device } else { Fault::None };
    let mut broken = begin(options(folder.path(), 6), faulty(fault));
    let error = broken.run(&mut |_| {}, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("the device is gone"));
    drop(broken);
    let mut second = go_on(options(folder.path(), 6));
    assert_eq!(second.state.step, 3);
    train(&mut second, None);
    assert!(second.weights == run.weights && second.moments == run.moments);
}

/// A disk that is full after a number of files.
struct Full(std::sync::atomic::AtomicUsize);

impl checkpoint::Files for Full {
    fn create(&self, path: &Path) -> std::io::Result<Box<dyn checkpoint::SyncWrite>> {
        // A checkpoint has three files, so this is one checkpoint and one file.
        if self.0.fetch_add(1, Ordering::Relaxed) >= 4 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        checkpoint::Disk.create(path)
    }
}

#[test]
fn a_full_disk_is_told_and_the_checkpoint_before_stays() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = RunOptions { save_every: 2, ..options(folder.path(), 7) };
    let mut run = begin(options.clone(), engine());
    run.store = Store::open(elsewhere.path()).unwrap();
    run.store = Store::with_files(folder.path(), Box::new(Full(0.into()))).unwrap();
    let mut warnings = Vec::new();
    let mut listen = |event: &Event| {
        if let Event::Warning { text } = event {
            warnings.push(text.clone());
        }
    };
    let error = run.run(&mut listen, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, Error::Checkpoint(checkpoint::Error::Io { .. })), "{error}");
    assert_eq!(run.state.step, 7, "training continued");
    assert!(warnings.len() == 2 && warnings[0].contains("could not be written"), "{warnings:?}");
    drop(run);
    let mut again = go_on(options.clone());
    assert_eq!(again.state.step, 2);
    train(&mut again, None);
    let whole = tempfile::tempdir().unwrap();
    let mut want = begin(RunOptions { out: whole.path().into(), ..options }, engine());
    train(&mut want, None);
    assert!(result(&again) == result(&want));
}

#[test]
fn accumulation_is_the_mean_of_its_windows() {
    // One micro-step of four windows, two of two and four of one give the same update.
    let result = |accum, batch| {
        let folder = tempfile::tempdir().unwrap();
        let mut run = begin(RunOptions { accum, batch, ..options(folder.path(), 3) }, engine());
        train(&mut run, None);
        (run.weights, run.moments)
    };
    assert!(result(4, 1) == result(1, 4) && result(2, 2) == result(1, 4));
}

/// Helper process of the next test, which kills it.
#[test]
fn child_that_trains() {
    let Ok(folder) = std::env::var("FERRANE_TEST_TRAIN") else { return };
    let options = RunOptions { save_every: 1, ..options(Path::new(&folder), 300) };
    let begun = Store::open(&options.out).unwrap().steps().unwrap();
    let mut run = if begun.is_empty() { begin(options, engine()) } else { go_on(options) };
    train(&mut run, None);
}

#[test]
#[cfg(unix)]
fn killed_at_any_moment_a_run_ends_in_the_same_bits() {
    let whole = tempfile::tempdir().unwrap();
    let mut want = begin(options(whole.path(), 300), engine());
    train(&mut want, None);
    let folder = tempfile::tempdir().unwrap();
    let mut random = Rng::new(3);
    let (mut kills, mut rounds) = (0, 0);
    loop {
        rounds += 1;
        assert!(rounds < 200, "the run does not end");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run::tests::child_that_trains"])
            .env("FERRANE_TEST_TRAIN", folder.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        if kills < 20 {
            std::thread::sleep(std::time::Duration::from_micros(5_000 + random.below(80_000)));
            if child.try_wait().unwrap().is_none() {
                kills += 1;
            }
            child.kill().unwrap();
        }
        if child.wait().unwrap().success() {
            break;
        }
    }
    assert!(kills >= 10, "{kills} kills before the end; the run is too short to show anything");
    let run = go_on(options(folder.path(), 300));
    assert!(run.state.step == 300 && run.weights == want.weights && run.moments == want.moments);
    assert_eq!(records(folder.path()), records(whole.path()));
}

#[test]
fn a_run_that_is_paused_saved_and_sampled_ends_in_the_same_bits() {
    let (whole, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut want = begin(options(whole.path(), 8), engine());
    train(&mut want, None);
    let control = Control::default();
    let options = RunOptions { sample_every: 4, ..options(folder.path(), 8) };
    let run = begin(options, engine()).with_control(&control);
    let mut run = run.with_samples(Box::new(|_, _, step| Ok(format!("text {step}"))));
    let (mut windows, mut events) = (0, Vec::new());
    let mut listen = |event: &Event| {
        windows += usize::from(matches!(event, Event::Window { .. }));
        // In the middle of the second update.
        if windows == 5 && matches!(event, Event::Window { .. }) {
            control.pause(true);
            control.save();
            control.sample();
            let control = control.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                control.pause(false);
            });
        }
        events.push(event.clone());
    };
    let begun = Instant::now();
    run.run(&mut listen, &AtomicBool::new(false)).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(100) && run.paused >= Duration::from_millis(50));
    let kinds: Vec<&Event> =
        events.iter().filter(|e| !matches!(e, Event::Window { .. } | Event::Update { .. })).collect();
    let at = kinds.iter().position(|e| matches!(e, Event::Saved { step: 1, .. })).expect("no checkpoint of update 1");
    assert!(matches!(kinds[at + 1], Event::Sampled { step: 1, text } if text == "text 1"), "{kinds:?}");
    assert!(matches!(kinds[at + 2], Event::Paused { step: 1 }), "{kinds:?}");
    assert!(matches!(kinds[at + 3], Event::Continued { step: 1 }), "{kinds:?}");
    assert!(run.weights == want.weights && run.moments == want.moments && run.state.sampler == want.state.sampler);
    let records = metrics::read(&folder.path().join("metrics.jsonl")).unwrap();
    let samples: Vec<_> = records.iter().filter_map(|r| Some((r.step, r.sample.as_deref()?))).collect();
    assert_eq!(samples, [(2, "text 1"), (4, "text 4"), (8, "text 8")]);
    let notes = |at: usize| records[at].process.as_ref().unwrap().notes.join("; ");
    assert_eq!(notes(0), "the run begins, 8 updates");
    assert_eq!(notes(1), "checkpoint of update 1 saved; paused after update 1; continued");
    // The checkpoint in the middle of the update is that of the update before.
    drop(run);
    std::fs::remove_dir_all(folder.path().join("step-000008")).unwrap();
    let mut again = go_on(self::options(folder.path(), 8));
    assert_eq!(again.state.step, 1);
    train(&mut again, None);
    assert!(again.weights == want.weights && again.moments == want.moments);
}

/// Draws 10 W.
struct TenWatts(Instant);

impl Sensor for TenWatts {
    fn name(&self) -> &str {
        "ten watts"
    }

    fn read(&mut self, reading: &mut SensorReading) {
        let joules = 10.0 * self.0.elapsed().as_secs_f64();
        reading.energy.push(Energy { domain: Domain::Ane, channel: "ANE".into(), source: "s", joules });
    }
}

#[test]
fn the_energy_of_a_run_is_that_of_its_records_without_pauses() {
    const PAUSE: Duration = Duration::from_millis(1500);
    let (whole, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut want = begin(options(whole.path(), 8), engine());
    let (without, _) = train(&mut want, None);
    assert_eq!(without.energy, []);
    let control = Control::default();
    let sensors = Sensors::with(vec![Box::new(TenWatts(Instant::now()))]);
    let mut run = begin(options(folder.path(), 8), engine()).with_control(&control).with_sensors(sensors);
    let history = run.sensor_history().unwrap();
    let mut windows = 0;
    let mut listen = |event: &Event| {
        if matches!(event, Event::Window { .. }) {
            windows += 1;
            std::thread::sleep(Duration::from_millis(10));
            if windows == 5 {
                control.pause(true);
                let control = control.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(PAUSE);
                    control.pause(false);
                });
            }
        }
    };
    let begun = Instant::now();
    let summary = run.run(&mut listen, &AtomicBool::new(false)).unwrap();
    let trained = begun.elapsed().saturating_sub(run.paused).as_secs_f64();
    assert!(run.paused >= PAUSE / 2 && run.weights == want.weights && run.moments == want.moments);
    let [energy] = &summary.energy[..] else { panic!("{summary:?}") };
    assert_eq!((energy.domain, energy.tokens), (Domain::Ane, run.state.tokens));
    // The time of the records ends with the last one.
    assert!((0.3..=trained + 0.1).contains(&energy.seconds), "{energy:?} in {trained} s");
    assert!((9.0..11.0).contains(&energy.watts), "{energy:?}");
    let records = metrics::read(&folder.path().join("metrics.jsonl")).unwrap();
    let sensors: Vec<_> = records.iter().filter_map(|r| r.process.as_ref()?.sensors.as_ref()).collect();
    let joules: f64 = sensors.iter().flat_map(|s| &s.power).map(|power| power.joules).sum();
    assert!((joules - energy.joules).abs() < 1e-9, "{energy:?}");
    let counted = history.lock().unwrap().joules().map(|(_, _, joules)| joules).sum::<f64>();
    assert!(counted >= energy.joules + 10.0 * run.paused.as_secs_f64() - 0.5, "the counters have the pause: {counted}");
}

#[test]
fn a_stop_ends_a_pause_and_a_sample_needs_a_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::default();
    let mut run = begin(options(folder.path(), 1000), engine()).with_control(&control);
    control.pause(true);
    control.sample();
    let (stop, mut warnings) = (AtomicBool::new(false), Vec::new());
    let mut listen = |event: &Event| match event {
        Event::Paused { .. } => stop.store(true, Ordering::SeqCst),
        Event::Warning { text } => warnings.push(text.clone()),
        _ => {}
    };
    let summary = run.run(&mut listen, &stop).unwrap();
    assert!(summary.stopped && summary.step == 0);
    assert_eq!(warnings, ["no sample: the run has no tokenizer"]);
}

#[test]
fn a_sink_that_fails_is_dropped_with_a_warning() {
    struct Two(u64);
    impl Sink for Two {
        fn record(&mut self, record: &Record) -> std::io::Result<()> {
            self.0 += 1;
            assert!(self.0 == record.step && record.process.is_some());
            if self.0 == 3 { Err(std::io::Error::other("the third is refused")) } else { Ok(()) }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut run = begin(options(folder.path(), 6), engine()).with_sink(Box::new(Two(0)));
    let (summary, events) = train(&mut run, None);
    let warnings = events.iter().filter(|e| matches!(e, Event::Warning { text } if text.contains("the third")));
    assert_eq!((summary.step, warnings.count(), run.sinks.len()), (6, 1, 0));
}
