//! `cargo xtask dist`: the files of a release.
//!
//! One build of the profile `dist` makes the command, the C interface and the Python package. Every
//! file is made from it ([`parts`]), and those that the chore writes itself have no times, owners
//! or orders of this computer in them ([`archive`]), so that the same sources and compiler give
//! the same bytes. The table at the end names each file's size, the oldest glibc that the binaries
//! start with, and how long the command takes to start.

mod archive;
mod parts;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;
use crate::workspace::{self, Result};

const USAGE: &str = "\
usage: cargo xtask dist [--out FOLDER] [--url ADDRESS] [PART …]

Builds the files of a release for this computer, and a table of them.

parts; without any, all
  archive   ferrane-VERSION-TARGET.tar.gz: the command, its manual pages and completions, the gallery, the
            licenses of its libraries; needs cargo-about
  library   libferrane-VERSION-TARGET.tar.gz: the C interface for pkg-config, and licenses
  wheel     the Python package, as a wheel and as sources; needs maturin
  deb       a package for Debian and Ubuntu; needs cargo-deb
  sbom      ferrane-VERSION.cdx.json: what the command is made of, in CycloneDX; needs cargo-cyclonedx
  crates    the crates as they are published; `cargo package` builds none of them here

options
  --out FOLDER   where the files go, a new or empty folder; the default is dist in cargo's target folder, which is emptied
  --url ADDRESS  where the files will be downloaded from; a formula for Homebrew is written for it

`cargo install --locked maturin cargo-deb cargo-cyclonedx` and `cargo install --locked cargo-about --features cli` install
what the parts need. docs/release.md has the steps of a release.";

/// `cargo xtask dist --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

/// A part: its name, and what makes it.
type NamedPart = (&'static str, fn(&Release) -> Result<()>);

const PARTS: [NamedPart; 6] = [
    ("archive", parts::archive),
    ("library", parts::library),
    ("wheel", parts::wheel),
    ("deb", parts::deb),
    ("sbom", parts::sbom),
    ("crates", parts::crates),
];

/// What all parts need.
pub(crate) struct Release {
    root: PathBuf,
    /// cargo's folder for the builds of a release.
    target: PathBuf,
    /// Where the files go.
    out: PathBuf,
    version: String,
    /// The computer that the files are for: `x86_64-unknown-linux-gnu`.
    triple: String,
    /// The time of the last commit, in seconds since 1970: that of every file.
    time: u64,
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &[], &["--out", "--url"], USAGE)?;
    let unknown = arguments.positional.iter().find(|name| PARTS.iter().all(|(part, _)| part != name));
    if let Some(name) = unknown {
        return Err(format!("unknown part `{name}`\n\n{USAGE}"));
    }
    let release = Release::new(arguments.value("--out"))?;
    release.build()?;
    for (name, make) in PARTS {
        if arguments.positional.is_empty() || arguments.positional.iter().any(|given| given == name) {
            println!("dist: {name}");
            make(&release)?;
        }
    }
    if let Some(address) = arguments.value("--url") {
        parts::formula(&release, address)?;
    }
    parts::checksums(&release)?;
    table::print(&release)
}

impl Release {
    fn new(out: Option<&str>) -> Result<Self> {
        let root = workspace::root()?;
        let target = workspace::target(&root);
        let out = workspace::output(out, target.join("dist"))?;
        if out.exists() {
            std::fs::remove_dir_all(&out).map_err(|e| format!("cannot clear {}: {e}", out.display()))?;
        }
        std::fs::create_dir_all(&out).map_err(|e| format!("cannot make {}: {e}", out.display()))?;
        let out = out.canonicalize().map_err(|e| format!("{}: {e}", out.display()))?;
        let manifest = workspace::read(&root.join("Cargo.toml"))?;
        let manifest: toml::Table = manifest.parse().map_err(|e| format!("Cargo.toml: {e}"))?;
        let package = manifest.get("workspace").and_then(|w| w.get("package"));
        let version = package.and_then(|p| p.get("version")).and_then(toml::Value::as_str);
        let version = version.ok_or("Cargo.toml names no version of the workspace")?.to_owned();
        let rustc = output(Command::new("rustc").arg("-vV"))?;
        let triple =
            rustc.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?.to_owned();
        let time = output(Command::new("git").current_dir(&root).args(["log", "-1", "--format=%ct"]))?;
        let time = time.trim().parse().map_err(|_| format!("git says the last commit was at `{}`", time.trim()))?;
        let target = target.join("dist-build");
        Ok(Self { root, target, out, version, triple, time })
    }

    /// cargo, or a tool that calls it, for the builds of a release. Paths of this computer stay out
    /// of the binaries.
    fn cargo(&self, program: &str) -> Command {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default();
        let flags = [(home.as_path(), "/cargo"), (&self.root, "/ferrane")];
        let flags = flags.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env("CARGO_INCREMENTAL", "0")
            .env("SOURCE_DATE_EPOCH", self.time.to_string());
        command
    }

    fn build(&self) -> Result<()> {
        let arguments = ["build", "--profile", "dist", "--locked", "-p", "ferrane-cli", "-p", "ferrane-capi"];
        call(self.cargo("cargo").args(arguments), "")
    }

    /// A file that the build has made.
    fn built(&self, name: &str) -> PathBuf {
        self.target.join("dist").join(name)
    }
}

/// Runs a command to its end. `remedy` says what to do if it does not start.
fn call(command: &mut Command, remedy: &str) -> Result<()> {
    let name = Path::new(command.get_program()).display().to_string();
    let status = command.status().map_err(|e| format!("`{name}` does not start: {e}{remedy}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{name}` fails: {status}")) }
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|e| format!("`{name}` does not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{name}` fails: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{name}` prints bytes that are not text"))
}
