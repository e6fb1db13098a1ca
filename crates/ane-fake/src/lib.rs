//! A fake of what the Apple Neural Engine is reached through, for tests on Linux.
//!
//! `foundation` has the value classes, `surface` the C functions of IOSurface, and the other
//! modules the private classes, over the small Objective-C runtime of `ferrane-ane`. Programs are
//! run by the emulator. The fake is strict where the real framework is known to be: text must be
//! data, the weights dictionary must be there, files must be staged, surfaces must be large enough
//! and carry the indices that the model reports, models go through their states, symbols of
//! loop-backs must be nil (apple-runtime §2, §4, §8, §11). Of Core ML there are the classes of the
//! E5 path (`coreml`, `e5`), whose description, text and features have to agree (§9). `compiler` is
//! the C function that makes files. It reports ports in the order of their names and their strides,
//! so a caller that assumes the program's order or packed rows fails. The declarations here are
//! written from apple-runtime.md and not from the bindings, so that each checks the other.
//!
//! Nothing here is for use outside of tests: the crate is unpublished and no command depends on it.
#![deny(missing_docs)]
#![cfg(not(target_vendor = "apple"))]

mod chaining;
mod client;
mod compiler;
mod coreml;
mod e5;
mod events;
mod foundation;
mod instance;
mod machine;
mod model;
mod program;
mod request;
mod session;
pub mod surface;

use std::sync::Once;
use std::time::Duration;

use ferrane_ane::{SurfaceFunctions, System};
use ferrane_device::{Device, Result};

pub use session::{Call, Chaining, Session, Silence, is_inside, session};

/// The chip that the fake says it is, one that no profile has, so that the default profile is
/// taken.
const CHIP: &str = "Apple Fake";

/// Registers the classes and puts the fake in place of the system; after that `ferrane_ane::open`
/// opens it.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        foundation::register();
        surface::register();
        model::register();
        request::register();
        client::register();
        chaining::register();
        events::register();
        instance::register();
        machine::register();
        coreml::register();
        e5::register();
        let surfaces = SurfaceFunctions {
            create: surface::create,
            base_address: surface::base_address,
            alloc_size: surface::alloc_size,
            lock: surface::lock,
            unlock: surface::unlock,
            release: surface::release,
        };
        let system = System {
            suffix: " (fake)",
            os: "macOS 0".into(),
            build: "0A0".into(),
            chip: CHIP.into(),
            cache: None,
            e5_cache: session::e5_cache,
            symbol: e5::has_function,
            compiler: || Some(compiler::compile),
            recovery: Duration::ZERO,
            surfaces,
        };
        // SAFETY: the functions do what their documentation says, which is Apple's; the classes are
        // safe Rust but for what they are promised of pointers, which is Apple's too.
        unsafe { ferrane_ane::inject(system) }
    });
}

/// Opens the fake engine, with the options of the real one.
///
/// # Errors
/// As `ferrane_ane::open`.
pub fn open(options: &str) -> Result<Device> {
    install();
    ferrane_ane::open(options)
}
