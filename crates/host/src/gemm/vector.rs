//! The operations that the kernels need of an instruction set: vectors of fp32, and loads that
//! widen any element type.

use half::f16;

use crate::simd;

/// Vectors of one instruction set.
///
/// # Safety
/// For every function here: the processor supports the set, and an address is valid for the
/// elements that are accessed, `LANES` or the given count.
pub(super) trait Simd: Copy {
    /// A vector of fp32.
    type V: Copy;
    /// `LANES` vectors.
    type Rows: Copy + AsRef<[Self::V]> + AsMut<[Self::V]>;
    /// fp32 values of a vector.
    const LANES: usize;
    /// Vectors that the processor has registers for.
    const REGISTERS: usize;

    unsafe fn splat(x: f32) -> Self::V;
    /// `LANES` vectors of zeros.
    unsafe fn zeros() -> Self::Rows;
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(to: *mut f32, v: Self::V);
    /// Loads and widens `LANES` fp16 values.
    unsafe fn load_f16(from: *const f16) -> Self::V;
    /// Loads and widens `LANES` signed bytes.
    unsafe fn load_i8(from: *const i8) -> Self::V;
    /// Rounds to nearest even and stores `LANES` fp16 values.
    unsafe fn store_f16(to: *mut f16, v: Self::V);
    /// Rounds each value to the nearest fp16 and widens it again.
    unsafe fn round(v: Self::V) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, with one rounding if the set has fused multiply-adds.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// For each value, `v` if it is larger than `best` or NaN, else `best`.
    unsafe fn larger(best: Self::V, v: Self::V) -> Self::V;
    /// For each value, `low` if it is smaller than that, else the value, a NaN too.
    unsafe fn at_least(low: Self::V, v: Self::V) -> Self::V;
    /// For each value, `high` if it is larger than that, else the value, a NaN too.
    unsafe fn at_most(high: Self::V, v: Self::V) -> Self::V;
    /// For each value, 0 unless it is at least `low`.
    unsafe fn from(low: Self::V, v: Self::V) -> Self::V;
    /// The sum of the values, in an order that depends on the set alone.
    unsafe fn sum(v: Self::V) -> f32;
    /// Value `i` is [`Simd::sum`] of vector `i`, bit for bit.
    unsafe fn sums(rows: Self::Rows) -> Self::V;
    /// Vector `i` of the result holds value `i` of each vector.
    unsafe fn transpose(rows: Self::Rows) -> Self::Rows;

    /// [`simd::sigmoid`] of each value, bit for bit.
    #[inline(always)]
    unsafe fn sigmoid(v: Self::V) -> Self::V {
        let mut all = [0f32; 16];
        // SAFETY: there is room for 16.
        unsafe {
            Self::store(all.as_mut_ptr(), v);
            all[..Self::LANES].iter_mut().for_each(|x| *x = simd::sigmoid(*x));
            Self::load(all.as_ptr())
        }
    }

    /// [`simd::gelu`] of each value, bit for bit.
    #[inline(always)]
    unsafe fn gelu(v: Self::V) -> Self::V {
        let mut all = [0f32; 16];
        // SAFETY: there is room for 16.
        unsafe {
            Self::store(all.as_mut_ptr(), v);
            all[..Self::LANES].iter_mut().for_each(|x| *x = simd::gelu(*x));
            Self::load(all.as_ptr())
        }
    }

    /// The first `n` values, then zeros. `n` is at most `LANES`.
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self::V {
        let mut all = [0f32; 16];
        // SAFETY: `n` elements are readable, and there is room for 16.
        unsafe {
            std::ptr::copy_nonoverlapping(from, all.as_mut_ptr(), n);
            Self::load(all.as_ptr())
        }
    }

