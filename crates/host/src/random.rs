//! Random numbers: one small generator whose whole state is four words.
//!
//! [`Rng`] is xoshiro256++ seeded through splitmix64, both published algorithms in the public
//! domain. Its state is a plain array, so a sampler can be stored in a checkpoint and continue with
//! the same draws.

use std::sync::LazyLock;

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

    /// The state, four words: all that [`Rng::from_state`] needs to continue.
    pub fn state(&self) -> [u64; 4] {
        self.state
    }

    /// Continues from a state that [`Rng::state`] returned. The all-zero state, from which the
    /// generator would never leave zero, is replaced by the state of seed 0.
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
        // Lemire's method: the high word of a 128-bit product, redrawn in the short remainder that
        // would be biased.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A standard normal value (the ziggurat of Marsaglia and Tsang with 256 strips: one draw and
    /// one product in 99 of 100 cases, so a model of 600 million values takes seconds).
    pub fn normal(&mut self) -> f64 {
        loop {
            let bits = self.next_u64();
            let strip = (bits & 255) as usize;
            // The upper 53 bits, as a value in (-1, 1); the strip's bits lie below them.
            let u = ((bits >> 11) as f64 + 0.5) * (2.0 / (1u64 << 53) as f64) - 1.0;
            let x = u * ZIGGURAT.x[strip];
            if x.abs() < ZIGGURAT.x[strip + 1] {
                return x;
            }
            if strip == 0 {
                return self.normal_tail(x < 0.0);
            }
            let (low, high) = (ZIGGURAT.density[strip], ZIGGURAT.density[strip + 1]);
            if low + (high - low) * self.uniform() < density(x) {
                return x;
            }
        }
    }

    /// A normal value beyond the ziggurat's lowest strip (Marsaglia's method).
    fn normal_tail(&mut self, negative: bool) -> f64 {
        loop {
            let x = -(1.0 - self.uniform()).ln() / ZIGGURAT_START;
            let y = -(1.0 - self.uniform()).ln();
            if 2.0 * y > x * x {
                return if negative { -ZIGGURAT_START - x } else { ZIGGURAT_START + x };
            }
        }
    }
}

/// Where the ziggurat's lowest strip ends, and the area of each of its 256 strips under
/// `exp(-x²/2)`.
const ZIGGURAT_START: f64 = 3.654_152_885_361_009;
const ZIGGURAT_AREA: f64 = 0.004_928_673_233_974_655;

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(Ziggurat::new);

/// Right ends of the strips, lowest first, and the density there.
struct Ziggurat {
    x: [f64; 257],
    density: [f64; 257],
}

impl Ziggurat {
    fn new() -> Self {
        let mut x = [0.0; 257];
        x[0] = ZIGGURAT_AREA / density(ZIGGURAT_START);
        x[1] = ZIGGURAT_START;
        for i in 2..256 {
            x[i] = (-2.0 * (ZIGGURAT_AREA / x[i - 1] + density(x[i - 1])).ln()).sqrt();
        }
        Ziggurat { x, density: x.map(density) }
    }
}

/// The normal density, up to its factor.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // splitmix64 from state 0, and xoshiro256++ from the state 1, 2, 3, 4, as published with
        // the algorithms.
        let mut s = 0;
        assert_eq!(splitmix64(&mut s), 0xE220_A839_7B1D_CDAF);
        let mut rng = Rng::from_state([1, 2, 3, 4]);
        assert_eq!([rng.next_u64(), rng.next_u64()], [41_943_041, 58_720_359]);
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
        let mut counts = [0u32; 5];
        (0..50_000).for_each(|_| counts[rng.below(5) as usize] += 1);
        // Each is binomial with mean 10000 and standard deviation 89.
        assert!(counts.iter().all(|c| c.abs_diff(10_000) < 450), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn normal_values() {
        // The strips close at the top: the last one reaches the density's peak.
        let top = ZIGGURAT.density[255] + ZIGGURAT_AREA / ZIGGURAT.x[255];
        assert!((top - 1.0).abs() < 1e-9, "{top}");
        let mut rng = Rng::new(2);
        let n = 2_000_000;
        let (mut mean, mut square, mut fourth) = (0.0, 0.0, 0.0);
        // Probabilities of the standard normal distribution up to these values (tables of the error
        // function).
        let known =
            [(-3.7, 1.078e-4), (-2.0, 0.022_750), (-0.3, 0.382_089), (0.0, 0.5), (1.0, 0.841_345), (3.7, 0.999_892_2)];
        let mut below = [0u32; 6];
        for _ in 0..n {
            let x = rng.normal();
            mean += x;
            square += x * x;
            fourth += x.powi(4);
            for (count, (limit, _)) in below.iter_mut().zip(known) {
                *count += u32::from(x < limit);
            }
        }
        let n = f64::from(n);
        // Five standard errors of each: of the moments √(1/n), √(2/n), √(96/n), of a count
        // √(p(1-p)/n).
        assert!((mean / n).abs() < 5.0 / n.sqrt(), "{}", mean / n);
        assert!((square / n - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{}", square / n);
        assert!((fourth / n - 3.0).abs() < 5.0 * (96.0 / n).sqrt(), "{}", fourth / n);
        for (count, (limit, p)) in below.into_iter().zip(known) {
            let found = f64::from(count) / n;
            assert!((found - p).abs() < 5.0 * (p * (1.0 - p) / n).sqrt(), "below {limit}: {found}, expected {p}");
        }
    }
}
