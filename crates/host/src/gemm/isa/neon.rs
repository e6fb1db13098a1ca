//! NEON: 4 lanes. Every AArch64 processor has the fp16 conversions.
#![allow(unsafe_op_in_unsafe_fn)] // Each body is one such operation; the trait states the requirements.

use std::arch::aarch64::*;
use std::arch::asm;

use half::f16;

use super::kernels;
use crate::gemm::vector::Simd;

#[derive(Clone, Copy)]
pub(super) struct Neon;

#[inline(always)]
unsafe fn widen(bits: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: reads and writes registers only.
    asm!("fcvtl {o:v}.4s, {i:v}.4h", o = lateout(vreg) wide, i = in(vreg) bits, options(pure, nomem, nostack));
    wide
}

#[inline(always)]
unsafe fn narrow(v: float32x4_t) -> uint16x4_t {
    let bits: uint16x4_t;
    // SAFETY: reads and writes registers only. Rounds to nearest even, the mode of Rust programs.
    asm!("fcvtn {o:v}.4h, {i:v}.4s", o = lateout(vreg) bits, i = in(vreg) v, options(pure, nomem, nostack));
    bits
}

impl Simd for Neon {
    type V = float32x4_t;
    type Rows = [float32x4_t; 4];
    const LANES: usize = 4;
    const REGISTERS: usize = 32;

    #[inline(always)]
    unsafe fn splat(x: f32) -> float32x4_t {
        vdupq_n_f32(x)
    }
    #[inline(always)]
    unsafe fn zeros() -> [float32x4_t; 4] {
        [vdupq_n_f32(0.0); 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> float32x4_t {
        vld1q_f32(from)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: float32x4_t) {
        vst1q_f32(to, v)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> float32x4_t {
        widen(vld1_u16(from.cast()))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> float32x4_t {
        let bytes = vreinterpret_s8_u32(vdup_n_u32(from.cast::<u32>().read_unaligned()));
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut f16, v: float32x4_t) {
        vst1_u16(to.cast(), narrow(v))
    }
    #[inline(always)]
    unsafe fn round(v: float32x4_t) -> float32x4_t {
        widen(narrow(v))
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vaddq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vmulq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        vfmaq_f32(c, a, b)
    }
    #[inline(always)]
    unsafe fn larger(best: float32x4_t, v: float32x4_t) -> float32x4_t {
        let taken = vorrq_u32(vcgtq_f32(v, best), vmvnq_u32(vceqq_f32(v, v)));
        vbslq_f32(taken, v, best)
    }
    #[inline(always)]
    unsafe fn at_least(low: float32x4_t, v: float32x4_t) -> float32x4_t {
        vbslq_f32(vcltq_f32(v, low), low, v)
    }
    #[inline(always)]
    unsafe fn at_most(high: float32x4_t, v: float32x4_t) -> float32x4_t {
        vbslq_f32(vcgtq_f32(v, high), high, v)
    }
    #[inline(always)]
    unsafe fn from(low: float32x4_t, v: float32x4_t) -> float32x4_t {
        vbslq_f32(vcgeq_f32(v, low), v, vdupq_n_f32(0.0))
    }
    #[inline(always)]
    unsafe fn sum(v: float32x4_t) -> f32 {
        vaddvq_f32(v)
    }
    #[inline(always)]
    unsafe fn sums(r: [float32x4_t; 4]) -> float32x4_t {
        vpaddq_f32(vpaddq_f32(r[0], r[1]), vpaddq_f32(r[2], r[3]))
    }
    #[inline(always)]
    unsafe fn transpose(r: [float32x4_t; 4]) -> [float32x4_t; 4] {
        let pair = |a, b| (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
        let ((e01, o01), (e23, o23)) = (pair(r[0], r[1]), pair(r[2], r[3]));
        [
            vreinterpretq_f32_f64(vtrn1q_f64(e01, e23)),
            vreinterpretq_f32_f64(vtrn1q_f64(o01, o23)),
            vreinterpretq_f32_f64(vtrn2q_f64(e01, e23)),
            vreinterpretq_f32_f64(vtrn2q_f64(o01, o23)),
        ]
    }
    #[inline(always)]
    unsafe fn step<const M: usize, const N: usize>(
        tile: &mut [[float32x4_t; N]; M],
        a: *const f32,
        row: [float32x4_t; N],
    ) {
        // Four factors come in one load and are selected by lane.
        let whole = M / 4 * 4;
        let mut i = 0;
        while i < whole {
            let x = vld1q_f32(a.add(i));
            for j in 0..N {
                tile[i][j] = vfmaq_laneq_f32::<0>(tile[i][j], row[j], x);
                tile[i + 1][j] = vfmaq_laneq_f32::<1>(tile[i + 1][j], row[j], x);
                tile[i + 2][j] = vfmaq_laneq_f32::<2>(tile[i + 2][j], row[j], x);
                tile[i + 3][j] = vfmaq_laneq_f32::<3>(tile[i + 3][j], row[j], x);
            }
            i += 4;
        }
        while i < M {
            for j in 0..N {
                tile[i][j] = vfmaq_n_f32(tile[i][j], row[j], *a.add(i));
            }
            i += 1;
        }
    }
}

kernels!("NEON", Neon, [1 2 3 4 5 6 7 8] x 3);
