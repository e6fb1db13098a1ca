//! Regions and taps on packed surfaces and on surfaces with padded rows.

use crate::kernels::emulator;
use ferrane_device::{ErrorKind, Layout, Surface};
use ferrane_emulator::Numerics;
use ferrane_llm::layout::{Content, Region, Tap};
use ferrane_llm::staging::{
    copy_tap, read_tap, read_tap_f16, stage_weight, write_region, write_region_f16, write_region_tiled,
};
use ferrane_llm::weights::Part;
use ferrane_mil::DataType;
use half::f16;

/// Channels 1…2, elements 2…4 of a surface `[1, 4, 1, 5]`.
const REGION: Region =
    Region { name: "part", port: "x", channel: 1, channels: 2, offset: 2, len: 3, content: Content::Activation };

/// One packed surface, one with rows of 64 bytes.
fn surfaces(channels: usize, width: usize) -> [Surface; 2] {
    let device = emulator(Numerics::Exact);
    [1, 64].map(|alignment| {
        let layout = Layout::with_row_alignment(DataType::Fp16, &[1, channels, 1, width], alignment).unwrap();
        device.surface(&layout).unwrap()
    })
}

#[test]
fn regions_are_rectangles_and_nothing_beside_them_changes() {
    let expected = [0., 0., 0., 0., 0., 0., 0., 1., 2., 3., 0., 0., 4., 5., 6., 0., 0., 0., 0., 0.];
    let rows = [1., 2., 3., 4., 5., 6.];
    let columns = [1., 4., 2., 5., 3., 6.];
    let halves = rows.map(f16::from_f32);
    let stored = |transposed| Region { content: Content::Weight { part: Part::Wq, transposed }, ..REGION };
    for surface in surfaces(4, 5) {
        let clear = || surface.write_f32(&[0.0; 20]).unwrap();
        write_region(&mut surface.write().unwrap(), &REGION, &rows).unwrap();
        assert_eq!(surface.read_f32().unwrap(), expected);
        clear();
        write_region_f16(&mut surface.write().unwrap(), &REGION, &halves).unwrap();
        assert_eq!(surface.read_f32().unwrap(), expected);
        clear();
        stage_weight(&mut surface.write().unwrap(), &stored(false), &rows).unwrap();
        assert_eq!(surface.read_f32().unwrap(), expected);
        clear();
        stage_weight(&mut surface.write().unwrap(), &stored(true), &columns).unwrap();
        assert_eq!(surface.read_f32().unwrap(), expected);
        clear();
        // Two heads of one channel, each for one query head; then one head for both.
        write_region_tiled(&mut surface.write().unwrap(), &REGION, &halves, 1, 1).unwrap();
        assert_eq!(surface.read_f32().unwrap(), expected);
        write_region_tiled(&mut surface.write().unwrap(), &REGION, &halves[..3], 1, 2).unwrap();
        assert_eq!(surface.read_f32().unwrap()[10..15], [0., 0., 1., 2., 3.]);
    }
}

#[test]
fn taps_are_read_and_copied() {
    let values: Vec<f32> = (0..12).map(|v| v as f32).collect();
    let tap = Tap { name: "tap", channel: 1, channels: 2 };
    let region = Region { channel: 2, channels: 2, offset: 1, len: 3, ..REGION };
    for (from, to) in surfaces(4, 3).into_iter().zip(surfaces(4, 5)) {
        from.write_f32(&values).unwrap();
        let (mut wide, mut half) = ([0.0; 6], [f16::ZERO; 6]);
        read_tap(&from.read().unwrap(), &tap, &mut wide).unwrap();
        assert_eq!(wide, [3., 4., 5., 6., 7., 8.]);
        read_tap_f16(&from.read().unwrap(), &tap, &mut half).unwrap();
        assert_eq!(half.map(f16::to_f32), wide);
        copy_tap(&from.read().unwrap(), &tap, &mut to.write().unwrap(), &region).unwrap();
        assert_eq!(to.read_f32().unwrap()[10..], [0., 3., 4., 5., 0., 0., 6., 7., 8., 0.]);
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_writes_nothing() {
    let [surface, _] = surfaces(4, 5);
    let mut access = surface.write().unwrap();
    let refused = |result: ferrane_device::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Layout);
    refused(write_region(&mut access, &REGION, &[1.0; 5]));
    refused(write_region(&mut access, &Region { offset: 3, ..REGION }, &[1.0; 6]));
    refused(write_region(&mut access, &Region { channel: 3, ..REGION }, &[1.0; 6]));
    refused(write_region(&mut access, &Region { channel: usize::MAX, ..REGION }, &[1.0; 6]));
    refused(write_region(&mut access, &Region { channels: 0, ..REGION }, &[]));
    refused(write_region_tiled(&mut access, &REGION, &[f16::ONE; 3], 1, 3));
    refused(write_region_tiled(&mut access, &REGION, &[f16::ONE; 3], 0, 1));
    refused(stage_weight(&mut access, &REGION, &[1.0; 7]));
    drop(access);
    assert_eq!(surface.read_f32().unwrap(), [0.0; 20]);
    let tap = Tap { name: "tap", channel: 3, channels: 2 };
    refused(read_tap(&surface.read().unwrap(), &tap, &mut [0.0; 10]));
    refused(read_tap_f16(&surface.read().unwrap(), &tap, &mut [f16::ZERO; 10]));
}
