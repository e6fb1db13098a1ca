//! The build for macOS, and how cargo is run for it on Linux.
//!
//! A compiler for the target comes from one of two places. Where rustup has the target's standard
//! library (`rustup target add aarch64-apple-darwin`), that one is used. Else Debian's `rustc-web`
//! and its sources are unpacked, not installed ([`debian`]), and cargo builds the standard library.
//! Either way rustup's `rust-lld` links against stubs of the system's libraries ([`sdk`]): text
//! files that name what a library exports. A symbol without a stub does not link, so a misspelled
//! one is found. The linked files are read again ([`image`]) and checked against rules ([`page`]).

mod debian;
mod image;
mod page;
mod sdk;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Result;

const USAGE: &str = "\
usage: cargo xtask macos <command> [--dir DIR] [arguments of cargo]

commands
  setup              fetch a compiler for macOS and write stubs of its libraries; does nothing the second time
  check              cargo check --workspace --all-targets
  clippy             cargo clippy --workspace --all-targets; lints after `--`, as in `clippy -- -D warnings`
  build              cargo build --release: the command and the C interface, put together in DIR/out
  imports [--bless]  read what build made, compare it with the rules and with docs/macos.md; --bless writes the page

DIR holds the compiler, the stubs, cargo's files and the result. The default is $FERRANE_MACOS_DIR, or else the folder
macos of cargo's target folder. On a Mac, setup does nothing and the other commands run cargo for this computer.";

/// `cargo xtask macos --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

/// The target of everything here.
const TARGET: &str = "aarch64-apple-darwin";
/// The oldest macOS that the binaries start on.
const MINIMUM: &str = "14.0";
/// The shared library is looked up by this name, whose number is that of `crates/capi/build.rs`.
const LIBRARY: &str = "libferrane.0.dylib";

/// One call of `cargo xtask macos`.
struct Invocation {
    /// The folder of the compiler, the stubs, cargo's files and the result.
    dir: PathBuf,
    /// The folder of the workspace's `Cargo.toml`.
    root: PathBuf,
    /// The arguments that cargo gets.
    rest: Vec<String>,
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (command, arguments) = arguments.split_first().ok_or(USAGE)?;
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("the workspace has no folder")?.to_owned();
    let mut dir = std::env::var_os("FERRANE_MACOS_DIR").map(PathBuf::from);
    let (mut rest, mut bless) = (Vec::new(), false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--dir" => dir = Some(arguments.next().ok_or("--dir needs a folder")?.into()),
            "--bless" if command == "imports" => bless = true,
            "--" => {
                rest.push(argument.clone());
                rest.extend(arguments.by_ref().cloned());
            }
            _ => rest.push(argument.clone()),
        }
    }
    let dir = dir.unwrap_or_else(|| {
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("macos")
    });
    std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
    let call = Invocation { dir, root, rest };
    match command.as_str() {
        "setup" => call.compiler().map(|_| println!("ready in {}", call.dir.display())),
        "check" => call.cargo("check", &["--workspace", "--all-targets"]),
        "clippy" => call.cargo("clippy", &["--workspace", "--all-targets"]),
        "build" => call.build(),
        "imports" => page::imports(&call.root, &call.dir.join("out"), &call.compiler()?.version()?, bless),
        _ => Err(USAGE.to_owned()),
    }
}

/// The source of the compiler.
enum Compiler {
    /// The one that cargo uses anyway: on a Mac, or with the target's standard library installed.
    Own {
        /// Stubs are linked against unless this is a Mac.
        mac: bool,
    },
    /// Debian's, unpacked in this folder.
    Unpacked(PathBuf),
}

impl Compiler {
    /// What `rustc --version` says, without the name and what stands in brackets: `1.96.0`.
    fn version(&self) -> Result<String> {
        let mut rustc = match self {
            Self::Own { .. } => Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())),
            Self::Unpacked(dir) => debian::rustc(dir),
        };
        let line = output(rustc.arg("--version"))?;
        line.split_whitespace().nth(1).map(str::to_owned).ok_or_else(|| format!("rustc --version says {line:?}"))
    }
}

impl Invocation {
    /// Makes a compiler available, and writes the stubs.
    fn compiler(&self) -> Result<Compiler> {
        if cfg!(target_vendor = "apple") {
            return Ok(Compiler::Own { mac: true });
        }
        sdk::write(&self.dir.join("sdk"))?;
        if sysroot()?.join(TARGET).join("lib").is_dir() {
            return Ok(Compiler::Own { mac: false });
        }
        debian::unpack(&self.dir).map(Compiler::Unpacked)
    }

