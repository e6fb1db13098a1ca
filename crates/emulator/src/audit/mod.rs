//! The numerics report: where, and why, a program's numbers leave the exact ones.
//!
//! [`audit`] runs a function op by op under `exact` and under each arithmetic of
//! [`AuditOptions::numerics`], and compares every tensor that an op computes. There are two
//! readings of each tensor:
//!
//! - *accumulated*: the arithmetic runs the whole function; its value is compared with that of
//!   `exact`, which runs it in fp32. This is what a user of the program sees, including errors that
//!   earlier ops caused.
//! - *local*: the op by itself, on the operands of `exact` rounded to fp16, compared with the
//!   result of `exact` for the same operands. This is what the op itself does, so it names the
//!   cause and not later ops that suffer from it. Operands beyond fp16 are replaced by its largest
//!   value, so that an overflow is charged to the op that caused it.
//!
//! An op *deviates* from exact where its local reading overflows, is NaN or infinite against a
//! number, differs in an integer, or errs by more than [`AuditOptions::threshold`] ulps of the
//! largest exact magnitude ([`Deviation::peak_ulps`]). The first such op in program order is where
//! to start.
//!
//! The terms: an *ulp* is the distance between neighboring fp16 values at the exact value (2⁻²⁴
//! below 2⁻¹⁴), also for values of other float types: the engine stores nothing finer (numerics
//! §2), and errors along a program become comparable. A correctly rounded result errs by at most ½
//! ulp. Beyond 65504 the ulp continues to grow with the exponent. For integers and bools it is 1.
//! *Overflow*: finite in exact, here infinite or clamped to the largest value. *Saturation*: an
//! overflow although fp16 could hold the exact value; sums of products are limited to 2¹⁵, crops to
//! 4094 (numerics §4). *Underflow*: nonzero in exact, zero here. *Subnormal*: nonzero and below
//! 2⁻¹⁴.
//!
//! Invariants: every tensor that a live op of the body computes has a row, in program order;
//! constants have none (ops that unpack weights do). No fusion hides a value, since ops run one by
//! one. A fused group equals its members bit for bit, so these are the values of a run, except for
//! the order of sums under `fast`, which a plan may choose differently. Some machines treat an op
//! differently because of its neighbors, as with the scales of two quantizations (int8 §2). Running
//! ops one by one cannot show that: the outputs then differ from those of a run, and
//! [`Audit::joined`] names them. Ops with blocks count as one op. Values are dropped when no later
//! op needs them, and rows hold counts, so memory does not grow with the number of ops.
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
mod json;
mod page;
mod plot;
mod text;
mod walk;

use std::collections::BTreeMap;

use ferrane_device::Result;
use ferrane_machine::{Profile, Unit};
use ferrane_mil::{Constant, DataType, Program};

pub use compare::{BINS, Deviation, ValueStats, Worst};
pub use explain::short;

use crate::{EmulatorOptions, Numerics};

/// What is compared, and from which error on an op deviates.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditOptions {
    /// The arithmetics that are compared with `exact`.
    pub numerics: Vec<Numerics>,
    /// The machine of `hardware`.
    pub profile: Profile,
    /// The largest error of an op that does not count as a deviation, in ulps of the largest exact
    /// magnitude. 16 ulps are about one part in a hundred.
    pub threshold: f64,
    /// Bytes that the values of one arithmetic may occupy at a time. There are two sets of values
    /// for each arithmetic, and two for `exact`.
    pub memory: usize,
    /// Iterations that all loops together may take under one arithmetic.
    pub iterations: u64,
}

impl Default for AuditOptions {
    /// Every arithmetic except `exact`, 16 ulps, and the rest from [`EmulatorOptions::default`].
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

/// Why an op deviates from exact: the most serious reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The exact value is beyond fp16.
    Overflow,
    /// fp16 holds the exact value; the unit that computes it does not.
    Saturation,
    /// One value is NaN or infinite where the other is not.
    Special,
    /// The result has different extents.
    Shape,
    /// An integer or bool differs.
    Integer,
    /// The error consists of numbers that become zero.
    Underflow,
    /// The error exceeds the threshold.
    Error,
}

impl Cause {
    /// The word that reports and JSON use: `overflow`.
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

/// A remark on how a value was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Note {
    /// The op has blocks, whose ops count as part of it.
    Blocks,
    /// Its extents are computed at run time and differ from the exact ones.
    Extents,
    /// An operand goes through the crop's encoding, because the other one is an int8 weight (int8
    /// §3).
    Int8Crop,
}

impl Note {
    /// A phrase for reports.
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
    /// The op by itself. `None` if the shape of its result differs from the exact one.
    pub local: Option<Deviation>,
    /// The op in its place in a run. `None` as above: computed extents may differ.
    pub accumulated: Option<Deviation>,
    /// Why the op deviates from exact, if it does.
    pub cause: Option<Cause>,
}

/// One value that an op computes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AuditRow {
    /// Position of the op in the function's body, constants counted.
    pub place: usize,
    /// Name of the MIL op that computes it.
    pub op: String,
    /// Name of the value in the program.
    pub value: String,
    /// Element type of the exact value.
    pub dtype: DataType,
    /// Extents of the exact value.
    pub shape: Vec<usize>,
    /// The unit that runs the op.
    pub unit: Unit,
    /// True for an output of the function.
    pub is_output: bool,
    /// A remark on how it was read, if any.
    pub note: Option<Note>,
    /// The exact values of a whole run.
    pub exact: ValueStats,
    /// One reading for each arithmetic, in the order of [`Audit::numerics`].
    pub readings: Vec<Reading>,
}

/// A numerics report on one function.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Audit {
    /// Name of the function.
    pub function: String,
    /// Name of the profile, `m4-macos15-inmem`.
    pub profile: String,
    /// The arithmetics, in the order of each row's readings.
    pub numerics: Vec<Numerics>,
    /// The largest error that does not count as a deviation, in ulps of the largest exact
    /// magnitude.
    pub threshold: f64,
    /// Magnitude from which on the profile's sums of products are infinite.
    pub mac_ceiling: f64,
    /// Outputs whose values under [`Numerics::Hardware`] differ between a run and its ops one by
    /// one, because the machine joins ops there.
    pub joined: Vec<String>,
    /// Every value, in program order.
    pub rows: Vec<AuditRow>,
}

impl Audit {
    /// The first op that deviates from exact under an arithmetic.
    pub fn first(&self, numerics: usize) -> Option<&AuditRow> {
        self.rows.iter().find(|row| row.readings.get(numerics).is_some_and(|r| r.cause.is_some()))
    }

    /// The row whose local error is largest under an arithmetic, in ulps of its largest magnitude;
    /// the first of equals. `None` if nothing errs.
    pub fn worst(&self, numerics: usize) -> Option<&AuditRow> {
        let error =
            |row: &AuditRow| row.readings.get(numerics).and_then(|r| r.local.as_ref()).map_or(0.0, |d| d.peak_ulps);
        let most = self.rows.iter().map(error).fold(0.0, f64::max);
        self.rows.iter().find(|row| most > 0.0 && error(row) == most)
    }

    /// One sentence for each arithmetic: the first op that deviates, why, and what to do about it.
    pub fn summary(&self) -> Vec<String> {
        (0..self.numerics.len()).map(|i| explain::summary(self, i)).collect()
    }
}

/// Runs a function on constants under `exact` and other arithmetics, and compares every value.
/// Inputs and states are those of [`Emulator::call`](crate::Emulator::call); each arithmetic has
/// its own copy of the states.
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
