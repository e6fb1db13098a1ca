//! Tests that need more than one module.

mod anec;
mod builder;
mod bundle;
mod describe;
mod docs;
mod hostile;
mod round_trip;
mod samples;
mod surfaces;
mod synthetic;
mod tables;

mod weights;
