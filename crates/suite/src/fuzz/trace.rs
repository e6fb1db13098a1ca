//! Traces: files that people send each other.

use ferrane_trace::compare::{Difference, all};
use ferrane_trace::{TraceError, read, safetensors, write_to};

/// Any bytes are a trace or are refused. One that is read is written and read again as the same; its paths stay inside; its tensors
/// equal themselves.
///
/// # Panics
/// If not.
pub fn trace(data: &[u8]) {
    let Ok(trace) = read(data.to_vec()) else { return };
    for (path, _) in trace.blobs().expect("paths were looked at") {
        assert!(
            path.is_relative() && path.components().all(|c| matches!(c, std::path::Component::Normal(_))),
            "{path:?}"
        );
    }
    for list in [&trace.inputs, &trace.states, &trace.outputs, &trace.left] {
        assert!(all(list, list, 0).iter().all(Difference::within));
        list.iter().for_each(|(_, tensor)| drop(tensor.summary().doubt()));
        // A name that the header has twice cannot be written.
        let _ = safetensors(list);
    }
    if let Ok(program) = trace.program() {
        ferrane_mil::verify(&program).expect("what was read holds the invariants");
    }
    let mut bytes = Vec::new();
    match write_to(&trace, &mut bytes) {
        Ok(()) => {
            let again = read(bytes.clone()).expect("what was written is read");
            let mut twice = Vec::new();
            write_to(&again, &mut twice).expect("as before");
            assert!(again.header == trace.header && bytes == twice);
        }
        Err(TraceError::Tensor { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
