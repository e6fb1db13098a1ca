//! What the checks report, and how it is printed.

use std::fmt;
use std::path::PathBuf;

use crate::workspace::Result;

/// One objection of a check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root of the workspace.
    pub(crate) file: PathBuf,
    /// Counted from 1; 0 if the finding is about the whole file.
    pub(crate) line: usize,
    /// What is wrong, in lower case and without a full stop.
    pub(crate) message: String,
    /// What to do about it. Empty if the message says it already.
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn new(
        file: impl Into<PathBuf>,
        line: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { file: file.into(), line, message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        write!(f, " {}", self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// Prints the findings in the order of files and lines.
///
/// # Errors
/// If there is a finding: the message gives the name of the check and the count.
pub(crate) fn conclude(check: &str, mut findings: Vec<Finding>) -> Result<()> {
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("{check}: no findings");
            Ok(())
        }
        1 => Err(format!("{check}: 1 finding")),
        n => Err(format!("{check}: {n} findings")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_prints_its_place_its_message_and_a_remedy() {
        let finding = Finding::new("docs/a.md", 3, "no such page `b.md`", "write it");
        assert_eq!(finding.to_string(), "docs/a.md:3: no such page `b.md`; write it");
        let whole = Finding::new("docs/a.md", 0, "the page is an orphan", "");
        assert_eq!(whole.to_string(), "docs/a.md: the page is an orphan");
    }

    #[test]
    fn findings_fail_and_none_pass() {
        assert_eq!(conclude("names", Vec::new()), Ok(()));
        let two = vec![Finding::new("b", 1, "x", ""), Finding::new("a", 1, "x", "")];
        assert_eq!(conclude("names", two), Err("names: 2 findings".to_owned()));
    }
}
