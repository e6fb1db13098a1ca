//! A fake of the frameworks through which the Apple Neural Engine is reached, for tests on Linux.
//!
//! `foundation` has the value classes, `surface` the C functions of IOSurface, `compiler` the C
//! function that compiles to files, and the other modules the private classes, over the small
//! Objective-C runtime of `ferrane-ane`. Programs are run by the emulator. Of Core ML there are the
//! classes of the E5 path (`coreml`, `e5`) and of plans (`plan`). `ioreport` and `iohid` have the C
//! functions of the sensors.
//!
//! The fake is strict where the real framework is known to be: text must be a data object, the
//! weights dictionary must exist, files must be staged, surfaces must be large enough and have the
//! indices that the model reports, models have states, symbols of loop-backs must be nil
//! (apple-runtime §2, §4, §8, §11), and on the E5 path description, text and features must agree
//! (§9). It reports ports in the order of their names and with their strides, so a caller that
//! assumes the program's order or packed rows fails.
//!
//! Its declarations follow apple-runtime.md, not the bindings, so that each checks the other. The
//! crate is only for tests: it is unpublished and no command depends on it.
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
mod iohid;
pub mod ioreport;
mod machine;
mod model;
mod plan;
mod program;
mod request;
mod session;
pub mod surface;

use std::sync::Once;
use std::time::Duration;

use ferrane_ane::sensors::{ReportFunctions, ThermalFunctions};
use ferrane_ane::{SurfaceFunctions, System};
use ferrane_device::{Device, Error, ErrorKind, Result};

pub use session::{Call, Chaining, Session, Silence, is_inside, session};

/// The chip that the fake reports; no profile has it, so the default profile is used.
const CHIP: &str = "Apple Fake";

/// Registers the classes and injects the fake as the system, which `ferrane_ane::open` then opens.
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
        plan::register();
        ioreport::register();
        iohid::register();
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
            reports,
            thermal,
        };
        // SAFETY: the functions and classes behave as documented for Apple's, and use pointers only
        // as those do.
        unsafe { ferrane_ane::inject(system) }
    });
}

/// An error like that of a system that has lost a library.
fn missing<T>(library: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, format!("cannot open {library}")))
}

fn reports() -> Result<ReportFunctions> {
    if !session::has_sensors().0 {
        return missing("/usr/lib/libIOReport.dylib");
    }
    Ok(ReportFunctions {
        copy_all: ioreport::copy_all,
        subscribe: ioreport::subscribe,
        samples: ioreport::samples,
        delta: ioreport::delta,
        group: ioreport::group,
        sub_group: ioreport::sub_group,
        name: ioreport::channel_name,
        unit: ioreport::unit,
        format: ioreport::format,
        integer: ioreport::integer,
        state_count: ioreport::state_count,
        state_name: ioreport::state_name,
        residency: ioreport::residency,
    })
}

fn thermal() -> Result<ThermalFunctions> {
    if !session::has_sensors().1 {
        return missing("/System/Library/Frameworks/IOKit.framework/IOKit");
    }
    Ok(ThermalFunctions {
        create: iohid::create,
        matching: iohid::matching,
        services: iohid::services,
        property: iohid::property,
        event: iohid::event,
        value: iohid::value,
    })
}

/// Opens the fake engine; the options are those of the real one.
///
/// # Errors
/// As `ferrane_ane::open`.
pub fn open(options: &str) -> Result<Device> {
    install();
    ferrane_ane::open(options)
}
