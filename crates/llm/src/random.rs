//! Random numbers: re-exports [`ferrane_host::random`], and has the C library's `drand48`, from
//! which the reference trainer draws its initial weights.

pub use ferrane_host::random::{Rng, splitmix64};

/// The C library's `drand48`: the state is `X ← (0x5DEECE66D·X + 0xB) mod 2⁴⁸`, the value `X / 2⁴⁸`
/// (models.md §1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drand48 {
    x: u64,
}

impl Drand48 {
    /// `srand48(seed)`: the state becomes `(seed << 16) | 0x330E`.
    pub fn new(seed: u32) -> Self {
        Drand48 { x: (u64::from(seed) << 16) | 0x330E }
    }

    /// The next value in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        self.x = (self.x.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB)) & ((1 << 48) - 1);
        self.x as f64 / (1u64 << 48) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // `srand48(42)` and two `drand48()` of the C library.
        let mut c = Drand48::new(42);
        assert_eq!(c.uniform(), 0.744_525_000_061_006_6);
        assert_eq!(c.uniform(), 0.342_701_478_718_908);
    }
}
