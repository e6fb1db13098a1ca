//! Power failures: the operations of real saves are recorded, and after each of them the disk is
//! built that a computer might find when it starts again.
//!
//! The model of the disk is that of a file system with a journal. Bytes of a file that were not
//! synced may be there, in part, or not at all. What a folder has gained, lost or renamed is kept
//! in order; of what was not synced, a beginning of any length is kept.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;

use super::*;
use ferrane_host::sync::lock as locked;
use ferrane_llm::random::Rng;

/// An operation on paths relative to the folder in which the run's folder is.
#[derive(Debug, Clone)]
enum Operation {
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    CreateFolder(PathBuf),
    Rename(PathBuf, PathBuf),
    RemoveFolder(PathBuf),
    SyncFolder(PathBuf),
    /// Not an operation: the checkpoint of this step is complete.
    Saved(u64),
}

/// The computer's file system, which records what it is asked to do.
#[derive(Clone)]
struct Recorder {
    base: PathBuf,
    log: Arc<Mutex<Vec<Operation>>>,
}

impl Recorder {
    fn push(&self, operation: impl FnOnce(&dyn Fn(&Path) -> PathBuf) -> Operation) {
        let relative = |path: &Path| path.strip_prefix(&self.base).unwrap().to_path_buf();
        locked(&self.log).push(operation(&relative));
    }
}

