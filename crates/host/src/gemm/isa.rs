//! The instruction sets: what the kernels need of vectors, and one table of compiled kernels for
//! each set.
//!
//! A kernel is written once, over [`Simd`], and inlined into functions that are compiled for one
//! set's features; the table of the best set of this processor is found at run time ([`best`]).
//! What a set decides is the width of its vectors and the tile of results that its registers hold:
//!
//! | set | lanes | tile |
//! |---|---|---|
//! | AVX-512 (F, BW, DQ, VL) | 16 | 13 × 32 |
//! | AVX2, FMA, F16C | 8 | 6 × 16 |
//! | NEON | 4 | 8 × 12 |
//! | portable | 4 | 4 × 8 |
//!
//! The portable set multiplies and adds in two roundings, the others in one.

use half::f16;

use super::skinny::{Dot, Stream};
use super::tile::{Block, Spot};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

/// The most rows of the small factor that go to the kernels of [`super::skinny`].
pub(super) const SKINNY: usize = 8;

/// Vectors of one instruction set.
///
/// # Safety
/// Of every function here: the processor has the set, and an address is good for what is named:
/// `LANES` elements, or the given count of them.
pub(super) trait Simd: Copy {
    /// A vector of fp32.
    type V: Copy;
    /// `LANES` vectors.
    type Rows: Copy + AsRef<[Self::V]> + AsMut<[Self::V]>;
    /// Values of a vector.
    const LANES: usize;

    unsafe fn splat(x: f32) -> Self::V;
    /// `LANES` vectors of zeros.
    unsafe fn zeros() -> Self::Rows;
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(to: *mut f32, v: Self::V);
    /// Widens fp16.
    unsafe fn load_f16(from: *const f16) -> Self::V;
    /// Widens signed bytes.
    unsafe fn load_i8(from: *const i8) -> Self::V;
    /// Rounds to nearest even.
    unsafe fn store_f16(to: *mut f16, v: Self::V);
    /// Rounds each value to the nearest fp16 and widens it again.
    unsafe fn round(v: Self::V) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, in one rounding where the set can.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The sum of the values, in an order that the set fixes.
    unsafe fn sum(v: Self::V) -> f32;
    /// Vector `i` of the result holds value `i` of each vector.
    unsafe fn transpose(rows: Self::Rows) -> Self::Rows;

    /// The first `n` values, zeros behind them. `n` is at most `LANES`.
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

    /// Asks for the line of memory at an address, which need not be readable.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    /// Adds `a[i] · row` to row `i` of a tile: one step of depth.
    #[inline(always)]
    unsafe fn step<const M: usize, const N: usize>(tile: &mut [[Self::V; N]; M], a: *const f32, row: [Self::V; N]) {
        for i in 0..M {
            // SAFETY: `a` is good for `M` elements.
            unsafe {
                let x = Self::splat(*a.add(i));
                for j in 0..N {
                    tile[i][j] = Self::fma(x, row[j], tile[i][j]);
                }
            }
        }
    }
}

/// An element of a factor.
///
/// # Safety
/// As of [`Simd`].
pub(super) trait Element: Copy {
    unsafe fn load<S: Simd>(from: *const Self) -> S::V;
    unsafe fn load_part<S: Simd>(from: *const Self, n: usize) -> S::V;
}

macro_rules! element {
    ($type:ty, $load:ident, $part:ident) => {
        impl Element for $type {
            #[inline(always)]
            unsafe fn load<S: Simd>(from: *const Self) -> S::V {
                // SAFETY: the caller's promise.
                unsafe { S::$load(from) }
            }
            #[inline(always)]
            unsafe fn load_part<S: Simd>(from: *const Self, n: usize) -> S::V {
                // SAFETY: the caller's promise.
                unsafe { S::$part(from, n) }
            }
        }
    };
}
element!(f32, load, load_part);
element!(f16, load_f16, load_f16_part);
element!(i8, load_i8, load_i8_part);

/// The type of a factor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    F16,
    I8,
}

/// A factor as the kernels read it: lines (rows of the left factor, columns of the right one) of
/// elements along the depth of the product. The address is that of the first element of the first
/// line; strides are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub address: *const u8,
    pub kind: Kind,
    /// From one line to the next.
    pub line: isize,
    /// From one element of a line to the next.
    pub depth: isize,
}

// SAFETY: the address comes from a shared borrow that outlives the product; it is only read.
unsafe impl Send for Factor {}
// SAFETY: as above.
unsafe impl Sync for Factor {}

impl Factor {
    /// Bytes of an element.
    pub fn size(&self) -> usize {
        match self.kind {
            Kind::F32 => 4,
            Kind::F16 => 2,
            Kind::I8 => 1,
        }
    }

    /// The address of element `p` of line `i`.
    pub fn at(&self, i: usize, p: usize) -> *const u8 {
        let elements = (i as isize).wrapping_mul(self.line).wrapping_add((p as isize).wrapping_mul(self.depth));
        self.address.wrapping_offset(elements.wrapping_mul(self.size() as isize))
    }
}

/// What [`super::pack::pack`] is to do: lines `lines` of a factor from depth `from` on, `depth`
/// steps, into panels of `width` lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pack {
    pub factor: Factor,
    pub first: usize,
    pub lines: usize,
    pub from: usize,
    pub depth: usize,
    pub width: usize,
    /// Elements of one step of the last panel, if that is not full: its lines, or more, which
    /// nobody looks at.
    pub last: usize,
    /// fp32, or, for [`Halves::pack`], fp16.
    pub to: *mut u8,
}

