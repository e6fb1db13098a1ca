//! A program against a machine: findings.
//!
//! [`check`] reads a program as a profile's compiler would ([`select`](mod@crate::select)) and lets every [rule](crate::rules) look at
//! it. What passes without an error is, as far as it is published, taken by the machine and computed rightly. A program that was
//! parsed never makes it fail: rules say nothing about what they do not understand.
//!
//! Strict is not another set of rules: it is the same rules over a profile that takes the hardest claim about each value. What only
//! that profile finds is marked with the reason for which the machine's own profile holds otherwise.

use std::collections::{BTreeMap, HashSet};

use ferrane_diag::{Code, Diagnostic, Severity, Span};
use ferrane_mil::{Function, OpId, Program, ValueId};
use serde::Serialize;

use crate::profile::Profile;
use crate::rules::{self, Context, Rule};

/// What happens on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// The compile fails with this text (apple-runtime §4).
    CompileError {
        /// What the framework says.
        text: &'static str,
    },
    /// It compiles; evaluations fail with this status (apple-runtime §4).
    EvaluationError {
        /// `status=` in the text of the error.
        status: u32,
    },
    /// It compiles and never comes back.
    Hangs,
    /// It runs, the numbers are wrong, and nothing says so.
    SilentlyWrong,
    /// It runs, slower than it could.
    Slow,
    /// It runs; worth knowing.
    Fine,
}

impl Effect {
    /// The compiler's front end refuses the text.
    pub const INVALID: Effect = Effect::CompileError { text: "InvalidMILProgram" };
    /// The compiler refuses an op or a shape.
    pub const REFUSED: Effect = Effect::CompileError { text: "ANECCompile() FAILED" };
    /// Surfaces or sizes do not fit.
    pub const INFERENCE: Effect = Effect::EvaluationError { status: 0x1d };

    /// A word for programs: `compile-error`, `evaluation-error`, `hangs`, `silently-wrong`, `slow`, `fine`.
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

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Effect::CompileError { text } => write!(f, "the compile fails: {text}"),
            Effect::EvaluationError { status } => {
                write!(f, "it compiles, and evaluations fail with status {status:#x}")
            }
            Effect::Hangs => f.write_str("it compiles, and the evaluation does not come back"),
            Effect::SilentlyWrong => f.write_str("it runs, the results are wrong, and nothing says so"),
            Effect::Slow => f.write_str("it runs, slower than it could"),
            Effect::Fine => f.write_str("it runs"),
        }
    }
}

/// A change of the program that avoids a finding and keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fix {
    /// The verbose dialect, `program(1.0)`, ios16.
    Verbose,
    /// `program(major.minor)`.
    Header(u32, u32),
    /// The usual `buildInfo`, on one line.
    BuildInfo,
    /// Inline literals of this op's arguments as named `const` ops.
    NamedConstants(&'static str),
    /// A pass of `ferrane_mil::passes`, by name.
    Pass(&'static str),
}

/// One thing that a machine does with a program and that its author should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule's.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// What happens.
    pub effect: Effect,
    /// Index of the function, if it is about one.
    pub function: Option<usize>,
    /// The op, if it is about one.
    pub op: Option<OpId>,
    /// The value it is about: the op's first result, or a port.
    pub value: Option<String>,
    /// Where it stands, if the program came from text.
    pub span: Option<Span>,
    /// What is found, in one sentence without a full stop.
    pub message: String,
    /// Ids of the claims behind it.
    pub claims: Vec<String>,
    /// How to say it so that the machine takes it.
    pub rewrite: Option<String>,
    /// The change that does so, where one can be made without a person.
    pub fix: Option<Fix>,
    /// Only claims that the profile overrules say so: why it does.
    pub overruled: Option<String>,
}

impl Finding {
    /// With these claims in place of the rule's.
    pub fn claims(&mut self, claims: &[String]) -> &mut Finding {
        if !claims.is_empty() {
            self.claims = claims.to_vec();
        }
        self
    }

