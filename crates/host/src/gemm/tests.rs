use super::*;
use proptest::prelude::*;

/// A pool of this many threads.
fn pool_of(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// Reproducible values in about [-1, 1), all exact in fp16.
pub(super) fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as i32 % 1024) as f32 / 1024.0
        })
        .collect()
}

/// How a matrix lies in memory: which dimension is inner, gaps, direction.
#[derive(Clone, Copy, Debug)]
struct Layout {
    row_major: bool,
    step: usize,
    gap: usize,
    flip_rows: bool,
    flip_cols: bool,
}

impl Layout {
    const DENSE: Layout = Layout { row_major: true, step: 1, gap: 0, flip_rows: false, flip_cols: false };

    fn strides(self, rows: usize, cols: usize) -> (isize, isize, usize) {
        let (inner, outer) = if self.row_major { (cols, rows) } else { (rows, cols) };
        let pitch = inner * self.step + self.gap;
        let (mut rs, mut cs) = if self.row_major { (pitch, self.step) } else { (self.step, pitch) };
        (rs, cs) = (rs.max(1), cs.max(1));
        let sign = |s: usize, flip: bool| if flip { -(s as isize) } else { s as isize };
        (sign(rs, self.flip_rows), sign(cs, self.flip_cols), outer * pitch + 1)
    }

    fn at(self, rows: usize, cols: usize, r: usize, c: usize) -> usize {
        let (rs, cs, _) = self.strides(rows, cols);
        let r = if self.flip_rows { rows - 1 - r } else { r };
        let c = if self.flip_cols { cols - 1 - c } else { c };
        r * rs.unsigned_abs() + c * cs.unsigned_abs()
    }
}

/// Runs `gemm` on matrices given as functions of (row, column) and compares with a plain loop in
/// fp64.
fn check(
    kernels: &'static Kernels,
    m: usize,
    n: usize,
    k: usize,
    layouts: [Layout; 3],
    kinds: [ElementType; 3],
    epilogue: Epilogue<'_>,
) {
    let (ls, rs, os) = (layouts[0].strides(m, k), layouts[1].strides(k, n), layouts[2].strides(m, n));
    let fetch = |data: &[f32], kind: ElementType| -> (Vec<f32>, Vec<f16>, Vec<i8>) {
        let data: Vec<f32> =
            data.iter().map(|v| if kind == ElementType::I8 { (v * 15.0).trunc() } else { *v }).collect();
        let halves = data.iter().map(|&v| f16::from_f32(v)).collect();
        let bytes = data.iter().map(|&v| v as i8).collect();
        (data, halves, bytes)
    };
    let (l32, l16, l8) = fetch(&values(ls.2, 1), kinds[0]);
    let (r32, r16, r8) = fetch(&values(rs.2, 2), kinds[1]);
    let lhs = match kinds[0] {
        ElementType::F32 => Operand::F32(View::new(&l32, m, k, ls.0, ls.1).unwrap()),
        ElementType::F16 => Operand::F16(View::new(&l16, m, k, ls.0, ls.1).unwrap()),
        ElementType::I8 => Operand::I8(View::new(&l8, m, k, ls.0, ls.1).unwrap()),
    };
    let rhs = match kinds[1] {
        ElementType::F32 => Operand::F32(View::new(&r32, k, n, rs.0, rs.1).unwrap()),
        ElementType::F16 => Operand::F16(View::new(&r16, k, n, rs.0, rs.1).unwrap()),
        ElementType::I8 => Operand::I8(View::new(&r8, k, n, rs.0, rs.1).unwrap()),
    };
    // The old contents must not matter unless the product accumulates, so they are NaN.
    let before = if epilogue.accumulate { values(os.2, 3) } else { vec![f32::NAN; os.2] };
    let mut o32 = before.clone();
    let mut o16: Vec<f16> = before.iter().map(|&v| f16::from_f32(v)).collect();
    let out = match kinds[2] {
        ElementType::F16 => Output::F16(ViewMut::new(&mut o16, m, n, os.0, os.1).unwrap()),
        _ => Output::F32(ViewMut::new(&mut o32, m, n, os.0, os.1).unwrap()),
    };
    run(kernels, &[BatchOffsets::default()], lhs, rhs, out, epilogue).unwrap();
    let mut touched = vec![false; os.2];
    for r in 0..m {
        for c in 0..n {
            let (mut sum, mut magnitude) = (0f64, 0f64);
            let factors = |d: usize| {
                let at = [layouts[0].at(m, k, r, d), layouts[1].at(k, n, d, c)];
                (f64::from(l32[at[0]]), f64::from(r32[at[1]]))
            };
            for (a, b) in (0..k).map(factors) {
                sum += a * b;
                magnitude += (a * b).abs();
            }
            let place = layouts[2].at(m, n, r, c);
            touched[place] = true;
            let factor = f64::from(epilogue.scale)
                * match epilogue.scales {
                    None => 1.0,
                    Some(Scales::Rows(s)) => f64::from(s[r]),
                    Some(Scales::Cols(s)) => f64::from(s[c]),
                };
            let mut want = factor * sum;
            if epilogue.accumulate {
                want += f64::from(before[place]);
            }
            want += match epilogue.bias {
                None => 0.0,
                Some(Bias::Rows(b)) => f64::from(b[r]),
                Some(Bias::Cols(b)) => f64::from(b[c]),
            };
            let half = kinds[2] == ElementType::F16;
            let got = if half { o16[place].to_f32() } else { o32[place] };
            // At most k roundings of fp32, on terms of this magnitude; then one of fp16 (2^-11, or
            // half of 2^-24).
            let mut bound = (k + 4) as f64 * 2f64.powi(-24) * (magnitude * factor.abs() + 3.0);
            if epilogue.blocks && kernels.blocks().is_some() {
                bound += factor.abs() * blocks_bound((0..k).map(factors));
            }
            if half || epilogue.round {
                bound += want.abs() * 2f64.powi(-11) + 2f64.powi(-25);
            }
            assert!((f64::from(got) - want).abs() <= bound, "({r}, {c}): {got} is not {want} ± {bound}");
            if epilogue.round {
                assert_eq!(got, f16::from_f32(got).to_f32());
            }
        }
    }
    // Nothing between the places was written.
    for (i, _) in touched.iter().enumerate().filter(|(_, t)| !**t) {
        assert_eq!(o32[i].to_bits(), before[i].to_bits());
        assert_eq!(o16[i].to_bits(), f16::from_f32(before[i]).to_bits());
    }
}