/// [`super::tile::tile`] of one size.
pub(super) type Tile = unsafe fn(&Block<'_>, Spot);

/// One set's kernels.
///
/// # Safety
/// Of every function here: the processor has the set, and what the arguments name is as their types
/// say.
pub(super) struct Kernels {
    /// For messages of tests.
    #[cfg_attr(not(test), allow(dead_code))]
    pub name: &'static str,
    /// Values of a vector.
    pub lanes: usize,
    /// The most rows of a tile.
    pub rows: usize,
    /// Columns of a tile.
    pub cols: usize,
    /// `tiles[m - 1][v - 1]` computes `m` rows of `v` vectors.
    pub tiles: &'static [&'static [Tile]],
    /// [`super::pack::pack`].
    pub pack: unsafe fn(Pack),
    /// [`super::skinny::dot`].
    pub dot: unsafe fn(&Dot),
    /// [`super::skinny::stream`].
    pub stream: unsafe fn(&Stream),
    /// For columns of fp16, where a tile can widen them for nothing.
    pub halves: Option<Halves>,
}

/// Kernels for panels of columns that hold fp16 as it is: half the memory, and packing moves words
/// only.
///
/// # Safety
/// As of [`Kernels`].
pub(super) struct Halves {
    /// As [`Kernels::tiles`].
    pub tiles: &'static [&'static [Tile]],
    /// [`super::halves::pack`].
    pub pack: unsafe fn(Pack),
}

/// Compiles the kernels of a set.
macro_rules! kernels {
    (@row $column:ty, 2, $m:literal) => { &[tile::<$column, $m, 1>, tile::<$column, $m, 2>] };
    (@row $column:ty, 3, $m:literal) => { &[tile::<$column, $m, 1>, tile::<$column, $m, 2>, tile::<$column, $m, 3>] };
    (@halves $simd:ty, [$($m:literal)*] x $v:tt, $(#[$features:meta])? ) => { None };
    (@halves $simd:ty, [$($m:literal)*] x $v:tt, $(#[$features:meta])? halves) => {{
        $(#[$features])?
        unsafe fn pack(job: $crate::gemm::isa::Pack) {
            // SAFETY: the caller's promise.
            unsafe { $crate::gemm::halves::pack::<$simd>(job) }
        }
        Some($crate::gemm::isa::Halves {
            tiles: &[$($crate::gemm::isa::kernels!(@row half::f16, $v, $m)),*],
            pack,
        })
    }};
    ($name:literal, $simd:ty, [$($m:literal)*] x $v:tt $(, #[$features:meta])? $(; $halves:ident)?) => {
        $(#[$features])?
        unsafe fn tile<C: $crate::gemm::isa::Element, const M: usize, const N: usize>(
            block: &$crate::gemm::tile::Block<'_>,
            spot: $crate::gemm::tile::Spot,
        ) {
            let full = $v * <$simd as $crate::gemm::isa::Simd>::LANES;
            // SAFETY: the caller's promise.
            unsafe { $crate::gemm::tile::tile::<$simd, C, M, N>(block, spot, full) }
        }
        $(#[$features])?
        unsafe fn pack(job: $crate::gemm::isa::Pack) {
            // SAFETY: the caller's promise.
            unsafe { $crate::gemm::pack::pack::<$simd>(job) }
        }
        $(#[$features])?
        unsafe fn dot(job: &$crate::gemm::skinny::Dot) {
            // SAFETY: the caller's promise.
            unsafe { $crate::gemm::skinny::dot::<$simd>(job) }
        }
        $(#[$features])?
        unsafe fn stream(job: &$crate::gemm::skinny::Stream) {
            // SAFETY: the caller's promise.
            unsafe { $crate::gemm::skinny::stream::<$simd>(job) }
        }
        const ROWS: usize = [$($m),*].len();
        /// The kernels of this set.
        pub(in crate::gemm) static KERNELS: $crate::gemm::isa::Kernels = $crate::gemm::isa::Kernels {
            name: $name,
            lanes: <$simd as $crate::gemm::isa::Simd>::LANES,
            rows: ROWS,
            cols: $v * <$simd as $crate::gemm::isa::Simd>::LANES,
            tiles: &[$($crate::gemm::isa::kernels!(@row f32, $v, $m)),*],
            pack,
            dot,
            stream,
            halves: $crate::gemm::isa::kernels!(@halves $simd, [$($m)*] x $v, $(#[$features])? $($halves)?),
        };
    };
}
use kernels;

/// The kernels of this processor's best set.
pub(super) fn best() -> &'static Kernels {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            return &avx512::KERNELS;
        }
        if has_avx2() {
            return &avx2::KERNELS;
        }
    }
    #[cfg(target_arch = "aarch64")]
    return &neon::KERNELS;
    #[allow(unreachable_code)]
    &portable::KERNELS
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") && has_avx2()
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("fma") && has!("f16c")
}

/// The kernels of every set that this processor has.
#[cfg(test)]
pub(super) fn all() -> Vec<&'static Kernels> {
    let mut all = vec![&portable::KERNELS];
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx2() {
            all.push(&avx2::KERNELS);
        }
        if has_avx512() {
            all.push(&avx512::KERNELS);
        }
    }
    #[cfg(target_arch = "aarch64")]
    all.push(&neon::KERNELS);
    all
}
