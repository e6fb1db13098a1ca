//! The folder in which the files of programs are staged.

use std::path::PathBuf;

use ferrane_device::Result;
use ferrane_device::staging::{Staged, remove_empty};
use ferrane_mil::{Program, print};

use super::Life;
use super::staging::Files;

impl Life {
    /// The folder for staged files, if any: the one that the options name; else, with the limits of
    /// a machine that requires files, a temporary folder of this process, so that two processes
    /// with one program do not remove each other's files.
    fn root(&self) -> Option<PathBuf> {
        let temporary = || std::env::temp_dir().join(format!("ferrane-emulator-{}", std::process::id()));
        let wanted = self.has_limits() && self.profile.staged_files.value;
        self.staging.clone().or_else(|| wanted.then(temporary))
    }

    /// Stages a program's own files.
    pub(super) fn stage(&self, key: &str, program: &Program) -> Result<Option<Files>> {
        let Some(root) = self.root() else { return Ok(None) };
        let weights = program.weights.files();
        let borrowed: Vec<(String, &[u8])> = weights.iter().map(|(p, b)| (p.clone(), &b[..])).collect();
        let staged = Staged::new(&root, key, print(program).as_bytes(), &borrowed, self.keeps_files())?;
        Ok(Some(Files { staged, weights }))
    }

    /// Whether files stay after their program is dropped.
    pub(super) fn keeps_files(&self) -> bool {
        self.staging.is_some()
    }

    /// Whether a load reads the weight files again.
    pub(super) fn reads_weights(&self) -> bool {
        self.has_limits() && self.profile.weights_reload.value
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.staging.is_none()
            && let Some(root) = self.root()
        {
            // Another device of this process may have programs there.
            remove_empty(&root);
        }
    }
}
