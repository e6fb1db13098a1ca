//! Recordings: files that come from other people's machines.

use ferrane_recording::compare::{Difference, all};
use ferrane_recording::{Summary, read, write_to};
use ferrane_tensor_io::safetensors;

/// Any bytes are a recording or rejected. A recording that is read can be written, and reading that
/// gives the same recording. Its paths stay inside its folder, and its tensors equal themselves.
///
/// # Panics
/// If a property does not hold.
pub fn recording(data: &[u8]) {
    let Ok(recording) = read(data.to_vec()) else { return };
    for (path, _) in recording.blobs().expect("the reader checked the paths") {
        assert!(
            path.is_relative() && path.components().all(|c| matches!(c, std::path::Component::Normal(_))),
            "{path:?}"
        );
    }
    for list in [&recording.inputs, &recording.states, &recording.outputs, &recording.left] {
        assert!(all(list, list, 0).iter().all(Difference::within));
        list.iter().for_each(|(_, tensor)| drop(Summary::of(tensor).doubt()));
        safetensors::to_bytes(list).expect("types that were read can be written");
    }
    if let Ok(program) = recording.program() {
        ferrane_mil::verify(&program).expect("a program that was read passes the verifier");
    }
    let mut bytes = Vec::new();
    write_to(&recording, &mut bytes).expect("what was read can be written");
    let again = read(bytes.clone()).expect("what was written is read");
    let mut twice = Vec::new();
    write_to(&again, &mut twice).expect("a recording that was read can be written");
    assert!(again.header == recording.header && bytes == twice);
}
