//! What a computer with an engine says of itself.

use ferrane_device::Result;

/// A computer with an engine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `macOS 15.5` for example.
    pub os: String,
    /// The build of the system, `24F74` for example.
    pub build: String,
    /// The processor, `Apple M4 Pro` for example.
    pub chip: String,
    /// The engine's generation: `h16` (apple-runtime §13); what is not known stays open.
    pub sub_type: Option<String>,
    /// The generation with the letter of its size: `h16g`.
    pub architecture: Option<String>,
    /// How many engines there are.
    pub engines: Option<u32>,
    /// Cores of each.
    pub cores: Option<u32>,
    /// The profile of this machine, if there is one.
    pub profile: Option<String>,
    /// How many methods are bound.
    pub bound: usize,
    /// What of them is not here, or has other types: in words that name it.
    pub problems: Vec<String>,
}

/// The facts of this computer.
///
/// # Errors
/// [`ErrorKind::Unavailable`](ferrane_device::ErrorKind::Unavailable) where there is no engine.
pub fn facts() -> Result<Facts> {
    #[cfg(target_vendor = "apple")]
    return Ok(of(crate::system::find()?));
    #[cfg(all(feature = "objc-runtime", not(target_vendor = "apple")))]
    if let Some(system) = crate::system::find() {
        return Ok(of(system));
    }
    #[cfg(not(target_vendor = "apple"))]
    {
        use ferrane_device::{Error, ErrorKind};
        let message = format!("there is no Neural Engine here; this is {}", std::env::consts::OS);
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
fn of(system: &crate::System) -> Facts {
    use crate::bind::{DeviceInfo, foundation::Text};
    let text = |found: Result<Option<Text>>| found.ok().flatten().and_then(|t| t.read().ok());
    let table = crate::bind::table();
    Facts {
        os: system.os.clone(),
        build: system.build.clone(),
        chip: system.chip.clone(),
        sub_type: text(DeviceInfo::sub_type()),
        architecture: text(DeviceInfo::architecture()),
        engines: DeviceInfo::engines().ok(),
        cores: DeviceInfo::cores().ok(),
        profile: system.profile().filter(|name| ferrane_machine::Profile::named(name).is_ok()),
        bound: table.len(),
        problems: table.iter().filter_map(|m| m.check().err()).map(|e| e.message().to_string()).collect(),
    }
}
