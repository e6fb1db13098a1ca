//! Eligibility: whether the engine can run an op at all when a framework asks it to.
//!
//! Three sources are read in this order: what the framework never gives to the engine
//! (data/placement/model.toml), what types rule out, and the checker's findings for the machine's
//! profile. An op that none of them rules out is eligible as far as is published.

use std::collections::HashMap;

use ferrane_diag::Code;
use ferrane_mil::{DataType, Function, Op, OpId, Program, Type, ValueId};
use serde::{Deserialize, Serialize};

use crate::check::engine_findings;
use crate::finding::Effect;
use crate::profile::{Acceptance, Profile};
use crate::select::{Unit, select};

use super::model::PreferenceModel;

/// Why the engine cannot run an op.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ineligibility {
    /// What the reason is about, the same for all ops that one change would make eligible: the
    /// code of a rule (`E0411`), or a word of this module.
    pub kind: String,
    /// One sentence without a full stop.
    pub message: String,
    /// The ids of the claims, or the source where no claim exists.
    pub evidence: Vec<String>,
}

/// The reason for each op of the function's body that is not eligible.
pub(super) fn ineligible(
    program: &Program,
    index: usize,
    profile: &Profile,
    model: Option<&PreferenceModel>,
) -> HashMap<OpId, Ineligibility> {
    let function = &program.functions[index];
    let mut found = HashMap::new();
    for finding in refusals(program, index, profile) {
        let (op, reason) = finding;
        found.entry(op).or_insert(reason);
    }
    let selection = select(function, profile);
    for &id in &function.body().ops {
        let op = function.op(id);
        let own = model
            .and_then(|m| never(op, m).or_else(|| cast(function, op, profile, m)))
            .or_else(|| typed(function, op))
            .or_else(|| deep(function, op, profile))
            .or_else(|| {
                let selected = selection.get(id)?;
                let refused = matches!(selected.acceptance, Acceptance::Refused) || selected.unit == Unit::Host;
                refused.then(|| Ineligibility {
                    kind: format!("op {}", op.name),
                    message: format!("the engine has no `{}`", op.name),
                    evidence: selected.claims.clone(),
                })
            });
        if let Some(reason) = own {
            found.insert(id, reason);
        }
    }
    found
}

/// The largest number of findings that are read per rule.
const FINDINGS: usize = 1 << 16;

/// The findings that keep an op off the engine, as the engine's compiler would report them to a
/// caller without a framework.
fn refusals(program: &Program, index: usize, profile: &Profile) -> Vec<(OpId, Ineligibility)> {
    let function = &program.functions[index];
    let refuses =
        |effect: Effect| matches!(effect, Effect::CompileError { .. } | Effect::EvaluationError { .. } | Effect::Hangs);
    let named: HashMap<&str, ValueId> =
        function.inputs.iter().map(|v| (function.value(*v).name.as_str(), *v)).collect();
    let (mut found, mut long) = (Vec::new(), HashMap::new());
    for finding in engine_findings(program, profile, FINDINGS) {
        if finding.function != Some(index) || !refuses(finding.effect) {
            continue;
        }
        let axis = finding.code == AXIS;
        let input = finding.value.as_deref().and_then(|name| named.get(name)).filter(|_| axis);
        let reason =
            Ineligibility { kind: finding.code.to_string(), message: finding.message, evidence: finding.claims };
        match (finding.op, input) {
            (Some(op), _) if axis && is_flat(function, op, profile) => {}
            (Some(op), _) => found.push((op, reason)),
            (None, Some(input)) => drop(long.insert(*input, reason)),
            (None, None) => {}
        }
    }
    // An input with too long an axis keeps its readers off the engine.
    for &id in function.body().ops.iter().filter(|_| !long.is_empty()) {
        let reason = function.op(id).operands().find_map(|v| long.get(&v));
        found.extend(reason.filter(|_| !is_flat(function, id, profile)).map(|reason| (id, reason.clone())));
    }
    found
}

/// The rule about the extent of an axis.
const AXIS: Code = Code(421);

/// True if everything that the op reads and returns has at most two axes. The second one is then
/// that of the channels, whose limit is larger: a `linear` of one row with 17408 results was placed
/// on the engine (chrishayuk/larql PR #312).
fn is_flat(function: &Function, op: OpId, profile: &Profile) -> bool {
    let op = function.op(op);
    let shapes = op.operands().chain(op.outputs.iter().copied()).map(|v| function.value(v).ty.shape());
    let fits = |shape: Vec<usize>| shape.len() <= 2 && shape.iter().all(|n| *n <= profile.max_channels.value);
    shapes.into_iter().all(|shape| shape.is_some_and(fits))
}

/// A `linear` that sums over more elements than an axis may have (same source).
fn deep(function: &Function, op: &Op, profile: &Profile) -> Option<Ineligibility> {
    let limit = &profile.max_axis;
    let depth = function.value(op.operands().next()?).ty.shape()?.last().copied()?;
    (op.name == "linear" && depth > limit.value).then(|| Ineligibility {
        kind: "deep reduction".to_string(),
        message: format!("a sum over {depth} elements; the engine takes at most {}", limit.value),
        evidence: limit.claims.clone(),
    })
}

fn never(op: &Op, model: &PreferenceModel) -> Option<Ineligibility> {
    let entry = model.never.iter().find(|entry| entry.ops.contains(&op.name))?;
    Some(Ineligibility {
        kind: format!("op {}", op.name),
        message: format!("the framework gives no `{}` to the engine", op.name),
        evidence: vec![entry.source.clone()],
    })
}

/// A cast between fp32 and another type, on a system whose engine takes none.
fn cast(function: &Function, op: &Op, profile: &Profile, model: &PreferenceModel) -> Option<Ineligibility> {
    let types = op.operands().chain(op.outputs.iter().copied());
    let fp32 = types.into_iter().any(|v| function.value(v).ty.dtype() == Some(DataType::Fp32));
    let refused = op.name == "cast" && fp32 && model.fp32_casts.systems.contains(&profile.subject.os);
    refused.then(|| Ineligibility {
        kind: "fp32 cast".to_string(),
        message: "the engine of this system takes no fp32".to_string(),
        evidence: vec![model.fp32_casts.source.clone()],
    })
}

/// What the types of operands and results rule out.
fn typed(function: &Function, op: &Op) -> Option<Ineligibility> {
    let reason = |kind: &str, message: String| {
        Some(Ineligibility { kind: kind.to_string(), message, evidence: vec!["numerics §2".to_string()] })
    };
    let types = || op.operands().chain(op.outputs.iter().copied()).map(|v| &function.value(v).ty);
    if let Some(ty) = types().find(|ty| matches!(ty, Type::Tensor { .. }) && ty.shape().is_none()) {
        return reason("unknown shape", format!("{ty} has no fixed shape"));
    }
    let results: Vec<DataType> = op.outputs.iter().filter_map(|v| function.value(*v).ty.dtype()).collect();
    if op.name != "cast" && results.contains(&DataType::Fp32) {
        return reason("fp32", format!("`{}` computes in fp32; the engine computes in fp16", op.name));
    }
    let whole = |ty: &DataType| ty.is_int() && !matches!(ty, DataType::Int8 | DataType::UInt8);
    if !results.is_empty() && results.iter().all(whole) {
        return reason("integers", format!("`{}` computes integers", op.name));
    }
    None
}
