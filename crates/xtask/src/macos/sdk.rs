//! Stubs of the few libraries of macOS that are linked: what each exports, as text (`.tbd`), enough
//! for a linker.
//!
//! The names are in `stubs.txt`, one library after the other. Nothing else can be linked: the list
//! is the rule.

use std::path::Path;
use std::time::SystemTime;

use crate::workspace::Result;

/// One library of the system.
pub(super) struct Library {
    /// Its path on a Mac, which is what a binary records.
    pub(super) path: &'static str,
    /// What it exports, of what Ferrane and Rust's standard library need.
    pub(super) symbols: Vec<&'static str>,
}

impl Library {
    /// Where linkers look for the stub: the path without versions.
    fn stub(&self) -> String {
        if let Some((framework, name)) = self.path.split_once("/Versions/") {
            let name = name.rsplit('/').next().unwrap_or(name);
            return format!("{framework}/{name}.tbd");
        }
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", self.path));
        format!("{folder}/{}.tbd", name.split('.').next().unwrap_or(name))
    }

    fn text(&self) -> String {
        let symbols = self.symbols.iter().map(|s| format!("'{s}'")).collect::<Vec<_>>().join(", ");
        format!(
            "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: '{}'\nexports:\n  - targets: [ arm64-macos ]\n    \
             symbols: [ {symbols} ]\n...\n",
            self.path
        )
    }
}

/// The libraries of `stubs.txt`.
pub(super) fn libraries() -> Vec<Library> {
    let mut libraries: Vec<Library> = Vec::new();
    for line in
        include_str!("stubs.txt").lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match libraries.last_mut() {
            Some(library) if !line.starts_with('/') => library.symbols.push(line),
            _ => libraries.push(Library { path: line, symbols: Vec::new() }),
        }
    }
    libraries
}

/// When one of the stubs under `folder` was last written.
pub(super) fn changed(folder: &Path) -> Option<SystemTime> {
    let stubs = libraries().into_iter().map(|library| folder.join(library.stub().trim_start_matches('/')));
    stubs.filter_map(|path| path.metadata().and_then(|m| m.modified()).ok()).max()
}

/// Writes the stubs under `folder`, which take the place of an SDK.
pub(super) fn write(folder: &Path) -> Result<()> {
    for library in libraries() {
        let mut names = vec![library.stub()];
        if names[0] == "/usr/lib/libSystem.tbd" {
            // Parts of it that are linked by their old names.
            names.extend(["c", "m"].map(|part| format!("/usr/lib/lib{part}.tbd")));
        }
        for name in names {
            let path = folder.join(name.trim_start_matches('/'));
            let parent = path.parent().unwrap_or(folder);
            // An unchanged file keeps its time, by which `build` decides whether to link again.
            if std::fs::read_to_string(&path).ok().as_deref() != Some(&library.text()) {
                std::fs::create_dir_all(parent)
                    .and_then(|()| std::fs::write(&path, library.text()))
                    .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where ld looks for `-lobjc`, `-lSystem` and `-framework Foundation` under a system root.
    #[test]
    fn stubs_lie_where_linkers_look() {
        let stub = |path| Library { path, symbols: Vec::new() }.stub();
        assert_eq!(stub("/usr/lib/libobjc.A.dylib"), "/usr/lib/libobjc.tbd");
        assert_eq!(stub("/usr/lib/libSystem.B.dylib"), "/usr/lib/libSystem.tbd");
        let foundation = stub("/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation");
        assert_eq!(foundation, "/System/Library/Frameworks/Foundation.framework/Foundation.tbd");
    }

    #[test]
    fn each_symbol_has_one_library_and_none_is_private() {
        let mut symbols: Vec<_> = libraries().into_iter().flat_map(|l| l.symbols).collect();
        let all = symbols.len();
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols.len(), all);
        assert!(all > 100 && symbols.iter().all(|s| s.starts_with('_') || *s == "dyld_stub_binder"));
        assert!(libraries().iter().all(|l| !l.path.contains("PrivateFrameworks")));
    }
}
