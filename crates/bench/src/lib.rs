//! Probes: small programs that a device runs, and what their outcome says about it.
//!
//! What is known of the Neural Engine contradicts itself, from chip to chip, system to system and path to path. A [`Probe`] asks one
//! question of the machine at hand, through the seam and nothing else: it measures values of a profile ([`ferrane_target::Profile`])
//! and holds them against the claims that it can decide. A [`Report`] keeps the answers with all their numbers; as a profile it is
//! read by [`Profile::report`](ferrane_target::Profile::report).
//!
//! The one decision: no probe reads the device's profile to know what should happen. It may only say so: a value that cannot be told
//! from another by what happens (an op that runs natively or as several) is given as the profile has it, if that fits. So a
//! machine that is emulated with its limits enforced is measured as what it is, and a real one as what it is, too.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod draft;
mod examine;
mod found;
mod place;
mod probe;
mod probes;
mod report;

pub use draft::{Draft, Info, Spelling};
pub use examine::{examine, selected};
pub use found::Found;
pub use place::{Attempt, Open, Place};
pub use probe::{Cost, Probe, Says, Word};
pub use probes::all;
pub use report::{Answer, Judged, Report, Verdict};
