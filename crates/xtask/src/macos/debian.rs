//! A compiler for the target out of Debian's archive, unpacked into a folder and not installed.
//!
//! Debian keeps a newer compiler than its own release has, for building browsers: `rustc-web`, with
//! the sources of the standard library and with clippy. apt is given lists and a cache of its own,
//! so nothing on the computer changes, no privileges are needed, and the archive is the one that
//! this computer is set up for. apt checks the signatures.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::output;
use crate::workspace::Result;

/// The packages by name; what they share is looked up, since its names have versions in them.
const PACKAGES: [&str; 4] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src", "rust-web-clippy"];

/// The end of messages: what to do where apt cannot be used.
const OTHERWISE: &str = "\
The compiler for macOS is taken from Debian 12 or newer (or a container of it), through apt, which has to reach its archive. Anywhere
else `rustup target add aarch64-apple-darwin` gives what is needed, and nothing is fetched then.";

/// Unpacks the compiler into `dir/toolchain` unless it is there, and returns the folder.
pub(super) fn unpack(dir: &Path) -> Result<PathBuf> {
    let toolchain = dir.join("toolchain");
    if toolchain.is_dir() {
        return Ok(toolchain);
    }
    println!("fetching a compiler for {} through apt into {}", super::TARGET, toolchain.display());
    let (fetched, partial) = (dir.join("packages"), dir.join("toolchain.partial"));
    for stale in [&fetched, &partial] {
        if stale.exists() {
            std::fs::remove_dir_all(stale).map_err(|e| format!("cannot remove {}: {e}", stale.display()))?;
        }
    }
    for folder in ["state/lists/partial", "cache/archives/partial"] {
        make(&fetched.join(folder))?;
    }
    let apt = Apt { folder: &fetched };
    // A third party's archive that is down must not stop us; the next step fails if Debian's own
    // was not reached.
    let lists = output(apt.command("apt-get").args(["-q", "update"]));
    let packages = apt.packages().map_err(|e| match &lists {
        Ok(_) => format!("{e}\n{OTHERWISE}"),
        Err(update) => format!("{e}\n{update}\n{OTHERWISE}"),
    })?;
    output(apt.command("apt-get").args(["-q", "download"]).args(&packages).current_dir(&fetched))
        .map_err(|e| format!("cannot fetch {}: {e}\n{OTHERWISE}", packages.join(" ")))?;
    make(&partial)?;
    for entry in std::fs::read_dir(&fetched).map_err(|e| e.to_string())? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            output(Command::new("dpkg-deb").arg("-x").arg(&path).arg(&partial))?;
        }
    }
    output(rustc(&partial).arg("--version")).map_err(|e| {
        format!("the compiler does not start: {e}\nIf a library is missing: apt-get install libedit2 libffi8 libxml2 libz3-4 libzstd1")
    })?;
    std::fs::rename(&partial, &toolchain).map_err(|e| format!("cannot rename {}: {e}", partial.display()))?;
    std::fs::remove_dir_all(&fetched).map_err(|e| format!("cannot remove {}: {e}", fetched.display()))?;
    Ok(toolchain)
}

/// The compiler unpacked in `toolchain`.
pub(super) fn rustc(toolchain: &Path) -> Command {
    let mut rustc = Command::new(toolchain.join("usr/bin/rustc"));
    rustc.env("LD_LIBRARY_PATH", libraries(toolchain));
    rustc
}

/// Has a `cargo` use the compiler in `toolchain` and build the standard library for the target.
pub(super) fn environment(cargo: &mut Command, toolchain: &Path) {
    cargo.env("LD_LIBRARY_PATH", libraries(toolchain));
    cargo.env("RUSTC", toolchain.join("usr/bin/rustc"));
    // Building the standard library is unstable in name only: the sources are those of this very
    // compiler.
    cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort,panic_unwind,test");
}

fn libraries(toolchain: &Path) -> PathBuf {
    toolchain.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))
}

/// apt with lists and a cache in a folder.
struct Apt<'a> {
    folder: &'a Path,
}

impl Apt<'_> {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, value) in [("Dir::State", "state"), ("Dir::Cache", "cache")] {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(value).display()));
        }
        // apt would drop to a user of its own, who may not read this folder, and would warn about
        // it.
        command
            .args(["-o", "APT::Sandbox::User=root", "-o", "Dir::State::status=/var/lib/dpkg/status"])
            .env("LC_ALL", "C");
        command
    }

    /// What to fetch: the packages, and of what they need the standard library for this computer
    /// and LLVM.
    fn packages(&self) -> Result<Vec<String>> {
        let mut packages: Vec<String> = PACKAGES.map(str::to_owned).into();
        let mut seen = 0;
        while let Some(package) = packages.get(seen).cloned() {
            seen += 1;
            let told = output(self.command("apt-cache").args(["depends", "--important", &package]))?;
            for needed in told.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")) {
                let shared = needed.starts_with("libstd-rust-web-") || needed.starts_with("libllvm");
                if shared && !packages.iter().any(|p| p == needed) {
                    packages.push(needed.to_owned());
                }
            }
        }
        Ok(packages)
    }
}
