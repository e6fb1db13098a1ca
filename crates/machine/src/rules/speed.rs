//! Rules about the engine's own memory.

use ferrane_diag::{Code, Severity};

use super::rule::Rule;
use crate::finding::Effect;
use crate::select::{Selected, Unit};

pub(super) const WORKING_SET: Rule = Rule {
    code: Code(497),
    title: "op beyond the working set",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C033", "C034"],
    explanation: "Operands and results of one op that do not fit the on-chip memory are read and written in pieces. The tables say 2 MB from H13 to H17; 4.72 MB are effective on M5; throughput drops gradually, by about 30 % beyond 32 MB.",
    rewrite: "smaller pieces of the largest axis",
    run: |cx, out| {
        let most = &cx.profile.working_set;
        // Only the largest op: every op of a large program exceeds the limit, and one line is
        // enough.
        for view in &cx.functions {
            let sized = |unit: Unit| matches!(unit, Unit::Mac | Unit::Composite);
            let all = view.selection.iter().filter(|(_, s)| sized(s.unit));
            let bytes = |s: &Selected| s.work.read.saturating_add(s.work.written).saturating_add(s.work.weights);
            let beyond = all.map(|(id, s)| (id, bytes(s))).filter(|(_, b)| *b > most.value as u64);
            let (mut count, mut largest) = (0usize, None);
            for (id, bytes) in beyond {
                count += 1;
                largest = largest.max(Some((bytes, id)));
            }
            if let Some((bytes, id)) = largest {
                let others =
                    if count > 1 { format!("; {} other ops are beyond it, too", count - 1) } else { String::new() };
                let message =
                    format!("{bytes} bytes of operands and results, more than the {} on the chip{others}", most.value);
                out.op(view, id, message).claims(&most.claims);
            }
        }
    },
};

pub(super) const RESIDENT: Rule = Rule {
    code: Code(498),
    title: "weights that do not stay on the chip",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C034"],
    explanation: "Weights of a program stay on the chip between evaluations up to about 24 to 32 MB; beyond that they are read again every time, at 35 to 95 GB/s (numerics §10).",
    rewrite: "compressed weights where they stream, or several programs on several evaluations",
    run: |cx, out| {
        let most = &cx.profile.resident_weights;
        for view in &cx.functions {
            let sum = view.selection.iter().fold(0u64, |n, (_, s)| n.saturating_add(s.work.weights));
            if sum > most.value as u64 {
                let message = format!("{sum} bytes of weights; {} stay on the chip between evaluations", most.value);
                out.function(view, message).claims(&most.claims);
            }
        }
    },
};
