//! The device suite: cases that run over any [`Device`].
//!
//! A case says what it promises. *Contract*: the same bits and the same errors everywhere.
//! *Numerics*: a tolerance for each way of rounding. *Limits*: what the device's own profile says;
//! *Enforced*: that a device fails what its profile does not allow. Contract cases use programs
//! that hand their input on, so that a device that only copies satisfies them.

mod contract;
mod limits;
mod numerics;

use ferrane_device::{Bindings, CompileOptions, Device, Error, ErrorKind, Executable, ProgramSource, Result, Surface};
use ferrane_mil::Weights;

/// What a case promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Bit for bit, on every device.
    Contract,
    /// Within the tolerance of the device's rounding.
    Numerics,
    /// As the device's profile says.
    Limits,
    /// As the profile says, on a device that fails what it does not allow.
    Enforced,
}

/// How a device rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To fp16 after every op.
    Half,
    /// fp32 inside, to fp16 at the ports.
    Single,
}

/// Why a case failed, in words.
pub type Outcome = std::result::Result<(), String>;

/// One case.
pub struct Case {
    /// What it tests.
    pub name: &'static str,
    /// What it promises.
    pub promise: Promise,
    run: fn(&Device, Rounding) -> Outcome,
}

impl Case {
    /// Runs it.
    ///
    /// # Errors
    /// What was expected and what came.
    pub fn run(&self, device: &Device, rounding: Rounding) -> Outcome {
        (self.run)(device, rounding)
    }
}

/// Every case.
pub fn all() -> Vec<Case> {
    let mut cases = contract::cases();
    cases.extend(numerics::cases());
    cases.extend(limits::cases());
    cases
}

/// Runs the cases with one of these promises; gives each failure with the case's name.
pub fn run(device: &Device, rounding: Rounding, promises: &[Promise]) -> (usize, Vec<String>) {
    let cases: Vec<_> = all().into_iter().filter(|c| promises.contains(&c.promise)).collect();
    let failed = |c: &Case| c.run(device, rounding).err().map(|why| format!("{}: {}: {why}", device.name(), c.name));
    (cases.len(), cases.iter().filter_map(failed).collect())
}

/// A program of the shorthand dialect around its functions.
pub fn program(functions: &str) -> String {
    format!(
        "program(1.3)\n[buildInfo = dict<string, string>({{{{\"coremlc-version\", \"3505.4.1\"}}}})]\n{{\n{functions}}}\n"
    )
}

/// A function with one statement, an op on inputs of one shape.
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

/// A surface for each port of the first procedure, zeroed, with its bindings: for cases that prepare
/// requests of their own.
fn surfaces(device: &Device, executable: &Executable) -> Result<(Bindings, Vec<(String, Surface)>)> {
    let procedure = executable.procedures().first().ok_or_else(|| Error::new(ErrorKind::Binding, "no procedure"))?;
    let surfaces = device.surfaces(procedure)?;
    let bindings = surfaces.iter().fold(Bindings::new(), |bindings, (name, surface)| bindings.bind(*name, surface));
    Ok((bindings, surfaces.into_iter().map(|(name, surface)| (name.to_string(), surface)).collect()))
}

fn named<'a>(surfaces: &'a [(String, Surface)], name: &str) -> std::result::Result<&'a Surface, String> {
    surfaces.iter().find(|(n, _)| n == name).map(|(_, s)| s).ok_or_else(|| format!("no port `{name}`"))
}

/// Fails with what came where something else was expected.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
