//! The workspace on disk: its root, its crates, its files.

use std::path::{Path, PathBuf};

/// What went wrong, as a message for the person who ran the chore.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

/// The root of the workspace that the working directory is in; else that of the workspace which
/// this program was built in.
pub(crate) fn root() -> Result<PathBuf> {
    let working = std::env::current_dir().map_err(|e| format!("there is no working directory: {e}"))?;
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut candidates = working.ancestors().chain(built.ancestors());
    let root = candidates.find(|folder| folder.join("crates/xtask/Cargo.toml").is_file());
    root.map(Path::to_owned).ok_or_else(|| "this is not the workspace of Ferrane".to_owned())
}

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    /// The name of its folder in crates/, which is the crate's name in every page.
    pub(crate) folder: String,
    /// The name in its Cargo.toml: `ferrane-host`.
    pub(crate) name: String,
    /// Its Cargo.toml as a table.
    pub(crate) manifest: toml::Table,
    /// Its Cargo.toml, as written.
    pub(crate) text: String,
}

impl Package {
    /// The Cargo.toml, relative to the root.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("crates").join(&self.folder).join("Cargo.toml")
    }

    /// The line of the Cargo.toml that names the dependency; 0 if there is none.
    pub(crate) fn line_of(&self, dependency: &str) -> usize {
        let names = |line: &str| {
            let rest = line.trim_start().strip_prefix(dependency);
            let rest =
                rest.or_else(|| line.trim_end().strip_suffix(']').filter(|l| l.ends_with(dependency)).map(|_| ""));
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_'))
        };
        self.text.lines().position(names).map_or(0, |index| index + 1)
    }
}

/// Every crate of `root/crates`, sorted by folder.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for folder in entries(&root.join("crates"))? {
        let path = folder.join("Cargo.toml");
        if !path.is_file() {
            continue;
        }
        let text = read(&path)?;
        let manifest: toml::Table = text.parse().map_err(|e| format!("{}: {e}", path.display()))?;
        let name = manifest.get("package").and_then(|p| p.get("name")).and_then(toml::Value::as_str);
        let name = name.ok_or_else(|| format!("{}: the package has no name", path.display()))?.to_owned();
        let folder = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        packages.push(Package { folder, name, manifest, text });
    }
    Ok(packages)
}

/// The files at or below `path` (relative to `root`) that `wanted` accepts by their relative path,
/// sorted. Hidden folders and build output are left out. A path that does not exist has no files.
pub(crate) fn files(root: &Path, path: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let full = root.join(&path);
        if full.is_dir() {
            for entry in entries(&full)? {
                let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if !(name.starts_with('.') && entry.is_dir()) && name != "target" && name != "__pycache__" {
                    pending.push(path.join(name));
                }
            }
        } else if full.is_file() && wanted(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A path from the command line, relative to the root: it may be given relative to the working
/// directory, to the root, or from `/`.
pub(crate) fn relative(root: &Path, path: &str) -> Result<PathBuf> {
    let working = std::env::current_dir().map_err(|e| format!("there is no working directory: {e}"))?;
    let full = [working.join(path), root.join(path)].into_iter().find(|full| full.exists());
    let full = full.and_then(|full| full.canonicalize().ok()).ok_or_else(|| format!("there is no {path}"))?;
    let root = root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    full.strip_prefix(&root).map(Path::to_owned).map_err(|_| format!("{path} is outside of the workspace"))
}

/// The folder that cargo builds into.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The `ferrane` command: the given file, else the one that `cargo build --release` made.
pub(crate) fn command(root: &Path, given: Option<&str>) -> Result<PathBuf> {
    let path = given.map_or_else(|| target(root).join("release").join("ferrane"), PathBuf::from);
    path.canonicalize().map_err(|e| format!("{}: {e}; `cargo build --release` makes it", path.display()))
}

/// The folder that a chore fills: `given`, which must be empty, else `default`, which is the
/// chore's own.
pub(crate) fn output(given: Option<&str>, default: PathBuf) -> Result<PathBuf> {
    let Some(folder) = given.map(PathBuf::from) else { return Ok(default) };
    if folder.exists() && !entries(&folder)?.is_empty() {
        return Err(format!("--out {}: there are files in it; name a new or empty folder", folder.display()));
    }
    Ok(folder)
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// Writes a text file.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// The extension of a path; empty if it has none.
pub(crate) fn extension(path: &Path) -> &str {
    path.extension().and_then(|e| e.to_str()).unwrap_or_default()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(folder).map_err(|e| format!("cannot list {}: {e}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in listed {
        paths.push(entry.map_err(|e| format!("cannot list {}: {e}", folder.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// A made-up workspace for the tests of the checks.
#[cfg(test)]
pub(crate) mod made_up {
    use std::path::Path;

    /// Writes `files` (path, text) below a temporary folder that lives as long as the result.
    pub(crate) fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            add(folder.path(), path, text);
        }
        folder
    }

    /// Writes one file, with its folders.
    pub(crate) fn add(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_files_is_not_filled() {
        let made = made_up::workspace(&[("full/a", "")]);
        let given = |name: &str| output(Some(&made.path().join(name).display().to_string()), PathBuf::from("own"));
        assert!(given("full").unwrap_err().contains("there are files in it"));
        assert_eq!(given("new").unwrap(), made.path().join("new"));
        assert_eq!(output(None, PathBuf::from("own")).unwrap(), Path::new("own"));
    }

    #[test]
    fn files_are_sorted_and_build_output_is_left_out() {
        let made = made_up::workspace(&[
            ("crates/b/src/lib.rs", ""),
            ("crates/a/src/lib.rs", ""),
            ("crates/a/target/out.rs", ""),
            ("crates/a/.git/x.rs", ""),
            ("crates/a/notes.md", ""),
        ]);
        let found = files(made.path(), Path::new("crates"), &|p| extension(p) == "rs").unwrap();
        assert_eq!(found, [Path::new("crates/a/src/lib.rs"), Path::new("crates/b/src/lib.rs")]);
        assert_eq!(files(made.path(), Path::new("none"), &|_| true).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_dependency_is_found_by_its_whole_name() {
        let text = "[package]\nname = \"x\"\n[dependencies]\nmil-text = \"1\"\nmil = \"1\"\n[dev-dependencies.host]\n";
        let made = made_up::workspace(&[("crates/x/Cargo.toml", text)]);
        let packages = packages(made.path()).unwrap();
        assert_eq!(packages[0].line_of("mil"), 5);
        assert_eq!(packages[0].line_of("host"), 6);
        assert_eq!(packages[0].line_of("device"), 0);
    }
}
