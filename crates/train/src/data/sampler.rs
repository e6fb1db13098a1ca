//! Draws the positions of training windows.

use ferrane_llm::random::Rng;
use serde::{Deserialize, Serialize};

use super::{Position, Windows};

/// Draws window positions uniformly, from a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampler {
    rng: Rng,
    drawn: u64,
}

/// A sampler's state in a checkpoint. A sampler restored from it continues with the same draws.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerState {
    /// State of the random generator, four 64-bit words.
    pub rng: [u64; 4],
    /// Number of windows drawn so far.
    pub drawn: u64,
}

impl Sampler {
    /// A new sampler. Its random stream under `seed` is independent of the initialization's.
    pub fn new(seed: u64) -> Sampler {
        Sampler { rng: Rng::stream(seed, 0x7361_6d70_6c65), drawn: 0 }
    }

    /// Draws the next training window.
    pub fn draw(&mut self, windows: &Windows) -> Position {
        self.drawn += 1;
        windows.draw(&mut self.rng)
    }

    /// Number of windows drawn so far.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// The state that a checkpoint stores.
    pub fn state(&self) -> SamplerState {
        SamplerState { rng: self.rng.state(), drawn: self.drawn }
    }

    /// Restores a sampler from its state.
    pub fn from_state(state: &SamplerState) -> Sampler {
        Sampler { rng: Rng::from_state(state.rng), drawn: state.drawn }
    }
}
