//! The real Apple Neural Engine: the backend of `ferrane-device` for Macs.
//!
//! ```
//! match ferrane_ane::open("cache=off") {
//!     Ok(device) => println!("{}", device.name()),
//!     Err(error) => assert_eq!(error.kind(), ferrane_device::ErrorKind::Unavailable),
//! }
//! ```
//!
//! # How a program gets to the engine
//!
//! The engine is reached through a private framework of macOS, whose classes are looked up by name
//! at run time (`bind`): nothing is linked against it. A program takes the in-memory path of
//! apple-runtime §2. Text and weights become a *descriptor*, the descriptor a *model*; this crate
//! stages the same files in a directory; compile, load, evaluate and unload are then messages.
//! Surfaces are IOSurfaces; order, names and strides of ports are what the loaded model reports
//! ([`attributes`]).
//!
//! The same source runs on a Mac and, with the feature `objc-runtime`, on any system over a
//! framework that a test defines and injects, so every call is tested where there is no engine.
//! Without an injection, [`open`] reports that there is none.
//!
//! No part of this crate has met hardware: it is tested over the fake framework, whose rules are
//! those that were published.
//!
//! # Options of `open`
//!
//! - `machine=NAME`, or the file of a report: the profile of this machine. The default is what the
//!   system reports about itself, else the default profile.
//! - `path=inmem|e5`: the in-memory path, or Core ML's E5 runtime (`e5`; apple-runtime §9), which
//!   needs macOS 15 and a writable cache folder. For each program, the first run checks that the
//!   runtime ran it. Its ports take fp32, so fp16 is converted on both sides, which is slower. The
//!   options below apply to the in-memory path only.
//! - `dispatch=standard|realtime|process-request|direct`: how requests are sent (apple-runtime §5).
//! - `cache=off|FOLDER`: where compiled programs are kept; the default on a Mac is
//!   `~/Library/Caches/ferrane/ane`.
//! - `fences=auto|engine|host`: who waits for the events of requests and raises them; `auto` is the
//!   engine where the framework and the events allow it, and the host elsewhere.
//! - `event-timeout=SECONDS`: how long a request waits for its events, and a chain for its end; 60
//!   by default.
//! - `chain=auto|hardware|off`: whether the steps of a chain are sent as one request of the engine;
//!   `auto` runs them one after another where the engine refuses the chain, and the device's notes
//!   give the reason.
//! - `isolate=off|on|SECONDS`: whether the engine is reached in a child process, and how long one
//!   answer may take ([`isolate`]).
//! - `qos=N`: the quality of service of every call, from 0 to 63; 21 by default. No other value was
//!   seen to matter.
//!
//! # Where to look next
//!
//! [`aot`] gives a program to the compiler's C function, which writes a file. [`compute_plan`] asks
//! Core ML where it would run each op of a model. [`sensors()`](sensors()) reads energy, states and
//! temperatures. [`classes`] lists every class and method that is
//! bound, [`facts`] what the system reports. docs/ane-bindings.md is the list with its sources.
//!
//! `unsafe` is in `bind` (messages), `aot` (the compiler), `e5` (arrays of Core ML), `system` (C
//! functions), `sensors::calls` (private C functions), `surface` (shared memory), `device` and
//! `chain` (a surface through a handle) and `runtime` (the Objective-C runtime of the feature).
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]

pub mod aot;
pub mod attributes;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
pub mod bind;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod cache;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod chain;
pub mod classes;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod compile;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod device;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod dispatch;
mod doctor;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod e5;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod events;
pub mod isolate;
mod plan;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod ports;
#[cfg(all(feature = "objc-runtime", not(target_vendor = "apple")))]
pub mod runtime;
pub mod sensors;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod source;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod surface;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod system;

use std::time::Duration;

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
pub use compile::compiles;
pub use doctor::{Facts, facts};
use ferrane_device::{Device, Error, ErrorKind, OpenOptions, Result};
use ferrane_machine::Profile;
pub use plan::compute_plan;
pub use sensors::sensors;
#[cfg(all(feature = "objc-runtime", not(target_vendor = "apple")))]
pub use system::inject;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
pub use system::{CompileFunction, SurfaceFunctions, System};

