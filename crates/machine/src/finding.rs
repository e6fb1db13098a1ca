//! A finding: one thing that a machine does with a program and that its author should know.
//!
//! Findings are plain data. [`Effect`] states the consequence on the machine, [`Fix`] names the
//! change that avoids it; the rules that report findings and the code that applies fixes are in
//! other modules.

use std::fmt;

use ferrane_diag::{Code, Diagnostic, Severity, Span};
use ferrane_mil::{Function, OpId, Program};
use serde::Serialize;

/// The consequence of a finding on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// The compile fails with this text (apple-runtime §4).
    CompileError {
        /// The message of the framework.
        text: &'static str,
    },
    /// The program compiles; evaluations fail with this status (apple-runtime §4).
    EvaluationError {
        /// The number after `status=` in the text of the error.
        status: u32,
    },
    /// The program compiles, and its evaluation never returns.
    Hangs,
    /// The program runs and returns wrong numbers without an error.
    SilentlyWrong,
    /// The program runs, slower than it could.
    Slow,
    /// The program runs without a defect; the finding is informative.
    Fine,
}

impl Effect {
    /// The compiler's front end refuses the text.
    pub const INVALID: Effect = Effect::CompileError { text: "InvalidMILProgram" };
    /// The compiler refuses an op or a shape.
    pub const REFUSED: Effect = Effect::CompileError { text: "ANECCompile() FAILED" };
    /// Surfaces or sizes do not match.
    pub const INFERENCE: Effect = Effect::EvaluationError { status: 0x1d };

    /// A stable word for JSON: `compile-error`, `evaluation-error`, `hangs`, `silently-wrong`,
    /// `slow` or `fine`.
    pub fn kind(self) -> &'static str {
        match self {
            Effect::CompileError { .. } => "compile-error",
            Effect::EvaluationError { .. } => "evaluation-error",
            Effect::Hangs => "hangs",
            Effect::SilentlyWrong => "silently-wrong",
            Effect::Slow => "slow",
            Effect::Fine => "fine",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::CompileError { text } => write!(f, "the compile fails: {text}"),
            Effect::EvaluationError { status } => {
                write!(f, "it compiles, and evaluations fail with status {status:#x}")
            }
            Effect::Hangs => f.write_str("it compiles, and the evaluation never returns"),
            Effect::SilentlyWrong => f.write_str("it runs and returns wrong results without an error"),
            Effect::Slow => f.write_str("it runs, slower than it could"),
            Effect::Fine => f.write_str("it runs"),
        }
    }
}

/// A change of the program that avoids a finding and preserves the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fix {
    /// Writes the program in the verbose dialect, `program(1.0)`, ios16.
    Verbose,
    /// Writes the header `program(major.minor)`.
    Header(u32, u32),
    /// Writes the usual `buildInfo` on one line.
    BuildInfo,
    /// Replaces inline literals in the arguments of this op with named `const` ops.
    NamedConstants(&'static str),
    /// Runs a pass of `ferrane_mil::passes`, by name.
    Pass(&'static str),
    /// Expands compressed weights to plain ones.
    PlainWeights,
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Verbose => f.write_str("written in the verbose dialect"),
            Fix::Header(major, minor) => write!(f, "program({major}.{minor})"),
            Fix::BuildInfo => f.write_str("buildInfo on one line"),
            Fix::NamedConstants(op) => write!(f, "literals of {op} as named constants"),
            Fix::Pass(name) => write!(f, "the pass {name}"),
            Fix::PlainWeights => f.write_str("compressed weights as plain ones"),
        }
    }
}

