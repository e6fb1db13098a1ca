//! The C interface of Ferrane: `include/ferrane.h`.
//!
//! Two families of functions over one kind of handle. `ferrane_*` say with a status how they went;
//! `ane_bridge_*` have the names and signatures of the reference's bridge (bridge-c-api), so that a
//! program written against it links with this library instead.
//!
//! Invariants: a panic never crosses the boundary (`status::guard` stands around every function); a
//! null pointer, a wrong size, a misaligned array, text that is not UTF-8, and a handle that was
//! freed are errors with a text. What cannot be seen from here is promised by the caller: a pointer
//! that is not null points to as many elements as the function says, for as long as the call lasts.
//!
//! The one decision: *a handle is a number in the clothes of a pointer*. It is looked up in a table
//! and never followed, and no number is given twice in a process (`handle`), so a handle that was
//! freed is found out and not used.
//!
//! `unsafe` is in the reading of arguments (`arg`) and where a callback is called (`flight`).
#![deny(missing_docs)]
// Each function would repeat the promise above.
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
