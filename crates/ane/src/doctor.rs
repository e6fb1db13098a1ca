//! The facts that a computer reports about its engine.

use ferrane_device::Result;

/// The system and engine of this computer.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The system, such as `macOS 15.5`.
    pub os: String,
    /// The build of the system, such as `24F74`.
    pub build: String,
    /// The processor, such as `Apple M4 Pro`.
    pub chip: String,
    /// The engine's generation, such as `h16` (apple-runtime §13); `None` if it is not reported.
    pub sub_type: Option<String>,
    /// The generation with the letter of its size, such as `h16g`; `None` if it is not reported.
    pub architecture: Option<String>,
    /// The number of engines; `None` if it is not reported.
    pub engines: Option<u32>,
    /// The number of cores per engine; `None` if it is not reported.
    pub cores: Option<u32>,
    /// The name of this machine's profile, if there is one.
    pub profile: Option<String>,
    /// The number of bound methods.
    pub bound: usize,
    /// Descriptions of bound methods that are missing here or have other types.
    pub problems: Vec<String>,
}

/// Collects the facts of this computer.
///
/// # Errors
/// [`ErrorKind::Unavailable`](ferrane_device::ErrorKind::Unavailable) if there is no engine.
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
