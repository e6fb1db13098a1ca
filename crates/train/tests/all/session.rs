//! Sessions: built from options and files, stopped, and resumed from the folder alone.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_emulator::Numerics;
use ferrane_llm::config::{Activation, AttentionKind, Config};
use ferrane_llm::layout::PipelineKind;
use ferrane_llm::model::Model;
use ferrane_llm::sample::{Sampler, Sampling};
use ferrane_train::run::{self, Event, RunOptions};
use ferrane_train::session::{Session, SessionError, SessionOptions, StoredRun};

use crate::gradients::emulator;
use crate::pipelines;
use crate::run::tiny;

/// A folder with the configuration of a tiny model and a text of 200 sentences.
pub fn place() -> (tempfile::TempDir, SessionOptions) {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = (folder.path().join("tiny.json"), folder.path().join("text.txt"));
    fs::write(&model, serde_json::to_string(&tiny()).unwrap()).unwrap();
    let text: String = (0..200).map(|i| format!("The cat sat on mat {}.\n", i % 7)).collect();
    fs::write(&data, text).unwrap();
    let run = RunOptions {
        steps: 6,
        accum: 2,
        seq: 12,
        warmup: 1,
        eval_windows: 2,
        out: folder.path().join("run"),
        ..RunOptions::default()
    };
    let model = Some(model.display().to_string());
    let data_cache = Some(folder.path().join("cache"));
    (folder, SessionOptions { model, data: vec![data.into()], data_cache, run, ..SessionOptions::default() })
}

pub fn silent() -> impl FnMut(&Event) {
    |_: &Event| {}
}

/// The names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Stops the session after `windows` windows.
fn stopped_after(session: &mut Session, windows: usize) {
    let (stop, mut seen) = (AtomicBool::new(false), 0);
    let mut listen = |event: &Event| {
        seen += usize::from(matches!(event, Event::Window { .. }));
        stop.store(seen >= windows, Ordering::Relaxed);
    };
    assert!(session.run(&mut listen, &stop).unwrap().stopped);
}

#[test]
fn a_model_that_training_does_not_support_is_refused_at_the_start() {
    let gelu = Config { activation: Activation::GeluTanh, ..tiny() };
    let kind = |i| AttentionKind { window: false, rope: i == 0 };
    let mixed = Config { layer_attention: (0..tiny().layers).map(kind).collect(), ..tiny() };
    for (config, on_device, needle) in [
        (&gelu, true, Some("its gate is not SiLU")),
        (&gelu, false, Some("its gate is not SiLU")),
        (&mixed, true, Some("the fp32 reference trains")),
        (&mixed, false, None),
    ] {
        let (_folder, options) = place();
        fs::write(options.model.as_ref().unwrap(), serde_json::to_string(config).unwrap()).unwrap();
        let device = on_device.then(|| emulator(Numerics::Fast));
        let begun = Session::begin(options.clone(), device.as_ref(), &mut silent());
        let message = begun.err().map(|error| error.to_string());
        match needle {
            Some(needle) => {
                let message = message.unwrap();
                assert!(message.contains(needle), "{message}");
                assert!(!options.run.out.exists());
            }
            None => assert_eq!(message, None),
        }
    }
}

#[test]
fn a_stopped_session_resumes_from_its_folder_to_the_same_bits() {
    for device in [None, Some(emulator(Numerics::Fast))] {
        let (_folder, options) = place();
        let whole = SessionOptions {
            run: RunOptions { out: options.run.out.with_file_name("whole"), ..options.run.clone() },
            ..options.clone()
        };
        let mut events = Vec::new();
        let mut want = Session::begin(whole, device.as_ref(), &mut |e| events.push(e.clone())).unwrap();
        want.run(&mut silent(), &AtomicBool::new(false)).unwrap();
        // Each place has a cache of its own.
        assert!(matches!(events.remove(0), Event::Encoding { .. }), "{events:?}");
        // The text has few ids, and the loss on a device runs over these only.
        let Event::Prepared { active, config, tokens } = &events[0] else { panic!("{events:?}") };
        assert_eq!(*active < config.vocab, device.is_some());
        assert_eq!(want.state().compaction.as_ref().map(|map| map.len()), device.as_ref().map(|_| *active));
        assert!(*tokens > 100 && (events.len() == 2) == device.is_some());

        let out = options.run.out.clone();
        let mut first = Session::begin(options.clone(), device.as_ref(), &mut silent()).unwrap();
        stopped_after(&mut first, 7);
        drop(first);
        // Resuming needs neither the model's file nor the options; the tokenizer is in the run's
        // folder.
        fs::remove_file(options.model.unwrap()).unwrap();
        let mut second = Session::resume(&out, device.as_ref(), &mut silent()).unwrap();
        assert_eq!(second.state().step, 3);
        second.run(&mut silent(), &AtomicBool::new(false)).unwrap();
        assert!(second.weights() == want.weights());

        // The session and its folder generate the same text.
        let text = |generator: &mut ferrane_llm::generate::TextGenerator<'_>| -> String {
            generator.generate("The", 12).unwrap().map(|piece| piece.unwrap().text).collect()
        };
        let greedy = || Sampler::new(&Sampling::greedy()).unwrap();
        let own = text(&mut second.generator(greedy()).unwrap().unwrap());
        let model = Model::open(&out).unwrap();
        assert_eq!(text(&mut model.generator(device.as_ref(), Default::default(), greedy()).unwrap()), own);
    }
}

