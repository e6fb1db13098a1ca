//! `ferrane run --audit`: the numerics report as text, JSON and a page.

use std::collections::BTreeMap;

use ferrane::audit::{AuditOptions, audit};
use ferrane::machine::Profile;
use ferrane::mil::{Constant, Function, Program};
use ferrane::{Call, Tensors};

use crate::args::Run;
use crate::error::Result;
use crate::{files, out};

/// Runs the function and reports.
pub fn run(args: &Run, profile: &Profile, program: &Program, function: &Function, call: &Call) -> Result<()> {
    let mut options = AuditOptions::default();
    options.profile = profile.clone();
    options.threshold = args.threshold;
    let constants = |tensors: &Tensors| -> Vec<(String, Constant)> {
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.to_constant())).collect()
    };
    let states: BTreeMap<String, Constant> = constants(call.given_states()).into_iter().collect();
    let found = audit(program, &function.name, &constants(call.given_inputs()), &states, &options)?;
    let name = args.program.display().to_string();
    if let Some(path) = &args.html {
        files::replace(path, found.html(&name).as_bytes())?;
    }
    if args.json {
        return out::line(found.json(&name));
    }
    out::print(&found)?;
    match &args.html {
        Some(path) => out::line(format_args!("written to {}", path.display())),
        None => Ok(()),
    }
}