/// A bound of the error of sums in block floating point. The integers of a block are within ½ of
/// values of a norm of at least 32767, so the error of either factor is at most √32 / 2 / 32767 of
/// the product of the norms.
fn blocks_bound(factors: impl Iterator<Item = (f64, f64)>) -> f64 {
    let all: Vec<_> = factors.collect();
    let norms = |block: &[(f64, f64)]| block.iter().fold((0.0, 0.0), |sums, (a, b)| (sums.0 + a * a, sums.1 + b * b));
    all.chunks(32).map(norms).map(|(a, b)| (a * b).sqrt() * 32f64.sqrt() / 32766.0).sum()
}

fn lay() -> impl Strategy<Value = Layout> {
    (any::<bool>(), 1usize..4, 0usize..4, any::<bool>(), any::<bool>())
        .prop_map(|(row_major, step, gap, flip_rows, flip_cols)| Layout { row_major, step, gap, flip_rows, flip_cols })
}

fn kind() -> impl Strategy<Value = ElementType> {
    prop_oneof![Just(ElementType::F32), Just(ElementType::F16), Just(ElementType::I8)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_shape_any_strides(
        (m, n, k) in (0usize..40, 0usize..40, 0usize..40),
        layouts in [lay(), lay(), lay()],
        kinds in [kind(), kind(), kind()],
        (scale, accumulate, round) in (prop_oneof![Just(1.0f32), Just(-0.25)], any::<bool>(), any::<bool>()),
        (bias, scales) in (0..3, 0..3),
    ) {
        // There are no int8 outputs.
        let kinds = [kinds[0], kinds[1], if kinds[2] == ElementType::F16 { ElementType::F16 } else { ElementType::F32 }];
        let (rows, cols) = (values(m, 5), values(n, 6));
        let bias = [None, Some(Bias::Rows(&rows)), Some(Bias::Cols(&cols))][bias as usize];
        let scales = [None, Some(Scales::Rows(&rows)), Some(Scales::Cols(&cols))][scales as usize];
        let accumulate = accumulate && kinds[2] == ElementType::F32;
        for kernels in isa::all() {
            check(kernels, m, n, k, layouts, kinds, Epilogue { scale, scales, accumulate, round, bias, ..Epilogue::default() });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Shapes that are summed in block floating point.
    #[test]
    fn factors_of_whole_blocks(
        (m, n, blocks) in (20usize..80, 20usize..80, 1usize..6),
        layouts in [lay(), lay(), lay()],
        halves in any::<[bool; 2]>(),
        (half, scale, accumulate, round) in (any::<bool>(), prop_oneof![Just(1.0f32), Just(-0.25)], any::<bool>(), any::<bool>()),
        (bias, scales) in (0..3, 0..3),
    ) {
        let (rows, cols) = (values(m, 5), values(n, 6));
        let bias = [None, Some(Bias::Rows(&rows)), Some(Bias::Cols(&cols))][bias as usize];
        let scales = [None, Some(Scales::Rows(&rows)), Some(Scales::Cols(&cols))][scales as usize];
        let kind = |half| if half { ElementType::F16 } else { ElementType::F32 };
        let kinds = [kind(halves[0]), kind(halves[1]), kind(half)];
        for kernels in isa::all() {
            let epilogue = Epilogue { scale, scales, accumulate: accumulate && !half, round, bias, blocks: true, ..Epilogue::default() };
            check(kernels, m, n, 32 * blocks, layouts, kinds, epilogue);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// The beginning of a product whose other terms are zero has the bits of the whole.
    #[test]
    fn terms_that_are_zero_may_be_left_out(
        (m, n) in (1usize..70, 1usize..70),
        (k, whole) in (1usize..30).prop_flat_map(|whole| (1..=whole, Just(whole))),
        layouts in [lay(), lay()],
        blocks in any::<bool>(),
    ) {
        let (k, whole) = (64 * k, 64 * whole - if blocks { 0 } else { 17 });
        let k = k.min(whole);
        // A view from the last element on would begin with the terms that are zero.
        let layouts = layouts.map(|layout| Layout { flip_rows: false, flip_cols: false, ..layout });
        let (ls, rs) = (layouts[0].strides(m, whole), layouts[1].strides(whole, n));
        let (mut l, r) = (values(ls.2, 1), values(rs.2, 2));
        (0..m).for_each(|row| (k..whole).for_each(|d| l[layouts[0].at(m, whole, row, d)] = 0.0));
        let product = |kernels, k: usize| {
            let lhs = Operand::F32(View::new(&l, m, k, ls.0, ls.1).unwrap());
            let rhs = Operand::F32(View::new(&r, k, n, rs.0, rs.1).unwrap());
            let mut out = vec![f32::NAN; m * n];
            let to = Output::F32(ViewMut::row_major(&mut out, m, n).unwrap());
            let epilogue = Epilogue { blocks, of_depth: Some(whole), ..Epilogue::default() };
            run(kernels, &[BatchOffsets::default()], lhs, rhs, to, epilogue).unwrap();
            out.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        for kernels in isa::all() {
            prop_assert!(product(kernels, k) == product(kernels, whole), "{} of {}", k, whole);
        }
    }
}

/// `lhs · rhsᵀ` of fp16 rows, by the best kernels or in fp32.
fn halves_product(lhs: &[f16], rhs: &[f16], k: usize, blocks: bool, out: &mut [f32], accumulate: bool) {
    let (m, n) = (lhs.len() / k, rhs.len() / k);
    let l = Operand::F16(View::row_major(lhs, m, k).unwrap());
    let r = Operand::F16(View::row_major(rhs, n, k).unwrap().t());
    let to = Output::F32(ViewMut::row_major(out, m, n).unwrap());
    gemm(l, r, to, Epilogue { accumulate, blocks, ..Epilogue::default() }).unwrap();
}

/// Normally distributed values times `scale(i)`.
fn normal(n: usize, seed: u64, scale: impl Fn(usize) -> f32) -> Vec<f16> {
    let mut rng = crate::random::Rng::new(seed);
    (0..n).map(|i| f16::from_f32(rng.normal() as f32 * scale(i))).collect()
}

#[test]
fn block_floating_point_adds_little_to_the_rounding_to_fp16() {
    let (m, n, k) = (64, 96, 768);
    // Values of one magnitude; rows and blocks of other magnitudes; one value in 64 that is 30
    // times as large as the others.
    let scales: [fn(usize) -> f32; 3] =
        [|_| 1.0, |i| [1.0, 0.01, 100.0][i / 48 % 3], |i| if i % 64 == 7 { 30.0 } else { 1.0 }];
    for (case, scale) in scales.into_iter().enumerate() {
        let (a, b) = (normal(m * k, 1, scale), normal(n * k, 2, |_| 0.02));
        let mut got = vec![0.0; m * n];
        halves_product(&a, &b, k, true, &mut got, false);
        let (mut errors, mut rounding) = (0f64, 0f64);
        for (i, got) in got.iter().enumerate() {
            let rows = a[i / n * k..].iter().zip(&b[i % n * k..]).take(k);
            let want: f64 = rows.map(|(a, b)| a.to_f64() * b.to_f64()).sum();
            errors += (f64::from(*got) - want).powi(2);
            rounding += (f16::from_f64(want).to_f64() - want).powi(2);
        }
        let ratio = (errors / rounding).sqrt();
        assert!(ratio < 0.4, "case {case}: {ratio} of the rounding to fp16");
    }
}

#[test]
fn the_largest_sums_of_blocks_fit() {
    // Equal values have the largest sum for their norms, in every partial sum.
    let (m, n, k) = (32, 40, 64);
    for (a, b) in [(65504.0, 65504.0), (65504.0, -65504.0), (6e-8, 6e-8), (1.0, 3e-5), (-0.0, 1.0)] {
        let (l, r) = (vec![f16::from_f32(a); m * k], vec![f16::from_f32(b); n * k]);
        let mut got = vec![f32::NAN; m * n];
        halves_product(&l, &r, k, true, &mut got, false);
        let want = l[0].to_f64() * r[0].to_f64() * k as f64;
        for got in got {
            assert!((f64::from(got) - want).abs() <= want.abs() * 1e-4, "{a} · {b}: {got} is not {want}");
        }
    }
}

#[test]
fn special_values_and_selections_are_summed_in_fp32() {
    let (m, n, k) = (48, 56, 64);
    let plain = normal(m * k, 1, |_| 1.0);
    let right = normal(n * k, 2, |i| if i % 3 == 0 { 1e-3 } else { 1.0 });
    let with = |value: f32| {
        let mut values = plain.clone();
        values[5 * k + 3] = f16::from_f32(value);
        values
    };
    // A permutation, one value in each block, and the rows of a rotation.
    let one = |at: fn(usize) -> usize| {
        let mut values = vec![f16::ZERO; m * k];
        (0..m).for_each(|i| values[i * k + at(i)] = f16::ONE);
        values
    };
    let lefts = [with(f32::INFINITY), with(f32::NAN), one(|i| (7 * i + 3) % 64), one(|i| i ^ 1)];
    for (case, left) in lefts.iter().enumerate() {
        for accumulate in [false, true] {
            let mut results = [vec![0.25; m * n], vec![0.25; m * n]];
            for (blocks, result) in [true, false].into_iter().zip(&mut results) {
                halves_product(left, &right, k, blocks, result, accumulate);
            }
            let bits = |i: usize| results[i].iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(0) == bits(1), "case {case}");
            // The same on the right.
            let mut turned = [vec![0.25; m * n], vec![0.25; m * n]];
            halves_product(&right, left, k, true, &mut turned[0], accumulate);
            halves_product(&right, left, k, false, &mut turned[1], accumulate);
            let bits = |i: usize| turned[i].iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(0) == bits(1), "case {case}, on the right");
        }
    }
}

#[test]
fn vectors_and_large_shapes() {
    let turned = Layout { row_major: false, ..Layout::DENSE };
    for (m, n, k) in [(1, 300, 700), (300, 1, 700), (1, 1, 3000), (130, 70, 1), (257, 130, 515), (64, 1030, 129)] {
        for (l, r) in
            [(Layout::DENSE, Layout::DENSE), (turned, Layout::DENSE), (Layout::DENSE, turned), (turned, turned)]
        {
            for kernels in isa::all() {
                check(
                    kernels,
                    m,
                    n,
                    k,
                    [l, r, Layout::DENSE],
                    [ElementType::F16, ElementType::F32, ElementType::F16],
                    Epilogue::default(),
                );
                check(
                    kernels,
                    m,
                    n,
                    k,
                    [l, r, turned],
                    [ElementType::F32, ElementType::F16, ElementType::F32],
                    Epilogue::default(),
                );
            }
        }
    }
}

/// A product's bits on pools of one, two, three and five threads.
#[test]
fn bits_do_not_depend_on_threads() {
    let shapes = [(256, 768, 768), (256, 768, 2048), (300, 515, 1037), (2048, 64, 256), (1, 999, 777), (96, 1, 4100)];
    for (m, n, k) in shapes {
        let (a, b) = (values(m * k, 7), values(k * n, 8));
        let b16: Vec<f16> = b.iter().map(|&v| f16::from_f32(v)).collect();
        for half in [false, true] {
            let product = || {
                let mut out = vec![0f32; m * n];
                let rhs = if half {
                    Operand::F16(View::row_major(&b16, n, k).unwrap().t())
                } else {
                    Operand::F32(View::row_major(&b, k, n).unwrap())
                };
                let lhs = Operand::F32(View::row_major(&a, m, k).unwrap());
                gemm(lhs, rhs, Output::F32(ViewMut::row_major(&mut out, m, n).unwrap()), Epilogue::default()).unwrap();
                out
            };
            let one = pool_of(1).install(product);
            for threads in [2, 3, 5] {
                let many = pool_of(threads).install(product);
                assert!(one.iter().zip(&many).all(|(x, y)| x.to_bits() == y.to_bits()), "{m}×{n}×{k} on {threads}");
            }
        }
    }
}

/// Heads of attention: `[seq, heads, dim]` operands and output, interleaved, side by side and
/// serial.
#[test]
fn interleaved_batch() {
    let (heads, seq, dim) = (12, 64, 32);
    let width = heads * dim;
    let q: Vec<f16> = values(seq * width, 1).into_iter().map(f16::from_f32).collect();
    let k: Vec<f16> = values(seq * width, 2).into_iter().map(f16::from_f32).collect();
    let items: Vec<BatchOffsets> =
        (0..heads).map(|h| BatchOffsets { lhs: h * dim, rhs: h * dim, out: h * seq * seq }).collect();
    let mut scores = vec![f16::NAN; heads * seq * seq];
    let view = |data| View::new(data, seq, dim, width as isize, 1).unwrap();
    let out = Output::F16(ViewMut::row_major(&mut scores, seq, seq).unwrap());
    let epilogue = Epilogue { scale: 0.125, ..Epilogue::default() };
    gemm_batch(&items, Operand::F16(view(&q)), Operand::F16(view(&k)).t(), out, epilogue).unwrap();
    for (h, item) in items.iter().enumerate() {
        let mut one = vec![f16::NAN; seq * seq];
        let out = Output::F16(ViewMut::row_major(&mut one, seq, seq).unwrap());
        let (l, r) = (View::new(&q[item.lhs..], seq, dim, width as isize, 1), &k[item.rhs..]);
        let r = View::new(r, seq, dim, width as isize, 1).unwrap();
        gemm(Operand::F16(l.unwrap()), Operand::F16(r).t(), out, epilogue).unwrap();
        assert_eq!(&scores[h * seq * seq..][..seq * seq], &one[..], "head {h}");
    }
    // scores · v, written between the other heads.
    let mut mixed = vec![f32::NAN; seq * width];
    let back: Vec<BatchOffsets> = items.iter().map(|i| BatchOffsets { lhs: i.out, rhs: i.rhs, out: i.rhs }).collect();
    let out = Output::F32(ViewMut::new(&mut mixed, seq, dim, width as isize, 1).unwrap());
    let lhs = Operand::F16(View::row_major(&scores, seq, seq).unwrap());
    gemm_batch(&back, lhs, Operand::F16(view(&k)), out, Epilogue::default()).unwrap();
    for (r, h, d) in [(0, 0, 0), (63, 11, 31), (17, 5, 9)] {
        let factors =
            (0..seq).map(|j| (scores[h * seq * seq + r * seq + j].to_f64(), k[j * width + h * dim + d].to_f64()));
        let want: f64 = factors.map(|(a, b)| a * b).sum();
        assert!((f64::from(mixed[r * width + h * dim + d]) - want).abs() < 1e-4);
    }
    assert!(mixed.iter().all(|v| v.is_finite()));
}

#[test]
fn disjointness() {
    let grid = Grid { rows: 4, cols: 3, row_stride: 12, col_stride: 1 };
    let target = Target { grid, store: Store::F32(std::ptr::null_mut()) };
    let at = |places: &[usize]| {
        places.iter().map(|&out| BatchOffsets { out, ..BatchOffsets::default() }).collect::<Vec<_>>()
    };
    assert!(disjoint(&at(&[0, 3, 6, 9]), &target));
    assert!(disjoint(&at(&[0, 3, 48, 51]), &target));
    assert!(disjoint(&at(&[100, 0]), &target));
    assert!(!disjoint(&at(&[0, 2]), &target));
    assert!(!disjoint(&at(&[0, 12]), &target));
    assert!(!disjoint(&at(&[10, 0]), &target), "a block that wraps over its row");
}

/// Items that write the same place run in order, so the last one stays (or all are added up).
#[test]
fn overlapping_items_run_in_order() {
    let n = 128;
    let (a, b) = (values(n * n * 4, 3), values(n * n, 4));
    let items: Vec<BatchOffsets> = (0..4).map(|i| BatchOffsets { lhs: i * n * n, rhs: 0, out: 0 }).collect();
    let mut last = vec![0f32; n * n];
    let operands =
        || (Operand::F32(View::row_major(&a, n, n).unwrap()), Operand::F32(View::row_major(&b, n, n).unwrap()));
    let (l, r) = operands();
    let out = Output::F32(ViewMut::row_major(&mut last, n, n).unwrap());
    gemm_batch(&items, l, r, out, Epilogue::default()).unwrap();
    let mut single = vec![0f32; n * n];
    let out = Output::F32(ViewMut::row_major(&mut single, n, n).unwrap());
    gemm_batch(&items[3..], l, r, out, Epilogue::default()).unwrap();
    assert_eq!(last, single);
}

/// Each size from 1 to 40 along each dimension, with every set's kernels: the tiles and panels at
/// the edges.
#[test]
fn tails() {
    let turned = Layout { row_major: false, ..Layout::DENSE };
    for kernels in isa::all() {
        for size in 1..=40 {
            for (m, n, k) in [(size, 37, 19), (37, size, 19), (19, 37, size), (size, 150, 70), (3, 70, 60 + size)] {
                for (l, r, o) in [(Layout::DENSE, turned, Layout::DENSE), (turned, Layout::DENSE, turned)] {
                    check(
                        kernels,
                        m,
                        n,
                        k,
                        [l, r, o],
                        [ElementType::F16, ElementType::F32, ElementType::F16],
                        Epilogue::default(),
                    );
                    check(
                        kernels,
                        m,
                        n,
                        k,
                        [l, r, o],
                        [ElementType::F32, ElementType::I8, ElementType::F32],
                        Epilogue::default(),
                    );
                }
            }
        }
    }
}

/// More depth than is packed at once, and more rows or columns than a chunk has.
#[test]
fn several_chunks() {
    let turned = Layout { row_major: false, ..Layout::DENSE };
    for kernels in isa::all() {
        for (m, n, k) in [(20, 33, 5000), (1600, 20, 700), (20, 1600, 700)] {
            let accumulate = Epilogue { accumulate: true, scale: -0.25, ..Epilogue::default() };
            check(
                kernels,
                m,
                n,
                k,
                [Layout::DENSE, turned, Layout::DENSE],
                [ElementType::F16, ElementType::F16, ElementType::F32],
                accumulate,
            );
            check(
                kernels,
                m,
                n,
                k,
                [turned; 3],
                [ElementType::F32, ElementType::F32, ElementType::F16],
                Epilogue::default(),
            );
        }
    }
}

/// Lines that are longer than what a task reads, in products with few rows and columns.
#[test]
fn long_lines() {
    let turned = Layout { row_major: false, ..Layout::DENSE };
    for kernels in isa::all() {
        let kinds = [ElementType::F32, ElementType::F32, ElementType::F32];
        check(
            kernels,
            4,
            16,
            drive::TASK_READS + 1,
            [Layout::DENSE, turned, Layout::DENSE],
            kinds,
            Epilogue::default(),
        );
    }
}

/// Items of a batch begin where their offsets say, also in a batch of one.
#[test]
fn offsets_move_the_views() {
    let (a, b) = (values(2000, 9), values(2000, 10));
    for (m, n, k) in [(30, 20, 25), (1, 40, 20), (40, 1, 20)] {
        let item = BatchOffsets { lhs: 5, rhs: 7, out: 3 };
        let mut moved = vec![f32::NAN; 1000];
        let operands = |a, b| {
            (Operand::F32(View::row_major(a, m, k).unwrap()), Operand::F32(View::row_major(b, n, k).unwrap()).t())
        };
        let (l, r) = operands(&a, &b);
        let out = Output::F32(ViewMut::row_major(&mut moved, m, n).unwrap());
        gemm_batch(&[item], l, r, out, Epilogue::default()).unwrap();
        let mut sliced = vec![f32::NAN; 1000];
        let (l, r) = operands(&a[5..], &b[7..]);
        let out = Output::F32(ViewMut::row_major(&mut sliced[3..], m, n).unwrap());
        gemm(l, r, out, Epilogue::default()).unwrap();
        assert!(moved.iter().zip(&sliced).all(|(x, y)| x.to_bits() == y.to_bits()));
        assert_eq!(moved.iter().filter(|v| !v.is_nan()).count(), m * n);
    }
}

/// One NaN or infinity reaches its row and its column, and nothing else, by every way through the
/// kernels.
#[test]
fn not_finite_stays_in_its_lines() {
    for kernels in isa::all() {
        for (m, n, k) in [(45, 50, 600), (3, 50, 77), (50, 3, 77)] {
            for turned in [false, true] {
                let (mut a, mut b) = (vec![0f32; m * k], vec![0f32; k * n]);
                (a[k + 2], b[n * (k - 1) + n - 1]) = (f32::NAN, f32::INFINITY);
                let rhs: Vec<f32> = if turned { (0..n * k).map(|i| b[i % k * n + i / k]).collect() } else { b.clone() };
                let rhs = if turned {
                    View::row_major(&rhs, n, k).unwrap().t()
                } else {
                    View::row_major(&rhs, k, n).unwrap()
                };
                let mut out = vec![1f32; m * n];
                let o = Output::F32(ViewMut::row_major(&mut out, m, n).unwrap());
                let lhs = Operand::F32(View::row_major(&a, m, k).unwrap());
                let item = [BatchOffsets::default()];
                run(kernels, &item, lhs, Operand::F32(rhs), o, Epilogue::default()).unwrap();
                for (i, v) in out.iter().enumerate() {
                    // 0 · NaN and 0 · infinity are NaN.
                    let wanted = i / n == 1 || i % n == n - 1;
                    assert!(if wanted { v.is_nan() } else { *v == 0.0 }, "{}: {v} at {i} of {m}×{n}", kernels.name);
                }
            }
        }
    }
}

#[test]
fn nan_and_infinity_pass_through_zeros() {
    let a = [0.0, 0.0, 0.0, 1.0, 2.0, 3.0];
    let b = [f32::NAN, 1.0, f32::INFINITY, 1.0, 0.0, 1.0];
    let mut out = [0f32; 4];
    let (l, r) = (View::row_major(&a, 2, 3).unwrap(), View::row_major(&b, 3, 2).unwrap());
    let o = ViewMut::row_major(&mut out, 2, 2).unwrap();
    gemm(Operand::F32(l), Operand::F32(r), Output::F32(o), Epilogue::default()).unwrap();
    assert!(out[0].is_nan() && out[2].is_nan());
    assert_eq!((out[1], out[3]), (0.0, 6.0));
}

#[test]
fn refusals() {
    let data = [0f32; 12];
    let mut out = [0f32; 12];
    let view = |r, c| Operand::F32(View::row_major(&data, r, c).unwrap());
    assert!(matches!(View::row_major(&data, 4, 4), Err(GemmError::OutOfBounds { .. })));
    assert!(matches!(View::new(&data, 2, 2, isize::MAX, isize::MIN), Err(GemmError::OutOfBounds { .. })));
    assert!(matches!(View::new(&data, usize::MAX, 2, 0, 13), Err(GemmError::OutOfBounds { .. })));
    assert!(View::new(&data, 1000, 2, 0, -11).is_ok(), "a repeated row");
    assert!(View::<f32>::row_major(&[], 0, 5).is_ok());
    for (rs, cs) in [(0, 1), (1, 1), (2, 1), (1, 2), (1, 0)] {
        assert!(matches!(ViewMut::new(&mut out, 3, 3, rs, cs), Err(GemmError::Overlap { .. })), "{rs} {cs}");
    }
    assert!(ViewMut::new(&mut out, 0, usize::MAX, 1, isize::MAX).is_ok(), "nothing to overlap");
    let o = Output::F32(ViewMut::row_major(&mut out, 3, 3).unwrap());
    let shape = GemmError::Shape { lhs: (3, 4), rhs: (3, 4), out: (3, 3) };
    assert_eq!(gemm(view(3, 4), view(3, 4), o, Epilogue::default()), Err(shape));
    let o = Output::F32(ViewMut::row_major(&mut out, 3, 3).unwrap());
    let epilogue = Epilogue { bias: Some(Bias::Rows(&data[..2])), ..Epilogue::default() };
    assert_eq!(gemm(view(3, 4), view(4, 3), o, epilogue), Err(GemmError::Bias { expected: 3, found: 2 }));
    let o = Output::F32(ViewMut::row_major(&mut out, 2, 2).unwrap());
    let items = [BatchOffsets::default(), BatchOffsets { lhs: 9, ..BatchOffsets::default() }];
    let failed = gemm_batch(&items, view(2, 2), view(2, 2), o, Epilogue::default());
    assert!(matches!(failed, Err(GemmError::OutOfBounds { offset: 9, .. })));
    let o = Output::F32(ViewMut::row_major(&mut out, 3, 3).unwrap());
    let epilogue = Epilogue { scales: Some(Scales::Cols(&data[..4])), ..Epilogue::default() };
    assert_eq!(gemm(view(3, 4), view(4, 3), o, epilogue), Err(GemmError::Scales { expected: 3, found: 4 }));
    let mut halves = [f16::ZERO; 4];
    let o = Output::F16(ViewMut::row_major(&mut halves, 2, 2).unwrap());
    let epilogue = Epilogue { accumulate: true, ..Epilogue::default() };
    assert_eq!(gemm(view(2, 2), view(2, 2), o, epilogue), Err(GemmError::Accumulate));
}

/// Columns that are packed first give the same bits, whatever the rows, the type, the strides and
/// the number of blocks along K.
#[test]
fn packed_columns_give_the_bits_of_the_product() {
    for (m, n, k) in [(64, 300, 64), (23, 33, 1500), (13, 16, 769), (40, 97, 5), (100, 1500, 64), (20, 2000, 1024)] {
        let (a, b, bias) = (values(m * k, 1), values(n * k, 2), values(n, 3));
        let halves: Vec<f16> = b.iter().map(|v| f16::from_f32(*v)).collect();
        let epilogue = Epilogue { scale: 0.125, bias: Some(Bias::Cols(&bias)), ..Epilogue::default() };
        let lhs = Operand::F32(View::row_major(&a, m, k).unwrap());
        let columns = [
            Operand::F32(View::row_major(&b, k, n).unwrap()),
            Operand::F32(View::row_major(&b, n, k).unwrap().t()),
            Operand::F16(View::row_major(&halves, n, k).unwrap().t()),
        ];
        for rhs in columns {
            let (mut wanted, mut found) = (vec![0.0; m * n], vec![7.0; m * n]);
            gemm(lhs, rhs, Output::F32(ViewMut::row_major(&mut wanted, m, n).unwrap()), epilogue).unwrap();
            let mut packed = vec![f32::NAN; PackedColumns::len(k, n).unwrap()];
            assert!(PackedColumns::pack(rhs, &mut packed[1..]).is_err());
            let packed = PackedColumns::pack(rhs, &mut packed).unwrap();
            let mut run =
                |lhs| gemm_packed(lhs, packed, Output::F32(ViewMut::row_major(&mut found, m, n).unwrap()), epilogue);
            let short = Operand::F32(View::row_major(&a, m, k - 1).unwrap());
            assert!(run(short).is_err());
            run(lhs).unwrap();
            assert!(wanted.iter().zip(&found).all(|(a, b)| a.to_bits() == b.to_bits()), "{m} × {n} × {k}");
        }
    }
    assert_eq!(PackedColumns::len(0, 40), None);
    assert_eq!(PackedColumns::len(256, 8), None);
    assert_eq!(PackedColumns::len(1 << 20, 40), None);
}

/// Columns that are packed into blocks first give the bits of the product in blocks, or in fp32
/// where their values or their shape forbid blocks.
#[test]
fn block_columns_give_the_bits_of_the_product() {
    for (m, n, k) in [(64, 300, 64), (24, 33, 1536), (100, 1500, 64), (20, 200, 64), (7, 97, 96), (64, 300, 65)] {
        let (a, mut b, bias) = (values(m * k, 1), values(n * k, 2), values(n, 3));
        let lhs = Operand::F32(View::row_major(&a, m, k).unwrap());
        for special in [false, true] {
            if special {
                b[5] = f32::NAN;
            }
            let halves: Vec<f16> = b.iter().map(|v| f16::from_f32(*v)).collect();
            let columns = [
                Operand::F32(View::row_major(&b, k, n).unwrap()),
                Operand::F32(View::row_major(&b, n, k).unwrap().t()),
                Operand::F16(View::row_major(&halves, n, k).unwrap().t()),
            ];
            for (rhs, accumulate) in columns.into_iter().flat_map(|rhs| [(rhs, false), (rhs, true)]) {
                let bias = Some(Bias::Cols(&bias));
                let epilogue = Epilogue { scale: 0.125, bias, accumulate, blocks: true, ..Epilogue::default() };
                let (mut wanted, mut found) = (vec![7.0; m * n], vec![7.0; m * n]);
                gemm(lhs, rhs, Output::F32(ViewMut::row_major(&mut wanted, m, n).unwrap()), epilogue).unwrap();
                let mut panels = vec![f32::NAN; BlockColumns::len(k, n)];
                assert!(panels.is_empty() || k % 32 != 0 || BlockColumns::pack(rhs, &mut panels[1..]).is_err());
                let packed = BlockColumns::pack(rhs, &mut panels).unwrap();
                assert!(!special || packed.panels().is_none());
                let mut run = |lhs| {
                    gemm_blocks(lhs, &packed, Output::F32(ViewMut::row_major(&mut found, m, n).unwrap()), epilogue)
                };
                let short = Operand::F32(View::row_major(&a, m, k - 1).unwrap());
                assert!(run(short).is_err());
                run(lhs).unwrap();
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                assert!(wanted.iter().zip(&found).all(same), "{m} × {n} × {k}");
            }
        }
    }
    assert_eq!(BlockColumns::len(32, 8), 0);
    assert_eq!(BlockColumns::len(1 << 20, 40), 0);
}

/// The sums of several rows and lines are reduced together, those of two rows and a line one by
/// one.
#[test]
fn sums_that_are_reduced_together_have_the_bits_of_single_ones() {
    for kernels in super::isa::all() {
        for depth in if cfg!(miri) { vec![17] } else { vec![0, 1, 7, 16, 45, 256] } {
            let (x, w) = (values(8 * depth, 3), values(9 * depth, 4));
            let x: Vec<f32> = x.iter().map(|x| x / 3.0).collect();
            let product = |x: *const f32, rows: usize, first: usize, count: usize| {
                let mut sums = vec![f32::NAN; rows * count];
                let factor = Factor {
                    address: w.as_ptr().cast(),
                    kind: ElementType::F32,
                    line: depth as isize,
                    depth: 1,
                    tables: None,
                };
                let to = sums.as_mut_ptr();
                let job =
                    super::skinny::Dot { x, x_row: depth, rows, factor, first, count, depth, sums: to, pitch: count };
                // SAFETY: 8 rows and 9 lines of `depth` elements, and room for the sums.
                unsafe { (kernels.dot)(&job) };
                sums
            };
            for rows in if cfg!(miri) { vec![5, 8] } else { (2..=8).collect() } {
                for count in if cfg!(miri) { 3..=4 } else { 1..=9 } {
                    let together = product(x.as_ptr(), rows, 0, count);
                    for (i, c) in (0..rows - 1).flat_map(|i| (0..count).map(move |c| (i, c))) {
                        let single = product(x[i * depth..].as_ptr(), 2, c, 1);
                        let found = [together[i * count + c], together[(i + 1) * count + c]];
                        let bits = |sums: &[f32]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
                        let name = kernels.name;
                        assert_eq!(
                            bits(&found),
                            bits(&single),
                            "{name}: {rows} × {depth} × {count}, row {i}, line {c}"
                        );
                    }
                }
            }
        }
    }
}
