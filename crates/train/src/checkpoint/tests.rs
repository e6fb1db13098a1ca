use super::super::SyncWrite;
use super::*;
use crate::data::SamplerState;
use crate::metrics::Record;
use crate::optim::LossScale;
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::preset;
use ferrane_llm::weights::Init;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn tiny() -> Config {
    let base = preset("stories260k").unwrap();
    Config { dim: 16, hidden: 24, layers: 2, heads: 4, kv_heads: 2, head_dim: 4, vocab: 48, max_seq: 64, ..base }
}

fn state(step: u64) -> State {
    State {
        version: VERSION,
        step,
        updates: step - 1,
        skipped: 1,
        skipped_in_a_row: 0,
        tokens: 64 * step,
        seconds: 0.1 + 0.2,
        loss_scale: LossScale::default(),
        sampler: SamplerState { rng: [u64::MAX, 1, 2, 3], drawn: u64::MAX - 1 },
        options: serde_json::json!({ "lr": 1.0 / 3.0 }),
        data: "abc".into(),
        tokenizer: Some("tok.bin".into()),
        compaction: Some(Compaction::used([1, 3], 5)),
        validation: Some((step, 2.0f64.sqrt())),
        pending: Some(Record { step, loss: Some(0.1 + 0.2), ..Record::default() }),
        files: Default::default(),
    }
}

struct Model {
    config: Config,
    weights: Weights,
    moments: Moments,
}

impl Model {
    fn new(seed: u64) -> Self {
        let config = tiny();
        let draw = |stream| Weights::init(&config, Init::Normal { std: 1.0 }, 100 * seed + stream);
        Model { weights: draw(0), moments: Moments::new(&config, draw(1), draw(2)), config: config.clone() }
    }

    fn save(&self, store: &Store, step: u64) -> Result<PathBuf, Error> {
        let (config, weights, moments) = (&self.config, &self.weights, &self.moments);
        store.save(&Snapshot { config, weights, moments, state: &state(step), adapters: None })
    }
}

#[test]
fn round_trip_to_the_bit_and_two_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert!(matches!(store.load(None), Err(Error::None(_))));
    for step in 1..=4 {
        Model::new(step).save(&store, step).unwrap();
    }
    assert_eq!(store.steps().unwrap(), [3, 4]);
    let found = store.load(Some(&tiny())).unwrap();
    let want = Model::new(4);
    assert_eq!((&found.weights, &found.moments, &found.config), (&want.weights, &want.moments, &want.config));
    assert_eq!(found.state, state(4));
    assert!(found.warnings.is_empty());
    assert_eq!(run_folder::find_model(folder.path()).unwrap().unwrap(), folder.path().join("step-000004").join(MODEL));
    // Saving the same step again replaces the checkpoint.
    Model::new(9).save(&store, 4).unwrap();
    assert_eq!(store.load(None).unwrap().weights, Model::new(9).weights);
    store.discard().unwrap();
    assert!(store.steps().unwrap().is_empty());
    assert_eq!(run_folder::find_model(folder.path()).unwrap(), None);
}

#[test]
fn one_run_a_folder_and_leftovers_go() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(".tmp-step-000007/x")).unwrap();
    let model = Model::new(1);
    {
        let store = Store::open(folder.path()).unwrap();
        assert!(!folder.path().join(".tmp-step-000007").exists());
        assert!(matches!(Store::open(folder.path()), Err(Error::Locked(_))));
        model.save(&store, 3).unwrap();
    }
    // A replacement interrupted between its renames.
    fs::rename(folder.path().join("step-000003"), folder.path().join(".tmp-replaced-step-000003")).unwrap();
    assert_eq!(Store::open(folder.path()).unwrap().load(None).unwrap().weights, model.weights);
}

#[test]
fn damage_falls_back_and_is_put_aside() {
    let cut = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 5]).unwrap();
    };
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, &bytes).unwrap();
    };
    type Damage<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Damage<'_>, &str); 7] = [
        (MODEL, &cut, "bytes"),
        (OPTIMIZER, &cut, "bytes"),
        (STATE, &cut, "EOF"),
        (MODEL, &flip, "SHA-256"),
        (OPTIMIZER, &flip, "SHA-256"),
        (OPTIMIZER, &|p| fs::remove_file(p).unwrap(), "No such file"),
        (STATE, &|p| fs::write(p, "{}").unwrap(), "missing field"),
    ];
    for (file, damage, reason) in cases {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        (1..=2).for_each(|step| drop(Model::new(step).save(&store, step).unwrap()));
        damage(&folder.path().join("step-000002").join(file));
        let found = store.load(None).unwrap();
        assert_eq!((found.state.step, &found.weights), (1, &Model::new(1).weights));
        assert!(found.warnings.len() == 1 && found.warnings[0].contains(reason), "{:?}", found.warnings);
        assert_eq!(store.steps().unwrap(), [1]);
        assert!(folder.path().join("damaged-step-000002").exists());
        damage(&folder.path().join("step-000001").join(file));
        assert!(matches!(store.load(None), Err(Error::AllDamaged { .. })));
        assert_eq!(store.steps().unwrap(), [1], "a damaged checkpoint is renamed only if another can be loaded");
    }
}

