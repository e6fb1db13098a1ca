//! All tests of the crate that need more than one module.

mod anec;
mod build;
mod bundle;
mod docs;
mod hostile;
mod round_trip;
mod samples;
mod surfaces;
mod synthetic;
mod tables;
mod told;
mod weights;
