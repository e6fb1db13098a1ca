//! Instruction sets: one table of compiled kernels for each, and the choice of the best one at run
//! time.
//!
//! A kernel is written once, generic over [`Simd`](super::vector::Simd), and inlined into functions
//! that are compiled with the features of one set; [`best`] returns the table of the best set that
//! this processor supports. The set determines the width of the vectors and the tile (MR × NR) that
//! its registers hold:
//!
//! | set | lanes | MR × NR |
//! |---|---|---|
//! | AVX-512 (F, BW, DQ, VL) | 16 | 13 × 32 |
//! | AVX2, FMA, F16C | 8 | 6 × 16 |
//! | NEON | 4 | 8 × 12 |
//! | portable | 4 | 4 × 8 |
//!
//! The portable set multiplies and adds in two roundings, the others in one.

use std::sync::OnceLock;

use super::fir::Fir;
use super::gather::GatherKernel;
use super::pack::{Pack, Prefetch};
use super::planar::PlanarKernel;
use super::skinny::{Dot, Stream};
use super::strip::StripKernel;
use super::taps::{PaddedKernel, TapsKernel};
use super::tile::{PanelBlock, Spot, Tile};
use super::vector::ElementType;
use super::winograd::{TilePixelsKernel, TileSumsKernel};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

/// The kernels of one instruction set.
///
/// # Safety
/// For every function here: the processor supports the set, and the arguments meet the safety
/// requirements of their types.
pub(super) struct Kernels {
    /// Shown in messages of tests.
    #[cfg_attr(not(test), allow(dead_code))]
    pub name: &'static str,
    /// fp32 values of a vector.
    pub lanes: usize,
    /// The most rows of a tile (MR).
    pub rows: usize,
    /// Rows of a [planar](super::planar) tile of one vector.
    pub tall: usize,
    /// Columns of a tile (NR).
    pub cols: usize,
    /// `tiles[m - 1][v - 1]` computes `m` rows of `v` vectors.
    pub tiles: &'static [&'static [Tile]],
    /// [`super::pack::pack`].
    pub pack: unsafe fn(Pack),
    /// [`super::skinny::dot`].
    pub dot: unsafe fn(&Dot),
    /// [`super::skinny::stream`].
    pub stream: unsafe fn(&Stream),
    /// [`super::fir::weighted`].
    pub fir: unsafe fn(&Fir<'_>),
    /// `strips[m - 1][v - 1]` is [`super::strip::strip`] of `m` rows and `v` vectors.
    pub strips: &'static [&'static [StripKernel]],
    /// `planars[s - 1][v - 1]` is [`super::planar::planar`] of `v` vectors and the step `s`.
    pub planars: [&'static [PlanarKernel]; super::planar::PLANAR_STEPS],
    /// [`super::gather::gather`] of fp32.
    pub gather: GatherKernel,
    /// The same of fp16.
    pub gather_f16: GatherKernel,
    /// [`super::taps::taps`] of fp32.
    pub taps: TapsKernel,
    /// The same of fp16.
    pub taps_f16: TapsKernel,
    /// [`super::taps::padded`] of fp32.
    pub padded: PaddedKernel,
    /// The same of fp16.
    pub padded_f16: PaddedKernel,
    /// [`super::winograd::tile_pixels`] of fp32.
    pub tile_pixels: TilePixelsKernel,
    /// The same of fp16.
    pub tile_pixels_f16: TilePixelsKernel,
    /// [`super::winograd::tile_sums`].
    pub tile_sums: TileSumsKernel,
    /// Kernels for panels of fp16 columns, if the set widens them at no cost.
    pub halves: Option<Halves>,
}

/// Kernels for panels of columns that hold fp16: half the memory, and packing converts nothing.
///
/// # Safety
/// As of [`Kernels`].
pub(super) struct Halves {
    /// As [`Kernels::tiles`].
    pub tiles: &'static [&'static [Tile]],
    /// [`super::halves::pack`].
    pub pack: unsafe fn(Pack),
}

/// The form of the packed panels of a product, and the tiles that read them.
///
/// # Safety
/// As of [`Kernels`].
#[derive(Clone, Copy)]
pub(super) struct PanelFormat {
    /// The most rows of a tile (MR).
    pub rows: usize,
    /// Columns of a tile (NR).
    pub cols: usize,
    /// Columns of a vector.
    pub lanes: usize,
    /// As [`Kernels::tiles`].
    pub tiles: &'static [&'static [Tile]],
    /// How rows and columns are packed.
    pub pack: [unsafe fn(Pack); 2],
    /// Bytes of `unit` elements of a panel of rows, and of one of columns.
    pub bytes: [usize; 2],
    /// Elements that a panel holds together.
    pub unit: usize,
    /// Blocks along K are multiples of it, except for the last one if `unit` is 1.
    pub step: usize,
}

