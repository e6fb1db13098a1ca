//! Saves and loads the checkpoints of a run's folder.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use ferrane_host::map::Mapped;
use ferrane_llm::config::Config;
use ferrane_llm::lora;
use ferrane_llm::run_folder::{self, MODEL, STATE, step_name};
use ferrane_llm::weights::container::{self, Container};
use ferrane_llm::weights::{Slot, Weights, native};
use sha2::{Digest as _, Sha256};

use super::adapters::{self, AdapterSnapshot};
use super::files::create_folders;
use super::{Digest, Disk, Error, Files, State, VERSION};
use crate::lora::StoredAdapters;
use crate::optim::Moments;

/// Name of the file with the optimizer's moments.
pub const OPTIMIZER: &str = "optimizer.safetensors";

/// Name of the file that is locked while a process writes in the run's folder.
pub(crate) const LOCK: &str = ".lock";

/// Prefix of folders that are being written or removed.
const TEMPORARY: &str = ".tmp-";
/// Prefix of a checkpoint that is being replaced by another of the same step.
const REPLACED: &str = ".tmp-replaced-";
/// Number of complete checkpoints that are kept.
const KEEP: usize = 2;
/// Bytes written in one piece.
const BUFFER: usize = 1 << 20;
/// Bytes hashed in one piece.
const BLOCK: usize = 1 << 20;

/// The data of a checkpoint to be saved, borrowed from the run.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// Sizes and options of the model.
    pub config: &'a Config,
    /// The fp32 master weights.
    pub weights: &'a Weights,
    /// Both moments of the optimizer.
    pub moments: &'a dyn MomentSource,
    /// Everything else: step, sampler, loss scale, options.
    pub state: &'a State,
    /// The adapters of a run that trains them; weights and moments of the model are then not
    /// stored.
    pub adapters: Option<AdapterSnapshot<'a>>,
}

/// The moments that a checkpoint stores, wherever they are.
pub trait MomentSource {
    /// Calls `take` with all first moments and then with all second ones, some values at a time, in
    /// the order of [`Slot::list`].
    ///
    /// # Errors
    /// Those of `take`, and of getting the values.
    fn read(&self, config: &Config, take: &mut dyn FnMut(&[f32]) -> io::Result<()>) -> io::Result<()>;
}

impl MomentSource for Moments {
    /// # Errors
    /// Also `InvalidInput` if these are not moments of all values.
    fn read(&self, config: &Config, take: &mut dyn FnMut(&[f32]) -> io::Result<()>) -> io::Result<()> {
        for moment in [self.m(), self.v()] {
            moment.check(config).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
            moment.tensors(config).into_iter().try_for_each(|tensor| take(tensor.data))?;
        }
        Ok(())
    }
}

/// A checkpoint that was loaded into memory and verified.
#[derive(Debug)]
pub struct Checkpoint {
    /// Path of the checkpoint's folder.
    pub path: PathBuf,
    /// Sizes and options of the model.
    pub config: Config,
    /// The fp32 master weights; without tensors if adapters are trained, until the caller puts the
    /// model's weights there.
    pub weights: Weights,
    /// Both moments of the optimizer; without tensors if adapters are trained.
    pub moments: Moments,
    /// The adapters of a run that trains them, with their moments.
    pub adapters: Option<StoredAdapters>,
    /// Everything else: step, sampler, loss scale, options.
    pub state: State,
    /// The errors of newer checkpoints that could not be read, one line each.
    pub warnings: Vec<String>,
}

/// A run's folder, locked by this process.
pub struct Store {
    root: PathBuf,
    files: Box<dyn Files>,
    /// Unlocked on drop, and by the system when the process ends.
    lock: Option<File>,
    /// Another process writes here.
    shared: bool,
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            // Closing the file is not enough: a child process between fork and exec also has it
            // open. A failure has no remedy.
            let _ = lock.unlock();
        }
    }
}

impl Store {
    /// Opens a run's folder, creates it if necessary, and removes the leftovers of an interrupted
    /// save.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Io`].
    pub fn open(root: &Path) -> Result<Self, Error> {
        Store::with_files(root, Box::new(Disk))
    }

