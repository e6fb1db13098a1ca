//! All tests of the crate that need more than one module.

mod docs;
mod hostile;
mod round_trip;
mod samples;
mod synthetic;
mod told;
mod weights;
