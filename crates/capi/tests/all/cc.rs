//! Compiles and runs C programs against the libraries that `cargo build` makes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

/// The system libraries that the static library needs.
const SYSTEM: &[&str] = if cfg!(target_vendor = "apple") {
    &["-framework", "CoreFoundation", "-framework", "Foundation", "-framework", "IOSurface", "-lm", "-lpthread"]
} else {
    &["-lpthread", "-ldl", "-lm"]
};

/// The kind of linking.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Static,
    Shared,
}

/// A C compiler and a folder for its output.
pub struct Workshop {
    compiler: OsString,
    pub folder: TempDir,
}

pub fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the libraries. They are built by a separate command, as users build them, because
/// the build of a workspace test also has the features that tests of other crates enable. The
/// command is built with them, because both then share everything below: a release build of the
/// libraries alone would compile most crates again, with fewer features of their dependencies.
pub fn built() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(crate_folder()).args(["build", "--message-format", "json"]);
        cargo.args(["-p", "ferrane-cli", "-p", "ferrane-capi"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let said = output(&mut cargo);
        let files = said.lines().filter_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(
                message["filenames"]
                    .as_array()?
                    .iter()
                    .filter_map(|f| f.as_str().map(PathBuf::from))
                    .collect::<Vec<_>>(),
            )
        });
        let archive = files.flatten().find(|f| f.ends_with("libferrane_capi.a")).expect("cargo names the archive");
        archive.parent().expect("in a folder").to_path_buf()
    });
    &BUILT
}

/// The path of the shared library.
pub fn shared() -> PathBuf {
    built().join(if cfg!(target_vendor = "apple") { "libferrane_capi.dylib" } else { "libferrane_capi.so" })
}

/// The path of the static library.
pub fn archive() -> PathBuf {
    built().join("libferrane_capi.a")
}

/// Runs a command that must succeed and returns its output.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// True if a command can be run here.
pub fn is_here(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success())
}

/// Prints that a test was skipped, and why.
pub fn skipped(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

impl Workshop {
    /// `None`, with a note, if there is no C compiler. `CC` names it; the default is `cc`.
    pub fn new() -> Option<Workshop> {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        if !is_here(&compiler.to_string_lossy()) {
            skipped("there is no C compiler (set CC)");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        // Programs look the library up under the name that it contains.
        let names = ["libferrane.so.0", "libferrane.0.dylib"];
        let name = names[usize::from(cfg!(target_vendor = "apple"))];
        std::os::unix::fs::symlink(shared(), folder.path().join(name)).expect("a link to the library");
        Some(Workshop { compiler, folder })
    }

    /// Compiles a program; warnings are errors.
    pub fn compile(&self, source: &Path, link: Link) -> PathBuf {
        let name = source.file_stem().expect("a name").to_string_lossy();
        let program =
            self.folder.path().join(format!("{name}-{}", ["static", "shared"][usize::from(link == Link::Shared)]));
        let mut command = Command::new(&self.compiler);
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"]);
        command.arg("-I").arg(crate_folder().join("include")).arg("-o").arg(&program).arg(source);
        match link {
            Link::Static => command.arg(archive()).args(SYSTEM),
            Link::Shared => {
                let path = format!("-Wl,-rpath,{}", self.folder.path().display());
                command.arg(shared()).arg(path).args(["-lm", "-lpthread"])
            }
        };
        output(&mut command);
        program
    }

    /// Compiles and runs a program; returns its output.
    pub fn run(&self, source: &Path, link: Link) -> String {
        output(&mut Command::new(self.compile(source, link)))
    }
}