    /// With another severity than the rule's.
    pub fn severity(&mut self, severity: Severity) -> &mut Finding {
        self.severity = severity;
        self
    }

    /// With another way to say it than the rule's.
    pub fn rewrite(&mut self, rewrite: impl Into<String>) -> &mut Finding {
        self.rewrite = Some(rewrite.into());
        self
    }

    /// With a fix.
    pub fn fix(&mut self, fix: Fix) -> &mut Finding {
        self.fix = Some(fix);
        self
    }

    /// As a diagnostic: what happens, why, and the way out are notes.
    pub fn diagnostic(&self) -> Diagnostic {
        let mut d = Diagnostic { severity: self.severity, ..Diagnostic::error(self.code, self.span, &self.message) };
        d = d.note(None, format!("{} ({})", self.effect, self.claims.join(", ")));
        if let Some(why) = &self.overruled {
            d = d.note(None, format!("the profile holds otherwise: {why}"));
        }
        match &self.rewrite {
            Some(rewrite) => d.note(None, format!("instead: {rewrite}")),
            None => d,
        }
    }

    /// As JSON: `{code, severity, effect, text, status, function, op, value, message, claims, rewrite, fixable, overruled}`.
    pub fn json(&self, program: &Program) -> serde_json::Value {
        #[derive(Serialize)]
        struct Shown<'a> {
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
        let shown = Shown {
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
        serde_json::to_value(shown).unwrap_or_default()
    }
}

/// What rules found.
#[derive(Debug)]
pub struct Findings {
    rule: &'static Rule,
    items: Vec<Finding>,
    /// Where this rule's begin, and how many it had beyond the limit.
    first: usize,
    left_out: usize,
}

impl Findings {
    /// A rule that fires more often is told so often: a program that is wrong throughout must not fill the memory.
    pub const LIMIT: usize = 200;

    fn begin(&mut self, rule: &'static Rule) {
        self.end();
        (self.rule, self.first) = (rule, self.items.len());
    }

    fn end(&mut self) {
        let more = std::mem::take(&mut self.left_out);
        if more > 0
            && let Some(last) = self.items.last_mut()
        {
            last.message += &format!(" (and {more} more like it)");
        }
    }

    fn add(&mut self, function: Option<usize>, value: Option<String>, message: String) -> &mut Finding {
        let rule = self.rule;
        if self.items.len() - self.first >= Findings::LIMIT {
            // Counted in place of one that is thrown away.
            self.left_out += 1;
            self.items.pop();
        }
        self.items.push(Finding {
            code: rule.code,
            severity: rule.severity,
            effect: rule.effect,
            function,
            op: None,
            value,
            span: None,
            message,
            claims: rule.claims.iter().map(|c| c.to_string()).collect(),
            rewrite: (!rule.rewrite.is_empty()).then(|| rule.rewrite.to_string()),
            fix: None,
            overruled: None,
        });
        let last = self.items.len() - 1;
        &mut self.items[last]
    }

    /// About the program.
    pub fn program(&mut self, message: impl Into<String>) -> &mut Finding {
        self.add(None, None, message.into())
    }

    /// About a function.
    pub fn function(&mut self, body: &rules::Body<'_>, message: impl Into<String>) -> &mut Finding {
        self.add(Some(body.index), None, message.into())
    }

    /// About an op.
    pub fn op(&mut self, body: &rules::Body<'_>, op: OpId, message: impl Into<String>) -> &mut Finding {
        let o = body.function.op(op);
        let value = o.outputs.first().map(|v| body.function.value(*v).name.clone());
        let finding = self.add(Some(body.index), value, message.into());
        (finding.op, finding.span) = (Some(op), o.span);
        finding
    }