/// The options as they were written.
#[cfg_attr(not(any(target_vendor = "apple", feature = "objc-runtime")), allow(dead_code))]
struct Given {
    profile: Option<Profile>,
    /// True for the E5 runtime.
    e5: bool,
    dispatch: Option<&'static str>,
    cache: Option<String>,
    qos: u32,
    fences: Option<&'static str>,
    chain: Option<&'static str>,
    event_timeout: Duration,
    /// The timeout for an answer of the child process; `None` without one.
    isolate: Option<Duration>,
}

/// The values of the option `dispatch`.
const DISPATCH: [(&str, &str); 4] =
    [("standard", "standard"), ("realtime", "realtime"), ("process-request", "process-request"), ("direct", "direct")];

/// The values of the option `path`.
const PATH: [(&str, bool); 2] = [("inmem", false), ("e5", true)];

/// The values of the option `fences`.
const FENCES: [(&str, &str); 3] = [("auto", "auto"), ("engine", "engine"), ("host", "host")];

/// The values of the option `chain`.
const CHAIN: [(&str, &str); 3] = [("auto", "auto"), ("hardware", "hardware"), ("off", "off")];

/// The default timeout for events, the same as the emulator's.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The quality of service that every published program uses (benchmarks §9).
const QOS: u32 = 21;

/// The default timeout for an answer of a child process: no published compile took minutes.
const PATIENCE: Duration = Duration::from_secs(600);

fn given(text: &str) -> Result<Given> {
    let mut options = OpenOptions::parse("ane", text)?;
    let named = |name: String| Profile::find(&name).map_err(|e| Error::new(ErrorKind::Option, e.to_string()));
    let profile = options.take("machine", "NAME").map(named).transpose()?;
    let e5 = options.take_one_of("path", &PATH)?.unwrap_or(false);
    let dispatch = options.take_one_of("dispatch", &DISPATCH)?;
    let cache = options.take("cache", "off|FOLDER");
    let qos = options.take("qos", "0…63");
    let fences = options.take_one_of("fences", &FENCES)?;
    let chain = options.take_one_of("chain", &CHAIN)?;
    let event_timeout = options.take("event-timeout", "SECONDS");
    let others = [
        ("dispatch", dispatch.is_some()),
        ("cache", cache.is_some()),
        ("qos", qos.is_some()),
        ("fences", fences.is_some()),
        ("chain", chain.is_some()),
        ("event-timeout", event_timeout.is_some()),
    ];
    if let Some((other, _)) = others.into_iter().find(|(_, given)| e5 && *given) {
        let message = format!("ane option `{other}` is one of the in-memory path, not of `path=e5`");
        return Err(Error::new(ErrorKind::Option, message));
    }
    let qos = match qos {
        None => QOS,
        Some(word) => word.parse().ok().filter(|qos| *qos < 64).ok_or_else(|| {
            Error::new(ErrorKind::Option, format!("ane option `qos={word}`: expected a number from 0 to 63"))
        })?,
    };
    let event_timeout = match event_timeout {
        None => EVENT_TIMEOUT,
        Some(word) => word.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(|| {
            Error::new(ErrorKind::Option, format!("ane option `event-timeout={word}`: expected a number of seconds"))
        })?,
    };
    let isolate = match options.take("isolate", "off|on|SECONDS").as_deref() {
        None | Some("off") => None,
        Some("on") => Some(PATIENCE),
        Some(word) => {
            let seconds = word.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok()).filter(|s| !s.is_zero());
            Some(seconds.ok_or_else(|| {
                Error::new(
                    ErrorKind::Option,
                    format!("ane option `isolate={word}`: expected off, on or a number of seconds"),
                )
            })?)
        }
    };
    options.finish()?;
    Ok(Given { profile, e5, dispatch, cache, qos, fences, chain, event_timeout, isolate })
}

