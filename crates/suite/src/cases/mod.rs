//! The device suite: cases that run over any [`Device`].
//!
//! Each case names its promise. *Contract*: the same bits and the same errors on every device.
//! *Numerics*: a tolerance for each way of rounding. *Limits*: the device follows its own profile.
//! *Enforced*: the device rejects what its profile does not allow. The programs of contract cases
//! only pass their input on, so a device that does nothing but copy satisfies them.

mod contract;
mod limits;
mod numerics;

use ferrane_device::{Bindings, CompileOptions, Device, Error, ErrorKind, Executable, ProgramSource, Result, Surface};
use ferrane_mil::Weights;

/// What a case promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The same bits and errors on every device.
    Contract,
    /// Values within the tolerance of the device's [`Rounding`].
    Numerics,
    /// Behavior that the device's profile states.
    Limits,
    /// Rejection of what the profile does not allow, on a device that enforces its profile.
    Enforced,
}

/// How a device rounds intermediate results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To fp16 after every op.
    Half,
    /// fp32 inside a function, rounded to fp16 at its ports.
    Single,
}

/// Success, or the reason why the case failed.
pub type Outcome = std::result::Result<(), String>;

/// One test that can run on any device.
pub struct Case {
    /// A sentence that states the tested behavior; it names the case in failures.
    pub name: &'static str,
    /// The class of the case, by which [`run`] selects it.
    pub promise: Promise,
    run: fn(&Device, Rounding) -> Outcome,
}

impl Case {
    /// Runs the case on a device that rounds as `rounding` says.
    ///
    /// # Errors
    /// The expected and the actual result.
    pub fn run(&self, device: &Device, rounding: Rounding) -> Outcome {
        (self.run)(device, rounding)
    }
}

/// Every case, in the order in which they must run.
pub fn all() -> Vec<Case> {
    let mut cases = contract::cases();
    cases.extend(numerics::cases());
    cases.extend(limits::cases());
    cases
}

/// Runs the cases that have one of these promises. Returns how many ran, and each failure with its
/// case's name.
pub fn run(device: &Device, rounding: Rounding, promises: &[Promise]) -> (usize, Vec<String>) {
    let cases: Vec<_> = all().into_iter().filter(|c| promises.contains(&c.promise)).collect();
    let failed = |c: &Case| c.run(device, rounding).err().map(|why| format!("{}: {}: {why}", device.name(), c.name));
    (cases.len(), cases.iter().filter_map(failed).collect())
}

/// A program in the shorthand dialect that contains the given functions.
pub fn program(functions: &str) -> String {
    format!(
        "program(1.3)\n[buildInfo = dict<string, string>({{{{\"coremlc-version\", \"3505.4.1\"}}}})]\n{{\n{functions}}}\n"
    )
}

/// The text of a function: typed inputs, statements, and the names of the outputs.
pub fn function(name: &str, inputs: &str, statements: &str, outputs: &str) -> String {
    format!("    func {name}<ios18>({inputs}) {{\n{statements}\n    }} -> ({outputs});\n")
}

fn words(error: Error) -> String {
    error.to_string()
}

fn load(device: &Device, text: &str) -> Result<Executable> {
    let source = ProgramSource::Text { mil: text.as_bytes(), weights: &Weights::new() };
    device.compile(source, &CompileOptions::labeled("case"))?.load()
}

/// Allocates a zeroed surface for each port of the first procedure and binds it. Used by cases that
/// prepare their own requests.
fn surfaces(device: &Device, executable: &Executable) -> Result<(Bindings, Vec<(String, Surface)>)> {
    let procedure = executable.procedures().first().ok_or_else(|| Error::new(ErrorKind::Binding, "no procedure"))?;
    let surfaces = device.surfaces(procedure)?;
    let bindings = surfaces.iter().fold(Bindings::new(), |bindings, (name, surface)| bindings.bind(*name, surface));
    Ok((bindings, surfaces.into_iter().map(|(name, surface)| (name.to_string(), surface)).collect()))
}

fn named<'a>(surfaces: &'a [(String, Surface)], name: &str) -> std::result::Result<&'a Surface, String> {
    surfaces.iter().find(|(n, _)| n == name).map(|(_, s)| s).ok_or_else(|| format!("no port `{name}`"))
}

/// Fails with the found and the expected value if they differ.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
