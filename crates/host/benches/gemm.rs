//! Matrix products at the shapes of transformers, for each element type and layout, and products
//! with few rows next to a plain read of the same bytes, and factors of codes.
//!
//! `cargo bench -p ferrane-host --bench gemm [-- FILTER]`; criterion writes JSON into the target
//! folder.
//!
//! The name of a case is `items x m x k x n`, and the factors: type, and `t` where it is a
//! transposed view of dense rows.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use ferrane_host::gemm::{
    BatchOffsets, CodedMatrix, CodedSums, Codes, Epilogue, Operand, Output, View, ViewMut, gemm_batch, gemm_coded,
};
use ferrane_host::{f16, pool, vectorize};

fn noise(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 9) as f32 / (1 << 23) as f32 - 0.5
        })
        .collect()
}

/// One dense matrix in every type.
struct Dense {
    wide: Vec<f32>,
    half: Vec<f16>,
    byte: Vec<i8>,
}

impl Dense {
    fn new(n: usize) -> Self {
        let wide = noise(n);
        let half = wide.iter().map(|&v| f16::from_f32(v)).collect();
        let byte = wide.iter().map(|v| (v * 127.0) as i8).collect();
        Self { wide, half, byte }
    }

    /// As `rows` × `cols`, of the type and order that the name says.
    fn operand(&self, name: &str, rows: usize, cols: usize) -> Operand<'_> {
        fn view<'a, T>(data: &'a [T], name: &str, rows: usize, cols: usize) -> View<'a, T> {
            let turned = name.ends_with('t');
            let (r, c) = if turned { (cols, rows) } else { (rows, cols) };
            let view = View::row_major(data, r, c).expect("the matrix has this size");
            if turned { view.t() } else { view }
        }
        match name.trim_end_matches('t') {
            "f32" => Operand::F32(view(&self.wide, name, rows, cols)),
            "f16" => Operand::F16(view(&self.half, name, rows, cols)),
            _ => Operand::I8(view(&self.byte, name, rows, cols)),
        }
    }
}

const SHAPES: [(usize, usize, usize, usize); 19] = [
    (1, 256, 768, 768),
    (1, 256, 768, 2048),
    (1, 256, 2048, 768),
    (1, 768, 256, 2048),
    (1, 2048, 256, 768),
    (1, 256, 768, 9216),
    (1, 9216, 256, 768),
    (1, 768, 9216, 256),
    (1, 2048, 2048, 2048),
    (12, 256, 64, 256),
    (12, 256, 256, 64),
    (8, 256, 8, 256),
    (8, 256, 256, 8),
    (1, 64, 172, 256),
    (1, 172, 64, 256),
    (1, 64, 64, 64),
    (1, 64, 8, 64),
    (1, 1, 64, 64),
    (1, 1, 768, 768),
];

/// Types and orders of the factors, and of the result.
const KINDS: [(&str, &str, &str); 6] = [
    ("f32", "f32", "f32"),
    ("f32", "f32t", "f32"),
    ("f16", "f16", "f16"),
    ("f16t", "f16", "f16"),
    ("f16", "f16t", "f32"),
    ("f32", "i8t", "f32"),
];

fn products(c: &mut Criterion) {
    let mut group = c.benchmark_group("gemm");
    for (items, m, k, n) in SHAPES {
        group.throughput(Throughput::Elements((2 * items * m * k * n) as u64));
        let (a, b) = (Dense::new(items * m * k), Dense::new(items * k * n));
        let (mut out, mut out16) = (vec![0f32; items * m * n], vec![f16::ZERO; items * m * n]);
        let batch: Vec<_> =
            (0..items).map(|i| BatchOffsets { lhs: i * m * k, rhs: i * k * n, out: i * m * n }).collect();
        for (left, right, to) in KINDS {
            let (lhs, rhs) = (a.operand(left, m, k), b.operand(right, k, n));
            let id = BenchmarkId::new(format!("{items}x{m}x{k}x{n}"), format!("{left} {right} {to}"));
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    let out = if to == "f16" {
                        ViewMut::row_major(&mut out16, m, n).map(Output::F16)
                    } else {
                        ViewMut::row_major(&mut out, m, n).map(Output::F32)
                    };
                    out.and_then(|out| gemm_batch(&batch, lhs, rhs, out, Epilogue::default())).expect("it multiplies");
                });
            });
        }
    }
    group.finish();
}

