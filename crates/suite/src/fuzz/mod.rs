//! What must hold for any bytes: the bodies of the fuzz targets.
//!
//! Each takes the fuzzer's bytes and panics if a promise is broken; that the code under it panics,
//! hangs or takes memory out of proportion is what the fuzzer itself finds. `fuzz/` at the root of
//! the repository has a target for each, which only calls it; a test replays
//! `fuzz/corpus/<target>/` here, so what was found once is tried ever after without a fuzzer.

mod attributes;
mod blob;
mod hwx;
mod hwx_bundle;
mod package;
mod passes;
mod recording;
mod text;

pub use attributes::attributes;
pub use blob::blob;
pub use hwx::{hwx, hwx_stream, hwx_text};
pub use hwx_bundle::{hwx_anec, hwx_bundle};
pub use package::package;
pub use passes::passes;
pub use recording::recording;
pub use text::{parse, round_trip};

/// A target's body.
pub type TargetBody = fn(&[u8]);

/// Every target by name; the names are those of the folders of the corpus.
pub const TARGETS: &[(&str, TargetBody)] = &[
    ("attributes", attributes),
    ("blob", blob),
    ("hwx", hwx),
    ("hwx_anec", hwx_anec),
    ("hwx_bundle", hwx_bundle),
    ("hwx_stream", hwx_stream),
    ("hwx_text", hwx_text),
    ("package", package),
    ("parse", parse),
    ("passes", passes),
    ("round_trip", round_trip),
    ("recording", recording),
];
