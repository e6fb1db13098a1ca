//! Matrix products over whole numbers, as `numerics=hardware` computes them: the best of 20 runs.
//!
//! `cargo bench -p ferrane-host --bench grid`
#![allow(clippy::print_stdout, reason = "a bench shows its times")]

use std::time::Instant;

use ferrane_host::grid::{Grid, multiply};

fn main() {
    let grid = Grid { scale: 65536.0, flush: 1.5, away: true };
    for (m, k, n) in [(64, 64, 64), (172, 64, 256), (768, 768, 256), (2048, 768, 256)] {
        let lhs: Vec<f32> = (0..m * k).map(|i| (i % 97) as f32 / 64.0 - 0.75).collect();
        let rhs: Vec<f32> = (0..k * n).map(|i| (i % 89) as f32 / 128.0 - 0.25).collect();
        let mut out = vec![0; m * n];
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let start = Instant::now();
            if let Err(error) = multiply(grid, &lhs, &rhs, &mut out, m, k, n) {
                return println!("{error}");
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        let work = 2.0 * (m * k * n) as f64;
        println!("{m} x {k} x {n}: {:.3} ms, {:.1} GFLOP/s", best * 1e3, work / best / 1e9);
    }
}