impl PanelFormat {
    /// Bytes of elements of a panel, which are whole units.
    pub fn place(&self, side: usize, elements: usize) -> usize {
        (elements / self.unit).saturating_mul(self.bytes[side])
    }
}

impl Kernels {
    /// Rows of a [planar](super::planar) tile of so many columns, whole vectors.
    pub fn planar_rows(&self, columns: usize) -> usize {
        if columns > self.lanes { self.rows } else { self.tall }
    }

    /// The panels for columns of this type: fp32, or fp16 for columns that the tiles widen.
    pub fn format(&self, columns: ElementType) -> PanelFormat {
        let halves = self.halves.as_ref().filter(|_| columns == ElementType::F16);
        PanelFormat {
            rows: self.rows,
            cols: self.cols,
            lanes: self.lanes,
            tiles: halves.map_or(self.tiles, |halves| halves.tiles),
            pack: [self.pack, halves.map_or(self.pack, |halves| halves.pack)],
            bytes: [size_of::<f32>(), if halves.is_some() { size_of::<half::f16>() } else { size_of::<f32>() }],
            unit: 1,
            step: 8,
        }
    }

    /// The panels of fp16 factors in block floating point, if the processor has the kernels.
    pub fn blocks(&self) -> Option<PanelFormat> {
        #[cfg(target_arch = "x86_64")]
        if std::ptr::eq(self, &avx2::KERNELS) {
            return Some(super::bfp::AVX2);
        } else if std::ptr::eq(self, &avx512::KERNELS) && super::bfp::has_avx512_vnni() {
            return Some(super::bfp::AVX512);
        }
        None
    }
}

impl PanelBlock<'_> {
    /// Computes the tiles of these panels of rows and of panel `j` of columns. `ahead(n)` is what
    /// the `n`-th of them prefetches.
    ///
    /// # Safety
    /// The processor supports the instruction set of the kernels, the panels are packed for them,
    /// and no other thread accesses the sums and results of the tiles during the call.
    pub unsafe fn run(
        &self,
        format: &PanelFormat,
        rows: std::ops::Range<usize>,
        j: usize,
        ahead: impl Fn(usize) -> Prefetch,
    ) {
        let width = format.cols.min(self.size.1 - j * format.cols);
        let vectors = width.div_ceil(format.lanes);
        for (done, i) in rows.enumerate() {
            let height = self.height.min(self.size.0 - i * self.height);
            // SAFETY: the caller guarantees it.
            unsafe { self.tiles[height - 1][vectors - 1](self, Spot { i, j, ahead: ahead(done) }) }
        }
    }
}

