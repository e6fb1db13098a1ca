use super::*;
use proptest::prelude::*;

/// fp32 values around every decision of the rounding, for each fp16 value: it, the midpoint to its
/// upper neighbor, and one step of fp32 either side.
fn edges() -> Vec<f32> {
    let mut values = vec![0.0, -0.0, 65504.0, 65519.996, 65520.0, 65536.0, f32::MAX, f32::MIN, f32::INFINITY];
    values.extend([f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::MIN_POSITIVE, f32::from_bits(1), 2.9802322e-8]);
    values.extend([f32::from_bits(0x7F80_0001), f32::from_bits(0xFFC0_2001), f32::from_bits(0x7FBF_FFFF)]);
    for bits in 0..0x7C00u16 {
        let low = f16::from_bits(bits).to_f32();
        let high = if bits + 1 == 0x7C00 { 65536.0 } else { f16::from_bits(bits + 1).to_f32() };
        let middle = (low + high) / 2.0;
        for value in [low, middle] {
            for delta in [-1i32, 0, 1] {
                let near = f32::from_bits(value.to_bits().wrapping_add_signed(delta) & 0x7FFF_FFFF);
                values.extend([near, -near]);
            }
        }
    }
    values
}

type Narrow = fn(&[f32], &mut [f16]);

