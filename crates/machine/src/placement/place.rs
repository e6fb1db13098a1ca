//! The placement of a function: eligibility, the framework's decision for each run of eligible ops,
//! and what the decision costs.

use std::collections::{BTreeMap, HashMap, HashSet};

use ferrane_mil::{DataType, Function, Op, OpId, Program, ValueId};

use crate::cost::{CostModel, predict_function};
use crate::profile::Profile;
use crate::select::{Work, select};

use super::eligible::{Ineligibility, ineligible};
use super::first_load::FirstLoad;
use super::model::PreferenceModel;
use super::options::{Framework, PlaceOptions, Processor};
use super::record::{PlacedOp, PlacedSegment, PlacedTransfer, Placement, PlacementChange, PlacementOrigin, VERSION};
use super::segment::OpGraph;

/// The largest number of changes that are tried; programs with more reasons have no single cause.
const CHANGES: usize = 64;

/// Predicts where each op of a program runs if a framework decides.
///
/// The profile says what the engine accepts; its path should be `coreml` (see
/// [`core_ml_profile`]). A program without functions has an empty placement.
///
/// ```
/// use ferrane_machine::placement::{PlaceOptions, Processor, place};
/// use ferrane_machine::Profile;
/// use ferrane_mil::{Builder, DataType, Opset, Transpose, Type};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut b = Builder::new("main", Opset::IOS18);
/// let x = b.input("x", Type::tensor(DataType::Fp16, &[8, 8]))?;
/// let y = b.matmul("y", x, x, Transpose::Neither)?;
/// let program = b.finish(&[("y", y)])?;
///
/// let placement = place(&program, &Profile::find("m4-macos15-coreml")?, &PlaceOptions::default());
/// // The engine could run it, but a product this small is not worth the way there.
/// assert!(placement.ops[0].ineligible.is_none());
/// assert_eq!(placement.ops[0].runs_on, Some(Processor::Cpu));
/// # Ok(())
/// # }
/// ```
pub fn place(program: &Program, profile: &Profile, options: &PlaceOptions) -> Placement {
    place_with(program, profile, options, PreferenceModel::core_ml())
}

/// As [`place`], with another model; without one, preferences are not known.
pub fn place_with(
    program: &Program,
    profile: &Profile,
    options: &PlaceOptions,
    model: Option<&PreferenceModel>,
) -> Placement {
    match function_of(program, options) {
        Some(index) => {
            let reasons = ineligible(program, index, profile, model);
            place_known(&program.functions[index], &reasons, profile, options, model, None)
        }
        None => empty(profile, options),
    }
}

/// The index of the function that is placed, if the program has it.
pub(super) fn function_of(program: &Program, options: &PlaceOptions) -> Option<usize> {
    let named = options.function.as_deref().unwrap_or("main");
    let position = program.functions.iter().position(|f| f.name == named);
    position.or((!program.functions.is_empty() && options.function.is_none()).then_some(0))
}

fn empty(profile: &Profile, options: &PlaceOptions) -> Placement {
    Placement {
        version: VERSION,
        machine: profile.subject.name.clone(),
        framework: options.framework,
        units: options.units,
        origin: PlacementOrigin::Predicted,
        function: String::new(),
        ops: Vec::new(),
        segments: Vec::new(),
        transfers: Vec::new(),
        change: None,
        first_load: None,
    }
}

/// The placement of a function whose ineligible ops are known. With a plan, processors by the name
/// of each op's first result, nothing is predicted.
pub(super) fn place_known(
    function: &Function,
    reasons: &HashMap<OpId, Ineligibility>,
    profile: &Profile,
    options: &PlaceOptions,
    model: Option<&PreferenceModel>,
    plan: Option<&HashMap<&str, Processor>>,
) -> Placement {
    let decider = Decider::new(function, profile, options, model, reasons);
    let decision = plan.map_or_else(|| decider.decide(&decider.eligible), |plan| decider.planned(plan));
    let mut placement = Placement { function: function.name.clone(), ..empty(profile, options) };
    placement.ops = decider.ops(&decision, reasons);
    if let Some(plan) = plan {
        for op in &mut placement.ops {
            op.runs_on = plan.get(op.name.as_str()).copied();
            op.preferred = op.runs_on;
        }
    }
    (placement.segments, placement.transfers) = decider.costs(&decision, &placement.ops, profile);
    placement.ops.iter_mut().zip(decider.numbers(&decision)).for_each(|(op, number)| op.segment = number);
    placement.change = if plan.is_none() { decider.change(&decision, reasons) } else { None };
    placement.first_load = FirstLoad::of(decider.engine_weights(&placement.ops));
    placement
}

/// The profile of a machine's Core ML path: that of `m4-macos15-inmem` is `m4-macos15-coreml`.
///
/// # Errors
/// The machine has no such profile.
pub fn core_ml_profile(profile: &Profile) -> Result<Profile, crate::ProfileError> {
    let subject = &profile.subject;
    if subject.path == "coreml" {
        return Ok(profile.clone());
    }
    Profile::named(&format!("{}-{}-coreml", subject.chip, subject.os))
}