    /// Like [`Store::open`], with the caller's file operations. Everything that changes the folder
    /// goes through them, except for the lock.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_files(root: &Path, files: Box<dyn Files>) -> Result<Self, Error> {
        create_folders(&*files, root).map_err(|e| Error::io(root, e))?;
        let lock = lock(root)?;
        for (name, path) in entries(root)? {
            let original = name.strip_prefix(REPLACED).map(|n| root.join(n)).filter(|p| !p.exists());
            if let Some(original) = original {
                // The process was killed between the two renames of a replacement; the old
                // checkpoint is still complete.
                files.rename(&path, &original).map_err(|e| Error::io(&original, e))?;
            } else if name.starts_with(TEMPORARY) {
                files.remove_folder(&path).map_err(|e| Error::io(&path, e))?;
            }
        }
        Ok(Store { root: root.to_path_buf(), files, lock, shared: false })
    }

    /// The folder of a run that another process writes in. It is not locked, not created and not
    /// tidied up, and this process must not save in it.
    pub(crate) fn shared(root: &Path) -> Store {
        Store { root: root.to_path_buf(), files: Box::new(Disk), lock: None, shared: true }
    }

    /// Path of the run's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Steps of all checkpoints in the folder, in ascending order, damaged ones included.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn steps(&self) -> Result<Vec<u64>, Error> {
        run_folder::steps(&self.root).map_err(|e| Error::io(&self.root, e))
    }

    /// Writes a checkpoint, named by its step, and removes all but the last two.
    ///
    /// # Errors
    /// [`Error::Io`], for example for a full disk, and [`Error::Weights`]. Existing checkpoints are
    /// then unchanged.
    pub fn save(&self, snapshot: &Snapshot<'_>) -> Result<PathBuf, Error> {
        let target = self.root.join(step_name(snapshot.state.step));
        let temporary = self.root.join(format!("{TEMPORARY}{}", step_name(snapshot.state.step)));
        let written = self.write(&temporary, snapshot).and_then(|()| {
            if !target.exists() {
                return self.rename(&temporary, &target);
            }
            let aside = self.root.join(format!("{REPLACED}{}", step_name(snapshot.state.step)));
            self.rename(&target, &aside)?;
            self.rename(&temporary, &target)?;
            self.remove_folder(&aside)
        });
        if let Err(error) = written {
            // Frees the space, which may be what is missing. If this fails too, the next run cleans
            // up.
            let _ = self.files.remove_folder(&temporary);
            return Err(error);
        }
        let steps = self.steps()?;
        self.remove_steps(&steps[..steps.len().saturating_sub(KEEP)])?;
        Ok(target)
    }

    fn write(&self, folder: &Path, snapshot: &Snapshot<'_>) -> Result<(), Error> {
        if folder.exists() {
            self.remove_folder(folder)?;
        }
        self.files.create_folder(folder).map_err(|e| Error::io(folder, e))?;
        let Snapshot { config, weights, moments, state, adapters } = *snapshot;
        let mut state = state.clone();
        state.files.clear();
        if let Some(snapshot) = adapters {
            let base = state.options["init"].as_str().map(str::to_string);
            for file in adapters::FILES {
                let mut fill = |out: &mut Hashing<'_>| adapters::write(file, out, config, snapshot, base.as_deref());
                let digest = self.write_hashed(&folder.join(file), &mut fill)?;
                state.files.insert(file.into(), digest);
            }
            return self.write_state(folder, &state);
        }

        let path = folder.join(MODEL);
        let digest = self.write_hashed(&path, &mut |out| {
            native::write(out, &path, config, weights).map_err(|e| match e {
                ferrane_llm::weights::Error::Io { source, .. } => source,
                other => io::Error::new(io::ErrorKind::InvalidInput, other),
            })
        })?;
        state.files.insert(MODEL.into(), digest);

        let named = |prefix| move |slot: Slot| (format!("{prefix}.{}", slot.name()), slot.shape(config));
        let slots = Slot::list(config).into_iter();
        let tensors: Vec<_> = slots.clone().map(named("m")).chain(slots.map(named("v"))).collect();
        let path = folder.join(OPTIMIZER);
        let digest = self.write_hashed(&path, &mut |out| {
            container::begin(out, &[], tensors.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())))?;
            moments.read(config, &mut |values| container::write_values(out, values))
        })?;
        state.files.insert(OPTIMIZER.into(), digest);

        self.write_state(folder, &state)
    }

    /// Writes the state, which names the other files with their hashes, and syncs the folder.
    fn write_state(&self, folder: &Path, state: &State) -> Result<(), Error> {
        let path = folder.join(STATE);
        self.write_hashed(&path, &mut |out| {
            serde_json::to_writer_pretty(&mut *out, state)?;
            out.write_all(b"\n")
        })?;
        self.files.sync_folder(folder).map_err(|e| Error::io(folder, e))
    }

    fn write_hashed(
        &self,
        path: &Path,
        fill: &mut dyn FnMut(&mut Hashing<'_>) -> io::Result<()>,
    ) -> Result<Digest, Error> {
        let written = self.files.create(path).and_then(|file| {
            let mut file = BufWriter::with_capacity(BUFFER, file);
            let mut out = Hashing { out: &mut file, hash: Sha256::new(), bytes: 0 };
            fill(&mut out)?;
            let digest = Digest { bytes: out.bytes, sha256: hex(out.hash) };
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync()?;
            Ok(digest)
        });
        written.map_err(|e| Error::io(path, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.files.rename(from, to).map_err(|e| Error::io(to, e))?;
        self.files.sync_folder(&self.root).map_err(|e| Error::io(&self.root, e))
    }

    fn remove_folder(&self, path: &Path) -> Result<(), Error> {
        self.files.remove_folder(path).map_err(|e| Error::io(path, e))
    }

    /// Removes checkpoints. Each is renamed before its files are removed, so that a partly removed
    /// one is never treated as a checkpoint.
    fn remove_steps(&self, steps: &[u64]) -> Result<(), Error> {
        steps.iter().try_for_each(|step| {
            let name = step_name(*step);
            let aside = self.root.join(format!("{TEMPORARY}old-{name}"));
            self.rename(&self.root.join(name), &aside)?;
            self.remove_folder(&aside)
        })
    }

    /// Removes all checkpoints, for a run that starts again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(&self) -> Result<(), Error> {
        self.remove_steps(&self.steps()?)
    }

    /// Removes old checkpoints. The newest intact one stays, with all that are newer and `keep - 1`
    /// before it; if none is intact, all stay. Returns the steps of the removed ones, in ascending
    /// order.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn prune(&self, keep: NonZeroUsize) -> Result<Vec<u64>, Error> {
        let steps = self.steps()?;
        let is_intact = |step: &u64| intact(&self.root.join(step_name(*step))).is_ok();
        let Some(newest) = steps.iter().rposition(is_intact) else { return Ok(Vec::new()) };
        let old = &steps[..(newest + 1).saturating_sub(keep.get())];
        self.remove_steps(old)?;
        Ok(old.to_vec())
    }

    /// Loads the newest checkpoint. Damaged ones are renamed to `damaged-…` and reported in
    /// [`Checkpoint::warnings`].
    ///
    /// If `expected` is given, the weights must have this configuration.
    ///
    /// # Errors
    /// [`Error::None`], [`Error::AllDamaged`]; [`Error::Weights`] with the tensor, the expected
    /// shape and the found one.
    pub fn load(&self, expected: Option<&Config>) -> Result<Checkpoint, Error> {
        let mut warnings = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            let path = self.root.join(step_name(step));
            match read(&path, expected) {
                Ok(checkpoint) => {
                    for step in self.steps()?.into_iter().filter(|s| *s > step && !self.shared) {
                        self.put_aside(step)?;
                    }
                    return Ok(Checkpoint { warnings, ..checkpoint });
                }
                Err(Error::Damaged { path, reason }) => warnings.push(format!("{}: {reason}", path.display())),
                Err(other) => return Err(other),
            }
        }
        if warnings.is_empty() {
            return Err(Error::None(self.root.clone()));
        }
        Err(Error::AllDamaged { folder: self.root.clone(), reasons: warnings })
    }

    fn put_aside(&self, step: u64) -> Result<(), Error> {
        let aside = self.root.join(format!("damaged-{}", step_name(step)));
        if aside.exists() {
            self.remove_folder(&aside)?;
        }
        self.rename(&self.root.join(step_name(step)), &aside)
    }
}