/// Opens the engine with the options in the crate's documentation.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no engine or the framework lacks a class or a method
/// (named in the message), [`ErrorKind::Option`] for an unknown option or value.
pub fn open(options: &str) -> Result<Device> {
    let given = given(options)?;
    #[cfg(target_vendor = "apple")]
    return open_system(system::find()?, given, options);
    #[cfg(not(target_vendor = "apple"))]
    {
        #[cfg(feature = "objc-runtime")]
        if let Some(system) = system::find() {
            return open_system(system, given, options);
        }
        let _ = given;
        let message = format!("the Neural Engine is part of Apple's computers; this is {}", std::env::consts::OS);
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
fn open_system(system: &'static System, given: Given, options: &str) -> Result<Device> {
    let own = || system.profile().and_then(|name| Profile::named(&name).ok());
    let default = || Profile::named(Profile::DEFAULT).map_err(|e| Error::new(ErrorKind::Option, e.to_string()));
    let profile = given.profile.or_else(own).map_or_else(default, Ok)?;
    if let Some(patience) = given.isolate {
        // The child is opened with the same options except `isolate`.
        let options: Vec<&str> = options.split('&').filter(|pair| !pair.starts_with("isolate=")).collect();
        return Ok(Device::new(isolate::Isolated::new(options.join("&"), patience, profile)?));
    }
    if given.e5 {
        return Ok(Device::new(e5::E5::new(system, profile)?));
    }
    let cache = match given.cache.as_deref() {
        None => system.cache.clone(),
        Some("off") => None,
        Some(folder) => Some(folder.into()),
    };
    let opened = device::Opened {
        profile,
        dispatch: chosen(&dispatch::WORDS, given.dispatch),
        qos: given.qos,
        cache: cache.map(cache::Cache::new),
        fencing: chosen(&events::WORDS, given.fences),
        chains: chosen(&chain::WORDS, given.chain),
        event_timeout: given.event_timeout,
    };
    Ok(Device::new(device::Ane::new(system, opened)?))
}

/// The value for a word, or the default.
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
fn chosen<T: Copy + Default>(words: &[(&str, T)], given: Option<&str>) -> T {
    words.iter().find(|(word, _)| Some(*word) == given).map_or_else(T::default, |(_, value)| *value)
}

/// The methods that requests with events require.
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
fn fenced() -> Vec<&'static bind::Method> {
    const NEEDED: [&std::ffi::CStr; 2] = [
        c"requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:sharedEvents:",
        c"setCompletionHandler:",
    ];
    bind::table().into_iter().filter(|m| NEEDED.contains(&m.selector)).collect()
}

/// The methods that every use requires: those of the standard path.
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
fn standard() -> Vec<&'static bind::Method> {
    const NEEDED: [&std::ffi::CStr; 9] = [
        c"modelWithMILText:weights:optionsPlist:",
        c"inMemoryModelWithDescriptor:",
        c"hexStringIdentifier",
        c"compileWithQoS:options:error:",
        c"loadWithQoS:options:error:",
        c"evaluateWithQoS:options:request:error:",
        c"unloadWithQoS:error:",
        c"objectWithIOSurface:",
        c"requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:",
    ];
    bind::table().into_iter().filter(|m| NEEDED.contains(&m.selector)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_apples_system_the_engine_is_unavailable() {
        let failure = |options| open(options).map(|_| ()).unwrap_err();
        #[cfg(not(target_vendor = "apple"))]
        {
            let error = failure("");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.message().contains("Apple"), "{error}");
        }
        for wrong in [
            "path=direct",
            "path=e5&dispatch=direct",
            "qos=3&path=e5",
            "path=e5&cache=off",
            "machine=m99",
            "dispatch=fast",
            "qos=64",
            "qos=high",
            "event-timeout=0",
            "chain=on",
            "path=e5&chain=off",
            "isolate=yes",
            "isolate=0",
            "isolate=-1",
        ] {
            assert_eq!(failure(wrong).kind(), ErrorKind::Option, "{wrong}");
        }
    }

    #[test]
    fn the_words_for_ways_are_those_of_the_ways() {
        assert_eq!(dispatch::WORDS.map(|(word, _)| word), DISPATCH.map(|(word, _)| word));
        assert_eq!(events::WORDS.map(|(word, _)| word), FENCES.map(|(word, _)| word));
        assert_eq!(chain::WORDS.map(|(word, _)| word), CHAIN.map(|(word, _)| word));
        assert_eq!((standard().len(), fenced().len()), (9, 2));
    }
}
