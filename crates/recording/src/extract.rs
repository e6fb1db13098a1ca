//! A recording as files of a folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ferrane_host::fs::{Durability, replace};
use ferrane_tensor_io::{Error as TensorError, Format, write};

use crate::{Recording, RecordingError};

/// Why a recording was not extracted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The folder has files already.
    #[error("{}: is not empty; name a new folder", .0.display())]
    NotEmpty(PathBuf),
    /// Two parts of the recording have this path.
    #[error("{}: is in the recording twice", .0.display())]
    Twice(PathBuf),
    /// The system refused a file or folder.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The path of a weight file leads out of the folder.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Tensors that a `.safetensors` file cannot hold.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Writes what a recording holds as files of a folder that is new or empty, and returns their
/// paths: the program with its weight files, a `.safetensors` file each for the inputs, the states
/// before and after the first run, and the outputs, if there are any, and `recording.json` with
/// what [`Recording::json`] has.
///
/// The folder has nothing that could be overwritten and no link that leads out of it. Each file is
/// written whole or not at all.
///
/// ```
/// # use ferrane_device::{Device, Tensor, Tensors};
/// # use ferrane_emulator::{Emulator, EmulatorOptions};
/// # use ferrane_mil::{Builder, DataType, Opset, Type};
/// use ferrane_recording::{Job, Recording, extract};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut b = Builder::new("main", Opset::IOS18);
/// # let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
/// # let y = b.op("sigmoid", "y", [("x", x.into())])?;
/// # let program = b.finish(&[("y", y)])?;
/// # let device = Device::new(Emulator::new(EmulatorOptions::default()));
/// # let inputs = Tensors::from([("x", Tensor::fp16(&[1, 4], &[0.0; 4])?)]);
/// # let states = Tensors::new();
/// # let job = Job { program: &program, function: "main", label: "x", inputs: &inputs, states: &states, runs: 1 };
/// # let recording = Recording::record(&device, "emulator", &job)?;
/// # let parent = tempfile::tempdir()?;
/// let folder = parent.path().join("parts");
/// let files = extract(&recording, &folder)?;
/// let names = ["program.mil", "inputs.safetensors", "outputs.safetensors", "recording.json"];
/// assert_eq!(files, names.map(|name| folder.join(name)));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// An [`ExtractError`]. The files before the one that failed remain.
pub fn extract(recording: &Recording, folder: &Path) -> Result<Vec<PathBuf>, ExtractError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        |source| ExtractError::Io { path, source }
    };
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => return Err(ExtractError::NotEmpty(folder.to_path_buf())),
        Err(e) if e.kind() == ErrorKind::NotFound => fs::create_dir_all(folder).map_err(io(folder))?,
        Err(e) => return Err(io(folder)(e)),
    }
    let mut written = Vec::new();
    let mut put = |path: &Path, bytes: &[u8]| {
        let path = folder.join(path);
        if path.exists() {
            return Err(ExtractError::Twice(path));
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io(parent))?;
        }
        replace(&path, bytes, Durability::Synced).map_err(io(&path))?;
        written.push(path);
        Ok(())
    };
    put(Path::new("program.mil"), &recording.text)?;
    for (path, bytes) in recording.blobs()? {
        put(&path, bytes)?;
    }
    let lists = [
        ("inputs", &recording.inputs),
        ("states", &recording.states),
        ("outputs", &recording.outputs),
        ("after", &recording.left),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        put(Path::new(&format!("{name}.safetensors")), &write(Format::Safetensors, list)?)?;
    }
    put(Path::new("recording.json"), format!("{:#}\n", recording.json()).as_bytes())?;
    Ok(written)
}