/// The number of operands that are known only at run time.
fn runtime_operands(function: &Function, op: &Op) -> usize {
    op.operands().filter(|v| Work::stored(function, *v).is_none()).count()
}

/// What the framework decides about one op.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OpDecision {
    on_engine: bool,
    /// The probability that it runs on the engine; `None` if it is not known.
    engine: Option<f64>,
}

/// A function with all that decisions about it need.
struct Decider<'a> {
    function: &'a Function,
    options: &'a PlaceOptions,
    model: Option<&'a PreferenceModel>,
    graph: OpGraph,
    /// What the framework expects to save with each op on the engine, in milliseconds.
    savings: Vec<f64>,
    eligible: Vec<bool>,
}

impl<'a> Decider<'a> {
    fn new(
        function: &'a Function,
        profile: &Profile,
        options: &'a PlaceOptions,
        model: Option<&'a PreferenceModel>,
        reasons: &HashMap<OpId, Ineligibility>,
    ) -> Decider<'a> {
        let graph = OpGraph::of(function);
        let selection = select(function, profile);
        let saving = |id: &OpId| match (model, selection.get(*id)) {
            (Some(model), Some(s)) => {
                let op = function.op(*id);
                model.saving_ms(&op.name, s.unit, &s.work, runtime_operands(function, op))
            }
            _ => 0.0,
        };
        let savings = graph.ops.iter().map(saving).collect();
        let eligible = graph.ops.iter().map(|id| !reasons.contains_key(id)).collect();
        // No placement by Core AI is published, so its preference is not known.
        let model = model.filter(|_| options.framework == Framework::CoreMl);
        Decider { function, options, model, graph, savings, eligible }
    }

    /// Decides each run of eligible ops as a whole: either it saves enough, or all of it stays off
    /// the engine.
    fn decide(&self, eligible: &[bool]) -> Vec<OpDecision> {
        let off = self.model.map(|m| 1.0 - m.fitted.off_share);
        let mut decided = vec![OpDecision { on_engine: false, engine: off }; eligible.len()];
        let stages = self.graph.stages(eligible);
        for (_, members) in OpGraph::groups(&stages).into_iter().filter(|(stage, _)| stage % 2 == 1) {
            let saved: f64 = members.iter().map(|&i| self.savings[i]).sum();
            let Some(model) = self.model else {
                members.iter().for_each(|&i| decided[i] = OpDecision { on_engine: true, engine: None });
                continue;
            };
            let p = model.probability(saved);
            let engine = Some(p * model.fitted.on_share);
            members.iter().for_each(|&i| decided[i] = OpDecision { on_engine: p >= 0.5, engine });
        }
        decided
    }

    /// What a plan says, op by op.
    fn planned(&self, plan: &HashMap<&str, Processor>) -> Vec<OpDecision> {
        let one = |id: &OpId| {
            let place = plan.get(self.name(*id));
            let on_engine = place == Some(&Processor::Engine);
            OpDecision { on_engine, engine: place.map(|_| f64::from(u8::from(on_engine))) }
        };
        self.graph.ops.iter().map(one).collect()
    }

    /// The name of an op's first result.
    fn name(&self, id: OpId) -> &str {
        self.function.op(id).outputs.first().map_or("", |v| &self.function.value(*v).name)
    }

    fn ops(&self, decision: &[OpDecision], reasons: &HashMap<OpId, Ineligibility>) -> Vec<PlacedOp> {
        let otherwise = self.options.units.otherwise();
        let processor = |on: bool| if on { Processor::Engine } else { otherwise };
        let one = |(i, id): (usize, &OpId)| {
            let op = self.function.op(*id);
            let ineligible = reasons.get(id).cloned();
            let alone = self.model.map(|m| m.probability(self.savings[i]) >= 0.5);
            // What cannot run on the engine runs elsewhere, whichever framework decides.
            let preferred = if ineligible.is_some() { Some(otherwise) } else { alone.map(processor) };
            let OpDecision { on_engine, engine } = decision[i];
            let known = engine.is_some_and(|p| p.max(1.0 - p) >= PlacedOp::KNOWN);
            let runs_on = if ineligible.is_some() { Some(otherwise) } else { known.then(|| processor(on_engine)) };
            PlacedOp {
                name: self.name(*id).to_owned(),
                op: op.name.clone(),
                ineligible,
                preferred,
                runs_on,
                engine_probability: engine,
                segment: 0,
            }
        };
        self.graph.ops.iter().enumerate().map(one).collect()
    }

    /// The number of each op's segment.
    fn numbers(&self, decision: &[OpDecision]) -> Vec<usize> {
        let on: Vec<bool> = decision.iter().map(|d| d.on_engine).collect();
        let stages = self.graph.stages(&on);
        let order: HashMap<usize, usize> =
            OpGraph::groups(&stages).iter().enumerate().map(|(n, (stage, _))| (*stage, n)).collect();
        stages.iter().map(|stage| order[stage]).collect()
    }

    /// The segments with their times, and what crosses between them.
    fn costs(
        &self,
        decision: &[OpDecision],
        ops: &[PlacedOp],
        profile: &Profile,
    ) -> (Vec<PlacedSegment>, Vec<PlacedTransfer>) {
        let numbers = self.numbers(decision);
        let model = CostModel::for_profile(profile).ok();
        let cost = model.as_ref().and_then(|m| predict_function(self.function, m).ok());
        let mut groups = vec![Vec::new(); numbers.iter().max().map_or(0, |n| n + 1)];
        numbers.iter().enumerate().for_each(|(i, number)| groups[*number].push(i));
        let mut segments = Vec::with_capacity(groups.len());
        for members in groups {
            let (Some(&first), Some(&last)) = (members.first(), members.last()) else { continue };
            let known = members.iter().all(|&i| ops[i].runs_on.is_some());
            let on = decision[first].on_engine;
            let time = |c: &crate::cost::Cost| {
                c.dispatch_us + members.iter().filter_map(|&i| c.ops.get(i)).map(|o| o.us).sum::<f64>()
            };
            segments.push(PlacedSegment {
                runs_on: ops[first].runs_on.filter(|_| known),
                ops: members.len(),
                ends: [ops[first].name.clone(), ops[last].name.clone()],
                engine_us: cost.as_ref().filter(|_| on).map(time),
            });
        }
        (segments, self.transfers(&numbers, model.as_ref()))
    }

    fn transfers(&self, numbers: &[usize], model: Option<&CostModel>) -> Vec<PlacedTransfer> {
        let mut crossing: BTreeMap<(usize, usize), HashSet<ValueId>> = BTreeMap::new();
        for (i, id) in self.graph.ops.iter().enumerate() {
            for value in self.function.op(*id).operands() {
                let Some(&from) = self.graph.made.get(&value) else { continue };
                if numbers[from] != numbers[i] {
                    crossing.entry((numbers[from], numbers[i])).or_default().insert(value);
                }
            }
        }
        let bytes = |values: &HashSet<ValueId>| {
            values.iter().fold(0u64, |sum, v| {
                let ty = &self.function.value(*v).ty;
                let bits = ty.dtype().and_then(DataType::bits).unwrap_or(0) as u64;
                sum.saturating_add((ty.elements().unwrap_or(0) as u64).saturating_mul(bits).div_ceil(8))
            })
        };
        crossing
            .into_iter()
            .map(|((from, to), values)| {
                let bytes = bytes(&values);
                let us =
                    model.map(|m| m.constants.cut_us.value + bytes as f64 / (m.constants.traffic_gb_s.value * 1e3));
                PlacedTransfer { from, to, values: values.len(), bytes, us }
            })
            .collect()
    }

    /// The bytes of the constants that ops on the engine read, each once.
    fn engine_weights(&self, ops: &[PlacedOp]) -> u64 {
        let mut seen = HashSet::new();
        let on = ops.iter().zip(&self.graph.ops).filter(|(op, _)| op.runs_on == Some(Processor::Engine));
        let values = on.flat_map(|(_, id)| self.function.op(*id).operands()).filter(|v| seen.insert(*v));
        values.filter_map(|v| Work::stored(self.function, v)).fold(0, u64::saturating_add)
    }

    /// The reason whose removal brings most ops back to the engine; among equals the one that
    /// leaves fewer segments.
    fn change(&self, decision: &[OpDecision], reasons: &HashMap<OpId, Ineligibility>) -> Option<PlacementChange> {
        let mut kinds: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, id) in self.graph.ops.iter().enumerate() {
            if let Some(reason) = reasons.get(id) {
                kinds.entry(&reason.kind).or_default().push(i);
            }
        }
        if kinds.len() > CHANGES {
            return None;
        }
        let size = |decision: &[OpDecision]| {
            let numbers = self.numbers(decision);
            let count = numbers.iter().max().map_or(0, |n| n + 1);
            (count, self.transfers(&numbers, None).len())
        };
        let before = size(decision);
        let mut best: Option<PlacementChange> = None;
        for members in kinds.values() {
            let mut eligible = self.eligible.clone();
            members.iter().for_each(|&i| eligible[i] = true);
            let after = self.decide(&eligible);
            let regained = (0..eligible.len())
                .filter(|i| after[*i].on_engine && !decision[*i].on_engine && !members.contains(i))
                .count();
            let then = size(&after);
            let moved = members.iter().any(|&i| after[i].on_engine);
            if !moved || (regained == 0 && then.0 >= before.0) {
                continue;
            }
            let better = best.as_ref().is_none_or(|b| (regained, b.segments[1]) > (b.regained, then.0));
            let Some(reason) = members.first().and_then(|&i| reasons.get(&self.graph.ops[i])).filter(|_| better) else {
                continue;
            };
            let name = |&i: &usize| self.name(self.graph.ops[i]).to_owned();
            best = Some(PlacementChange {
                reason: reason.clone(),
                replace: members.iter().map(name).collect(),
                regained,
                segments: [before.0, then.0],
                transfers: [before.1, then.1],
            });
        }
        best
    }
}
