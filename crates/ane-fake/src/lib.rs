//! A fake of what the Apple Neural Engine is reached through, for tests on Linux.
//!
//! [`runtime`] is a small Objective-C runtime, enough for `objc2`; `foundation` has the value classes, `surface` the C functions of
//! IOSurface, `engine` the private classes of the engine's framework. The engine *echoes*: output *i* gets the bytes of input *i*
//! (modulo the number of inputs). It is strict where the real one is known to be: text must be data, the weights dictionary must be
//! there, files must be staged, surfaces must be large enough and carry the indices that the model reports (apple-runtime §2, §4,
//! §11). It reports ports in the order of their names, so a caller that assumes the program's order fails.
//!
//! Nothing here is for use outside of tests: the crate is unpublished and no command depends on it.
#![deny(missing_docs)]
#![cfg(not(target_vendor = "apple"))]

mod engine;
mod foundation;
pub mod runtime;
mod session;
pub mod surface;

pub use session::{Call, Session, session};

/// Registers the classes; after that they are found by name.
pub fn install() {
    foundation::register();
    surface::register();
    engine::register();
}