    /// About a value: at the op that computes it, or at the function for a port.
    pub fn value(&mut self, body: &rules::Body<'_>, value: ValueId, message: impl Into<String>) -> &mut Finding {
        let v = body.function.value(value);
        let finding = self.add(Some(body.index), Some(v.name.clone()), message.into());
        if let ferrane_mil::ValueDef::Op(op, _) = v.def {
            (finding.op, finding.span) = (Some(op), body.function.op(op).span);
        }
        finding
    }
}

/// How to check.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// Every claim counts, also those that the profile overrules.
    pub strict: bool,
    /// What inputs lie between, by name, for the analysis of overflow.
    pub bounds: Vec<(String, f32, f32)>,
    /// The text the program was read from, for rules about its spelling.
    pub text: Option<&'a str>,
    /// How many programs one process compiles, this one included; 0 is 1.
    pub together: usize,
}

/// Reads the bounds of an input: `x=-1..1`.
///
/// # Errors
/// What is wrong with it.
pub fn bound(text: &str) -> Result<(String, f32, f32), String> {
    let wrong = || format!("`{text}`: expected NAME=LOW..HIGH, `x=-1..1` for example");
    let (name, ends) = text.split_once('=').ok_or_else(wrong)?;
    let (low, high) = ends.split_once("..").ok_or_else(wrong)?;
    let number = |t: &str| t.trim().parse::<f32>().ok().filter(|v| v.is_finite()).ok_or_else(wrong);
    let (low, high) = (number(low)?, number(high)?);
    if low > high || name.trim().is_empty() {
        return Err(wrong());
    }
    Ok((name.trim().to_string(), low, high))
}

/// Checks a program against a machine. Findings come in the order of codes; sort by span to show them beside a text.
pub fn check(program: &Program, profile: &Profile, options: &Options<'_>) -> Vec<Finding> {
    let mut found = run(program, profile, options);
    if !options.strict {
        return found;
    }
    let Ok(hardest) = profile.strict() else { return found };
    let known: HashSet<_> = found.iter().map(place).collect();
    let reasons = reasons(profile);
    let more: Vec<Finding> = run(program, &hardest, options)
        .into_iter()
        .filter(|f| !known.contains(&place(f)))
        .map(|mut f| {
            let reason = f.claims.iter().find_map(|c| reasons.get(c.as_str()).map(|r| r.to_string()));
            f.overruled = Some(reason.unwrap_or_else(|| "the claim is about another machine".to_string()));
            f
        })
        .collect();
    found.extend(more);
    found.sort_by_key(|f| f.code);
    found
}

/// What makes two findings the same.
fn place(f: &Finding) -> (Code, Option<usize>, Option<OpId>, Option<String>) {
    (f.code, f.function, f.op, f.value.clone())
}

/// Why the profile overrules claims, by claim.
fn reasons(profile: &Profile) -> BTreeMap<String, String> {
    profile.entries().into_iter().flat_map(|e| e.overrules).collect()
}

fn run(program: &Program, profile: &Profile, options: &Options<'_>) -> Vec<Finding> {
    let context = Context::new(program, profile, options);
    let Some(first) = rules::all().first() else { return Vec::new() };
    let mut findings = Findings { rule: first, items: Vec::new(), first: 0, left_out: 0 };
    for rule in rules::all() {
        findings.begin(rule);
        (rule.run)(&context, &mut findings);
    }
    findings.end();
    if profile.elsewhere.value {
        findings.items.iter_mut().for_each(elsewhere);
    }
    findings.items
}

/// Core ML runs what the engine does not take on the CPU or the GPU.
fn elsewhere(finding: &mut Finding) {
    match finding.effect {
        Effect::CompileError { .. } | Effect::EvaluationError { .. } | Effect::Hangs => {
            finding.severity = Severity::Note;
            finding.effect = Effect::Slow;
            finding.message += ": Core ML runs it on the CPU or the GPU";
        }
        _ => finding.severity = finding.severity.min(Severity::Warning),
    }
}
