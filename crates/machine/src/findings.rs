//! The list to which rules add findings.
//!
//! A rule states code, severity, effect, claims and rewrite once; the list copies them into each
//! finding, and the rule changes the fields that differ. The list keeps a limited number of
//! findings per rule, usually [`Findings::LIMIT`], and counts the rest, so a program that is wrong
//! throughout does not exhaust memory.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{OpId, ValueDef, ValueId};

use crate::finding::{Effect, Finding};
use crate::view::FunctionView;

/// The fields that a finding takes from its rule unless the rule changes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleDefaults {
    pub code: Code,
    pub severity: Severity,
    pub effect: Effect,
    pub claims: &'static [&'static str],
    /// Empty if the rule has no general rewrite.
    pub rewrite: &'static str,
}

/// The findings of one run of all rules.
#[derive(Debug)]
pub(crate) struct Findings {
    items: Vec<Finding>,
    rule: RuleDefaults,
    /// The index of the current rule's first finding.
    first: usize,
    /// The number of findings of the current rule beyond the limit.
    left_out: usize,
    /// The number of findings that are kept per rule.
    limit: usize,
}

impl Findings {
    /// The number of findings kept per rule; the last one states how many more there are.
    pub(crate) const LIMIT: usize = 200;

    /// An empty list that keeps `limit` findings per rule, ready for the first rule.
    pub(crate) fn new(rule: RuleDefaults, limit: usize) -> Findings {
        Findings { items: Vec::new(), rule, first: 0, left_out: 0, limit }
    }

    /// Ends the current rule and begins the next one.
    pub(crate) fn begin(&mut self, rule: RuleDefaults) {
        self.end_rule();
        (self.rule, self.first) = (rule, self.items.len());
    }

    /// All findings, in the order in which the rules ran.
    pub(crate) fn finish(mut self) -> Vec<Finding> {
        self.end_rule();
        self.items
    }

    fn end_rule(&mut self) {
        let more = std::mem::take(&mut self.left_out);
        if more > 0
            && let Some(last) = self.items.last_mut()
        {
            last.message += &format!(" (and {more} more like it)");
        }
    }

    fn add(&mut self, function: Option<usize>, value: Option<String>, message: String) -> &mut Finding {
        let rule = self.rule;
        if self.items.len() - self.first >= self.limit {
            // The new finding replaces the last one, which is only counted.
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

    /// Adds a finding about the whole program.
    pub(crate) fn program(&mut self, message: impl Into<String>) -> &mut Finding {
        self.add(None, None, message.into())
    }

    /// Adds a finding about a function.
    pub(crate) fn function(&mut self, view: &FunctionView<'_>, message: impl Into<String>) -> &mut Finding {
        self.add(Some(view.index), None, message.into())
    }

    /// Adds a finding about an op.
    pub(crate) fn op(&mut self, view: &FunctionView<'_>, op: OpId, message: impl Into<String>) -> &mut Finding {
        let o = view.function.op(op);
        let value = o.outputs.first().map(|v| view.function.value(*v).name.clone());
        let finding = self.add(Some(view.index), value, message.into());
        (finding.op, finding.span) = (Some(op), o.span);
        finding
    }

    /// Adds a finding about a value: at the op that computes it, or at the function for a port.
    pub(crate) fn value(
        &mut self,
        view: &FunctionView<'_>,
        value: ValueId,
        message: impl Into<String>,
    ) -> &mut Finding {
        let v = view.function.value(value);
        let finding = self.add(Some(view.index), Some(v.name.clone()), message.into());
        if let ValueDef::Op(op, _) = v.def {
            (finding.op, finding.span) = (Some(op), view.function.op(op).span);
        }
        finding
    }
}
