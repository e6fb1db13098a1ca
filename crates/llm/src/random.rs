//! Random numbers: one small generator whose whole state is four words, and the C library's `drand48`.
//!
//! [`Rng`] is xoshiro256++ seeded through splitmix64, both published algorithms in the public domain. Its state is
//! a plain array, so a sampler can be stored in a checkpoint and continue with the same draws.

/// xoshiro256++.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of splitmix64: advances `state` and returns the next value.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// A generator whose state is filled from the seed by splitmix64.
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        Rng { state: std::array::from_fn(|_| splitmix64(&mut s)) }
    }

    /// An independent generator for one of many streams under the same seed.
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut s = stream;
        Rng::new(seed ^ splitmix64(&mut s))
    }

    /// The whole state.
    pub fn state(&self) -> [u64; 4] {
        self.state
    }

    /// Continues from a state that [`Rng::state`] returned. The all-zero state, from which the generator would never
    /// leave zero, is replaced by the state of seed 0.
    pub fn from_state(state: [u64; 4]) -> Self {
        if state == [0; 4] { Rng::new(0) } else { Rng { state } }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `[0, 1)`, with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..bound` without bias; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Lemire's method: the high word of a 128-bit product, redrawn in the short remainder that would be biased.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Two independent standard normal values (Box–Muller).
    pub fn normal_pair(&mut self) -> (f64, f64) {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        (radius * cos, radius * sin)
    }
}

/// The C library's `drand48`: `X ← (0x5DEECE66D·X + 0xB) mod 2⁴⁸`, value `X / 2⁴⁸` (models.md §1).
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
        // splitmix64 from state 0, and xoshiro256++ from the state 1, 2, 3, 4, as published with the algorithms.
        let mut s = 0;
        assert_eq!(splitmix64(&mut s), 0xE220_A839_7B1D_CDAF);
        let mut rng = Rng::from_state([1, 2, 3, 4]);
        assert_eq!([rng.next_u64(), rng.next_u64()], [41_943_041, 58_720_359]);
        // `srand48(42)` and two `drand48()` of the C library.
        let mut c = Drand48::new(42);
        assert_eq!(c.uniform(), 0.744_525_000_061_006_64);
        assert_eq!(c.uniform(), 0.342_701_478_718_907_99);
    }

    #[test]
    fn a_stored_state_continues() {
        let mut a = Rng::new(7);
        a.next_u64();
        let mut b = Rng::from_state(a.state());
        assert_eq!((0..9).map(|_| a.next_u64()).collect::<Vec<_>>(), (0..9).map(|_| b.next_u64()).collect::<Vec<_>>());
        assert_ne!(Rng::stream(7, 0), Rng::stream(7, 1));
    }

    #[test]
    fn distributions() {
        let mut rng = Rng::new(1);
        let n = 100_000;
        let (mut sum, mut square) = (0.0, 0.0);
        for _ in 0..n / 2 {
            let (a, b) = rng.normal_pair();
            sum += a + b;
            square += a * a + b * b;
        }
        // Five standard errors of the mean (1/√n) and of the variance (√(2/n)).
        let n = f64::from(n);
        assert!((sum / n).abs() < 5.0 / n.sqrt());
        assert!((square / n - 1.0).abs() < 5.0 * (2.0 / n).sqrt());
        let mut counts = [0u32; 5];
        (0..50_000).for_each(|_| counts[rng.below(5) as usize] += 1);
        // Each is binomial with mean 10000 and standard deviation 89.
        assert!(counts.iter().all(|c| c.abs_diff(10_000) < 450), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }
}