/// Checks every file of a checkpoint against its hash. Returns its state, and whether it has
/// adapters in place of a model.
fn intact(folder: &Path) -> Result<(State, bool), Error> {
    let path = folder.join(STATE);
    let text = fs::read(&path).map_err(|e| Error::damaged(&path, e.to_string()))?;
    let mut state: State = serde_json::from_slice(&text).map_err(|e| Error::damaged(&path, e.to_string()))?;
    if state.version != VERSION {
        let reason = format!("version {} is not supported; this program reads version {VERSION}", state.version);
        return Err(Error::damaged(&path, reason));
    }
    let files = std::mem::take(&mut state.files);
    let adapted = files.contains_key(lora::MATRICES);
    let wanted: &[&str] = if adapted { &adapters::FILES } else { &[MODEL, OPTIMIZER] };
    for file in wanted {
        let path = folder.join(file);
        let Some(digest) = files.get(*file) else {
            return Err(Error::damaged(&path, format!("{STATE} does not know this file")));
        };
        verify(&path, digest)?;
    }
    Ok((state, adapted))
}

/// Reads a checkpoint after checking every file against its hash.
fn read(folder: &Path, expected: Option<&Config>) -> Result<Checkpoint, Error> {
    let (state, adapted) = intact(folder)?;
    let (path, warnings) = (folder.to_path_buf(), Vec::new());
    if adapted {
        let (config, adapters) = adapters::read(folder)?;
        let (weights, moments) = (Weights::default(), Moments::none());
        return Ok(Checkpoint { path, config, weights, moments, adapters: Some(adapters), state, warnings });
    }
    let open = |file: &str| {
        let path = folder.join(file);
        Container::open(&path).map_err(|e| Error::damaged(&path, e.to_string()))
    };
    let model = open(MODEL)?;
    let own = native::config(&model).map_err(|e| Error::damaged(&folder.join(MODEL), e.to_string()))?;
    let Some(own) = own else {
        return Err(Error::damaged(&folder.join(MODEL), format!("no {} in the metadata", native::CONFIG_KEY)));
    };
    let weights = native::read(&model, expected.unwrap_or(&own))?;
    let config = expected.cloned().unwrap_or(own);
    let optimizer = open(OPTIMIZER)?;
    let (mut m, mut v) = (Weights::zeros(&config), Weights::zeros(&config));
    for (prefix, moment) in [("m", &mut m), ("v", &mut v)] {
        for tensor in moment.tensors_mut(&config) {
            optimizer.read(&format!("{prefix}.{}", tensor.name), &tensor.shape, tensor.data)?;
        }
    }
    let moments = Moments::new(&config, m, v);
    Ok(Checkpoint { path, config, weights, moments, adapters: None, state, warnings })
}

