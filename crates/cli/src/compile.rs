//! `ferrane compile --aot`: a program to the engine's own container.
//!
//! The compiler works in a folder of its own inside the one that was named, so that what it leaves
//! there goes, or stays, as a whole.

use std::fs;
use std::path::{Path, PathBuf};

use ferrane::engine::aot::{CompileJob, Network};
use ferrane::mil::package::write_text;

use crate::args::Compile;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{files, out};

/// Runs `ferrane compile`.
pub fn run(args: Compile) -> Result<()> {
    if !args.aot {
        let how =
            "say how: --aot compiles to a file; `run` compiles and runs, `check` says what is wrong with a program";
        return Err(Error::new(how));
    }
    fs::create_dir_all(&args.out).map_err(|e| files::failed(&args.out, e))?;
    let folder = fs::canonicalize(&args.out).map_err(|e| files::failed(&args.out, e))?;
    let work = Work::new(&folder, args.keep)?;
    let kept = format!("{}: what went in and what the compiler wrote", work.path.display());
    let built = build(&args, &folder, &work.path);
    let target = built.map_err(|e| if args.keep { e.hint(&kept) } else { e })?;
    let size = fs::metadata(&target).map_err(|e| files::failed(&target, e))?.len();
    out::line(format_args!("{}: {size} bytes", target.display()))?;
    if args.keep { out::line(kept) } else { Ok(()) }
}

/// Compiles in the working folder; gives where the result then lies.
fn build(args: &Compile, folder: &Path, work: &Path) -> Result<PathBuf> {
    let job = CompileJob {
        network: network(&args.program, &args.shapes, work)?,
        out: work.to_path_buf(),
        architecture: args.target_architecture.clone(),
        debug_mask: args.debug_mask,
    };
    let product = job.compile()?;
    let target = folder.join(product.file_name().unwrap_or_default());
    fs::rename(&product, &target).map_err(|e| files::failed(&target, e))?;
    Ok(target)
}

/// The folder in which the compiler works, gone afterward unless it is kept.
struct Work {
    path: PathBuf,
    keep: bool,
}

impl Work {
    fn new(folder: &Path, keep: bool) -> Result<Work> {
        let name = if keep { "intermediate".to_string() } else { format!(".compile-{}", std::process::id()) };
        let path = folder.join(name);
        // Never one that is there: what is in it is not of this compile.
        match fs::create_dir(&path) {
            Ok(()) => Ok(Work { path, keep }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(files::failed(&path, "is there already; move it away or give another --out"))
            }
            Err(e) => Err(files::failed(&path, e)),
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// What the compiler reads: a property list where it lies, a program as text with its weights in
/// the folder.
fn network(file: &Path, shapes: &[String], folder: &Path) -> Result<Network> {
    if file.extension().is_some_and(|e| e == "plist") {
        let file = fs::canonicalize(file).map_err(|e| files::failed(file, e))?;
        return Ok(Network::Plist(file));
    }
    let program = program::load(file, Care::Whole, &program::named_extents(file, shapes)?)?.program;
    let text = folder.join("model.mil");
    write_text(&program, &text, false)?;
    Ok(Network::Mil(text))
}
