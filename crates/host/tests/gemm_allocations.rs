//! Products that have run before allocate nothing. This test is a binary of its own because its
//! allocator counts the allocations of the whole process.

use ferrane_host::f16;
use ferrane_host::gemm::{BatchOffsets, Bias, Epilogue, Operand, Output, Scales, View, ViewMut, gemm, gemm_batch};
use ferrane_testdata::heap::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Products of every kind: packed in one block and in several, with few rows along both orders of
/// memory, batches side by side, results in strides.
fn products(data: &[f32], halves: &[f16], bytes: &[i8], out: &mut [f32], out16: &mut [f16]) {
    let plain = Epilogue::default();
    let view = |m, k| View::row_major(data, m, k).unwrap();
    let half = |m, k| View::row_major(halves, m, k).unwrap();
    for (m, n, k) in [(200, 130, 90), (130, 200, 1100), (7, 300, 700), (1, 700, 300), (300, 1, 700), (40, 40, 0)] {
        let o = Output::F32(ViewMut::row_major(out, m, n).unwrap());
        gemm(Operand::F32(view(m, k)), Operand::F16(half(n, k).t()), o, plain).unwrap();
        let o = Output::F16(ViewMut::row_major(out16, m, n).unwrap());
        let epilogue = Epilogue { bias: Some(Bias::Rows(&data[..m])), scales: Some(Scales::Cols(&data[..n])), ..plain };
        gemm(Operand::F16(half(m, k)), Operand::I8(View::row_major(bytes, k, n).unwrap()), o, epilogue).unwrap();
        let o = Output::F32(ViewMut::new(out, m, n, 1, m as isize).unwrap());
        gemm(Operand::F16(half(k, m).t()), Operand::F32(view(k, n)), o, Epilogue { accumulate: true, ..plain })
            .unwrap();
    }
    let items: [_; 8] = std::array::from_fn(|i| BatchOffsets { lhs: i * 8, rhs: i * 8, out: i * 128 * 128 });
    let heads = || Operand::F16(View::new(halves, 128, 8, 64, 1).unwrap());
    let o = Output::F16(ViewMut::row_major(out16, 128, 128).unwrap());
    gemm_batch(&items, heads(), heads().t(), o, plain).unwrap();
}

#[test]
fn warm_products_allocate_nothing() {
    let data: Vec<f32> = (0..1 << 18).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    let halves: Vec<f16> = data.iter().map(|&v| f16::from_f32(v)).collect();
    let bytes: Vec<i8> = (0..1 << 18).map(|i| (i % 251) as i8).collect();
    let (mut out, mut out16) = (vec![0f32; 1 << 18], vec![f16::ZERO; 1 << 18]);
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            // Every thread grows its scratch, though it may take several runs until each has
            // computed the largest product.
            let mut counts = [0; 30];
            for count in &mut counts {
                *count = heap::of(|| products(&data, &halves, &bytes, &mut out, &mut out16));
            }
            assert_eq!(counts[20..], [0; 10], "{threads} threads: {counts:?}");
        });
    }
}