/// Every path that this processor can take.
fn narrowings() -> Vec<(&'static str, Narrow)> {
    let mut paths: Vec<(&'static str, Narrow)> = vec![("chosen", f32_to_f16)];
    #[cfg(target_arch = "x86_64")]
    if x86::has_f16c() {
        // SAFETY: checked above.
        paths.push(("f16c", |s, d| unsafe { x86::f32_to_f16_f16c(s, d) }));
    }
    paths.push(("half", |s, d| d.convert_from_f32_slice(s)));
    paths
}

#[test]
fn all_halves_widen_exactly() {
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let mut wide = vec![0.0; halves.len()];
    let check = |wide: &[f32]| {
        for (h, w) in halves.iter().zip(wide) {
            assert_eq!(h.to_f32().to_bits(), w.to_bits(), "{h:?}");
        }
    };
    f16_to_f32(&halves, &mut wide);
    check(&wide);
    #[cfg(target_arch = "x86_64")]
    if x86::has_f16c() {
        wide.fill(0.0);
        // SAFETY: checked above.
        unsafe { x86::f16_to_f32_f16c(&halves, &mut wide) };
        check(&wide);
    }
    // And back: what is a half already stays as it is (signaling NaNs become quiet).
    let mut back = vec![f16::ZERO; halves.len()];
    f32_to_f16(&wide, &mut back);
    for (h, b) in halves.iter().zip(&back) {
        let quiet = if h.is_nan() { h.to_bits() | 0x0200 } else { h.to_bits() };
        assert_eq!(quiet, b.to_bits());
    }
}

#[test]
fn edges_round_as_ieee() {
    let values = edges();
    for (name, narrow) in narrowings() {
        let mut got = vec![f16::ZERO; values.len()];
        narrow(&values, &mut got);
        for (v, g) in values.iter().zip(&got) {
            assert_eq!(f16::from_f32_const(*v).to_bits(), g.to_bits(), "{name}: {v:e} {:08x}", v.to_bits());
        }
    }
    let mut rounded = values.clone();
    round_f16(&mut rounded);
    for (v, r) in values.iter().zip(&rounded) {
        assert_eq!(f16::from_f32_const(*v).to_f32().to_bits(), r.to_bits(), "{v:e}");
    }
    #[cfg(target_arch = "x86_64")]
    if x86::has_f16c() {
        let mut again = values.clone();
        // SAFETY: checked above.
        unsafe { x86::round_f16_f16c(&mut again) };
        assert!(again.iter().zip(&rounded).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

#[test]
fn bytes_widen() {
    let bytes: Vec<i8> = (i8::MIN..=i8::MAX).collect();
    let mut wide = vec![0.0; 256];
    i8_to_f32(&bytes, &mut wide);
    assert!(bytes.iter().zip(&wide).all(|(&b, &w)| w == b as f32));
}

#[test]
fn large_jobs_are_cut_at_the_right_places() {
    // Large enough for several pool tasks in each function, with ragged ends.
    let (rows, cols) = (301, 1003);
    let (ss, ds) = (cols + 5, cols + 9);
    let src: Vec<f32> = (0..rows * ss).map(|i| (i % 2039) as f32 * 0.37 - 300.0).collect();
    let mut dst = vec![f16::NEG_INFINITY; rows * ds];
    f32_rows_to_f16(&src, ss, &mut dst, ds, rows, cols);
    let mut wide = vec![0.0; rows * cols];
    f16_rows_to_f32(&dst, ds, &mut wide, cols, rows, cols);
    let ts = rows + 3;
    let mut turned = vec![f16::NEG_INFINITY; cols * ts];
    f32_to_f16_transposed(&src, ss, &mut turned, ts, rows, cols);
    let mut wide_turned = vec![0.0; cols * rows];
    f16_to_f32_transposed(&dst, ds, &mut wide_turned, rows, rows, cols);
    for r in 0..rows {
        for c in 0..ds {
            let want = if c < cols { f16::from_f32(src[r * ss + c]) } else { f16::NEG_INFINITY };
            assert_eq!(dst[r * ds + c].to_bits(), want.to_bits());
        }
        for c in 0..cols {
            let want = f16::from_f32(src[r * ss + c]);
            assert_eq!(wide[r * cols + c], want.to_f32());
            assert_eq!(turned[c * ts + r], want);
            assert_eq!(wide_turned[c * rows + r], want.to_f32());
        }
    }
    assert!((0..cols).all(|c| turned[c * ts + rows..][..3].iter().all(|&h| h == f16::NEG_INFINITY)));
}

proptest! {
    #[test]
    fn any_bits_round_as_half_does(bits in proptest::collection::vec(any::<u32>(), 0..70)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for (_, narrow) in narrowings() {
            let mut got = vec![f16::ZERO; values.len()];
            narrow(&values, &mut got);
            for (v, g) in values.iter().zip(&got) {
                prop_assert_eq!(f16::from_f32_const(*v).to_bits(), g.to_bits());
            }
        }
    }

    #[test]
    fn rows_and_transpositions(rows in 0usize..40, cols in 0usize..40, sp in 0usize..4, dp in 0usize..4) {
        let src: Vec<f32> = (0..rows * (cols + sp)).map(|i| i as f32 * 0.731 - 90.0).collect();
        let mut dst = vec![f16::NAN; rows * (cols + dp)];
        f32_rows_to_f16(&src, cols + sp, &mut dst, cols + dp, rows, cols);
        let mut turned = vec![f16::NAN; cols * (rows + dp)];
        f32_to_f16_transposed(&src, cols + sp, &mut turned, rows + dp, rows, cols);
        let mut back = vec![f32::NAN; rows * (cols + sp)];
        f16_to_f32_transposed(&turned, rows + dp, &mut back, cols + sp, cols, rows);
        let mut moved = vec![f16::NAN; cols * (rows + sp)];
        transpose_f16(&dst, cols + dp, &mut moved, rows + sp, rows, cols);
        for r in 0..rows {
            for c in 0..cols {
                let want = f16::from_f32(src[r * (cols + sp) + c]);
                prop_assert_eq!(dst[r * (cols + dp) + c], want);
                prop_assert_eq!(turned[c * (rows + dp) + r], want);
                prop_assert_eq!(moved[c * (rows + sp) + r], want);
                prop_assert_eq!(back[r * (cols + sp) + c], want.to_f32());
            }
        }
    }
}

#[test]
fn numbers_of_files() {
    // One byte off, so that no element is aligned.
    let values: Vec<f32> = (0..3000).map(|i| (i as f32 - 1500.0) * 0.37).collect();
    let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
    let le = |bytes: &mut dyn Iterator<Item = Vec<u8>>| [vec![9], bytes.flatten().collect()].concat();
    let wide = le(&mut values.iter().map(|v| v.to_le_bytes().to_vec()));
    let half = le(&mut halves.iter().map(|v| v.to_le_bytes().to_vec()));
    let brain = le(&mut values.iter().map(|v| half::bf16::from_f32(*v).to_le_bytes().to_vec()));
    let (mut found, mut narrow) = (vec![0.0; 3000], vec![f16::ZERO; 3000]);
    bytes::f32_from_le(&wide[1..], &mut found);
    assert_eq!(found, values);
    bytes::f16_to_f32_from_le(&half[1..], &mut found);
    assert_eq!(found, halves.iter().map(|v| v.to_f32()).collect::<Vec<_>>());
    bytes::f16_from_le(&half[1..], &mut narrow);
    assert_eq!(narrow, halves);
    bytes::bf16_to_f32_from_le(&brain[1..], &mut found);
    assert_eq!(found, values.iter().map(|v| half::bf16::from_f32(*v).to_f32()).collect::<Vec<_>>());
    narrow.fill(f16::ZERO);
    let read = |at: usize, part: &mut [f32]| {
        part.copy_from_slice(&values[at..][..part.len()]);
        if at < 4096 { Ok(()) } else { Err(()) }
    };
    bytes::f16_through_f32(&mut narrow, read).unwrap();
    assert_eq!(narrow, halves);
    assert_eq!(bytes::f16_through_f32(&mut narrow, |at, _| if at == 2048 { Err(at) } else { Ok(()) }), Err(2048));
}