    /// As [`Simd::load_part`], of fp16.
    #[inline(always)]
    unsafe fn load_f16_part(from: *const f16, n: usize) -> Self::V {
        let mut all = [f16::ZERO; 16];
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(from, all.as_mut_ptr(), n);
            Self::load_f16(all.as_ptr())
        }
    }

    /// As [`Simd::load_part`], of signed bytes.
    #[inline(always)]
    unsafe fn load_i8_part(from: *const i8, n: usize) -> Self::V {
        let mut all = [0i8; 16];
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(from, all.as_mut_ptr(), n);
            Self::load_i8(all.as_ptr())
        }
    }

    /// Stores the first `n` values. `n` is at most `LANES`.
    #[inline(always)]
    unsafe fn store_part(to: *mut f32, v: Self::V, n: usize) {
        let mut all = [0f32; 16];
        // SAFETY: there is room for 16, and `n` elements are writable.
        unsafe {
            Self::store(all.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(all.as_ptr(), to, n);
        }
    }

    /// Rounds the first `n` values and stores them as fp16. `n` is at most `LANES`.
    #[inline(always)]
    unsafe fn store_f16_part(to: *mut f16, v: Self::V, n: usize) {
        let mut all = [f16::ZERO; 16];
        // SAFETY: there is room for 16, and `n` elements are writable.
        unsafe {
            Self::store_f16(all.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(all.as_ptr(), to, n);
        }
    }

    /// Prefetches the cache line at an address, which need not be readable.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    /// Adds `a[i] · row` to row `i` of a tile: one step along K.
    #[inline(always)]
    unsafe fn step<const M: usize, const N: usize>(tile: &mut [[Self::V; N]; M], a: *const f32, row: [Self::V; N]) {
        for i in 0..M {
            // SAFETY: `a` is valid for `M` elements.
            unsafe {
                let x = Self::splat(*a.add(i));
                for j in 0..N {
                    tile[i][j] = Self::fma(x, row[j], tile[i][j]);
                }
            }
        }
    }
}

/// Vectors of AVX2, with FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// Vectors of AVX-512.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx512;

/// An element of a factor.
///
/// # Safety
/// As of [`Simd`].
pub(super) trait Element: Copy {
    unsafe fn load<S: Simd>(from: *const Self) -> S::V;
    unsafe fn load_part<S: Simd>(from: *const Self, n: usize) -> S::V;
    /// Each value as an element of this type would hold it.
    unsafe fn rounded<S: Simd>(v: S::V) -> S::V;
}

macro_rules! element {
    ($type:ty, $load:ident, $part:ident, $v:ident => $rounded:expr) => {
        impl Element for $type {
            #[inline(always)]
            unsafe fn load<S: Simd>(from: *const Self) -> S::V {
                // SAFETY: the caller guarantees it.
                unsafe { S::$load(from) }
            }
            #[inline(always)]
            unsafe fn load_part<S: Simd>(from: *const Self, n: usize) -> S::V {
                // SAFETY: the caller guarantees it.
                unsafe { S::$part(from, n) }
            }
            #[inline(always)]
            unsafe fn rounded<S: Simd>($v: S::V) -> S::V {
                $rounded
            }
        }
    };
}
element!(f32, load, load_part, v => v);
// SAFETY: the caller guarantees the instruction set.
element!(f16, load_f16, load_f16_part, v => unsafe { S::round(v) });
element!(i8, load_i8, load_i8_part, v => v);

/// The element type of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementType {
    F32,
    F16,
    I8,
}

/// A factor as the kernels read it: lines (rows of the left factor, columns of the right one) of
/// elements along K. The address is that of the first element of the first line; strides are in
/// elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub address: *const u8,
    pub kind: ElementType,
    /// Stride from one line to the next.
    pub line: isize,
    /// Stride from one element of a line to the next.
    pub depth: isize,
    /// Tables that take the place of the strides, if the factor is an unfolded image.
    pub tables: Option<Tables>,
}

/// Where the elements of an unfolded image (im2col) lie: element `p` of line `i` is
/// `steps[p] + rows[i / width] + i % width` elements after the address. Whole vectors may be read
/// from every position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    pub steps: *const usize,
    pub rows: *const usize,
    /// Lines in a row: neighbors in memory.
    pub width: usize,
}

// SAFETY: the addresses come from shared borrows that outlive the product; they are only read.
unsafe impl Send for Factor {}
// SAFETY: as above.
unsafe impl Sync for Factor {}

impl Factor {
    /// Size of an element in bytes.
    pub fn size(&self) -> usize {
        match self.kind {
            ElementType::F32 => 4,
            ElementType::F16 => 2,
            ElementType::I8 => 1,
        }
    }

    /// The address of element `p` of line `i`.
    pub fn at(&self, i: usize, p: usize) -> *const u8 {
        let elements = (i as isize).wrapping_mul(self.line).wrapping_add((p as isize).wrapping_mul(self.depth));
        self.address.wrapping_offset(elements.wrapping_mul(self.size() as isize))
    }
}
