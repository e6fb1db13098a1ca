//! Opens devices by name: `emulator`, `emulator?numerics=exact&machine=m4-macos15-inmem`, `ane`,
//! `ane-or-emulator`.
//!
//! Numerics, profile, limits, faults and path are options of opening a device, never of a request:
//! what was compiled under one set of rules is not run under another. Naming a profile enforces its
//! limits, unless `limits` says otherwise. Faults that no option names come from the environment
//! variable `FERRANE_FAULTS`, so that an unchanged program can be tested.
//!
//! Training and language models also compute without a device, in plain fp32. [`REFERENCE`] names
//! this path where a device is named, and [`open_or_reference`] alone accepts it.

use std::path::PathBuf;

use ferrane_device::{Device, Error, ErrorKind, OpenOptions, Result};
use ferrane_diag::did_you_mean;
use ferrane_emulator::{Emulator, EmulatorOptions, Faults, Limits, Numerics};
use ferrane_machine::Profile;
use ferrane_machine::profile::Limit;

/// A device that can be opened by name.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The name to open it by.
    pub name: &'static str,
    /// True if opening it works here.
    pub available: bool,
    /// One line: what it is, or why it is not available.
    pub description: String,
    /// Its options, `key=value|value`.
    pub options: &'static [&'static str],
}

const ANE_OPTIONS: [&str; 5] = [
    "dispatch=standard|realtime|process-request|direct",
    "cache=off|FOLDER",
    "qos=0…63",
    "machine=NAME",
    "isolate=off|on|SECONDS",
];
const NAMES: [&str; 3] = ["emulator", "ane", "ane-or-emulator"];
/// The name of plain fp32 arithmetic without a device, in which training and language models can
/// compute.
pub const REFERENCE: &str = "reference";
const EMULATOR_OPTIONS: [&str; 8] = [
    "numerics=fast|exact|hardware",
    "machine=NAME|REPORT.json",
    "machine-file=FILE",
    "limits=off|warn|enforce",
    "budget=N|none",
    "staging=DIR",
    "pace=off|on",
    "faults=STAGE:WHEN=ACTION;...",
];
/// Faults of every emulator that is opened without the option.
const FAULTS: &str = "FERRANE_FAULTS";

/// Lists every device that this build knows, available or not.
pub fn devices() -> Vec<DeviceInfo> {
    let ane = open("ane");
    let emulator = "a software Neural Engine on this computer's CPU; numerics=fast rounds to fp16 at every op, exact is fp32, \
         hardware computes as the profile's machine";
    let (available, ane) = match &ane {
        Ok(device) => (true, device.name()),
        Err(error) => (false, error.message().to_string()),
    };
    vec![
        DeviceInfo { name: NAMES[0], available: true, description: emulator.into(), options: &EMULATOR_OPTIONS },
        DeviceInfo { name: NAMES[1], available, description: ane, options: &ANE_OPTIONS },
        DeviceInfo {
            name: NAMES[2],
            available: true,
            description: "the engine where there is one, else the emulator".into(),
            options: &[],
        },
    ]
}

/// Opens a device by name, with options after `?`.
///
/// # Errors
/// [`ErrorKind::Option`] for an unknown name or option (with the nearest known one),
/// [`ErrorKind::Unavailable`] for a device that this computer does not have.
pub fn open(spec: &str) -> Result<Device> {
    let (name, options) = spec.split_once('?').unwrap_or((spec, ""));
    match name {
        "emulator" => Ok(Device::new(Emulator::new(emulator_options(options)?))),
        "ane" => ferrane_ane::open(options),
        "ane-or-emulator" => open("ane").or_else(|_| open("emulator")),
        REFERENCE => {
            let known = NAMES.join(", ");
            let what = "is no device: it is the plain fp32 path of training and language models";
            Err(Error::new(ErrorKind::Option, format!("`{REFERENCE}` {what}; a program runs on a device ({known})")))
        }
        _ => {
            let hint = did_you_mean(name, NAMES);
            let known = NAMES.join(", ");
            Err(Error::new(ErrorKind::Option, format!("unknown device `{name}`{hint} (known: {known})")))
        }
    }
}

