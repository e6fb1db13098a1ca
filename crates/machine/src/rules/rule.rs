//! The definition of a rule and the context that it reads.

use std::sync::OnceLock;

use ferrane_diag::{Code, Severity};
use ferrane_mil::Program;

use crate::finding::Effect;
use crate::findings::{Findings, RuleDefaults};
use crate::options::CheckOptions;
use crate::profile::Profile;
use crate::ranges::Ranges;
use crate::view::FunctionView;

/// A rule: its facts, and the function that examines a program.
#[derive(Clone, Copy)]
pub struct Rule {
    /// The code, in 0400..0500 or 1000..1100.
    pub code: Code,
    /// The subject, in a few words.
    pub title: &'static str,
    /// The usual severity of its findings.
    pub severity: Severity,
    /// The consequence on the machine.
    pub effect: Effect,
    /// The ids of the claims that the rule rests on, even if the profile's value cites none of
    /// them.
    pub claims: &'static [&'static str],
    /// The text of `ferrane explain`: what is known, from which source, and what is not known.
    pub explanation: &'static str,
    /// How to write the program so that the machine accepts it; empty where no general answer
    /// exists.
    pub rewrite: &'static str,
    /// Examines a program and adds findings.
    pub(crate) run: fn(&Context<'_>, &mut Findings),
}

impl Rule {
    /// The fields that the rule's findings start with.
    pub(crate) fn defaults(&self) -> RuleDefaults {
        let &Rule { code, severity, effect, claims, rewrite, .. } = self;
        RuleDefaults { code, severity, effect, claims, rewrite }
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("code", &self.code).field("title", &self.title).finish_non_exhaustive()
    }
}

/// The input of a rule.
pub(crate) struct Context<'a> {
    pub program: &'a Program,
    pub profile: &'a Profile,
    pub options: &'a CheckOptions<'a>,
    /// The functions of the program, in order.
    pub functions: Vec<FunctionView<'a>>,
    /// The bounds of each function's values, computed on first use.
    ranges: Vec<OnceLock<Ranges>>,
}

impl<'a> Context<'a> {
    pub fn new(program: &'a Program, profile: &'a Profile, options: &'a CheckOptions<'a>) -> Context<'a> {
        let view = |(i, f)| FunctionView::new(i, f, profile);
        let functions: Vec<_> = program.functions.iter().enumerate().map(view).collect();
        let ranges = functions.iter().map(|_| OnceLock::new()).collect();
        Context { program, profile, options, functions, ranges }
    }

    /// The bounds of the values of one of the context's functions.
    pub fn ranges(&self, view: &FunctionView<'_>) -> &Ranges {
        self.ranges[view.index].get_or_init(|| Ranges::of(view, &self.program.weights, &self.options.bounds))
    }
}