/// A dry run reports what the run then takes, and leaves the run's folder alone.
#[test]
fn a_dry_run_measures_and_leaves_nothing() {
    for device in [None, Some(emulator(Numerics::Fast))] {
        let (folder, mut options) = place();
        (options.run.steps, options.run.accum, options.run.eval_every) = (9, 2, 4);
        options.recompute = NonZeroUsize::new(1);
        options.run.groups = 2;
        let deep = Config { layers: 8, ..tiny() };
        fs::write(options.model.as_ref().unwrap(), serde_json::to_string(&deep).unwrap()).unwrap();
        let before = names(folder.path());
        let stop = AtomicBool::new(false);
        let dry = Session::dry_run(options.clone(), device.as_ref(), &mut silent(), &stop).unwrap().unwrap();
        let mut after = names(folder.path());
        after.retain(|name| name != "cache");
        assert_eq!(after, before, "only the ids of the data remain");
        let mut events = Vec::new();
        let mut session = Session::begin(options.clone(), device.as_ref(), &mut |e| events.push(e.clone())).unwrap();
        let summary = session.run(&mut silent(), &stop).unwrap();
        let Some(Event::Prepared { active, config, tokens }) =
            events.iter().find(|e| matches!(e, Event::Prepared { .. }))
        else {
            panic!("{events:?}")
        };
        assert_eq!((dry.parameters, dry.trained, dry.tokens), (config.parameters(), config.parameters(), *tokens));
        assert_eq!((dry.active, dry.updates, dry.update_tokens), (*active, 9, 2 * options.run.seq as u64));
        let size: u64 = fs::read_dir(&summary.checkpoint).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
        // The state in it has numbers of different lengths.
        assert!(dry.checkpoint_bytes.abs_diff(size) < 1000, "{} and {size}", dry.checkpoint_bytes);
        // One layer of eight keeps its activations. Two runs do not hold the same bytes, because
        // the number of buffers that wait for weight gradients depends on the threads.
        let all = SessionOptions { recompute: None, ..options.clone() };
        let all = Session::dry_run(all, device.as_ref(), &mut silent(), &stop).unwrap().unwrap();
        let (kept, all) = (dry.memory.engine.activations, all.memory.engine.activations);
        assert_eq!(5 * kept < 3 * all, device.is_some(), "{kept} and {all}");
        assert!(dry.micro_step_ms > 0.0 && dry.update_ms > 0.0 && dry.validation_ms > 0.0 && dry.compile_ms == 0.0);
        let per_update = (2.0 * dry.micro_step_ms + dry.update_ms) / 1e3;
        assert!((dry.tokens_per_second - dry.update_tokens as f64 / per_update).abs() < 1e-6 * dry.tokens_per_second);
        // Validations before the first update, after 4, 8 and 9.
        let windows = options.run.eval_windows as f64;
        let want = 9.0 * per_update + 4.0 * windows * dry.validation_ms / 1e3 + dry.checkpoint_ms / 1e3;
        assert!((dry.seconds - want).abs() < 1e-6 * want, "{} and {want}", dry.seconds);
    }
    // With constants, one set of programs suffices, and its compiles are timed: eleven programs
    // take more than 10 us on any computer.
    let (_folder, mut options) = place();
    options.pipeline = PipelineKind::Static;
    let (device, process) = pipelines::process(Some(pipelines::PROGRAMS));
    let dry = Session::dry_run(options, Some(&device), &mut silent(), &AtomicBool::new(false)).unwrap().unwrap();
    assert!(dry.compile_ms > 0.01 && dry.micro_step_ms > 0.0 && dry.update_ms > 0.0, "{dry:?}");
    assert!(dry.validation_ms > 0.0 && dry.checkpoint_bytes > 0, "{dry:?}");
    assert_eq!(process.compiles(), pipelines::PROGRAMS);
    let (_folder, options) = place();
    let stopped = Session::dry_run(options, None, &mut silent(), &AtomicBool::new(true)).unwrap();
    assert!(stopped.is_none());
}

