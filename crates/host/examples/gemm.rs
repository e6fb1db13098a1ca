//! Times matrix products, conversions and functions at the shapes of a 110-million-parameter transformer.
//!
//! `cargo run --release -p ferrane-host --example gemm`
#![allow(clippy::print_stdout)]

use std::time::Instant;

use ferrane_host::gemm::{BatchOffsets, Epilogue, GemmError, Operand, Output, View, ViewMut, gemm, gemm_batch};
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

fn half(values: &[f32]) -> Vec<f16> {
    values.iter().map(|&v| f16::from_f32(v)).collect()
}

fn view<T>(data: &[T], rows: usize, cols: usize, turned: bool) -> Result<View<'_, T>, GemmError> {
    if turned { Ok(View::row_major(data, cols, rows)?.t()) } else { View::row_major(data, rows, cols) }
}

fn main() -> Result<(), GemmError> {
    println!("threads: {}", ferrane_host::pool::threads());
    println!("{:<18}{:>10}{:>10}{:>10}{:>10}   GFLOP/s (lhs·rhs; t = transposed view)", "", "n·n", "t·n", "n·t", "t·t");
    for (m, k, n) in
        [(256, 768, 768), (256, 768, 2048), (768, 256, 2048), (256, 768, 9216), (9216, 256, 768), (2048, 256, 768)]
    {
        let (a, b) = (noise(m * k), noise(k * n));
        let (a16, b16) = (half(&a), half(&b));
        let mut out = vec![0f32; m * n];
        let mut out16 = vec![f16::ZERO; m * n];
        for kind in ["f32", "f32·f16", "f16", "f16→f16"] {
            print!("{:<18}", format!("{m}×{k}×{n} {kind}"));
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                let lhs = match kind {
                    "f32" | "f32·f16" => Operand::F32(view(&a, m, k, ta)?),
                    _ => Operand::F16(view(&a16, m, k, ta)?),
                };
                let rhs = match kind {
                    "f32" => Operand::F32(view(&b, k, n, tb)?),
                    _ => Operand::F16(view(&b16, k, n, tb)?),
                };
                let time = best(|| {
                    let out = match kind {
                        "f16→f16" => ViewMut::row_major(&mut out16, m, n).map(Output::F16),
                        _ => ViewMut::row_major(&mut out, m, n).map(Output::F32),
                    };
                    let done = out.and_then(|out| gemm(lhs, rhs, out, Epilogue::default()));
                    assert!(done.is_ok());
                });
                print!("{:>10.0}", 2.0 * (m * n * k) as f64 / time / 1e9);
            }
            println!();
        }
    }
    for (m, k, n) in [(256, 64, 256), (256, 256, 64)] {
        let heads = 12;
        let (a, b) = (half(&noise(m * k * heads)), half(&noise(k * n * heads)));
        let mut out = vec![f16::ZERO; m * n * heads];
        let items: Vec<_> =
            (0..heads).map(|h| BatchOffsets { lhs: h * m * k, rhs: h * k * n, out: h * m * n }).collect();
        let (mut a32, mut b32, mut out32) = (vec![0f32; a.len()], vec![0f32; b.len()], vec![0f32; out.len()]);
        convert::f16_to_f32(&a, &mut a32);
        convert::f16_to_f32(&b, &mut b32);
        for kind in ["f32", "f16→f16"] {
            print!("{:<18}", format!("12×{m}×{k}×{n} {kind}"));
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                let time = best(|| {
                    let done = (|| {
                        let (lhs, rhs, out) = if kind == "f32" {
                            (
                                Operand::F32(view(&a32, m, k, ta)?),
                                Operand::F32(view(&b32, k, n, tb)?),
                                Output::F32(ViewMut::row_major(&mut out32, m, n)?),
                            )
                        } else {
                            (
                                Operand::F16(view(&a, m, k, ta)?),
                                Operand::F16(view(&b, k, n, tb)?),
                                Output::F16(ViewMut::row_major(&mut out, m, n)?),
                            )
                        };
                        gemm_batch(&items, lhs, rhs, out, Epilogue::default())
                    })();
                    assert!(done.is_ok());
                });
                print!("{:>10.0}", 2.0 * (m * n * k * heads) as f64 / time / 1e9);
            }
            println!();
        }
    }

    println!("\nsmall products, µs a call (fp32, fp16→fp16)");
    for (m, k, n) in [(1, 64, 64), (64, 8, 64), (64, 64, 64), (64, 64, 172), (64, 64, 512), (1, 768, 768)] {
        let (a, b) = (noise(m * k), noise(k * n));
        let (a16, b16) = (half(&a), half(&b));
        let (mut out, mut out16) = (vec![0f32; m * n], vec![f16::ZERO; m * n]);
        let (l, r) = (Operand::F32(view(&a, m, k, false)?), Operand::F32(view(&b, k, n, false)?));
        let (l16, r16) = (Operand::F16(view(&a16, m, k, false)?), Operand::F16(view(&b16, k, n, false)?));
        let wide = best(|| {
            let out = ViewMut::row_major(&mut out, m, n).map(Output::F32);
            assert!(out.and_then(|out| gemm(l, r, out, Epilogue::default())).is_ok());
        });
        let narrow = best(|| {
            let out = ViewMut::row_major(&mut out16, m, n).map(Output::F16);
            assert!(out.and_then(|out| gemm(l16, r16, out, Epilogue::default())).is_ok());
        });
        println!("{:<18}{:>10.2}{:>10.2}", format!("{m}×{k}×{n}"), wide * 1e6, narrow * 1e6);
    }

    println!("\n{:<34}{:>10}", "passes", "10⁹/s");
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
    Ok(())
}
