//! The parts of a release.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::archive::Archive;
use super::{Release, call, output};
use crate::workspace::{self, Result};

/// Files of the project that accompany a binary.
const TEXTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// The shells, and what their completion scripts are called.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "ferrane"), ("zsh", "_ferrane"), ("fish", "ferrane.fish")];

/// The command with everything that it wants installed next to it.
pub(super) fn archive(release: &Release) -> Result<()> {
    let (extras, licenses) = (extras(release)?, licenses(release)?);
    let mut archive = Archive::new(format!("ferrane-{}-{}", release.version, release.triple));
    archive.add("bin/ferrane", &release.built("ferrane"))?;
    archive.add("share", &extras)?;
    archive.add("gallery", &release.root.join("gallery"))?;
    archive.add("THIRD-PARTY", &licenses)?;
    for text in TEXTS {
        archive.add(text, &release.root.join(text))?;
    }
    archive.write(&release.out, release.time).map(drop)
}

/// The C interface, which may be unpacked anywhere.
pub(super) fn library(release: &Release) -> Result<()> {
    let prefix = release.target.join("library");
    clear(&prefix)?;
    let script = release.root.join("scripts/install-capi.sh");
    let mut install = Command::new(script);
    call(install.arg("--from").arg(release.target.join("dist")).arg(&prefix), "")?;
    let file = prefix.join("lib/pkgconfig/ferrane.pc");
    let text = workspace::read(&file)?;
    let absolute = format!("prefix={}\n", prefix.display());
    if !text.contains(&absolute) {
        return Err(format!("{} does not begin with `{}`", file.display(), absolute.trim()));
    }
    workspace::write(&file, &text.replace(&absolute, "prefix=${pcfiledir}/../..\n"))?;
    let mut archive = Archive::new(format!("libferrane-{}-{}", release.version, release.triple));
    archive.add("lib", &prefix.join("lib"))?;
    archive.add("include", &prefix.join("include"))?;
    archive.add("THIRD-PARTY", &licenses(release)?)?;
    archive.add("examples/sigmoid.c", &release.root.join("crates/capi/examples/sigmoid.c"))?;
    for text in &TEXTS[1..] {
        archive.add(text, &release.root.join(text))?;
    }
    archive.write(&release.out, release.time).map(drop)
}

/// The Python package, as a wheel and as sources, by maturin.
pub(super) fn wheel(release: &Release) -> Result<()> {
    let remedy = "; `pip install maturin` installs it";
    let manifest = ["-m", "crates/python/Cargo.toml"];
    let mut wheel = release.cargo("maturin");
    call(wheel.args(["build", "--profile", "dist", "--locked"]).args(manifest).arg("--out").arg(&release.out), remedy)?;
    call(release.cargo("maturin").arg("sdist").args(manifest).arg("--out").arg(&release.out), remedy)
}

/// A package for dpkg. Its assets, named in crates/cli/Cargo.toml, are the command and `extras`.
pub(super) fn deb(release: &Release) -> Result<()> {
    let extras = extras(release)?;
    let pages = workspace::files(&extras, Path::new("man"), &|path| workspace::extension(path) == "1")?;
    call(Command::new("gzip").current_dir(&extras).arg("-9n").args(pages), "")?;
    let mut deb = release.cargo("cargo-deb");
    let arguments = ["deb", "-p", "ferrane-cli", "--profile", "dist", "--no-build", "--no-strip", "--locked", "-o"];
    call(deb.args(arguments).arg(&release.out), "; `cargo install cargo-deb` installs it")
}

/// What the command is made of.
pub(super) fn sbom(release: &Release) -> Result<()> {
    let name = format!("ferrane-{}", release.version);
    let mut sbom = release.cargo("cargo-cyclonedx");
    sbom.args(["cyclonedx", "--format", "json", "--spec-version", "1.5", "--manifest-path", "crates/cli/Cargo.toml"]);
    sbom.args(["--target", &release.triple, "--override-filename", &name, "-q"]);
    call(&mut sbom, "; `cargo install cargo-cyclonedx` installs it")?;
    // It writes one file next to the manifest of each crate of the workspace that it comes to.
    let written = workspace::files(&release.root, Path::new("crates"), &|path| path.ends_with(format!("{name}.json")))?;
    let mut found = false;
    for path in written {
        let full = release.root.join(&path);
        if path.starts_with("crates/cli") {
            let to = release.out.join(format!("{name}.cdx.json"));
            std::fs::copy(&full, &to).map_err(|e| format!("cannot write {}: {e}", to.display()))?;
            found = true;
        }
        std::fs::remove_file(&full).map_err(|e| format!("cannot remove {}: {e}", full.display()))?;
    }
    if found { Ok(()) } else { Err("cargo-cyclonedx has written nothing for the command".to_owned()) }
}