#[test]
fn what_a_session_was_begun_with_stays() {
    let (folder, options) = place();
    let out = options.run.out.clone();
    assert!(matches!(StoredRun::open(&out), Err(SessionError::NothingToResume(path)) if path == out));
    let device = emulator(Numerics::Fast);
    let mut session = Session::begin(options.clone(), Some(&device), &mut silent()).unwrap();
    session.run(&mut silent(), &AtomicBool::new(false)).unwrap();
    drop(session);
    let again = Session::begin(options.clone(), Some(&device), &mut silent());
    assert!(matches!(again, Err(SessionError::Run(run::Error::Exists { step: 6, .. }))));

    let resume = |change: &dyn Fn(&mut SessionOptions), device| {
        let stored = StoredRun::open(&out).unwrap();
        assert_eq!((stored.step(), &stored.options().model), (6, &options.model));
        let mut options = stored.options().clone();
        change(&mut options);
        stored.resume(options, device, &mut silent()).map(|_| ())
    };
    assert!(resume(&|_| (), Some(&device)).is_ok());
    let error = resume(&|o| o.model = Some("stories15m".into()), Some(&device)).unwrap_err();
    assert!(matches!(&error, SessionError::OtherStart { field: "model", .. }), "{error}");
    let error = resume(&|o| o.init = Some(PathBuf::from("run")), Some(&device)).unwrap_err();
    assert!(error.to_string().contains("was begun with none"), "{error}");
    // The loss of this run does not run over all ids, which the reference does not support.
    assert!(matches!(resume(&|_| (), None), Err(SessionError::Vocabulary { .. })));
    let other = folder.path().join("other.txt");
    fs::write(&other, "A dog ran.\n".repeat(200)).unwrap();
    let error = resume(&|o| o.data = vec![other.clone().into()], Some(&device)).unwrap_err();
    assert!(matches!(error, SessionError::Run(run::Error::OtherData { .. })), "{error}");
    let tokenizer = |text: &str| ferrane_llm::tokenizer::Tokenizer::train(text, 300).unwrap();
    let path = folder.path().join("other.bin");
    tokenizer("another text").save(&path).unwrap();
    let error = resume(&|o| o.tokenizer = Some(path.clone()), Some(&device)).unwrap_err();
    assert!(matches!(error, SessionError::OtherTokenizer(_)), "{error}");
}

#[test]
fn options_of_older_checkpoints_are_read() {
    let stored = r#"{"model":"stories15m","init":null,"data":"/d.txt","tokenizer":null,"device":"emulator?numerics=exact",
        "steps":7,"accum":3,"seq":64,"lr":0.5,"residual":"fp16","compact":false,"out":"runs/a","resume":true,"json":true}"#;
    let options: SessionOptions = serde_json::from_str(stored).unwrap();
    assert_eq!((options.run.steps, options.run.accum, options.run.seq, options.run.lr), (7, 3, 64, 0.5));
    assert_eq!((options.model.as_deref(), options.compact), (Some("stories15m"), false));
    assert_eq!(options.run.batch, RunOptions::default().batch);
    // Every field round-trips.
    let text = serde_json::to_string(&options).unwrap();
    assert_eq!(serde_json::from_str::<SessionOptions>(&text).unwrap(), options);
}

#[test]
fn a_folder_that_cannot_take_a_run() {
    let (folder, options) = place();
    let begin = |out: &Path| {
        let options = SessionOptions { run: RunOptions { out: out.into(), ..options.run.clone() }, ..options.clone() };
        Session::begin(options, None, &mut silent()).map(|_| ())
    };
    let file = folder.path().join("text.txt");
    assert!(matches!(begin(&file), Err(SessionError::NotAFolder(_))));
    assert!(matches!(begin(&file.join("run")), Err(SessionError::Folder { .. } | SessionError::Data(_))));
}