/// Why neither a device nor the reference was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is neither that of a device nor [`REFERENCE`]. The message has the nearest name if
    /// one is similar, and those that there are.
    #[error("unknown device `{name}`{hint} (known: {}, {REFERENCE})", NAMES.join(", "))]
    Name {
        /// The name that was given, without its options.
        name: String,
        /// The nearest name, as a question; empty if none is similar.
        hint: String,
    },
    /// The reference with options after `?`, of which it has none.
    #[error("`{0}`: `{REFERENCE}` has no options; write `{REFERENCE}`")]
    Options(String),
    /// The device's own error.
    #[error("{0}")]
    Device(#[from] Error),
}

/// Opens what computes a training run or a language model: the device of this name, as [`open`]
/// does, or `None` for [`REFERENCE`], which is no device.
///
/// # Errors
/// [`OpenError::Name`] and [`OpenError::Options`] for a wrong name; otherwise as [`open`].
pub fn open_or_reference(spec: &str) -> std::result::Result<Option<Device>, OpenError> {
    if spec == REFERENCE {
        return Ok(None);
    }
    let name = spec.split('?').next().unwrap_or(spec);
    if name == REFERENCE {
        return Err(OpenError::Options(spec.to_string()));
    }
    if !NAMES.contains(&name) {
        let hint = did_you_mean(name, NAMES.into_iter().chain([REFERENCE]));
        return Err(OpenError::Name { name: name.to_string(), hint: hint.to_string() });
    }
    Ok(open(spec).map(Some)?)
}

/// Opens the emulator itself, by the same name and options: for calls on constants of any shape
/// ([`Emulator::call`]) and as the evaluator of passes.
///
/// # Errors
/// [`ErrorKind::Option`] for another device, or an unknown option.
pub fn emulator(spec: &str) -> Result<Emulator> {
    let (name, options) = spec.split_once('?').unwrap_or((spec, ""));
    match name {
        "emulator" => Ok(Emulator::new(emulator_options(options)?)),
        _ => Err(Error::new(ErrorKind::Option, format!("`{name}` is not the emulator"))),
    }
}

fn emulator_options(text: &str) -> Result<EmulatorOptions> {
    let mut given = OpenOptions::parse("emulator", text)?;
    let mut options = EmulatorOptions::default();
    let numerics = given.take_one_of(
        "numerics",
        &[("fast", Numerics::Fast), ("exact", Numerics::Exact), ("hardware", Numerics::Hardware)],
    )?;
    options.numerics = numerics.unwrap_or(options.numerics);
    let name = given.take("machine", "NAME");
    if let Some(file) = given.take("machine-file", "FILE") {
        let failed = |e: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Option, format!("emulator option `machine-file={file}`: {e}"))
        };
        let text = std::fs::read_to_string(&file).map_err(|e| failed(&e))?;
        let name = name.as_deref().unwrap_or(Profile::DEFAULT);
        options.profile = Profile::measured(name, &text).map_err(|e| failed(&e))?;
        options.limits = Limits::Enforce;
    } else if let Some(name) = name {
        let failed = |e| Error::new(ErrorKind::Option, format!("emulator option `machine={name}`: {e}"));
        options.profile = Profile::find(&name).map_err(failed)?;
        options.limits = Limits::Enforce;
    }
    let words = [Limits::Off, Limits::Warn, Limits::Enforce].map(|limits| (limits.name(), limits));
    options.limits = given.take_one_of("limits", &words)?.unwrap_or(options.limits);
    if let Some(text) = given.take("budget", "N|none") {
        let failed =
            || Error::new(ErrorKind::Option, format!("emulator option `budget={text}`: expected a number or `none`"));
        let limit = if text == "none" { None } else { Some(text.parse().map_err(|_| failed())?) };
        options.budget = Some(Limit(limit));
    }
    options.pace = given.take_one_of("pace", &[("off", false), ("on", true)])?.unwrap_or(options.pace);
    options.staging = given.take("staging", "DIR").map(PathBuf::from);
    let faults = given.take("faults", "STAGE:WHEN=ACTION;...");
    given.finish()?;
    options.faults = match faults {
        Some(text) => Faults::parse(&text).map_err(|e| e.labeled("emulator option `faults`"))?,
        None => environment()?,
    };
    Ok(options)
}

