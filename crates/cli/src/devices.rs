//! `ferrane devices`: what can be opened here.

use serde_json::json;

use crate::args::Devices;
use crate::error::Result;
use crate::out;

/// Runs `ferrane devices`.
pub fn run(args: Devices) -> Result<()> {
    for device in ferrane::devices() {
        show(&args, device.name, device.available, &device.description, device.options)?;
    }
    show(&args, ferrane::REFERENCE, true, "plain fp32 without a device (for train, generate, eval and bench)", &[])
}

/// What the emulator's options mean, for the help.
pub fn options() -> String {
    format!(
        "Options of the emulator, as in \"emulator?machine=m4-macos15-inmem&limits=warn\":
  numerics=fast|exact|hardware  how numbers are computed and rounded
  machine=NAME                  the machine; its limits are enforced unless `limits` says otherwise
  limits=off|warn|enforce       whether what the machine does not allow is done, noted or failed
  budget=N|none                 compiles that a process may do, in place of the profile's
  staging=DIR                   keeps the files of compiled programs; a process is not charged for what lies there
  faults=RULES                  calls that fail on purpose; or in the environment variable FERRANE_FAULTS

Rules: {}. Example: FERRANE_FAULTS='evaluate:100=0x1d; load:from 3=fail'.",
        ferrane::faults::GRAMMAR
    )
}

fn show(args: &Devices, name: &str, available: bool, description: &str, options: &[&str]) -> Result<()> {
    if args.json {
        let object = json!({"name": name, "available": available, "description": description, "options": options});
        return out::line(object);
    }
    let state = if available { "available" } else { "not here" };
    out::line(format_args!("{name:16} {state:9}  {description}"))?;
    if !options.is_empty() {
        out::line(format_args!("{:28}options: \"{name}?{}\"", "", options.join("&")))?;
    }
    Ok(())
}