fn verify(path: &Path, digest: &Digest) -> Result<(), Error> {
    let bytes = Mapped::open(path).map_err(|e| Error::damaged(path, e.to_string()))?;
    if bytes.len() as u64 != digest.bytes {
        let reason = format!("expected {} bytes, found {}", digest.bytes, bytes.len());
        return Err(Error::damaged(path, reason));
    }
    let mut hash = Sha256::new();
    bytes.chunks(BLOCK).for_each(|block| hash.update(block));
    if hex(hash) == digest.sha256 { Ok(()) } else { Err(Error::damaged(path, "its SHA-256 is not the recorded one")) }
}

/// A writer that hashes and counts the bytes it passes on.
pub(super) struct Hashing<'a> {
    out: &'a mut dyn Write,
    hash: Sha256,
    bytes: u64,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Size of the files directly in a folder, in bytes; 0 if it cannot be read.
pub(crate) fn folder_size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

fn entries(root: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut list = Vec::new();
    for entry in fs::read_dir(root).map_err(|e| Error::io(root, e))? {
        let entry = entry.map_err(|e| Error::io(root, e))?;
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            list.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    Ok(list)
}

/// Locks the folder; `None` on a file system without locks.
fn lock(root: &Path) -> Result<Option<File>, Error> {
    let path = root.join(LOCK);
    let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(root.to_path_buf())),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
