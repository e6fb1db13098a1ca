//! The numerics report: where, and why, a program's numbers leave the exact ones.
//!
//! [`audit`] runs a function op by op under `exact` and, beside it, under each arithmetic of
//! [`AuditOptions::numerics`], and compares every tensor that an op makes. There are two readings
//! of each:
//!
//! - *accumulated*: the arithmetic runs the whole function; its value is compared with that of
//!   `exact`, which runs it in fp32. This is what a user of the program sees, victims included.
//! - *local*: the op alone, its operands those of `exact` rounded to fp16, compared with what
//!   `exact` makes of the same operands. This is what the op itself does, so it names the cause and
//!   not its victims. Operands beyond fp16 are taken at its largest value: an overflow is charged
//!   to the op that made it.
//!
//! An op *parts* from exact where its local reading overflows, is NaN or infinite against a number,
//! differs in an integer, or errs by more than [`AuditOptions::threshold`] ulps of the largest
//! exact magnitude ([`Deviation::peak_ulps`]). The first such op in program order is the one to
//! look at.
//!
//! The words: an *ulp* is the distance of fp16 values at the exact value, 2⁻²⁴ below 2⁻¹⁴, also for
//! values declared otherwise: the engine stores nothing finer (numerics §2), and errors along a
//! program become comparable. A correctly rounded result errs by at most ½. Beyond 65504 ulps go on
//! growing with the exponent. For integers and bools it is 1. *Overflow*: finite in exact, here
//! infinite or held at the largest value. *Saturation*: an overflow although fp16 could hold the
//! exact value; sums of products end at 2¹⁵, crops at 4094 (numerics §4). *Underflow*: not zero in
//! exact, zero here. *Subnormal*: not zero and below 2⁻¹⁴.
//!
//! Invariants: every tensor that a live op of the body makes has a row, in program order; constants
//! have none (ops that unpack weights do). No fusion hides a value, since ops run one by one; a
//! fused group equals its members bit for bit, so these are the values of a run, but for the order
//! of sums in `fast`, which a plan may choose otherwise. Where a machine treats ops otherwise
//! because of those around them, as with the scales of two quantizations (int8 §2), one by one
//! shows nothing: then the outputs are not those of a run, and [`Audit::joined`] names them. Ops
//! with blocks count as one op. Values are dropped when no later op needs them, and rows hold
//! counts: memory does not grow with the number of ops.
//!
//! ```
//! use ferrane_emulator::audit::{AuditOptions, audit};
//! use ferrane_mil::{Builder, Constant, DataType, Opset, Type};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[2]))?;
//! let square = b.op("square", "square", [("x", x.into())])?;
//! let y = b.op("sqrt", "y", [("x", square.into())])?;
//! let program = b.finish(&[("y", y)])?;
//!
//! // 300² is no fp16 value.
//! let x = Constant::raw(DataType::Fp16, &[2], &[0xb0, 0x5c, 0x00, 0x3c]);
//! let found = audit(&program, "main", &[("x".into(), x)], &Default::default(), &AuditOptions::default())?;
//! assert_eq!(found.first(0).map(|row| row.value.as_str()), Some("square"));
//! assert!(found.summary()[0].contains("`square` overflows"), "{}", found.summary()[0]);
//! # Ok(())
//! # }
//! ```

mod compare;
mod explain;
mod walk;

use std::collections::BTreeMap;

use ferrane_device::Result;
use ferrane_machine::{Profile, Unit};
use ferrane_mil::{Constant, DataType, Program};

pub use compare::{BINS, Deviation, ValueStats, Worst};
pub use explain::short;

use crate::{EmulatorOptions, Numerics};

/// What is compared, and when an op is said to part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditOptions {
    /// The arithmetics that are compared with `exact`.
    pub numerics: Vec<Numerics>,
    /// The machine of `hardware`.
    pub profile: Profile,
    /// Most ulps of the largest exact magnitude that an op may err by. 16 is about one part in a
    /// hundred.
    pub threshold: f64,
    /// Bytes that the values of one arithmetic may hold at a time; there are two sets for each, and
    /// two of `exact`.
    pub memory: usize,
    /// Iterations of all loops under one arithmetic.
    pub iterations: u64,
}

impl Default for AuditOptions {
    /// Every arithmetic but `exact`, 16 ulps, and what [`EmulatorOptions::default`] says.
    fn default() -> AuditOptions {
        let EmulatorOptions { profile, memory, iterations, .. } = EmulatorOptions::default();
        AuditOptions {
            numerics: vec![Numerics::Fast, Numerics::Hardware],
            profile,
            threshold: 16.0,
            memory,
            iterations,
        }
    }
}

