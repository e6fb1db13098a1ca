//! `ferrane run --audit`: the numerics report as text, JSON and a page.

use ferrane::audit::AuditOptions;
use ferrane::machine::placement::PlaceOptions;
use ferrane::machine::{CheckOptions, Profile};
use ferrane::page::NetworkPage;
use ferrane::{Call, Model, put_errors};

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
    if let Some(path) = &args.network {
        let mut page = NetworkPage::new(&name, model.program());
        page.examine(profile, &CheckOptions::default(), &PlaceOptions::default());
        put_errors(&mut page, &found);
        files::replace(path, page.html().as_bytes())?;
    }
    if args.json {
        return out::line(found.json(&name));
    }
    out::print(&found)?;
    let written = args.html.iter().chain(&args.network);
    written.into_iter().try_for_each(|path| out::line(format_args!("written to {}", path.display())))
}
