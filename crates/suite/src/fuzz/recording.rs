//! Recordings: files that people send each other.

use ferrane_recording::compare::{Difference, all};
use ferrane_recording::{Summary, read, write_to};
use ferrane_tensor_io::safetensors;

/// Any bytes are a recording or are refused. One that is read is written and read again as the
/// same; its paths stay inside; its tensors equal themselves.
///
/// # Panics
/// If not.
pub fn recording(data: &[u8]) {
    let Ok(recording) = read(data.to_vec()) else { return };
    for (path, _) in recording.blobs().expect("paths were looked at") {
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
        ferrane_mil::verify(&program).expect("what was read holds the invariants");
    }
    let mut bytes = Vec::new();
    write_to(&recording, &mut bytes).expect("what was read can be written");
    let again = read(bytes.clone()).expect("what was written is read");
    let mut twice = Vec::new();
    write_to(&again, &mut twice).expect("as before");
    assert!(again.header == recording.header && bytes == twice);
}
