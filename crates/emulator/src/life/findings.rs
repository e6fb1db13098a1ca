//! How the profile's compiler and engine would respond to a program, as `ferrane_machine::check`
//! finds it.
//!
//! Findings that are errors fail as on the machine: the compile, with its message, or every
//! evaluation, with its status. What depends on the surfaces of a request is checked in `ports`.
//! With `Limits::Warn`, every finding is only a note.

use ferrane_device::Result;
use ferrane_diag::Severity;
use ferrane_machine::profile::Acceptance;
use ferrane_machine::{CheckOptions, Effect, Finding, check};
use ferrane_mil::{Function, Program};

use super::fate::{EvaluationFailure, Fate};
use super::{Life, Limits, words};

impl Life {
    /// Checks a program against the profile; `text` is what it was read from.
    ///
    /// # Errors
    /// The first finding that fails the compile, where limits are enforced.
    pub(super) fn judge(&self, program: &Program, text: Option<&str>) -> Result<Fate> {
        let mut fate = Fate::default();
        if !self.has_limits() {
            return Ok(fate);
        }
        let options = CheckOptions { text, ..CheckOptions::default() };
        for finding in check(program, &self.profile, &options) {
            let why = why(&finding);
            if self.limits == Limits::Warn && finding.severity != Severity::Note {
                self.note(format!("{why}: {}", finding.effect));
            }
            let poisons = self.poisons(program, &finding);
            fate.poisons |= poisons;
            if finding.severity != Severity::Error || self.limits == Limits::Warn {
                continue;
            }
            match finding.effect {
                effect if effect == Effect::INVALID => return Err(words::invalid_program(&why)),
                Effect::CompileError { .. } => return Err(words::compile_failed(&why)),
                Effect::EvaluationError { status } if !poisons && fate.fails.is_none() => {
                    fate.fails = Some(EvaluationFailure { status: Some(status), why });
                }
                Effect::Hangs if fate.fails.is_none() => fate.fails = Some(EvaluationFailure { status: None, why }),
                _ => {}
            }
        }
        Ok(fate)
    }

    /// Whether a finding is about an op that poisons the process.
    fn poisons(&self, program: &Program, finding: &Finding) -> bool {
        let function: Option<&Function> = finding.function.and_then(|i| program.functions.get(i));
        let op = function.zip(finding.op).and_then(|(f, op)| f.ops.get(op.index()));
        op.and_then(|op| self.profile.op(&op.name)).is_some_and(|known| known.value == Acceptance::Poisons)
    }
}

/// A finding in one line: code, message and remedy.
fn why(finding: &Finding) -> String {
    let rewrite = finding.rewrite.as_ref().map(|r| format!("; instead: {r}")).unwrap_or_default();
    format!("{} {}{rewrite}", finding.code, finding.message)
}