#[test]
fn old_checkpoints_are_removed_and_an_intact_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    // A save keeps two; the third is put there by hand.
    (1..=2).for_each(|step| drop(Model::new(step).save(&store, step).unwrap()));
    let path = |step: &str| folder.path().join(step);
    fs::rename(path("step-000001"), path("aside")).unwrap();
    Model::new(3).save(&store, 3).unwrap();
    fs::rename(path("aside"), path("step-000001")).unwrap();
    let prune = |keep| store.prune(NonZeroUsize::new(keep).unwrap()).unwrap();
    assert_eq!((prune(3), store.steps().unwrap()), (vec![], vec![1, 2, 3]));
    // The damaged one does not count, and stays where it is.
    fs::write(path("step-000003").join(MODEL), "cut").unwrap();
    assert_eq!((prune(1), store.steps().unwrap()), (vec![1], vec![2, 3]));
    assert_eq!(store.load(None).unwrap().state.step, 2);
    fs::write(path("step-000002").join(STATE), "{}").unwrap();
    Model::new(4).save(&store, 4).unwrap();
    fs::remove_file(path("step-000004").join(OPTIMIZER)).unwrap();
    assert_eq!((prune(1), store.steps().unwrap()), (vec![], vec![2, 4]), "none is intact");
    assert_eq!(fs::read_dir(folder.path()).unwrap().flatten().filter(|e| e.file_name() != ".lock").count(), 3);
}

#[test]
fn another_model_is_an_error_that_names_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    Model::new(1).save(&store, 1).unwrap();
    let other = Config { hidden: 32, ..tiny() };
    let text = store.load(Some(&other)).unwrap_err().to_string();
    assert!(text.contains("layers.0.w1: expected shape [32, 16], found [24, 16]"), "{text}");
}

/// A disk with room for a given number of bytes.
struct Full(Arc<AtomicU64>);

struct Limited(Box<dyn SyncWrite>, Arc<AtomicU64>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.1.load(Ordering::Relaxed);
        let n = bytes.len().min(room as usize);
        if n == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.1.store(room - n as u64, Ordering::Relaxed);
        self.0.write_all(&bytes[..n])?;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl SyncWrite for Limited {
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Files for Full {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SyncWrite>> {
        Ok(Box::new(Limited(Disk.create(path)?, self.0.clone())))
    }
}

#[test]
fn full_disk_leaves_the_previous_checkpoint() {
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let folder = tempfile::tempdir().unwrap();
    let store = Store::with_files(folder.path(), Box::new(Full(room.clone()))).unwrap();
    let model = Model::new(1);
    model.save(&store, 1).unwrap();
    let used = u64::MAX - room.load(Ordering::Relaxed);
    for step in 2..=20 {
        room.store(used * (step - 2) / 19, Ordering::Relaxed);
        match Model::new(step).save(&store, step) {
            Err(Error::Io { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        assert_eq!(store.steps().unwrap(), [1]);
        assert_eq!(entries(folder.path()).unwrap().len(), 1, "the space is freed");
    }
    assert_eq!(store.load(None).unwrap().weights, model.weights);
    room.store(used + 8, Ordering::Relaxed);
    Model::new(21).save(&store, 21).unwrap();
}

/// Helper process of the next test: saves until it is killed.
#[test]
fn child_that_saves_forever() {
    let Ok(folder) = std::env::var("FERRANE_TEST_SAVE_FOREVER") else { return };
    let store = Store::open(Path::new(&folder)).unwrap();
    let first = store.steps().unwrap().last().copied().unwrap_or(0) + 1;
    for step in first.. {
        Model::new(step).save(&store, step).unwrap();
    }
}

#[test]
#[cfg(unix)]
fn killed_at_any_moment_the_last_checkpoint_loads() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = ferrane_llm::random::Rng::new(5);
    let (mut last, mut leftovers) = (0, 0);
    for round in 0..20 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "checkpoint::store::tests::child_that_saves_forever"])
            .env("FERRANE_TEST_SAVE_FOREVER", folder.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Waits for at least one save in this round, then kills the process at a random time in the
        // next few.
        let begun = std::time::Instant::now();
        while run_folder::steps(folder.path()).unwrap().last().copied().unwrap_or(0) <= last {
            assert!(begun.elapsed().as_secs() < 60, "round {round}: no checkpoint within a minute");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_micros(random.below(20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        leftovers += entries(folder.path()).unwrap().iter().filter(|e| e.0.starts_with(TEMPORARY)).count();
        let found = Store::open(folder.path()).unwrap().load(None).unwrap();
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        assert!(found.state.step > last);
        last = found.state.step;
        let want = Model::new(last);
        assert_eq!((found.weights, found.moments), (want.weights, want.moments));
    }
    assert!(leftovers > 0, "no kill hit a save; the test shows nothing");
}

#[path = "power.rs"]
mod power;
