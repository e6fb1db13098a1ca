//! What a placement is asked for: the framework and the units that it may use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident $what:literal { $($(#[$word_doc:meta])* $word:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum $name { $($(#[$word_doc])* #[serde(rename = $text)] $word),* }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &[$name] = &[$($name::$word),*];

            /// The word for JSON and for the command line.
            pub fn name(self) -> &'static str {
                match self { $($name::$word => $text),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<$name, UnknownWord> {
                let known = || $name::ALL.iter().map(|w| w.name()).collect::<Vec<_>>().join(", ");
                let found = $name::ALL.iter().find(|w| w.name() == text);
                found.copied().ok_or_else(|| UnknownWord { what: $what, text: text.to_string(), known: known() })
            }
        }
    )*};
}

words! {
    /// The framework that distributes the ops of a program among processors.
    Framework "framework" {
        /// Core ML, which reports its decision as `MLComputePlan`.
        CoreMl = "coreml",
        /// Core AI. No placement of its ops is published in a form that a model could be fitted to.
        CoreAi = "coreai",
    }

    /// The processors that the caller allows, Core ML's `MLComputeUnits`.
    AllowedUnits "set of units" {
        /// CPU, GPU and Neural Engine.
        All = "all",
        /// CPU and Neural Engine.
        CpuAndEngine = "cpu-and-ne",
    }

    /// Where an op runs.
    Processor "processor" {
        /// The Neural Engine.
        Engine = "engine",
        /// The CPU.
        Cpu = "cpu",
        /// The GPU.
        Gpu = "gpu",
        /// The CPU or the GPU; which of them is not predicted.
        CpuOrGpu = "cpu-or-gpu",
    }
}

/// The error for a word that is none of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{text}`; known are {known}")]
pub struct UnknownWord {
    what: &'static str,
    text: String,
    known: String,
}

/// The question that a placement answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOptions {
    /// The framework that decides.
    pub framework: Framework,
    /// The processors that it may use.
    pub units: AllowedUnits,
    /// The function that is placed; `None` is `main`, or the first one.
    pub function: Option<String>,
}

impl Default for PlaceOptions {
    fn default() -> PlaceOptions {
        PlaceOptions { framework: Framework::CoreMl, units: AllowedUnits::CpuAndEngine, function: None }
    }
}

impl AllowedUnits {
    /// Where an op runs that does not run on the engine.
    pub fn otherwise(self) -> Processor {
        match self {
            AllowedUnits::All => Processor::CpuOrGpu,
            AllowedUnits::CpuAndEngine => Processor::Cpu,
        }
    }
}
