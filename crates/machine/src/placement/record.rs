//! A placement as data, which is also the file that `place --record` writes.

use serde::{Deserialize, Serialize};

use super::eligible::Ineligibility;
use super::first_load::FirstLoad;
use super::options::{AllowedUnits, Framework, Processor};

/// The version of the file format.
pub const VERSION: u32 = 1;

/// Where each op of a function probably runs, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// The version of the format.
    pub version: u32,
    /// The profile, such as `m4-macos15-coreml`.
    pub machine: String,
    /// The framework that decides.
    pub framework: Framework,
    /// The processors that it may use.
    pub units: AllowedUnits,
    /// Where the placement comes from.
    pub origin: PlacementOrigin,
    /// The name of the function; empty if the program has none.
    pub function: String,
    /// The ops that run, in order. Constants are not among them.
    pub ops: Vec<PlacedOp>,
    /// Runs of ops on one processor, in the order in which they can begin.
    pub segments: Vec<PlacedSegment>,
    /// What crosses from one segment to another.
    pub transfers: Vec<PlacedTransfer>,
    /// The single change that brings most ops back to the engine, if any would.
    pub change: Option<PlacementChange>,
    /// The time of the first load, in which the engine's compiler runs; `None` if nothing runs on
    /// the engine, or if no load of such a size is published.
    pub first_load: Option<FirstLoad>,
}

/// Where a placement comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PlacementOrigin {
    /// The model of the framework's preference.
    Predicted,
    /// The framework itself, asked on a Mac.
    Planned,
}

/// One op with its placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacedOp {
    /// The name of the op's first result.
    pub name: String,
    /// The name of the op, as in MIL.
    pub op: String,
    /// Why the engine cannot run it; `None` if it can, as far as is published.
    pub ineligible: Option<Ineligibility>,
    /// Where the framework would run the op if it were alone; `None` if that is not known.
    pub preferred: Option<Processor>,
    /// Where it probably runs in this function; `None` if that is not known.
    pub runs_on: Option<Processor>,
    /// The probability that it runs on the engine; `None` if nothing is known about it.
    pub engine_probability: Option<f64>,
    /// The index of its segment.
    pub segment: usize,
}

impl PlacedOp {
    /// The probability from which on a placement is called likely.
    pub const LIKELY: f64 = 0.8;
    /// The probability below which a placement is not known.
    pub const KNOWN: f64 = 0.6;

    /// The probability of `runs_on`; `None` if that is not known.
    pub fn probability(&self) -> Option<f64> {
        let p = self.engine_probability?;
        Some(if self.runs_on? == Processor::Engine { p } else { 1.0 - p })
    }

    /// True if the placement is likely: at least [`PlacedOp::LIKELY`].
    pub fn is_likely(&self) -> bool {
        self.probability().is_some_and(|p| p >= PlacedOp::LIKELY)
    }

    /// Why the op is not on the engine: a word that ops of one cause share, and a sentence. `None`
    /// if it probably runs there.
    pub fn reason(&self) -> Option<(&str, &str)> {
        match (&self.ineligible, self.runs_on, self.engine_probability) {
            (Some(reason), ..) => Some((&reason.kind, &reason.message)),
            (None, Some(Processor::Engine), _) => None,
            (None, None, None) => Some(("not known", "nothing is published that decides where the framework runs it")),
            (None, None, Some(_)) => Some((
                "close call",
                "the engine could run it, and with its neighbors it saves about as much time as the way there and back takes",
            )),
            (None, Some(_), _) => Some((
                "not worth the way",
                "the engine could run it, but with its neighbors it saves less time than the way there and back takes",
            )),
        }
    }
}

/// A run of ops on one processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacedSegment {
    /// Where it probably runs; `None` if that is not known.
    pub runs_on: Option<Processor>,
    /// The number of its ops.
    pub ops: usize,
    /// The names of its first and its last op.
    pub ends: [String; 2],
    /// The time on the engine in microseconds, if it runs there and the cost model knows it.
    pub engine_us: Option<f64>,
}

/// Values that cross from one segment to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacedTransfer {
    /// The index of the segment that produces them.
    pub from: usize,
    /// The index of the segment that reads them.
    pub to: usize,
    /// The number of values.
    pub values: usize,
    /// Their size in bytes; unknown extents count as nothing.
    pub bytes: u64,
    /// The cost in microseconds, if the cost model knows the chip.
    pub us: Option<f64>,
}

/// A change of the program that brings ops back to the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacementChange {
    /// The reason that the change removes.
    pub reason: Ineligibility,
    /// The names of the ops that have to be replaced.
    pub replace: Vec<String>,
    /// The number of further ops that move to the engine.
    pub regained: usize,
    /// The number of segments before and after.
    pub segments: [usize; 2],
    /// The number of transfers before and after.
    pub transfers: [usize; 2],
}

impl Placement {
    /// The number of ops that probably run on the engine.
    pub fn on_engine(&self) -> usize {
        self.ops.iter().filter(|op| op.runs_on == Some(Processor::Engine)).count()
    }

    /// The number of ops that probably run elsewhere.
    pub fn off_engine(&self) -> usize {
        self.ops.iter().filter(|op| op.runs_on.is_some_and(|p| p != Processor::Engine)).count()
    }

    /// The expected share of ops on the engine; `None` if nothing is known about most ops.
    pub fn engine_share(&self) -> Option<f64> {
        let known: Vec<f64> = self.ops.iter().filter_map(|op| op.engine_probability).collect();
        (2 * known.len() > self.ops.len()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// True if most ops run on the engine, false if most do not; `None` if that is not known.
    pub fn is_mostly_on_engine(&self) -> Option<bool> {
        self.engine_share().map(|share| share > 0.5)
    }

    /// Reads the file that `place --record` writes.
    ///
    /// # Errors
    /// The text is not such a file, or it has another version.
    pub fn read(text: &str) -> Result<Placement, PlacementFileError> {
        let placement: Placement = serde_json::from_str(text)?;
        let segments = placement.segments.len();
        let inside = |i: usize| i < segments;
        let sound = placement.ops.iter().all(|op| inside(op.segment))
            && placement.transfers.iter().all(|t| inside(t.from) && inside(t.to));
        match (placement.version, sound) {
            (VERSION, true) => Ok(placement),
            (VERSION, false) => Err(PlacementFileError::Segment),
            (found, _) => Err(PlacementFileError::Version { found }),
        }
    }

    /// The text of the file.
    pub fn write(&self) -> String {
        // Numbers and strings always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Why a file is not a placement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementFileError {
    /// The text is not JSON of this form.
    #[error("not a placement: {0}; write one with `place --record`")]
    Form(#[from] serde_json::Error),
    /// The file has another version.
    #[error("version {found} of placements is unknown; this version reads {VERSION}")]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// An op or a transfer names a segment that the file does not have.
    #[error("an op or a transfer names a segment that the file does not have")]
    Segment,
}
