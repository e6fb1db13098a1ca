//! Measured upper bounds of this computer: multiply-adds from registers, and bytes read from memory
//! of a given size.
//!
//! The speed of a routine means something only as a ratio to these, measured in the same run,
//! because clock rates and the load of the machine change. A loop of independent fused
//! multiply-adds that accesses no memory bounds what a matrix product can reach; a loop that only
//! reads bounds every routine that has to fetch its operands.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::pool;

/// Independent sums: more than latency times execution units of current processors, fewer than the
/// registers of AVX2.
const SUMS: usize = 12;
/// Multiply-adds per sum in the measured loop.
const ROUNDS: usize = 1 << 22;

struct Fma(f32);

impl WithSimd for Fma {
    /// The total of all sums, so that the compiler removes none, and the number of operations.
    type Output = (f32, u64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f32, u64) {
        // They approach 1: never subnormal, never infinite.
        let (factor, term) = (simd.splat_f32s(0.5 * self.0), simd.splat_f32s(0.5 * self.0));
        let mut sums = [simd.splat_f32s(self.0); SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, term);
            }
        }
        let all = sums.iter().fold(simd.splat_f32s(0.0), |all, sum| simd.add_f32s(all, *sum));
        (simd.reduce_sum_f32s(all), 2 * (SUMS * ROUNDS * S::F32_LANES) as u64)
    }
}

/// fp32 operations per second (a multiply-add counts two) of all threads of the pool together,
/// measured once.
pub fn flops() -> f64 {
    let arch = Arch::new();
    let begun = Instant::now();
    let operations: u64 =
        (0..pool::threads()).into_par_iter().map(|_| black_box(arch.dispatch(Fma(black_box(1.0)))).1).sum();
    operations as f64 / begun.elapsed().as_secs_f64()
}

/// Bytes per second read from `memory`, which is divided among the threads of the pool and read
/// repeatedly for at least `least`. 0 for empty memory.
pub fn read_bandwidth(memory: &[u64], least: Duration) -> f64 {
    let part = memory.len().div_ceil(pool::threads()).max(1);
    let (mut bytes, begun) = (0usize, Instant::now());
    loop {
        // Small memory is read several times between two synchronizations of the threads.
        let times = (1usize << 21).div_ceil(memory.len().max(1)).max(1);
        let sum = memory
            .par_chunks(part)
            .map(|part| (0..times).fold(0, |sum: u64, _| sum ^ read(black_box(part))))
            .reduce(|| 0, |a, b| a ^ b);
        black_box(sum);
        bytes += size_of_val(memory) * times;
        let wall = begun.elapsed();
        if wall >= least || memory.is_empty() {
            return bytes as f64 / wall.as_secs_f64().max(1e-9);
        }
    }
}

/// The exclusive or of all words, in independent accumulators.
fn read(memory: &[u64]) -> u64 {
    const WIDE: usize = 64;
    crate::vectorize!({
        let mut sums = [0u64; WIDE];
        let mut blocks = memory.chunks_exact(WIDE);
        for block in &mut blocks {
            for i in 0..WIDE {
                sums[i] ^= block[i];
            }
        }
        let mut all = 0;
        for sum in sums.iter().chain(blocks.remainder()) {
            all ^= *sum;
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        for n in [0, 1, 63, 64, 65, 1000] {
            let words: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            assert_eq!(read(&words), words.iter().fold(0, |a, b| a ^ b), "{n}");
        }
    }

    #[test]
    fn the_loop_computes_and_counts() {
        let (sum, operations) = Arch::new().dispatch(Fma(1.0));
        let lanes = operations as usize / (2 * SUMS * ROUNDS);
        assert!(lanes.is_power_of_two());
        assert_eq!(sum, (lanes * SUMS) as f32);
        assert!(
            flops() > 0.0
                && read_bandwidth(&[1; 100], Duration::ZERO) > 0.0
                && read_bandwidth(&[], Duration::MAX) == 0.0
        );
    }
}
