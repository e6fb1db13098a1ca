//! Sums of codes and integers, block by block, in loops that every instruction set can vectorize.
//!
//! A row of the left factor is prepared once for all columns of the product: for each chunk its
//! integers, in the order in which the kernel reads them, and the unit of each lane.

use half::f16;

use super::fixed::{Fixed, Job, LANES, Width, codes_in_word, sum};
#[cfg(target_arch = "x86_64")]
use super::{avx2, isa, limbs, vnni, words};
use crate::vectorize;

/// A way to compute the sums: the same bits by each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Plain loops, for codes of 4 or 8 bits.
    Plain(usize),
    /// AVX2, for codes of 4 or 8 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(usize),
    /// AVX-512 with VNNI, for codes of 4 or 8 bits.
    #[cfg(target_arch = "x86_64")]
    Vnni(usize),
}

impl Kernel {
    pub(super) fn best(bits: usize) -> Kernel {
        #[cfg(target_arch = "x86_64")]
        if vnni::is_supported() {
            return Kernel::Vnni(bits);
        } else if isa::has_avx2() {
            return Kernel::Avx2(bits);
        }
        Kernel::Plain(bits)
    }

    /// The kernels that this processor supports.
    #[cfg(test)]
    pub(super) fn all(bits: usize) -> Vec<Kernel> {
        #[cfg(target_arch = "x86_64")]
        let vectors =
            [isa::has_avx2().then_some(Kernel::Avx2(bits)), vnni::is_supported().then_some(Kernel::Vnni(bits))];
        #[cfg(not(target_arch = "x86_64"))]
        let vectors: [Option<Kernel>; 0] = [];
        std::iter::once(Kernel::Plain(bits)).chain(vectors.into_iter().flatten()).collect()
    }

    /// Bits of a code.
    pub(super) fn bits(self) -> usize {
        match self {
            Kernel::Plain(bits) => bits,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(bits) | Kernel::Vnni(bits) => bits,
        }
    }

    /// 32-bit words of a prepared chunk.
    fn chunk_words(self, width: Width) -> usize {
        match (self, width) {
            // An integer for each code, and the units.
            (Kernel::Plain(bits), _) => LANES * (codes_in_word(bits) + 1),
            #[cfg(target_arch = "x86_64")]
            (Kernel::Avx2(bits), Width::Wide) => avx2::chunk_bytes(bits) / 4,
            #[cfg(target_arch = "x86_64")]
            (Kernel::Vnni(bits), Width::Wide) => limbs::chunk_bytes(bits) / 4,
            #[cfg(target_arch = "x86_64")]
            (Kernel::Avx2(bits) | Kernel::Vnni(bits), Width::Narrow) => words::chunk_bytes(bits) / 4,
        }
    }

    /// 32-bit words of a prepared row of `k` values.
    pub(super) fn prepared_words(self, k: usize, width: Width) -> usize {
        k.div_ceil(LANES * codes_in_word(self.bits())) * self.chunk_words(width)
    }

    /// Prepares a row; false if a value is not finite.
    pub(super) fn prepare(self, x: &[f32], width: Width, to: &mut [u8]) -> bool {
        let bits = self.bits();
        let chunk = LANES * codes_in_word(bits);
        let mut fixed = Fixed { values: [0; 128], units: [0.0; LANES] };
        for (x, to) in x.chunks(chunk).zip(to.chunks_exact_mut(4 * self.chunk_words(width))) {
            let ok = vectorize!(fixed.round(x, bits, width));
            if !ok {
                return false;
            }
            match (self, width) {
                (Kernel::Plain(bits), _) => fixed.lanes(bits, to),
                #[cfg(target_arch = "x86_64")]
                (Kernel::Avx2(8), Width::Wide) => vectorize!(avx2::halves(&fixed, to)),
                #[cfg(target_arch = "x86_64")]
                (Kernel::Avx2(bits) | Kernel::Vnni(bits), Width::Wide) => vectorize!(limbs::limbs(&fixed, bits, to)),
                #[cfg(target_arch = "x86_64")]
                (Kernel::Avx2(bits) | Kernel::Vnni(bits), Width::Narrow) => vectorize!(words::words(&fixed, bits, to)),
            }
        }
        true
    }

