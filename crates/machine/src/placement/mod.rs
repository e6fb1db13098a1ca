//! Placement: on which processor each op of a program probably runs when a framework decides.
//!
//! A profile and its rules know what an engine *accepts*. A framework that distributes a program
//! among processors also has a *preference*, which may leave an eligible op on the CPU.
//! [`place`](place()) answers both for each op, in three steps:
//!
//! 1. Eligibility ([`Ineligibility`]): what the framework never gives to the engine, what types
//!    rule out, what the checker finds.
//! 2. Preference ([`PreferenceModel`]): the framework moves a run of eligible ops to the engine if
//!    that saves more than the way there costs. The few numbers of the model are fitted to
//!    published placements; docs/placement.md has the errors on those that were held out.
//! 3. Consequences: segments, transfers with their cost, and the one change of the program that
//!    would bring most ops back.
//!
//! Each answer has a probability. Where nothing is published, as for the preference of Core AI, the
//! answer is `None`: not known.
//!
//! A [`Placement`] is also a file: [`Placement::write`] and [`Placement::read`], and
//! [`PlacementDiff`] compares two for regressions.

mod diff;
mod eligible;
mod errors;
mod first_load;
mod model;
mod options;
mod place;
mod planned;
mod published;
mod record;
mod report;
mod segment;

pub use diff::{PlacementDiff, PlacementMove};
pub use eligible::Ineligibility;
pub use errors::{CaseError, PlacementErrors, PlacementEvaluation};
pub use first_load::{FirstLoad, PublishedLoad, published_loads};
pub use model::{AssumedRates, FittedPreference, Fp32Casts, NeverOnEngine, PreferenceModel};
pub use options::{AllowedUnits, Framework, PlaceOptions, Processor, UnknownWord};
pub use place::{core_ml_profile, place, place_with};
pub use planned::{PlannedOp, place_planned};
pub use published::{
    CaseBlock, CaseOp, PlacementSource, PreparedPlacement, PublishedPlacement, PublishedPlacementError,
    PublishedPlacements,
};
pub use record::{
    PlacedOp, PlacedSegment, PlacedTransfer, Placement, PlacementChange, PlacementFileError, PlacementOrigin,
};