/// The crates as they go to the registry.
pub(super) fn crates(release: &Release) -> Result<()> {
    let mut package = release.cargo("cargo");
    package.args(["package", "--workspace", "--locked", "--no-verify"]);
    for package_ in workspace::packages(&release.root)? {
        let publish = package_.manifest.get("package").and_then(|p| p.get("publish"));
        if publish.and_then(toml::Value::as_bool) == Some(false) {
            package.args(["--exclude", &package_.name]);
        }
    }
    call(&mut package, "")?;
    let folder = release.target.join("package");
    let to = release.out.join("crates");
    clear(&to)?;
    for path in workspace::files(&folder, Path::new(""), &|path| {
        workspace::extension(path) == "crate" && path.parent() == Some(Path::new(""))
    })? {
        std::fs::copy(folder.join(&path), to.join(&path))
            .map_err(|e| format!("cannot copy {}: {e}", path.display()))?;
    }
    Ok(())
}

/// A formula for Homebrew, for files that are downloaded from `address`.
pub(super) fn formula(release: &Release, address: &str) -> Result<()> {
    let name = format!("ferrane-{}-{}.tar.gz", release.version, release.triple);
    let sum = sum(&release.out.join(&name))?;
    let system = if release.triple.contains("apple") { "on_macos" } else { "on_linux" };
    let cpu = if release.triple.starts_with("aarch64") { "on_arm" } else { "on_intel" };
    let formula = format!(
        r##"class Ferrane < Formula
  desc "Program the Apple Neural Engine: check, run, measure and train models"
  version "{version}"
  license any_of: ["MIT", "Apache-2.0"]

  {system} do
    {cpu} do
      url "{address}/{name}"
      sha256 "{sum}"
    end
  end

  def install
    bin.install "bin/ferrane"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/ferrane"
    zsh_completion.install "share/zsh/site-functions/_ferrane"
    fish_completion.install "share/fish/vendor_completions.d/ferrane.fish"
    pkgshare.install "gallery"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/ferrane --version")
    system bin/"ferrane", "run", pkgshare/"gallery/digits.mlpackage", "-i", "image=random:1"
  end
end
"##,
        version = release.version,
        address = address.trim_end_matches('/'),
    );
    workspace::write(&release.out.join("ferrane.rb"), &formula)
}

/// SHA256SUMS, as `sha256sum -c` reads it.
pub(super) fn checksums(release: &Release) -> Result<()> {
    let mut lines = String::new();
    for path in workspace::files(&release.out, Path::new(""), &|path| !path.ends_with("SHA256SUMS"))? {
        lines += &format!("{}  {}\n", sum(&release.out.join(&path))?, path.display());
    }
    workspace::write(&release.out.join("SHA256SUMS"), &lines)
}

fn sum(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A folder as `share` next to the command, with its manual pages and completions, which it writes
/// itself.
fn extras(release: &Release) -> Result<PathBuf> {
    let (share, ferrane) = (release.built("share"), release.built("ferrane"));
    clear(&share)?;
    output(Command::new(&ferrane).args(["man", "--out"]).arg(share.join("man/man1")))?;
    let folders = ["bash-completion/completions", "zsh/site-functions", "fish/vendor_completions.d"];
    for ((shell, name), folder) in COMPLETIONS.iter().zip(folders) {
        let folder = share.join(folder);
        std::fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        workspace::write(&folder.join(name), &output(Command::new(&ferrane).args(["completions", shell]))?)?;
    }
    Ok(share)
}

/// The licenses of what is linked into the command, as one text. The C interface and the Python
/// package are made of the same libraries. Collecting them takes a minute, so that is done once for
/// a Cargo.lock.
fn licenses(release: &Release) -> Result<PathBuf> {
    let path = release.target.join("THIRD-PARTY");
    let time = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    if time(&path).is_some_and(|made| Some(made) > time(&release.root.join("Cargo.lock"))) {
        return Ok(path);
    }
    let mut about = release.cargo("cargo-about");
    about.args([
        "about",
        "generate",
        "--locked",
        "--fail",
        "-c",
        "scripts/release/about.toml",
        "-m",
        "crates/cli/Cargo.toml",
    ]);
    about.args(["--target", &release.triple, "scripts/release/licenses.hbs", "-o"]).arg(&path);
    call(&mut about, "; `cargo install --locked cargo-about --features cli` installs it")?;
    Ok(path)
}

/// Makes a folder, and empties it if it exists.
fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("cannot clear {}: {e}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))
}