struct Recorded {
    file: Box<dyn SyncWrite>,
    path: PathBuf,
    recorder: Recorder,
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.recorder.push(|at| Operation::Write(at(&self.path), bytes.to_vec()));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SyncWrite for Recorded {
    fn sync(&self) -> io::Result<()> {
        self.recorder.push(|at| Operation::Sync(at(&self.path)));
        self.file.sync()
    }
}

impl Files for Recorder {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SyncWrite>> {
        self.push(|at| Operation::Create(at(path)));
        Ok(Box::new(Recorded { file: Disk.create(path)?, path: path.into(), recorder: self.clone() }))
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.push(|at| Operation::CreateFolder(at(path)));
        Disk.create_folder(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.push(|at| Operation::Rename(at(from), at(to)));
        Disk.rename(from, to)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.push(|at| Operation::RemoveFolder(at(path)));
        Disk.remove_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.push(|at| Operation::SyncFolder(at(path)));
        Disk.sync_folder(path)
    }
}

type Node = Rc<std::cell::RefCell<Content>>;

/// A file or a folder, as programs see it and as it is on the disk.
enum Content {
    File { bytes: Vec<u8>, synced: Vec<u8> },
    Folder { synced: BTreeMap<String, Node>, changes: Vec<Change> },
}

/// What a folder's entries went through since they were synced.
#[derive(Clone)]
enum Change {
    Put(String, Node),
    Move(String, String),
    Remove(String),
}

fn file() -> Node {
    Rc::new(Content::File { bytes: Vec::new(), synced: Vec::new() }.into())
}

fn folder() -> Node {
    Rc::new(Content::Folder { synced: BTreeMap::new(), changes: Vec::new() }.into())
}

/// The entries of a folder after some of its changes.
fn entries_after(synced: &BTreeMap<String, Node>, changes: &[Change]) -> BTreeMap<String, Node> {
    let mut entries = synced.clone();
    for change in changes {
        match change {
            Change::Put(name, node) => drop(entries.insert(name.clone(), node.clone())),
            Change::Move(from, to) => {
                let node = entries.remove(from).unwrap();
                entries.insert(to.clone(), node);
            }
            Change::Remove(name) => drop(entries.remove(name)),
        }
    }
    entries
}

/// The node at a path, as programs see it.
fn find(root: &Node, path: &Path) -> Node {
    path.components().fold(root.clone(), |node, name| {
        let Content::Folder { synced, changes } = &*node.borrow() else { panic!("{path:?} is in a file") };
        entries_after(synced, changes)[name.as_os_str().to_str().unwrap()].clone()
    })
}

/// Folder and name of a path.
fn place(root: &Node, path: &Path) -> (Node, String) {
    (find(root, path.parent().unwrap()), path.file_name().unwrap().to_str().unwrap().to_string())
}

fn change(folder: &Node, change: Change) {
    let Content::Folder { changes, .. } = &mut *folder.borrow_mut() else { panic!("not a folder") };
    changes.push(change);
}

/// The disk after these operations.
fn disk(operations: &[Operation]) -> Node {
    let root = folder();
    for operation in operations {
        match operation {
            Operation::Create(path) | Operation::CreateFolder(path) => {
                let (parent, name) = place(&root, path);
                let node = if matches!(operation, Operation::Create(_)) { file() } else { folder() };
                change(&parent, Change::Put(name, node));
            }
            Operation::Rename(from, to) => {
                let ((parent, from), (other, to)) = (place(&root, from), place(&root, to));
                assert!(Rc::ptr_eq(&parent, &other), "renames stay in a folder");
                change(&parent, Change::Move(from, to));
            }
            Operation::RemoveFolder(path) => {
                let (parent, name) = place(&root, path);
                change(&parent, Change::Remove(name));
            }
            Operation::Write(path, more) => {
                let node = find(&root, path);
                let Content::File { bytes, .. } = &mut *node.borrow_mut() else { panic!("not a file") };
                bytes.extend(more);
            }
            Operation::Sync(path) => {
                let node = find(&root, path);
                let Content::File { bytes, synced } = &mut *node.borrow_mut() else { panic!("not a file") };
                synced.clone_from(bytes);
            }
            Operation::SyncFolder(path) => {
                let node = find(&root, path);
                let Content::Folder { synced, changes } = &mut *node.borrow_mut() else { panic!("not a folder") };
                *synced = entries_after(synced, changes);
                changes.clear();
            }
            Operation::Saved(_) => {}
        }
    }
    root
}

/// Writes what the disk holds when the power comes back. `luck(n)` is how much of `n` changes or
/// bytes that were not synced is there.
fn build(node: &Node, to: &Path, luck: &mut dyn FnMut(usize) -> usize) {
    match &*node.borrow() {
        Content::File { bytes, synced } => {
            let kept = synced.len() + luck(bytes.len() - synced.len());
            fs::write(to, &bytes[..kept]).unwrap();
        }
        Content::Folder { synced, changes } => {
            fs::create_dir(to).unwrap();
            for (name, node) in entries_after(synced, &changes[..luck(changes.len())]) {
                build(&node, &to.join(name), luck);
            }
        }
    }
}

/// Records five saves, the last of a step that is there already.
fn recorded() -> Vec<Operation> {
    let base = tempfile::tempdir().unwrap();
    let recorder = Recorder { base: base.path().into(), log: Arc::default() };
    let store = Store::with_files(&base.path().join("runs/new"), Box::new(recorder.clone())).unwrap();
    for step in [1, 2, 3, 4, 4] {
        Model::new(step).save(&store, step).unwrap();
        recorder.push(|_| Operation::Saved(step));
    }
    locked(&recorder.log).clone()
}

/// What is wrong with the disk when the power fails after these operations.
fn failure(operations: &[Operation], luck: &mut dyn FnMut(usize) -> usize) -> Option<String> {
    let saved = |operation: &Operation| if let Operation::Saved(step) = operation { Some(*step) } else { None };
    let complete = operations.iter().filter_map(saved).next_back();
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("disk");
    build(&disk(operations), &base, luck);
    let folder = base.join("runs/new");
    if !folder.exists() {
        return complete.map(|step| format!("step {step} is lost with its folder"));
    }
    let found = match Store::open(&folder).and_then(|store| store.load(None)) {
        Err(Error::None(_)) if complete.is_none() => return None,
        Err(error) => return Some(format!("{error} after step {complete:?}")),
        Ok(found) => found,
    };
    if !found.warnings.is_empty() {
        return Some(format!("a damaged checkpoint: {:?}", found.warnings));
    }
    if complete > Some(found.state.step) {
        return Some(format!("step {complete:?} is lost; step {} is there", found.state.step));
    }
    let want = Model::new(found.state.step);
    let same = found.weights == want.weights && found.moments == want.moments;
    (!same).then(|| format!("step {} has other values", found.state.step))
}

/// What is wrong after each of the operations, with nothing of what was not synced, with all of it,
/// and with random parts.
fn failures(operations: &[Operation]) -> Vec<String> {
    let mut random = Rng::new(7);
    let mut found = Vec::new();
    for end in 0..=operations.len() {
        let now = &operations[..end];
        let mut draw = |n: usize| random.below(n as u64 + 1) as usize;
        let mut all = vec![failure(now, &mut |_| 0), failure(now, &mut |n| n)];
        all.extend((0..4).map(|_| failure(now, &mut draw)));
        found.extend(all.into_iter().flatten().map(|what| format!("after {:?}: {what}", now.last())));
    }
    found
}

#[test]
fn a_power_failure_at_any_moment_loses_no_checkpoint() {
    let operations = recorded();
    assert!(operations.len() > 80, "{operations:?}");
    assert_eq!(failures(&operations), [""; 0]);
}

/// Each sync is needed: without it, a power failure at some moment loses something.
#[test]
fn without_a_sync_something_is_lost() {
    let operations = recorded();
    let is_sync = |operation: &Operation| matches!(operation, Operation::Sync(_) | Operation::SyncFolder(_));
    // Those of the first save, which are repeated in the others.
    let end = operations.iter().position(|operation| matches!(operation, Operation::Saved(1))).unwrap();
    let syncs: Vec<usize> = (0..end).filter(|&i| is_sync(&operations[i])).collect();
    // Two folders, three files, the checkpoint's folder, and the run's after the rename.
    assert_eq!(syncs.len(), 7);
    for i in syncs {
        let mut without = operations[..=end].to_vec();
        let dropped = without.remove(i);
        assert!(!failures(&without).is_empty(), "{dropped:?} makes no difference");
    }
}

/// Helper process of the next test: saves one checkpoint.
#[test]
fn child_that_saves_once() {
    let Ok(folder) = std::env::var("FERRANE_TEST_SAVE_ONCE") else { return };
    Model::new(1).save(&Store::open(Path::new(&folder)).unwrap(), 1).unwrap();
}

/// Logs every sync and every rename of a process before the system does it.
#[cfg(target_os = "linux")]
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void note(const char *what, const char *path) {
    FILE *log = fopen(getenv("FERRANE_TEST_LOG"), "a");
    if (log) { fprintf(log, "%s %s\n", what, path); fclose(log); }
}
int fsync(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    note("sync", path);
    return syscall(SYS_fsync, fd);
}
int rename(const char *from, const char *to) {
    note("rename", to);
    return syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}
"#;

/// What [`Disk`] asks of the system, in order, seen from below the standard library.
#[test]
#[cfg(target_os = "linux")]
fn the_system_is_asked_to_sync() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().canonicalize().unwrap();
    let (code, library, log) = (base.join("shim.c"), base.join("shim.so"), base.join("log"));
    fs::write(&code, SHIM).unwrap();
    let built = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &code]).status();
    assert!(built.expect("this test needs a C compiler, as linking does").success());
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "checkpoint::store::tests::power::child_that_saves_once"])
        .env("FERRANE_TEST_SAVE_ONCE", base.join("new/run"))
        .env("FERRANE_TEST_LOG", &log)
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let log = fs::read_to_string(&log).unwrap();
    let base = format!("{}/", base.display());
    let lines: Vec<String> = log.lines().map(|line| line.replace(&base, "") + "/").collect();
    let step = "new/run/.tmp-step-000001";
    let wanted = [
        // The two folders above the checkpoint.
        format!("sync {}", base),
        "sync new/".into(),
        format!("sync {step}/{MODEL}/"),
        format!("sync {step}/{OPTIMIZER}/"),
        format!("sync {step}/{STATE}/"),
        format!("sync {step}/"),
        "rename new/run/step-000001/".into(),
        "sync new/run/".into(),
    ];
    assert_eq!(lines, wanted);
}
