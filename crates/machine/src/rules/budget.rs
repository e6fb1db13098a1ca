//! Rules about several programs in one process.

use ferrane_diag::{Code, Severity};

use super::rule::Rule;
use crate::finding::Effect;

pub(super) const COMPILES: Rule = Rule {
    code: Code(499),
    title: "more programs than a process may compile",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C154", "C155", "C156", "C157", "C158", "C159", "C160"],
    explanation: "After about 119 successful compiles in one process the in-memory path fails without a message. On some systems unloading returns nothing to the budget; 169 programs in one process and 873 compiles with freeing between them were observed, too. The number of programs loaded at once is limited as well: 55, 128 or as many as fit. Trainers checkpoint and start a new process, which costs 50 ms.",
    rewrite: "weights as inputs, so that one program serves all layers; or a new process when the budget ends",
    run: |cx, out| {
        let count = cx.options.programs;
        let (compiles, loaded) = (&cx.profile.compile_budget, &cx.profile.max_loaded);
        if compiles.value.exceeded_by(count) {
            let message = format!("{count} programs in one process; it may compile {}", compiles.value);
            out.program(message).claims(&compiles.claims);
        } else if loaded.value.exceeded_by(count) {
            let message = format!("{count} programs in one process; {} may be loaded at once", loaded.value);
            out.program(message).claims(&loaded.claims);
        }
    },
};