/// Why an op parts from exact; the gravest reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The exact value is beyond fp16.
    Overflow,
    /// fp16 holds the exact value; the unit that computes it does not.
    Saturation,
    /// NaN or infinite where the other is not.
    Special,
    /// The result has other extents.
    Shape,
    /// An integer or bool is another.
    Integer,
    /// What is lost are numbers that become zero.
    Underflow,
    /// More ulps than the threshold.
    Error,
}

impl Cause {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Overflow => "overflow",
            Cause::Saturation => "saturation",
            Cause::Special => "special",
            Cause::Shape => "shape",
            Cause::Integer => "integer",
            Cause::Underflow => "underflow",
            Cause::Error => "error",
        }
    }
}

/// What to know about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Note {
    /// The op has blocks, whose ops count with it.
    Blocks,
    /// Its extents are computed, and are not the exact ones.
    Extents,
    /// An operand goes through the crop's encoding, because the other one is an int8 weight (int8
    /// §3).
    Int8Crop,
}

impl Note {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Note::Blocks => "with the ops of its blocks, as one op",
            Note::Extents => "its extents are computed, and are not the exact ones",
            Note::Int8Crop => "what is multiplied by int8 weights ends at 4094 on hardware",
        }
    }
}

/// One arithmetic's reading of one value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reading {
    /// The op alone. `None` where its result has another shape than the exact one.
    pub local: Option<Deviation>,
    /// The op at its place in a run. `None` as above: extents that are computed may differ.
    pub accumulated: Option<Deviation>,
    /// Why the op parts from exact, if it does.
    pub cause: Option<Cause>,
}

/// One value that an op makes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AuditRow {
    /// Which op of the function's body, constants counted.
    pub place: usize,
    /// The MIL op.
    pub op: String,
    /// The value's name.
    pub value: String,
    /// Its element type.
    pub dtype: DataType,
    /// Its extents.
    pub shape: Vec<usize>,
    /// The unit that runs the op.
    pub unit: Unit,
    /// True for an output of the function.
    pub is_output: bool,
    /// What to know about how it was read.
    pub note: Option<Note>,
    /// The exact values of a whole run.
    pub exact: ValueStats,
    /// One reading for each arithmetic.
    pub readings: Vec<Reading>,
}

/// A numerics report.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Audit {
    /// The function.
    pub function: String,
    /// The profile's name.
    pub profile: String,
    /// The arithmetics, in the order of each row's readings.
    pub numerics: Vec<Numerics>,
    /// Most ulps of the largest exact magnitude that an op may err by.
    pub threshold: f64,
    /// Magnitude from which the profile's sums of products are infinite.
    pub mac_ceiling: f64,
    /// Outputs that a run under [`Numerics::Hardware`] gives otherwise than its ops one by one: the
    /// machine joins ops there.
    pub joined: Vec<String>,
    /// Every value, in program order.
    pub rows: Vec<AuditRow>,
}

impl Audit {
    /// The first op that parts from exact under an arithmetic.
    pub fn first(&self, numerics: usize) -> Option<&AuditRow> {
        self.rows.iter().find(|row| row.readings.get(numerics).is_some_and(|r| r.cause.is_some()))
    }

    /// The row whose local error is largest under an arithmetic, in ulps of its largest magnitude;
    /// the first of equals. `None` where nothing errs.
    pub fn worst(&self, numerics: usize) -> Option<&AuditRow> {
        let error =
            |row: &AuditRow| row.readings.get(numerics).and_then(|r| r.local.as_ref()).map_or(0.0, |d| d.peak_ulps);
        let most = self.rows.iter().map(error).fold(0.0, f64::max);
        self.rows.iter().find(|row| most > 0.0 && error(row) == most)
    }

    /// For each arithmetic in plain words: the first op that parts, why, and what to do about it.
    pub fn summary(&self) -> Vec<String> {
        (0..self.numerics.len()).map(|i| explain::summary(self, i)).collect()
    }
}

/// Runs a function on constants under `exact` and others, and compares every value. Inputs and
/// states are given as to [`Emulator::call`](crate::Emulator::call); the states of each arithmetic
/// go their own way.
///
/// # Errors
/// As [`Emulator::call`](crate::Emulator::call), under any of the arithmetics.
pub fn audit(
    program: &Program,
    function: &str,
    inputs: &[(String, Constant)],
    states: &BTreeMap<String, Constant>,
    options: &AuditOptions,
) -> Result<Audit> {
    walk::audit(program, function, inputs, states, options)
}
