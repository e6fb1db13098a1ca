//! The real Apple Neural Engine behind the device seam.
//!
//! The engine is reached through a private framework of macOS, whose classes are looked up by name at run time (apple-runtime §1):
//! nothing is linked against it. A program goes the standard path of apple-runtime §2: text and weights become a *descriptor*, it a
//! *model*; the caller stages the same files in a directory; then compile, load, evaluate and unload are messages to the model.
//! Surfaces are IOSurfaces.
//!
//! The one decision: the same source runs on a Mac and, with the feature `fake`, over a fake of the framework on any system, so
//! every call is tested where there is no engine. [`open`] never opens the fake.
//!
//! `unsafe` is in `framework` (messages and C functions) and `surface` (shared memory) only.
#![deny(missing_docs)]

#[cfg(any(target_vendor = "apple", feature = "fake"))]
mod device;
#[cfg(any(target_vendor = "apple", feature = "fake"))]
mod framework;
#[cfg(any(target_vendor = "apple", feature = "fake"))]
mod ports;
#[cfg(any(target_vendor = "apple", feature = "fake"))]
mod queue;
#[cfg(any(target_vendor = "apple", feature = "fake"))]
#[cfg(any(target_vendor = "apple", feature = "fake"))]
mod surface;

use ferrane_device::{Device, Error, ErrorKind, OpenOptions, Result};
use ferrane_target::Profile;

/// Opens the engine. The option `profile=NAME` says which machine this is, else the default profile is taken.
///
/// # Errors
/// [`ErrorKind::Unavailable`] where there is no engine or the framework lacks a class,
/// [`ErrorKind::Option`] for an unknown option or profile.
pub fn open(options: &str) -> Result<Device> {
    let profile = profile(options)?;
    #[cfg(target_vendor = "apple")]
    return Ok(Device::new(device::Ane::new(framework::Framework::system()?, profile, "ane")));
    #[cfg(not(target_vendor = "apple"))]
    {
        let _ = profile;
        let message = format!("the Neural Engine is part of Apple's computers; this is {}", std::env::consts::OS);
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

/// Opens the fake engine: every call of the real path, and outputs that are copies of inputs. For tests.
///
/// # Errors
/// As [`open`].
#[cfg(all(feature = "fake", not(target_vendor = "apple")))]
pub fn open_fake(options: &str) -> Result<Device> {
    let profile = profile(options)?;
    Ok(Device::new(device::Ane::new(framework::Framework::fake()?, profile, "ane (fake)")))
}

fn profile(text: &str) -> Result<Profile> {
    let mut options = OpenOptions::parse("ane", text)?;
    let name = options.take("profile", "NAME");
    options.finish()?;
    let name = name.as_deref().unwrap_or(Profile::DEFAULT);
    Profile::named(name).map_err(|e| Error::new(ErrorKind::Option, e.to_string()))
}