/// Compiles the kernels of a set.
macro_rules! kernels {
    (@row $column:ty, 2, $m:literal) => { &[tile::<$column, $m, 1>, tile::<$column, $m, 2>] };
    (@row $column:ty, 3, $m:literal) => { &[tile::<$column, $m, 1>, tile::<$column, $m, 2>, tile::<$column, $m, 3>] };
    (@strips 2, $m:literal) => { &[strip::<$m, 1>, strip::<$m, 2>] };
    (@strips 3, $m:literal) => { &[strip::<$m, 1>, strip::<$m, 2>, strip::<$m, 3>] };
    (@planars 2, $s:literal) => { &[planar::<TALL, 1, $s>, planar::<ROWS, 2, $s>] };
    (@planars 3, $s:literal) => { &[planar::<TALL, 1, $s>, planar::<ROWS, 2, $s>, planar::<ROWS, 3, $s>] };
    (@halves $simd:ty, [$($m:literal)*] x $v:tt, $(#[$features:meta])? ) => { None };
    (@halves $simd:ty, [$($m:literal)*] x $v:tt, $(#[$features:meta])? halves) => {{
        $(#[$features])?
        unsafe fn pack(job: $crate::gemm::pack::Pack) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::halves::pack::<$simd>(job) }
        }
        Some($crate::gemm::isa::Halves {
            tiles: &[$($crate::gemm::isa::kernels!(@row half::f16, $v, $m)),*],
            pack,
        })
    }};
    ($name:literal, $simd:ty, [$($m:literal)*] x $v:tt $(, #[$features:meta])? $(; $halves:ident)?) => {
        $(#[$features])?
        unsafe fn tile<C: $crate::gemm::vector::Element, const M: usize, const N: usize>(
            block: &$crate::gemm::tile::PanelBlock<'_>,
            spot: $crate::gemm::tile::Spot,
        ) {
            let full = $v * <$simd as $crate::gemm::vector::Simd>::LANES;
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::tile::tile::<$simd, C, M, N>(block, spot, full) }
        }
        $(#[$features])?
        unsafe fn pack(job: $crate::gemm::pack::Pack) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::pack::pack::<$simd>(job) }
        }
        $(#[$features])?
        unsafe fn dot(job: &$crate::gemm::skinny::Dot) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::skinny::dot::<$simd>(job) }
        }
        $(#[$features])?
        unsafe fn stream(job: &$crate::gemm::skinny::Stream) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::skinny::stream::<$simd>(job) }
        }
        $(#[$features])?
        unsafe fn fir(job: &$crate::gemm::fir::Fir<'_>) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::fir::weighted::<$simd>(job) }
        }
        $(#[$features])?
        unsafe fn strip<const M: usize, const N: usize>(job: &$crate::gemm::strip::Strip<'_>) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::strip::strip::<$simd, M, N>(job) }
        }
        $(#[$features])?
        unsafe fn planar<const M: usize, const N: usize, const STEP: usize>(job: &$crate::gemm::planar::Planar<'_>) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::planar::planar::<$simd, M, N, STEP>(job) }
        }
        $(#[$features])?
        unsafe fn gather<C: $crate::gemm::vector::Element>(
            job: &$crate::gemm::gather::Gather<'_>,
            pixels: *const u8,
            first: usize,
            count: usize,
            to: *mut f32,
        ) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::gather::gather::<$simd, C>(job, pixels, first, count, to) }
        }
        $(#[$features])?
        unsafe fn taps<C: $crate::gemm::vector::Element>(job: &$crate::gemm::taps::Taps<'_>, from: *const u8) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::taps::taps::<$simd, C>(job, from) }
        }
        $(#[$features])?
        unsafe fn padded<C: $crate::gemm::vector::Element>(
            job: &$crate::gemm::taps::PaddedTaps<'_>,
            from: *const u8,
            copy: *const f32,
        ) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::taps::padded::<$simd, C>(job, from, copy) }
        }
        $(#[$features])?
        unsafe fn tile_pixels<C: $crate::gemm::vector::Element>(
            job: &$crate::gemm::winograd::TilePixels<'_>,
            pixels: *const u8,
        ) -> bool {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::winograd::tile_pixels::<$simd, C>(job, pixels) }
        }
        $(#[$features])?
        unsafe fn tile_sums(job: &$crate::gemm::winograd::TileSums<'_>) {
            // SAFETY: the caller guarantees it.
            unsafe { $crate::gemm::winograd::tile_sums::<$simd>(job) }
        }
        const ROWS: usize = [$($m),*].len();
        const TALL: usize = $crate::gemm::planar::tall::<$simd>(ROWS);
        /// The kernels of this set.
        pub(in crate::gemm) static KERNELS: $crate::gemm::isa::Kernels = $crate::gemm::isa::Kernels {
            name: $name,
            lanes: <$simd as $crate::gemm::vector::Simd>::LANES,
            rows: ROWS,
            tall: TALL,
            cols: $v * <$simd as $crate::gemm::vector::Simd>::LANES,
            tiles: &[$($crate::gemm::isa::kernels!(@row f32, $v, $m)),*],
            pack,
            dot,
            stream,
            fir,
            strips: &[$($crate::gemm::isa::kernels!(@strips $v, $m)),*],
            planars: [$crate::gemm::isa::kernels!(@planars $v, 1), $crate::gemm::isa::kernels!(@planars $v, 2)],
            gather: gather::<f32>,
            gather_f16: gather::<half::f16>,
            taps: taps::<f32>,
            taps_f16: taps::<half::f16>,
            padded: padded::<f32>,
            padded_f16: padded::<half::f16>,
            tile_pixels: tile_pixels::<f32>,
            tile_pixels_f16: tile_pixels::<half::f16>,
            tile_sums,
            halves: $crate::gemm::isa::kernels!(@halves $simd, [$($m)*] x $v, $(#[$features])? $($halves)?),
        };
    };
}
use kernels;

/// The kernels of the best set that this processor supports.
pub(super) fn best() -> &'static Kernels {
    // Every tile asks, and the answer takes as long as some of its products.
    static BEST: OnceLock<&Kernels> = OnceLock::new();
    BEST.get_or_init(detected)
}

fn detected() -> &'static Kernels {
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
pub(super) fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") && has_avx2()
}

#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("fma") && has!("f16c")
}

/// The kernels of every set that this processor supports.
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
