//! `ferrane run --audit`: the numerics report as text, JSON and a page.

use ferrane::audit::AuditOptions;
use ferrane::machine::Profile;
use ferrane::{Call, Model};

use crate::args::Run;
use crate::error::Result;
use crate::{files, out};

/// Runs the function and reports.
pub fn run(args: &Run, profile: &Profile, model: &Model, call: &Call) -> Result<()> {
    let mut options = AuditOptions::default();
    options.profile = profile.clone();
    options.threshold = args.threshold;
    let found = model.audit(call, &options)?;
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