/// Factors of 96 MB, beyond the caches.
const BYTES: usize = 96 << 20;

fn reading(c: &mut Criterion) {
    let mut group = c.benchmark_group("skinny");
    group.throughput(Throughput::Bytes(BYTES as u64));
    let words: Vec<u64> = (0..BYTES as u64 / 8).collect();
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            pool::for_each_range(words.len(), words.len().div_ceil(pool::threads()), |range| {
                let mut seen = [0u64; 32];
                vectorize!({
                    for chunk in words[range].chunks_exact(32) {
                        for i in 0..32 {
                            seen[i] ^= chunk[i];
                        }
                    }
                });
                black_box(seen);
            });
        });
    });
    drop(words);
    for (kind, size) in [("f32", 4), ("f16", 2), ("i8", 1)] {
        for k in [768, 4096] {
            let n = BYTES / size / k;
            let data = Dense {
                wide: if size == 4 { noise(n * k) } else { Vec::new() },
                half: if size == 2 { vec![f16::ONE; n * k] } else { Vec::new() },
                byte: if size == 1 { vec![1; n * k] } else { Vec::new() },
            };
            for rows in [1, 4, 8] {
                let x = noise(rows * k);
                let mut out = vec![0f32; rows * n];
                for order in ["t", ""] {
                    let lhs = Operand::F32(View::row_major(&x, rows, k).expect("the matrix has this size"));
                    let rhs = data.operand(&format!("{kind}{order}"), k, n);
                    let id = BenchmarkId::new(format!("{rows}x{k}x{n}"), format!("{kind}{order}"));
                    group.bench_function(id, |bencher| {
                        bencher.iter(|| {
                            let out = ViewMut::row_major(&mut out, rows, n).map(Output::F32);
                            out.and_then(|out| {
                                gemm_batch(&[BatchOffsets::default()], lhs, rhs, out, Epilogue::default())
                            })
                            .expect("it multiplies");
                        });
                    });
                }
            }
        }
    }
    group.finish();
}

/// Codes of 4 and 8 bits with a scale for each 32: a token reads 48 MB of them, a prompt few.
fn coded(c: &mut Criterion) {
    const BLOCK: usize = 32;
    let mut group = c.benchmark_group("coded");
    for (m, k, n) in [(1, 896, 100_000), (8, 896, 100_000), (512, 896, 896), (512, 896, 4864), (512, 4864, 896)] {
        let work = 2 * m * k * n;
        let x: Vec<f16> = noise(m * k).into_iter().map(f16::from_f32).collect();
        let mut out = vec![f16::ZERO; m * n];
        let scales: Vec<u8> = (0..n * k / BLOCK).flat_map(|i| f16::from_f32(i as f32 * 1e-8).to_le_bytes()).collect();
        for bits in [4, 8] {
            let codes: Vec<u8> = (0..n * k * bits / 8).map(|i| (i * 37 % 251) as u8).collect();
            let matrix = CodedMatrix::new(n, k, Codes::Scaled { bits, codes: &codes, scales: &scales, block: BLOCK })
                .expect("the sizes fit");
            group.throughput(if m > 8 {
                Throughput::Elements(work as u64)
            } else {
                Throughput::Bytes(matrix.bytes() as u64)
            });
            group.bench_function(BenchmarkId::new(format!("{m}x{k}x{n}"), format!("int{bits}")), |bencher| {
                bencher.iter(|| {
                    let lhs = Operand::F16(View::row_major(&x, m, k).expect("the matrix has this size"));
                    let out = Output::F16(ViewMut::row_major(&mut out, m, n).expect("the matrix has this size"));
                    gemm_coded(lhs, matrix, out, Epilogue::default(), CodedSums::Blocks).expect("it multiplies");
                });
            });
        }
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(15)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600))
        .configure_from_args();
    products(&mut criterion);
    reading(&mut criterion);
    coded(&mut criterion);
    criterion.final_summary();
}
