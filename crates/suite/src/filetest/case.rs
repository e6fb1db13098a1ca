//! Cases: programs that repeat what a user reported, and the page that is written from them.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::path::Path;

use ferrane_machine::{Finding, claims};

use super::Filetest;

/// The header lines of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// The address of the thread.
    pub issue: String,
    /// What its author saw, in our words.
    pub reported: String,
    /// The cause and the remedy, as far as they lie in the program.
    pub answer: String,
}

impl Case {
    /// Adds a header line; several lines with one key are one text.
    pub(super) fn add(&mut self, key: &str, value: &str) {
        let text = match key {
            "issue" => &mut self.issue,
            "reported" => &mut self.reported,
            _ => &mut self.answer,
        };
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(value);
    }

    /// The thread as `owner/repository #number`.
    pub fn title(&self) -> String {
        let path = self.issue.trim_start_matches("https://github.com/");
        match path.split('/').collect::<Vec<_>>()[..] {
            [owner, repository, kind, number] => {
                let kind = if kind == "pull" { "PR " } else { "" };
                format!("{owner}/{repository} {kind}#{number}")
            }
            _ => path.to_string(),
        }
    }
}

/// A case as a section of the page: the report, the answer, and for each program the machine, the
/// findings with their ways out, and what fixes change.
pub fn section(path: &Path, tests: &[Filetest]) -> String {
    let mut text = String::new();
    let Some(case) = tests.first().map(|t| &t.case) else { return text };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let _ = write!(
        text,
        "\n## {}\n\n<{}>\n\n**Reported**: {}\n\n**Answer**: {}\n\n[filetests/cases/{name}](../filetests/cases/{name}):\n",
        case.title(),
        case.issue,
        case.reported,
        case.answer
    );
    for test in tests {
        let machine = test.profile.as_deref().unwrap_or("no machine");
        let parsed = test.parsed();
        let Some(program) = parsed.program.as_ref() else { continue };
        let mut findings = test.findings(program);
        let place = |f: &Finding| f.span.map_or(0, |s| s.start);
        findings.sort_by_key(|f| (Reverse(f.severity), f.code, place(f), f.message.clone()));
        let nothing = if findings.is_empty() { " nothing is found" } else { "" };
        let _ = writeln!(text, "\n- {machine}:{nothing}");
        for f in findings {
            let value = f.value.as_deref().map_or(String::new(), |v| format!(" (`{v}`)"));
            let _ = write!(text, "  - {} {}{value}: {}", f.severity, f.code, f.message);
            if let Some(rewrite) = &f.rewrite {
                let _ = write!(text, "; instead: {rewrite}");
            }
            let known = f.claims.iter().filter(|id| claims::find(id).is_some());
            let _ = writeln!(text, " ({})", known.cloned().collect::<Vec<_>>().join(", "));
        }
        if let Some((_, codes)) = &test.fixed
            && let Some(fixed) = test.fix(program)
        {
            let applied: Vec<String> = fixed.applied.iter().map(|(fix, _)| fix.to_string()).collect();
            let _ = writeln!(text, "  - `ferrane check --fix` removes {}: {}", codes.join(", "), applied.join("; "));
        }
        for (_, directive) in &test.audits {
            let _ = writeln!(text, "  - `ferrane run --audit` shows {}", directive.shows());
        }
    }
    text
}