    /// Computes the sums of `tall` prepared rows, which are 1, 2, 4 or a multiple of 8, with
    /// integers of the width [`Width::of`] of as many. The sum of row `i` and column `c` is stored
    /// at `i · pitch + c`.
    ///
    /// # Safety
    /// The sums are writable and accessed by no other thread; the processor supports the kernel;
    /// codes, scales and prepared rows have the sizes that the job says.
    pub(super) unsafe fn run(self, job: &Job<'_>, tall: usize, sums: *mut f32) {
        let stride = job.prepared.len() / tall.max(1);
        for first in (0..tall).step_by(8) {
            let (rows, sums) = (tall.min(8), sums.wrapping_add(first * job.pitch));
            let some = Job { prepared: &job.prepared[first * stride..][..rows * stride], ..*job };
            // SAFETY: the caller guarantees it.
            unsafe {
                match (self, Width::of(tall)) {
                    (Kernel::Plain(bits), _) => plain(&some, bits, rows, stride, sums),
                    #[cfg(target_arch = "x86_64")]
                    (Kernel::Avx2(bits), Width::Wide) => avx2::run(&some, bits, rows, stride, sums),
                    #[cfg(target_arch = "x86_64")]
                    (Kernel::Vnni(bits), Width::Wide) => vnni::run(&some, bits, rows, stride, sums),
                    #[cfg(target_arch = "x86_64")]
                    (Kernel::Avx2(bits), Width::Narrow) => words::run_avx2(&some, bits, rows, stride, sums),
                    #[cfg(target_arch = "x86_64")]
                    (Kernel::Vnni(bits), Width::Narrow) => words::run_vnni(&some, bits, rows, stride, sums),
                }
            }
        }
    }
}

/// The kernel in plain loops.
///
/// # Safety
/// As [`Kernel::run`], for `rows` prepared rows.
unsafe fn plain(job: &Job<'_>, bits: usize, rows: usize, stride: usize, sums: *mut f32) {
    for c in 0..job.count {
        for (i, prepared) in job.prepared.chunks_exact(stride).take(rows).enumerate() {
            let value = match bits {
                4 => vectorize!(row::<4>(job, job.first + c, prepared)),
                _ => vectorize!(row::<8>(job, job.first + c, prepared)),
            };
            // SAFETY: the caller guarantees the element.
            unsafe { sums.add(i * job.pitch + job.first + c).write(value) };
        }
    }
}

/// One row of codes times one prepared row.
#[inline(always)]
fn row<const BITS: usize>(job: &Job<'_>, index: usize, prepared: &[u8]) -> f32 {
    let per_lane = codes_in_word(BITS);
    let (bytes, chunk) = (job.k * BITS / 8, LANES * per_lane);
    let codes = &job.codes[index * bytes..][..bytes];
    let blocks = job.k / job.block;
    let scales = &job.scales[2 * index * blocks..][..2 * blocks];
    let mut sums = [0.0f32; LANES];
    for (c, (codes, prepared)) in
        codes.chunks(4 * LANES).zip(prepared.chunks_exact(4 * LANES * (per_lane + 1))).enumerate()
    {
        let mut words = [0u32; LANES];
        for (word, bytes) in words.iter_mut().zip(codes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let read = |at: usize| -> [u8; 4] { std::array::from_fn(|i| prepared[4 * at + i]) };
        let mut whole = [0i32; LANES];
        for j in 0..per_lane {
            for lane in 0..LANES {
                let code = ((words[lane] << (32 - BITS - j * BITS)) as i32) >> (32 - BITS);
                whole[lane] = whole[lane].wrapping_add(code.wrapping_mul(i32::from_ne_bytes(read(j * LANES + lane))));
            }
        }
        for lane in 0..LANES {
            let at = (c * chunk + lane * per_lane) / job.block;
            let Some(&[low, high]) = scales.get(2 * at..2 * at + 2) else { break };
            let unit = f32::from_ne_bytes(read(per_lane * LANES + lane));
            sums[lane] = (whole[lane] as f32).mul_add(f16::from_le_bytes([low, high]).to_f32() * unit, sums[lane]);
        }
    }
    sum(sums)
}