    /// Runs cargo's `command` for the target, with the caller's arguments after ours.
    fn cargo(&self, command: &str, arguments: &[&str]) -> Result<()> {
        let compiler = self.compiler()?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut run = match &compiler {
            // Clippy belongs to its compiler, and cargo looks for it only in its own folder.
            Compiler::Unpacked(dir) if command == "clippy" => Command::new(dir.join("usr/bin/cargo-clippy")),
            _ => Command::new(&cargo),
        };
        run.current_dir(&self.root).arg(command).args(arguments).args(&self.rest).env("CARGO", &cargo);
        // cargo strips builds without debug information, for a Mac with a tool that Linux lacks.
        run.env("CARGO_PROFILE_RELEASE_STRIP", "none");
        run.env("MACOSX_DEPLOYMENT_TARGET", MINIMUM).env("CARGO_TARGET_DIR", self.dir.join("target"));
        if let Compiler::Unpacked(dir) = &compiler {
            debian::environment(&mut run, dir);
        }
        if !matches!(compiler, Compiler::Own { mac: true }) {
            let linker = sysroot()?.join(format!("{}-unknown-linux-gnu/bin/rust-lld", std::env::consts::ARCH));
            if !linker.is_file() {
                return Err(format!(
                    "there is no {}: the linker comes with Rust as rustup installs it",
                    linker.display()
                ));
            }
            run.env("CARGO_BUILD_TARGET", TARGET).env("SDKROOT", self.dir.join("sdk"));
            // Separated by 0x1f, so that folders with spaces work.
            let flags = ["-Clinker=".to_owned() + &linker.to_string_lossy(), "-Clinker-flavor=ld64.lld".to_owned()];
            run.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env_remove("RUSTFLAGS");
        }
        let status = run.status().map_err(|e| format!("cannot run {}: {e}", run.get_program().display()))?;
        if status.success() { Ok(()) } else { Err(format!("cargo {command} for {TARGET}: {status}")) }
    }

    /// Builds the command and the C interface, and puts them together in `out`.
    fn build(&self) -> Result<()> {
        let out = self.dir.join("out");
        let packages = ["--release", "--package", "ferrane-cli", "--package", "ferrane-capi"];
        // Cargo does not know that it linked against stubs.
        let linked = out.join("ferrane").metadata().and_then(|m| m.modified());
        if linked.is_ok_and(|linked| sdk::changed(&self.dir.join("sdk")).is_some_and(|changed| changed > linked)) {
            self.cargo("clean", &[&packages[..], &["--target", TARGET]].concat())?;
        }
        self.cargo("build", &packages).map_err(|e| {
            e + "\nWhere the linker names undefined symbols: check the spelling, then add them to crates/xtask/src/macos/stubs.txt \
                 under the library that has them."
        })?;
        let mut made = self.dir.join("target");
        if !cfg!(target_vendor = "apple") {
            made.push(TARGET);
        }
        made.push("release");
        std::fs::create_dir_all(&out).map_err(|e| format!("cannot make {}: {e}", out.display()))?;
        let files = [("ferrane", "ferrane"), ("libferrane_capi.dylib", LIBRARY), ("libferrane_capi.a", "libferrane.a")];
        for (from, to) in files {
            let (from, to) = (made.join(from), out.join(to));
            let bytes = std::fs::copy(&from, &to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
            println!("{bytes:>10} bytes  {}", to.display());
        }
        link(Path::new(LIBRARY), &out.join("libferrane.dylib"))
    }
}

/// The targets of the compiler that cargo uses anyway.
fn sysroot() -> Result<PathBuf> {
    output(Command::new("rustc").args(["--print", "sysroot"])).map(|sysroot| Path::new(&sysroot).join("lib/rustlib"))
}

/// Makes `path` a link to `target`; a file that was there is replaced.
fn link(target: &Path, path: &Path) -> Result<()> {
    let made = match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        #[cfg(unix)]
        _ => std::os::unix::fs::symlink(target, path),
        #[cfg(not(unix))]
        _ => std::fs::copy(target, path).map(drop),
    };
    made.map_err(|e| format!("cannot link {}: {e}", path.display()))
}

/// The standard output of a program, without the white space around it.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| format!("cannot run {name}: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    if out.status.success() {
        Ok(text)
    } else {
        Err(format!("{name}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr).trim()))
    }
}
