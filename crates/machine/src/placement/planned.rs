//! The placement of a program as the framework itself plans it.

use std::collections::HashMap;

use ferrane_mil::Program;
use serde::{Deserialize, Serialize};

use super::eligible::ineligible;
use super::model::PreferenceModel;
use super::options::{PlaceOptions, Processor};
use super::place::{function_of, place, place_known};
use super::record::{Placement, PlacementOrigin};
use crate::profile::Profile;

/// What a framework plans for one op, as `MLComputePlan` reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedOp {
    /// The name of the op's first result.
    pub name: String,
    /// The name of the op, as in MIL.
    pub op: String,
    /// The processors that can run it.
    pub supported: Vec<Processor>,
    /// The processor that the framework prefers.
    pub preferred: Option<Processor>,
    /// The op's share of the model's cost as the framework estimates it, from 0 to 1.
    pub weight: Option<f64>,
}

/// The placement of a program by the framework's plan: as [`place`], with the plan's processors in
/// place of predicted ones.
///
/// Ops are matched by the names of their first results. An op that the plan lacks, because the
/// framework has fused or folded it, has no known place. What the engine refuses, times and
/// transfers are still those of the profile, and no change is proposed.
pub fn place_planned(program: &Program, plan: &[PlannedOp], profile: &Profile, options: &PlaceOptions) -> Placement {
    let Some(index) = function_of(program, options) else { return place(program, profile, options) };
    let model = PreferenceModel::core_ml();
    let reasons = ineligible(program, index, profile, model);
    let planned: HashMap<&str, Processor> =
        plan.iter().filter_map(|op| Some((op.name.as_str(), op.preferred?))).collect();
    let mut placement = place_known(&program.functions[index], &reasons, profile, options, model, Some(&planned));
    placement.origin = PlacementOrigin::Planned;
    placement
}