/// One thing that a machine does with a program and that its author should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The code of the rule, in 0400..0500 or 1000..1100.
    pub code: Code,
    /// The severity for this program. It is the rule's unless the rule raises or lowers it.
    pub severity: Severity,
    /// The consequence on the machine.
    pub effect: Effect,
    /// The index of the function in the program; `None` for a finding about the whole program.
    pub function: Option<usize>,
    /// The op, if the finding is about one.
    pub op: Option<OpId>,
    /// The name of the value: the op's first result, or a port.
    pub value: Option<String>,
    /// The position in the text; `None` if the program was not read from text.
    pub span: Option<Span>,
    /// One sentence without a full stop.
    pub message: String,
    /// Ids of the claims that the finding rests on; never empty.
    pub claims: Vec<String>,
    /// How to write the program so that the machine accepts it, if a general answer exists.
    pub rewrite: Option<String>,
    /// The change that avoids the finding, if it can be made without a decision by the author.
    pub fix: Option<Fix>,
    /// For findings that only a strict check reports: why the profile overrules their claims.
    pub overruled: Option<String>,
}

impl Finding {
    /// Replaces the rule's claims, unless `claims` is empty.
    pub(crate) fn claims(&mut self, claims: &[String]) -> &mut Finding {
        if !claims.is_empty() {
            self.claims = claims.to_vec();
        }
        self
    }

    /// Replaces the rule's severity.
    pub(crate) fn severity(&mut self, severity: Severity) -> &mut Finding {
        self.severity = severity;
        self
    }

    /// Replaces the rule's rewrite.
    pub(crate) fn rewrite(&mut self, rewrite: impl Into<String>) -> &mut Finding {
        self.rewrite = Some(rewrite.into());
        self
    }

    /// Offers a fix, which `fix` may apply.
    pub(crate) fn fix(&mut self, fix: Fix) -> &mut Finding {
        self.fix = Some(fix);
        self
    }

    /// The finding as a diagnostic whose notes give the effect, the claims and the rewrite.
    pub fn diagnostic(&self) -> Diagnostic {
        // In a package the name is all that says where.
        let message = match (&self.value, self.op, self.span) {
            (Some(value), Some(_), None) if !self.message.contains(&format!("`{value}`")) => {
                format!("{} (`{value}`)", self.message)
            }
            _ => self.message.clone(),
        };
        let mut d = Diagnostic { severity: self.severity, ..Diagnostic::error(self.code, self.span, message) };
        d = d.note(None, format!("{} ({})", self.effect, self.claims.join(", ")));
        if let Some(why) = &self.overruled {
            d = d.note(None, format!("the profile overrules this: {why}"));
        }
        match &self.rewrite {
            Some(rewrite) => d.note(None, format!("instead: {rewrite}")),
            None => d,
        }
    }

    /// The finding as a JSON object with the fields `code`, `severity`, `effect`, `happens`,
    /// `status`, `function`, `op`, `value`, `message`, `claims`, `rewrite`, `fixable` and
    /// `overruled`.
    ///
    /// `program` must be the program that was checked.
    pub fn json(&self, program: &Program) -> serde_json::Value {
        #[derive(Serialize)]
        struct FindingJson<'a> {
            code: String,
            severity: String,
            effect: &'static str,
            happens: String,
            status: Option<u32>,
            function: Option<&'a str>,
            op: Option<&'a str>,
            value: Option<&'a str>,
            message: &'a str,
            claims: &'a [String],
            rewrite: Option<&'a str>,
            fixable: bool,
            overruled: Option<&'a str>,
        }
        let function: Option<&Function> = self.function.and_then(|f| program.functions.get(f));
        let op = self.op.and_then(|op| function?.ops.get(op.index()));
        let status = if let Effect::EvaluationError { status } = self.effect { Some(status) } else { None };
        let json = FindingJson {
            code: self.code.to_string(),
            severity: self.severity.to_string(),
            effect: self.effect.kind(),
            happens: self.effect.to_string(),
            status,
            function: function.map(|f| f.name.as_str()),
            op: op.map(|o| o.name.as_str()),
            value: self.value.as_deref(),
            message: &self.message,
            claims: &self.claims,
            rewrite: self.rewrite.as_deref(),
            fixable: self.fix.is_some(),
            overruled: self.overruled.as_deref(),
        };
        serde_json::to_value(json).unwrap_or_default()
    }
}
