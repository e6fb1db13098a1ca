//! Placements in files, which come from other people's machines.

use ferrane_machine::placement::{Placement, PlacementDiff};

/// The placement without its floating-point numbers, and these. The reader of JSON may round a
/// number to a neighbor of the nearest one.
fn split(mut placement: Placement) -> (Placement, Vec<f64>) {
    let mut numbers = Vec::new();
    numbers.extend(placement.ops.iter_mut().filter_map(|op| op.engine_probability.take()));
    numbers.extend(placement.segments.iter_mut().filter_map(|segment| segment.engine_us.take()));
    numbers.extend(placement.transfers.iter_mut().filter_map(|transfer| transfer.us.take()));
    if let Some(load) = placement.first_load.take() {
        numbers.extend([load.mb, load.seconds, load.range[0], load.range[1]]);
    }
    (placement, numbers)
}

/// Any text is a placement or rejected. A placement that is read can be written, and reading that
/// gives the same placement. It does not differ from itself, and what is printed of it does not
/// steer a terminal.
///
/// # Panics
/// If a property does not hold.
pub fn placement(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(placement) = Placement::read(text) else { return };
    let written = placement.write();
    let again = Placement::read(&written).expect("what was written is read");
    let ((first, numbers), (second, others)) = (split(placement.clone()), split(again.clone()));
    assert!(first == second && numbers.len() == others.len(), "writing and reading changes the placement");
    let near = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-15 * a.abs().max(f64::MIN_POSITIVE);
    assert!(numbers.iter().zip(&others).all(|(a, b)| near(*a, *b)), "{numbers:?} are {others:?}");
    assert!(placement.on_engine() + placement.off_engine() <= placement.ops.len());
    assert_eq!(placement.is_mostly_on_engine().is_some(), placement.engine_share().is_some());
    let diff = PlacementDiff::between(&placement, &again);
    assert!(diff.segments[0] == diff.segments[1] && diff.on_engine[0] == diff.on_engine[1]);
    for text in [placement.to_string(), diff.to_string()] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
