//! `ferrane devices`: what can be opened here.

use serde_json::json;

use crate::args::Devices;
use crate::error::Result;
use crate::{model, out};

/// Runs the command.
pub fn run(args: Devices) -> Result<()> {
    for device in ferrane::devices() {
        show(&args, device.name, device.available, &device.description, device.options)?;
    }
    show(&args, model::REFERENCE, true, "plain fp32 without a device (for train, generate, eval and bench)", &[])
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
