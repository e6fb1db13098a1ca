//! Properties that must hold for any bytes: the bodies of the fuzz targets.
//!
//! Each body takes the fuzzer's bytes and panics if a property does not hold. Panics, hangs and
//! excessive use of memory in the code under test are found by the fuzzer itself. `fuzz/` at the
//! root of the repository has a target for each body that only calls it. A test replays
//! `fuzz/corpus/<target>/` here, so inputs that once found a bug are tried without a fuzzer from
//! then on.

mod attributes;
mod blob;
mod coreai;
mod gguf;
mod hwx;
mod hwx_bundle;
mod image;
mod onnx;
mod package;
mod passes;
mod placement;
mod recording;
mod text;

pub use attributes::attributes;
pub use blob::blob;
pub use coreai::{coreai, coreai_write};
pub use gguf::gguf;
pub use hwx::{hwx, hwx_stream, hwx_text};
pub use hwx_bundle::{hwx_anec, hwx_bundle};
pub use image::image;
pub use onnx::onnx;
pub use package::package;
pub use passes::passes;
pub use placement::placement;
pub use recording::recording;
pub use text::{parse, round_trip};

/// The body of a fuzz target: takes any bytes and panics if a property does not hold.
pub type TargetBody = fn(&[u8]);

/// Every target by name. The names are also those of the folders of the corpus.
pub const TARGETS: &[(&str, TargetBody)] = &[
    ("attributes", attributes),
    ("blob", blob),
    ("coreai", coreai),
    ("coreai_write", coreai_write),
    ("gguf", gguf),
    ("hwx", hwx),
    ("hwx_anec", hwx_anec),
    ("hwx_bundle", hwx_bundle),
    ("hwx_stream", hwx_stream),
    ("hwx_text", hwx_text),
    ("image", image),
    ("onnx", onnx),
    ("package", package),
    ("parse", parse),
    ("passes", passes),
    ("placement", placement),
    ("round_trip", round_trip),
    ("recording", recording),
];
