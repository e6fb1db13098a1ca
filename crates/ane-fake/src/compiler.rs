//! The compiler's C function: reads the program that its dictionaries name and writes a file.
//!
//! Failures are reported to the block and the function returns 0, the harder case for a caller.
//! Folders are prepended to names without a separator, so a folder without a trailing slash finds
//! nothing.

use std::ffi::c_void;
use std::fs;

use ferrane_mil::package;
use objc2::runtime::AnyObject;

use crate::events::tell;
use crate::foundation::{FakeDictionary, elements, number, text};
use crate::session::{Call, count};

/// The status of every failure.
const REFUSED: u32 = 22;

/// # Safety
/// The first two arguments must be dictionaries or null, the third a block that takes a status and
/// a dictionary, or null.
pub(crate) unsafe extern "C-unwind" fn compile(
    options: *const AnyObject,
    flags: *const AnyObject,
    block: *const c_void,
) -> i32 {
    if let Err(failure) = count(Call::CompileFile) {
        return i32::try_from(failure.code).unwrap_or(-1);
    }
    // SAFETY: the pointers are null or valid objects by this function's contract.
    unsafe {
        if written(options.as_ref(), flags.as_ref()).is_none() {
            tell(block.cast(), REFUSED);
        }
    }
    0
}

/// Writes the container for the engine in the flags and, if requested, an intermediate file that
/// contains the mask.
fn written(options: Option<&AnyObject>, flags: Option<&AnyObject>) -> Option<()> {
    let options = options?.downcast_ref::<FakeDictionary>()?;
    let flags = flags?.downcast_ref::<FakeDictionary>()?;
    let read = |map: &FakeDictionary, key: &str| text(map.get(key).as_deref());
    let joined = |map: &FakeDictionary, folder: &str, name: &str| Some(read(map, folder)? + &read(map, name)?);
    let networks = options.get("InputNetworks")?;
    let [network] = elements(Some(&networks))? else { return None };
    let network = network.downcast_ref::<FakeDictionary>()?;
    match joined(network, "NetworkSourcePath", "NetworkSourceFileName") {
        Some(program) => drop(package::open(program).ok()?),
        None => drop(fs::read(joined(network, "NetworkPlistPath", "NetworkPlistName")?).ok()?),
    }
    let out = joined(options, "OutputFilePath", "OutputFileName")?;
    let engine = read(flags, "TargetArchitecture").unwrap_or_else(|| "host".into());
    if number(flags.get("CompileANEProgramForDebugging").as_deref()) == Some(1) {
        let mask = number(flags.get("DebugMask").as_deref())?;
        fs::write(format!("{out}.debug"), mask.to_string()).ok()?;
    }
    fs::write(out, engine).ok()
}
