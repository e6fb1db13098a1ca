//! The machine, and classes without effect so far (apple-runtime §2, §6, §8).

use super::class;
use super::foundation::{Text, Url};

class! {
    /// What engine this is.
    DeviceInfo = c"_ANEDeviceInfo" {
        /// The compiler's name of the chip: `h16`, `h15g` (apple-runtime §13).
        pub class sub_type() -> Option<Text> = c"aneSubType", "@@:";
    }
}

class! {
    /// Surfaces mapped for a program. Mapping answered NO wherever it was tried.
    SurfacesMapper = c"_ANEProgramIOSurfacesMapper" {
        /// Of a program's handle.
        pub class with(handle: u64) -> Option<SurfacesMapper> = c"mapperWithProgramHandle:", "@@:Q";
    }
}

class! {
    /// A weight file with a name. No effect was found.
    Weight = c"_ANEWeight" {
        /// Of a symbol and a file.
        pub class with(symbol: &Text, file: &Url) -> Option<Weight> = c"weightWithSymbolAndURL:weightURL:", "@@:@@";
    }
}
