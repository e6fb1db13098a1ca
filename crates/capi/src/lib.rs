//! The C interface of Ferrane: `include/ferrane.h`.
//!
//! There are two families of functions over one kind of handle. `ferrane_*` return a status;
//! `ane_bridge_*` have the names and signatures of the reference's bridge (bridge-c-api), so a
//! program written for it can link with this library instead.
//!
//! # Invariants
//!
//! A panic never crosses the boundary: `status::guard` wraps every function. A null pointer, a
//! wrong size, a misaligned array, text that is not UTF-8, and a freed handle are errors with a
//! text. Conditions that the library cannot check are the caller's responsibility: a pointer that
//! is not null must point to as many elements as the function says, for the duration of the call.
//!
//! A handle is a number with the type of a pointer. It is looked up in a table and never
//! dereferenced, and numbers are not reused in a process (`handle`), so a freed handle is detected
//! and not used.
//!
//! `unsafe` is in the reading of arguments (`arg`) and the call of callbacks (`flight`).
#![deny(missing_docs)]
// Each function would repeat the requirement above.
#![allow(clippy::missing_safety_doc)]

mod arg;
pub mod blob;
pub mod bridge;
pub mod device;
pub mod flight;
mod handle;
pub mod kernel;
pub mod port;
pub mod run;
pub mod status;