/// The faults that the environment variable describes.
fn environment() -> Result<Faults> {
    match std::env::var(FAULTS) {
        Ok(text) => Faults::parse(&text).map_err(|e| e.labeled(FAULTS)),
        Err(std::env::VarError::NotPresent) => Ok(Faults::default()),
        Err(error) => Err(Error::new(ErrorKind::Option, format!("{FAULTS}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_get_the_nearest_one() {
        let error = open("emulatr").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Option);
        assert!(error.to_string().contains("did you mean `emulator`"), "{error}");
        let error = open("emulator?numeric=fast").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("numerics=fast|exact|hardware"), "{error}");
        let error = open("emulator?machine=m9").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("chips are m1,"), "{error}");
    }

    #[test]
    fn naming_a_profile_enforces_its_limits() {
        let options = |text: &str| emulator_options(text).unwrap();
        assert_eq!(options("").limits, Limits::Off);
        assert_eq!(options("profile=m4").limits, Limits::Enforce);
        assert_eq!(options("machine=m4&limits=warn").limits, Limits::Warn);
        assert_eq!(options("limits=enforce&budget=none").budget, Some(Limit(None)));
        assert_eq!(options("budget=7&staging=a/b").staging.as_deref(), Some("a/b".as_ref()));
        let faults = options("faults=compile:3=fail;load:1=0x20004").faults;
        assert_eq!(faults.to_string(), "compile:3=fail; load:1=0x20004");
        for (text, words) in [
            ("limits=some", "limits=off|warn|enforce"),
            ("budget=few", "a number or `none`"),
            ("faults=compile", "STAGE:WHEN=ACTION"),
        ] {
            let error = emulator_options(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Option);
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn a_file_stands_above_the_profile() {
        let file = std::env::temp_dir().join(format!("ferrane-profile-{}.toml", std::process::id()));
        std::fs::write(&file, "[[overlay]]\n[overlay.set]\nmax_axis = { value = 77 }\n").unwrap();
        let spec = format!("machine=m1&machine-file={}", file.display());
        let profile = emulator_options(&spec).unwrap().profile;
        std::fs::remove_file(&file).unwrap();
        assert_eq!((profile.subject.chip.as_str(), profile.max_axis.value), ("m1", 77));
        let error = open("emulator?machine-file=/nowhere.toml").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("/nowhere.toml"), "{error}");
    }

    #[test]
    fn the_reference_is_no_device() {
        assert!(open_or_reference(REFERENCE).unwrap().is_none());
        assert!(open_or_reference("emulator?numerics=exact").unwrap().is_some());
        let refused = |spec: &str| open_or_reference(spec).map(|_| ()).unwrap_err();
        assert!(matches!(refused("reference?x=1"), OpenError::Options(spec) if spec == "reference?x=1"));
        assert!(refused("refrence").to_string().contains("did you mean `reference`?"), "{}", refused("refrence"));
        assert!(matches!(refused("emulator?x=1"), OpenError::Device(e) if e.kind() == ErrorKind::Option));
        let error = open(REFERENCE).map(|_| ()).unwrap_err();
        assert!(error.message().contains("training and language models"), "{error}");
    }

    #[test]
    fn the_engine_or_the_emulator_always_opens() {
        assert!(open("ane-or-emulator").is_ok());
        assert_eq!(devices().len(), NAMES.len());
    }
}
