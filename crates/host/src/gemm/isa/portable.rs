//! Portable Rust: 4 lanes, vectorized as far as the compiler can.
//!
//! No fused multiply-add: on a processor without one it would be a library call for each element.
#![allow(unsafe_op_in_unsafe_fn)] // Each body is one such operation; the trait states the requirements.

use half::f16;

use super::kernels;
use crate::gemm::vector::Simd;

#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Simd for Portable {
    type V = [f32; 4];
    type Rows = [[f32; 4]; 4];
    const LANES: usize = 4;
    const REGISTERS: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn zeros() -> [[f32; 4]; 4] {
        [[0.0; 4]; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        from.cast::<[f32; 4]>().read()
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: [f32; 4]) {
        to.cast::<[f32; 4]>().write(v)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> [f32; 4] {
        from.cast::<[f16; 4]>().read().map(f16::to_f32)
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> [f32; 4] {
        from.cast::<[i8; 4]>().read().map(f32::from)
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut f16, v: [f32; 4]) {
        to.cast::<[f16; 4]>().write(v.map(f16::from_f32))
    }
    #[inline(always)]
    unsafe fn round(v: [f32; 4]) -> [f32; 4] {
        v.map(|x| f16::from_f32(x).to_f32())
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        [a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]]
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        Self::add(Self::mul(a, b), c)
    }
    #[inline(always)]
    unsafe fn larger(best: [f32; 4], v: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if v[i] > best[i] || v[i].is_nan() { v[i] } else { best[i] })
    }
    #[inline(always)]
    unsafe fn at_least(low: [f32; 4], v: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if v[i] < low[i] { low[i] } else { v[i] })
    }
    #[inline(always)]
    unsafe fn at_most(high: [f32; 4], v: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if v[i] > high[i] { high[i] } else { v[i] })
    }
    #[inline(always)]
    unsafe fn from(low: [f32; 4], v: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if v[i] >= low[i] { v[i] } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn sum(v: [f32; 4]) -> f32 {
        (v[0] + v[2]) + (v[1] + v[3])
    }
    #[inline(always)]
    unsafe fn sums(r: [[f32; 4]; 4]) -> [f32; 4] {
        let r = Self::transpose(r);
        Self::add(Self::add(r[0], r[2]), Self::add(r[1], r[3]))
    }
    #[inline(always)]
    unsafe fn transpose(r: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
        let mut out = r;
        for (i, row) in r.iter().enumerate() {
            for (j, x) in row.iter().enumerate() {
                out[j][i] = *x;
            }
        }
        out
    }
}

kernels!("portable", Portable, [1 2 3 4] x 2);
