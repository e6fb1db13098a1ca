//! Surface layouts, compared with the tensors of all samples.

use ferrane_hwx::Hwx;
use ferrane_hwx::container::{BarUse, TensorView};
use ferrane_hwx::surface::{PAGE, SurfaceLayout};
use ferrane_testdata::Suite;
use proptest::prelude::*;

use crate::samples;

fn check(hwx: &Hwx, tensor: &TensorView) -> Result<(), String> {
    let surface = SurfaceLayout::of_tensor(tensor).map_err(|e| e.to_string())?;
    let [n, c, h, w, _] = tensor.nchwd;
    let own = SurfaceLayout::fp16([n, c, h, w]).map_err(|e| e.to_string())?;
    if tensor.type_name() == "fp16" && surface != own {
        return Err(format!("{own:?}, not {surface:?}"));
    }
    if surface.bytes() != tensor.bytes {
        return Err(format!("{:#x} bytes, not {:#x}", surface.bytes(), tensor.bytes));
    }
    // The segment around a tensor is its buffer.
    let bound = ferrane_hwx::container::Bindings::of(hwx, &hwx.programs()[0]);
    let held = |u: &BarUse| matches!(u, BarUse::Port(name) if *name == tensor.symbol || *name == tensor.name);
    let address = bound.bars.iter().find(|b| held(&b.holds)).map(|b| b.address);
    let segment = hwx.segments().into_iter().find(|s| Some(s.vmaddr) == address);
    match segment {
        Some(s) if s.vmsize != surface.buffer_bytes() => {
            Err(format!("a buffer of {:#x} bytes, not {:#x}", surface.buffer_bytes(), s.vmsize))
        }
        Some(_) => Ok(()),
        None => Err("it has no segment".to_string()),
    }
}

#[test]
fn tensors_of_samples() {
    let Some(mut suite) = Suite::open("hwx-surfaces", "hwx") else { return };
    for (name, bytes) in samples::programs(&suite) {
        let Ok(hwx) = Hwx::read(&bytes) else { continue };
        for tensor in hwx.tensors() {
            suite.case(&format!("{name}: {}", tensor.name), check(&hwx, &tensor));
        }
    }
    suite.finish();
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(SurfaceLayout::fp16([1, 1, 1, 0]).is_err());
    assert!(SurfaceLayout::fp16([u32::MAX; 4]).is_err());
    let surface = SurfaceLayout::fp16([1, 64, 8, 1]).unwrap();
    assert_eq!((surface.row, surface.plane, surface.buffer_bytes()), (64, 512, 2 * PAGE));
    assert!(surface.untile(&[0; 100]).is_err() && surface.tile(&[0; 3], &mut [0; 0x8000]).is_err());
    let error = surface.tile(&[0; 1024], &mut [0; 0x7fff]).unwrap_err();
    assert!(error.to_string().contains("0x8000"), "{error}");
}

proptest! {
    #[test]
    fn interleaved_channels_stand_side_by_side(c in 1u32..20, h in 1u32..4, w in 1u32..20, side in 1u32..9) {
        let (row, planes) = (u64::from(2 * w * side).next_multiple_of(64), u64::from(c.div_ceil(side)));
        let plane = row * u64::from(h);
        let surface = SurfaceLayout { nchw: [1, c, h, w], element: 2, interleave: side, row, plane, batch: planes * plane };
        let numbers = 0..(c * h * w) as u16;
        let dense: Vec<u8> = numbers.flat_map(|i| (i + 1).to_le_bytes()).collect();
        let mut bytes = vec![0xee; surface.bytes() as usize];
        surface.tile(&dense, &mut bytes).unwrap();
        prop_assert_eq!(surface.untile(&bytes).unwrap(), &dense[..]);
        for (i, value) in dense.chunks_exact(2).enumerate() {
            let i = i as u32;
            let (channel, y, x) = (i / (h * w), i / w % h, i % w);
            let place = channel / side * plane as u32 + y * row as u32 + 2 * (x * side + channel % side);
            prop_assert_eq!(&bytes[place as usize..place as usize + 2], value);
        }
        let set = bytes.chunks_exact(2).filter(|b| *b != [0, 0]).count();
        prop_assert_eq!(2 * set, dense.len());
    }

    #[test]
    fn untiling_is_the_inverse(n in 1u32..3, c in 1u32..6, h in 1u32..6, w in 1u32..80) {
        let surface = SurfaceLayout::fp16([n, c, h, w]).unwrap();
        let dense: Vec<u8> = (0..surface.dense_bytes()).map(|i| i as u8 | 1).collect();
        let mut bytes = vec![0xee; surface.buffer_bytes() as usize];
        surface.tile(&dense, &mut bytes).unwrap();
        prop_assert_eq!(surface.untile(&bytes).unwrap(), &dense[..]);
        // Each element is at the offset that the strides give, with zeros between.
        let last = ((n - 1) as u64 * surface.batch + (c - 1) as u64 * surface.plane + (h - 1) as u64 * surface.row) as usize;
        prop_assert_eq!(&bytes[last..last + 2 * w as usize], &dense[dense.len() - 2 * w as usize..]);
        let set = bytes.iter().filter(|b| **b != 0).count();
        prop_assert_eq!(set, dense.len());
    }
}
