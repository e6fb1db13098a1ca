//! Conversions and vectorized functions at the shapes of a 110-million-parameter transformer.
//! Matrix products are in `benches/gemm.rs`.
//!
//! `cargo bench -p ferrane-host --bench elementwise`
#![allow(clippy::print_stdout, reason = "a bench shows its times")]

use std::time::Instant;

use ferrane_host::{convert, f16, simd, vectorize};

type Pass = fn(&[f32], &mut [f32]);

/// A pass of one function over a slice.
macro_rules! each {
    ($function:ident) => {
        |src, dst| {
            vectorize!({
                for (x, y) in src.iter().zip(dst) {
                    *y = simd::$function(*x);
                }
            })
        }
    };
}

/// The best of many runs, in seconds: the machine is shared, and the least disturbed run says most.
fn best(mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    let mut runs = 0;
    while runs < 5 || start.elapsed().as_secs_f64() < 0.25 {
        let once = Instant::now();
        run();
        best = best.min(once.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

fn noise(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 9) as f32 / (1 << 23) as f32 - 0.5
        })
        .collect()
}

fn main() {
    println!("threads: {}", ferrane_host::pool::threads());
    println!("{:<34}{:>10}", "passes", "10⁹/s");
    let rate = |name: &str, n: usize, time: f64| println!("{name:<34}{:>10.2}", n as f64 / time / 1e9);
    let (rows, cols) = (768, 2048);
    let src = noise(rows * cols);
    let mut dst = vec![f16::ZERO; rows * cols];
    let mut wide = vec![0f32; rows * cols];
    let n = rows * cols;
    rate("fp32→fp16 768×2048, one thread", n, best(|| convert::f32_to_f16(&src, &mut dst)));
    rate("fp16→fp32, one thread", n, best(|| convert::f16_to_f32(&dst, &mut wide)));
    rate("fp32→fp16 rows", n, best(|| convert::f32_rows_to_f16(&src, cols, &mut dst, cols, rows, cols)));
    rate("fp32→fp16 transposed", n, best(|| convert::f32_to_f16_transposed(&src, cols, &mut dst, rows, rows, cols)));
    rate("fp16→fp32 transposed", n, best(|| convert::f16_to_f32_transposed(&dst, cols, &mut wide, rows, rows, cols)));
    rate("round to fp16, one thread", n, best(|| convert::round_f16(&mut wide)));
    let src = noise(1 << 20).into_iter().map(|v| v * 20.0).collect::<Vec<_>>();
    let mut dst = vec![0f32; src.len()];
    let functions: [(&str, Pass); 4] =
        [("exp", each!(exp)), ("sigmoid", each!(sigmoid)), ("tanh", each!(tanh)), ("erf", each!(erf))];
    for (name, function) in functions {
        rate(&format!("{name}, one thread"), src.len(), best(|| function(&src, &mut dst)));
    }
}
