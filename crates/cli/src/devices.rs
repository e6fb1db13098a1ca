//! `ferrane devices`: what can be opened here.

use serde_json::json;

use crate::args::Devices;
use crate::error::Result;

/// Runs the command.
pub fn run(args: Devices) -> Result<()> {
    let devices = ferrane::devices();
    if args.json {
        let list: Vec<_> = devices
            .iter()
            .map(|d| json!({"name": d.name, "available": d.available, "description": d.description, "options": d.options}))
            .collect();
        println!("{}", serde_json::Value::from(list));
        return Ok(());
    }
    for device in devices {
        let state = if device.available { "available" } else { "not here " };
        println!("{:16} {state}  {}", device.name, device.description);
        if !device.options.is_empty() {
            println!("{:27} options: {}?{}", "", device.name, device.options.join("&"));
        }
    }
    println!("{:16} available  plain fp32 without a device (train, generate and eval only)", "reference");
    Ok(())
}
