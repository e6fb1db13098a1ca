//! Probes: small programs that measure what a Neural Engine allows.
//!
//! Published claims about the engine contradict each other, from chip to chip, system to system and
//! path to path. A [`Probe`] answers one question about the machine at hand by running programs on
//! it through [`ferrane_device`]: it measures values of a profile
//! ([`ferrane_machine::Profile`]) and compares them with the claims that the values decide. A
//! [`DoctorReport`] collects the answers with all raw numbers;
//! [`Profile::report`](ferrane_machine::Profile::report) reads it as a profile.
//!
//! [`select_probes`] turns names into probes, [`examine`] runs one on a [`DeviceUnderTest`],
//! [`examine_isolated`] runs one in a process of its own, and
//! [`describe_computer`] says which computer the numbers come from. `ferrane doctor` does all of
//! this and prints it.
//!
//! No probe reads the device's profile to know what should happen. Where two values look the same
//! from outside (an op that runs natively or as several ops), the profile's value is kept if it
//! fits. So an emulated machine that enforces its limits is measured as the machine that it
//! emulates, and a real machine as what it is.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod computer;
mod dut;
mod examine;
mod isolated;
mod measurements;
mod private;
mod probe;
mod probes;
mod program;
mod report;
mod text;

pub use computer::describe_computer;
pub use dut::{Attempt, DeviceUnderTest, OpenDevice};
pub use examine::{UnknownProbe, examine, select_probes};
pub use isolated::{IsolatedRun, examine_isolated, run_isolated};
pub use measurements::Measurements;
pub use private::{private_parts, redact};
pub use probe::{ClaimCheck, Expectation, Probe, ProbeCost};
pub use probes::all_probes;
pub use program::{BuildInfo, ProbeProgram, Spelling};
pub use report::{Answer, DoctorReport, JudgedClaim, ReportCounts, Verdict};
